//! Reports in the form of KCIDB, the kernel community's result database:
//! checkouts, builds and tests of schema 5.3
//! (<https://github.com/kernelci/kcidb-io>). Nothing is submitted.

use serde_json::{Value, json};

use crate::model::{Cell, Failure, Results, Sample, Stage};

const MAJOR: u32 = 5;
const MINOR: u32 = 3;

/// What a report says of the run beside its results.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// Name of the CI system; it comes before every identifier.
    pub origin: &'a str,
    /// What tells this run from every other of that system.
    pub id: &'a str,
    /// When it began, in RFC 3339.
    pub began: &'a str,
}

/// Writes the results: a build and its boot for each cell, and a test for each
/// metric of its benchmarks, with status `DONE` as measurements have neither
/// passed nor failed.
///
/// # Errors
/// None that is known; serialising JSON can fail in principle.
pub fn render(results: &Results, run: Run<'_>) -> serde_json::Result<String> {
    let cells = &results.matrix.cells;
    let report = json!({
        "version": { "major": MAJOR, "minor": MINOR },
        "checkouts": [{
            "id": id(run, "checkout"),
            "origin": run.origin,
            "start_time": run.began,
            "comment": format!("{:?}", results.matrix.source),
        }],
        "builds": cells.iter().map(|c| build(results, run, c)).collect::<Vec<_>>(),
        "tests": cells.iter().flat_map(|c| tests(results, run, c)).collect::<Vec<_>>(),
    });
    Ok(serde_json::to_string_pretty(&report)? + "\n")
}

fn id(run: Run<'_>, what: &str) -> String {
    format!("{}:{}-{what}", run.origin, run.id)
}

fn failures<'r>(results: &'r Results, cell: &Cell) -> &'r [Failure] {
    results.failures.get(&cell.id).map_or(&[], Vec::as_slice)
}

/// Whether there is no kernel because of the failure; what is measured on a
/// kernel can fail before it boots, too.
fn of_build(failure: &Failure) -> bool {
    failure.stage <= Stage::Build && failure.benchmark.is_none()
}

fn build(results: &Results, run: Run<'_>, cell: &Cell) -> Value {
    let failed = failures(results, cell).iter().find(|f| of_build(f));
    let sizes = of_cell(results, cell).filter(|s| s.boot.is_none());
    let sizes: serde_json::Map<String, Value> = sizes.map(|s| (s.metric.clone(), json!(s.value))).collect();
    let status = match failed {
        Some(failure) if failure.stage == Stage::Source => "MISS",
        Some(_) => "FAIL",
        None if sizes.is_empty() => "SKIP",
        None => "PASS",
    };
    let mut build = json!({
        "id": id(run, &cell.id.0),
        "origin": run.origin,
        "checkout_id": id(run, "checkout"),
        "architecture": cell.arch,
        "config_name": cell.id.0,
        "status": status,
        "misc": { "coordinates": cell.coords, "sizes": sizes },
    });
    if let Some(failure) = failed {
        build["comment"] = json!(format!("{}: {}", failure.what, failure.detail));
    }
    build
}

fn of_cell<'r>(results: &'r Results, cell: &Cell) -> impl Iterator<Item = &'r Sample> {
    let cell = cell.id.clone();
    results.samples.iter().filter(move |s| s.cell == cell)
}

fn tests(results: &Results, run: Run<'_>, cell: &Cell) -> Vec<Value> {
    let test = |path: &str, status: &str| {
        json!({
            "id": id(run, &format!("{}-{path}", cell.id)),
            "origin": run.origin,
            "build_id": id(run, &cell.id.0),
            "path": path,
            "status": status,
        })
    };
    let mut tests = Vec::new();
    let mut metrics: indexmap::IndexMap<&str, Vec<&Sample>> = indexmap::IndexMap::new();
    for sample in of_cell(results, cell).filter(|s| s.boot.is_some()) {
        metrics.entry(&sample.metric).or_default().push(sample);
    }
    for failure in failures(results, cell).iter().filter(|f| !of_build(f)) {
        let path = match (&failure.benchmark, failure.stage) {
            (None, _) => "boot".to_owned(),
            (Some(name), Stage::Benchmark) => format!("benchmark.{name}"),
            (Some(family), _) => family.clone(),
        };
        let status = if failure.stage == Stage::Boot { "FAIL" } else { "ERROR" };
        let mut test = test(&path, status);
        test["id"] = json!(format!("{}-{}", test["id"].as_str().unwrap_or_default(), tests.len()));
        test["comment"] = json!(format!("{}: {}", failure.what, failure.detail));
        tests.push(test);
    }
    for (metric, samples) in metrics {
        let mut test = test(metric, "DONE");
        test["misc"] = json!({
            "unit": samples[0].unit,
            "kind": samples[0].kind.label(),
            "values": samples.iter().map(|s| s.value).collect::<Vec<_>>(),
        });
        tests.push(test);
    }
    tests
}
