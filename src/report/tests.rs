//! Tables of made-up results: arch × NR_CPUS × OFFSTACK, the largest kernel
//! of riscv64 without the mask off stack excluded.

use std::collections::BTreeMap;

use indexmap::IndexMap;

use super::{Field, Format, Table, render, tables};
use crate::model::{
    Axis, Benchmark, Boot, Cell, CellId, Derived, Direction, Failure, Kernel, Kind, Layout, ListColumn,
    Matrix, Metric, Results, Rows, Sample, Sign, Source, Stage, Statistic, TableSpec, Unpaired,
};

mod significance;

fn axis(name: &str, values: &[&str], labels: &[(&str, &str)]) -> Axis {
    let labels = labels.iter().map(|(v, l)| (v.to_string(), l.to_string()));
    Axis {
        name: name.into(),
        values: values.iter().map(|v| v.to_string()).collect(),
        labels: labels.collect(),
    }
}

fn cell(coords: &[(&str, &str)]) -> Cell {
    let values: Vec<&str> = coords.iter().map(|(_, v)| *v).collect();
    Cell {
        id: CellId(values.join("-")),
        coords: coords.iter().map(|(a, v)| (a.to_string(), v.to_string())).collect(),
        arch: values[0].into(),
        config: BTreeMap::new(),
        settings: vec![],
    }
}

/// Cells are named like `riscv64-64-n`.
pub(super) fn results(layout: Layout) -> Results {
    let axes = vec![
        axis("arch", &["riscv64", "arm64"], &[]),
        axis("NR_CPUS", &["64", "512"], &[]),
        axis("OFFSTACK", &["n", "y"], &[("n", "onstack"), ("y", "offstack")]),
    ];
    let mut cells = Vec::new();
    for arch in ["riscv64", "arm64"] {
        for cpus in ["64", "512"] {
            for offstack in ["n", "y"] {
                let coords = [("arch", arch), ("NR_CPUS", cpus), ("OFFSTACK", offstack)];
                cells.push(cell(&coords));
            }
        }
    }
    cells.retain(|c| c.id.0 != "riscv64-512-n");
    let time = Metric { unit: "s".into(), better: Direction::Lower };
    let spec = TableSpec {
        title: "a table".into(),
        filter: BTreeMap::from([("arch".into(), vec!["riscv64".into()])]),
        statistic: Statistic::Mean,
        decimals: None,
        significant: None,
        percent_decimals: 2,
        sign: Sign::Raw,
        test: Unpaired::Welch,
        interval: false,
        block: None,
        layout,
    };
    Results {
        matrix: Matrix {
            name: "made-up".into(),
            source: Source::Path("linux".into()),
            axes,
            cells,
            kernel: Kernel::plain(),
            boot: Boot::plain(),
            benchmarks: vec![Benchmark {
                name: "hackbench".into(),
                command: vec!["hackbench".into()],
                repeat: 2,
                timeout_s: 60,
                pattern: "Time: (?P<time>.*)".into(),
                metrics: IndexMap::from([("time".to_string(), time)]),
                packages: vec![],
                files: vec![],
                section: None,
                guest: crate::model::GuestNeeds::default(),
                console: None,
            }],
            tables: vec![spec],
        },
        samples: vec![],
        failures: BTreeMap::new(),
        frames: BTreeMap::new(),
    }
}

impl Results {
    fn sizes(mut self, metric: &str, values: &[(&str, f64)]) -> Self {
        self.samples.extend(values.iter().map(|(cell, value)| Sample {
            cell: CellId(cell.to_string()),
            metric: metric.into(),
            value: *value,
            unit: "bytes".into(),
            better: Direction::Lower,
            kind: Kind::Exact,
            boot: None,
            iteration: None,
        }));
        self
    }

    fn times(mut self, cell: &str, boot: u32, values: &[f64]) -> Self {
        let sample = |(n, value): (u32, &f64)| Sample {
            cell: CellId(cell.into()),
            metric: "hackbench.time".into(),
            value: *value,
            unit: "s".into(),
            better: Direction::Lower,
            kind: Kind::EmulatedWallClock,
            boot: Some(boot),
            iteration: Some(n),
        };
        self.samples.extend((1..).zip(values).map(sample));
        self
    }

    fn failed(mut self, cell: &str, stage: Stage, what: &str, detail: &str) -> Self {
        let failures = self.failures.entry(CellId(cell.into())).or_default();
        failures.push(Failure {
            stage,
            what: what.into(),
            detail: detail.into(),
            boot: (stage >= Stage::Boot).then_some(2),
            benchmark: (stage == Stage::Benchmark).then(|| "hackbench".into()),
        });
        self
    }

    fn spec(mut self, change: impl FnOnce(&mut TableSpec)) -> Self {
        change(&mut self.matrix.tables[0]);
        self
    }

    fn print(&self, format: Format) -> String {
        render(&tables(self), format)
    }
}

fn pivot(metric: &str, derived: &[Derived]) -> Layout {
    Layout::Pivot {
        metric: metric.into(),
        columns: "NR_CPUS".into(),
        rows: "OFFSTACK".into(),
        derived: derived.to_vec(),
    }
}

fn list(columns: &[ListColumn]) -> Layout {
    Layout::List {
        columns: columns.to_vec(),
        row: "{arch} {NR_CPUS} {OFFSTACK}".parse().unwrap(),
        baseline: BTreeMap::new(),
        mark_baseline: false,
    }
}

fn metric(name: &str) -> ListColumn {
    ListColumn::Metric(name.into())
}

fn difference(names: &[&str]) -> ListColumn {
    ListColumn::Difference(names.iter().map(|n| n.to_string()).collect())
}

fn body(table: &Table) -> Vec<Vec<String>> {
    let row = |row: &Vec<Field>| row.iter().map(|f| f.text().into_owned()).collect();
    table.rows.iter().map(row).collect()
}

fn titles(table: &Table) -> Vec<&str> {
    table.header.iter().map(|c| c.title.as_str()).collect()
}

/// A panic in the second boot of one cell, good samples from its first.
fn with_panic() -> Results {
    results(pivot("hackbench.time", &[Derived::Difference]))
        .times("riscv64-64-n", 1, &[4.0, 6.0])
        .times("riscv64-64-y", 1, &[5.0, 5.5])
        .times("riscv64-512-y", 1, &[7.0])
        .failed("riscv64-512-y", Stage::Boot, "panic", "Kernel panic: no init\nlog: console.log")
}

#[test]
fn failed_cell_in_text() {
    assert_eq!(
        with_panic().print(Format::Text),
        "\
a table

NR_CPUS          64            512
onstack/s    5.0000              -
offstack/s   5.2500  FAILED(panic)
difference  ?+5.00%            n/a

emulated wall clock (QEMU TCG): not a measure of real hardware
mean of 2 runs in 1 boot; spread (standard deviation) up to 28.28% of the
mean
riscv64-512-y: failed at boot, boot 2: Kernel panic: no init
-: not in the matrix
?: too few boots to tell difference from chance (2 a side are needed)
"
    );
}

#[test]
fn failed_cell_in_markdown() {
    let text = with_panic().print(Format::Markdown);
    assert!(text.starts_with("**a table**\n\n| NR_CPUS | 64 | 512 |\n| :--- | ---: | ---: |\n"));
    assert!(text.contains("| offstack/s | 5.2500 | FAILED(panic) |\n"));
    assert!(text.contains("\n- riscv64-512-y: failed at boot, boot 2: Kernel panic: no init\n"));
}

#[test]
fn failed_cell_in_csv() {
    let text = with_panic().print(Format::Csv);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "table,block,row,column,text,value,unit,metric,statistic,kind,n,cell,boots,low,high,significance"
    );
    assert_eq!(
        lines[3],
        "a table,,offstack/s,64,5.2500,5.25,s,hackbench.time,mean,emulated wall clock,2,riscv64-64-y,1,,,"
    );
    assert_eq!(lines[4], "a table,,offstack/s,512,FAILED(panic),,,,,,,riscv64-512-y,,,,");
    assert_eq!(lines[5], "a table,,difference,64,?+5.00%,5,%,,,,,,,,,untested");
    assert_eq!(lines.len(), 7);
}

#[test]
fn failed_cell_in_json() {
    let text = with_panic().print(Format::Json);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let rows = &json[0]["rows"];
    let failed = &rows[1][2];
    assert!(failed["value"].is_null());
    assert_eq!(failed["failed"], "panic");
    assert_eq!(failed["cell"], "riscv64-512-y");
    let good = &rows[1][1];
    assert_eq!((&good["value"], &good["text"]), (&5.25.into(), &"5.2500".into()));
    assert_eq!((&good["unit"], &good["n"]), (&"s".into(), &2.into()));
    assert_eq!((&good["kind"], &good["boots"]), (&"emulated-wall-clock".into(), &1.into()));
    assert_eq!(rows[0][0], serde_json::json!({ "text": "onstack/s" }));
    assert_eq!(rows[2][2], serde_json::json!({ "value": null, "text": "n/a" }));
    assert_eq!(json[0]["columns"][2], "512");
    assert_eq!(json[0]["footnotes"][3], "-: not in the matrix");
}

#[test]
fn sizes_outlive_failed_boots_but_not_failed_builds() {
    let sizes = || {
        results(pivot("vmlinux.file", &[]))
            .sizes("vmlinux.file", &[("riscv64-64-n", 100.0), ("riscv64-64-y", 110.0)])
    };
    let value = |results: &Results| body(&tables(results)[0])[0][1].clone();
    let boot = sizes().failed("riscv64-64-n", Stage::Boot, "panic", "");
    let benchmark = sizes().failed("riscv64-64-n", Stage::Benchmark, "timeout", "");
    let build = sizes().failed("riscv64-64-n", Stage::Build, "compile error", "cc: no");
    assert_eq!([value(&boot), value(&benchmark)], ["100", "100"]);
    assert_eq!(value(&build), "FAILED(compile error)");
    assert_eq!(tables(&build)[0].footnotes[1], "riscv64-64-n: failed at build: cc: no");
}

#[test]
fn one_benchmarks_failure_leaves_the_others() {
    let mut results = results(list(&[metric("hackbench.time"), metric("hackbench2.time")]))
        .spec(|s| {
            s.filter.insert("NR_CPUS".into(), vec!["64".into()]);
            s.filter.insert("OFFSTACK".into(), vec!["n".into()]);
        })
        .times("riscv64-64-n", 1, &[1.0, 1.0])
        .times("riscv64-64-n", 1, &[2.0, 2.0])
        .failed("riscv64-64-n", Stage::Benchmark, "timeout", "\n")
        .failed("riscv64-64-n", Stage::Benchmark, "timeout", "later");
    for sample in &mut results.samples[2..] {
        sample.metric = "hackbench2.time".into();
    }
    let table = &tables(&results)[0];
    assert_eq!(body(table), [["FAILED(timeout)", "2.0000"]]);
    // Both metrics are called `time`: the short name would not do.
    assert_eq!(titles(table), ["hackbench.time (s)", "hackbench2.time (s)"]);
    // A detail without any text is replaced by what failed.
    assert_eq!(
        table.footnotes.last().unwrap(),
        "riscv64-64-n: failed at benchmark hackbench, boot 2: timeout (and 1 more)"
    );
}

#[test]
fn cells_with_one_story_share_its_footnote() {
    let results = results(pivot("vmlinux.file", &[]))
        .failed("riscv64-64-n", Stage::Source, "fetch", "no network")
        .failed("riscv64-64-y", Stage::Source, "fetch", "no network");
    assert_eq!(tables(&results)[0].footnotes[0], "riscv64-64-n, riscv64-64-y: failed at source: no network");
}

#[test]
fn missing_and_excluded() {
    let results = results(pivot("hackbench.time", &[Derived::Ratio, Derived::IsSmaller]));
    let table = &tables(&results)[0];
    // The unit is known from the benchmark although nothing was measured.
    assert_eq!(
        body(table),
        [
            ["onstack/s", "missing", "-"],
            ["offstack/s", "missing", "missing"],
            ["ratio", "n/a", "n/a"],
            ["is_smaller", "n/a", "n/a"],
        ]
    );
    assert_eq!(table.footnotes, ["missing: not measured", "-: not in the matrix"]);
}

#[test]
fn derived_rows() {
    let derived = [Derived::Difference, Derived::Ratio, Derived::IsSmaller, Derived::Spread];
    let results = results(pivot("hackbench.time", &derived))
        .times("arm64-64-n", 1, &[9.0, 11.0])
        .times("arm64-64-y", 1, &[8.0])
        .times("arm64-512-n", 1, &[10.0, 10.0])
        .times("arm64-512-y", 1, &[10.0, 10.0])
        .times("arm64-512-y", 2, &[10.0, 10.0])
        .spec(|s| s.filter = BTreeMap::from([("arch".into(), vec!["arm64".into()])]));
    let table = &tables(&results)[0];
    assert_eq!(
        body(table)[2..],
        [
            ["difference", "?-20.00%", "?0.00%"],
            ["ratio", "?0.8000", "?1.0000"],
            ["is_smaller", "?y", "?n"],
            ["spread onstack", "14.14%", "0.00%"],
            ["spread offstack", "n/a", "0.00%"],
        ]
    );
    assert_eq!(
        table.footnotes[1],
        "mean of 1-4 runs in 1-2 boots; \
         spread (standard deviation) up to 14.14% of the mean, unknown for one run; \
         95% interval over boots up to ±0.00% of the mean, unknown where boots are too few"
    );
}

#[test]
fn derived_rows_of_more_than_two() {
    let layout = Layout::Pivot {
        metric: "vmlinux.file".into(),
        columns: "OFFSTACK".into(),
        rows: "NR_CPUS".into(),
        derived: vec![Derived::Difference],
    };
    let mut results = results(layout)
        .sizes("vmlinux.file", &[("arm64-64-n", 1000.0), ("arm64-512-n", 1010.0), ("arm64-x-n", 990.0)]);
    // An included cell with a value that is not on the axis.
    let coords = [("arch", "arm64"), ("NR_CPUS", "x"), ("OFFSTACK", "n")];
    results.matrix.cells.push(cell(&coords));
    let results = results.spec(|s| s.filter = BTreeMap::from([("arch".into(), vec!["arm64".into()])]));
    assert_eq!(
        body(&tables(&results)[0])[2..],
        [["x", "990", "-"], ["difference 512", "+1.00%", "n/a"], ["difference x", "-1.00%", "n/a"],]
    );
}

#[test]
fn one_block_for_each_left_over_value() {
    let results = results(pivot("vmlinux.file", &[])).spec(|s| s.filter.clear());
    let blocks: Vec<_> = tables(&results).into_iter().map(|t| t.block).collect();
    assert_eq!(blocks, [Some("arch riscv64".to_string()), Some("arch arm64".to_string())]);
    let text = results.print(Format::Text);
    assert!(text.starts_with("a table\narch riscv64\n\nNR_CPUS        64      512\n"));
    assert!(text.contains("\n\na table\narch arm64\n\nNR_CPUS"));
}

/// NR_CPUS down, OFFSTACK across.
fn compare(metric: &str) -> Layout {
    let label = "{NR_CPUS}-cpus".parse().unwrap();
    let rows = Rows::Axis { axis: "NR_CPUS".into(), metric: metric.into(), label };
    Layout::Compare { columns: "OFFSTACK".into(), rows, geometric_mean: true }
}

/// Metrics down, OFFSTACK across.
fn compare_metrics(metrics: &[(&str, Option<&str>)]) -> Layout {
    let rows = metrics.iter().map(|(m, label)| (m.to_string(), label.map(str::to_string)));
    let rows = Rows::Metrics(rows.collect());
    Layout::Compare { columns: "OFFSTACK".into(), rows, geometric_mean: true }
}

fn only(arch: &str) -> BTreeMap<String, Vec<String>> {
    BTreeMap::from([("arch".into(), vec![arch.into()])])
}

/// Rates, of which more is better.
fn rates(results: Results, cell: &str, value: f64) -> Results {
    let mut results = results.times(cell, 1, &[value]);
    let sample = results.samples.last_mut().unwrap();
    (sample.metric, sample.unit) = ("tbench.rate".into(), "MB/s".into());
    sample.better = Direction::Higher;
    results
}

#[test]
fn changes_beside_values_and_their_geometric_mean() {
    let results = results(compare("hackbench.time"))
        .times("arm64-64-n", 1, &[5.0])
        .times("arm64-64-y", 1, &[10.0])
        .times("arm64-512-n", 1, &[12.0])
        .times("arm64-512-y", 1, &[1.5])
        .spec(|s| (s.filter, s.decimals) = (only("arm64"), Some(2)));
    // Ratios 2 and 1/8: their product is 1/4, the root of that 1/2.
    let expected = "\
a table

NR_CPUS (s)      onstack             offstack
64-cpus:            5.00 (0.00 pct)     10.00 (?100.00 pct)
512-cpus:          12.00 (0.00 pct)      1.50 (?-87.50 pct)
geometric mean:   1.0000 (0.00 pct)   ?0.5000 (?-50.00 pct)

emulated wall clock (QEMU TCG): not a measure of real hardware
one run in each cell: spread unknown
geometric mean: of all rows' ratios to onstack
?: too few boots to tell difference from chance (2 a side are needed)
";
    assert_eq!(results.print(Format::Text), expected);
    let better = results.spec(|s| s.sign = Sign::PositiveIsBetter);
    let rows = body(&tables(&better)[0]);
    assert_eq!(
        [&rows[0][4], &rows[1][4], &rows[2][3], &rows[2][4]],
        ["(?-100.00 pct)", "(?87.50 pct)", "?0.5000", "(?50.00 pct)"]
    );
    let notes = tables(&better).remove(0).footnotes;
    assert_eq!(notes[2], "positive change = better: lower is better, so (base - new) / base");
    assert!(
        better
            .print(Format::Markdown)
            .contains("\n| 64-cpus | 5.00 | (0.00 pct) | 10.00 | (?-100.00 pct) |\n")
    );
    assert!(better.print(Format::Csv).contains("\na table,,64-cpus,offstack change,(?-100.00 pct),-100,%,"));
}

#[test]
fn no_geometric_mean_over_some_of_the_rows() {
    let table = tables(
        &results(compare("hackbench.time"))
            .times("riscv64-64-n", 1, &[5.0])
            .times("riscv64-64-y", 1, &[5.0])
            .times("riscv64-512-y", 1, &[5.0]),
    )
    .remove(0);
    assert_eq!(
        body(&table),
        [
            ["64-cpus", "5.0000", "(0.00 pct)", "5.0000", "(?0.00 pct)"],
            ["512-cpus", "-", "n/a", "5.0000", "n/a"],
            ["geometric mean", "n/a", "n/a", "n/a", "n/a"],
        ]
    );
    let note = "geometric mean: of all rows' ratios to onstack; n/a where a row has no value, \
                or rows differ in which way is better";
    assert!(table.footnotes.iter().any(|n| n == note));

    let failed = results(compare("hackbench.time"))
        .times("arm64-64-n", 1, &[5.0])
        .times("arm64-64-y", 1, &[4.0])
        .times("arm64-512-n", 1, &[5.0])
        .failed("arm64-512-y", Stage::Boot, "hang", "")
        .spec(|s| s.filter = only("arm64"));
    let rows = body(&tables(&failed)[0]);
    assert_eq!(rows[1], ["512-cpus", "5.0000", "(0.00 pct)", "FAILED(hang)", "n/a"]);
    assert_eq!(rows[2], ["geometric mean", "1.0000", "(0.00 pct)", "n/a", "n/a"]);
}

#[test]
fn metrics_of_both_directions_are_compared() {
    let layout =
        compare_metrics(&[("hackbench.time", None), ("tbench.rate", Some("tbench")), ("vmlinux.bss", None)]);
    let results = results(layout)
        .times("arm64-64-n", 1, &[8.0])
        .times("arm64-64-y", 1, &[6.0])
        .sizes("vmlinux.bss", &[("arm64-64-n", 100.0), ("arm64-64-y", 99.0)]);
    let results = rates(rates(results, "arm64-64-n", 200.0), "arm64-64-y", 220.0).spec(|s| {
        s.filter =
            BTreeMap::from([("arch".into(), vec!["arm64".into()]), ("NR_CPUS".into(), vec!["64".into()])]);
        (s.significant, s.sign) = (Some(3), Sign::PositiveIsBetter);
    });
    let table = &tables(&results)[0];
    assert_eq!(titles(table), ["metric", "onstack", "onstack change", "offstack", "offstack change"]);
    assert_eq!(
        body(table),
        [
            ["time (s)", "8", "(0.00 pct)", "6", "(?25.00 pct)"],
            ["tbench (MB/s)", "200", "(0.00 pct)", "220", "(?10.00 pct)"],
            ["bss (bytes)", "100", "(0.00 pct)", "99", "(1.00 pct)"],
            // One of times and rates would say nothing.
            ["geometric mean", "n/a", "n/a", "n/a", "n/a"],
        ]
    );
    assert_eq!(
        table.footnotes[3],
        "positive change = better: (base - new) / base where lower is better, (new - base) / base where higher is"
    );
}

#[test]
fn values_keep_their_changes_in_wrapped_comparisons() {
    let mut results = wide();
    let rows = Rows::Axis {
        axis: "OFFSTACK".into(),
        metric: "vmlinux.file".into(),
        label: "{OFFSTACK}".parse().unwrap(),
    };
    let layout = Layout::Compare { columns: "NR_CPUS".into(), rows, geometric_mean: false };
    results = results.spec(|s| s.layout = layout);
    let text = results.print(Format::Text);
    let grid: Vec<&str> = text.lines().filter(|line| line.starts_with("onstack")).collect();
    let row = "onstack:  20141704 (0.00 pct)  20141704 (0.00 pct)  20141704 (0.00 pct)";
    assert_eq!(grid, [row; 4]);
}

#[test]
fn the_sign_of_differences_in_pivots_and_lists() {
    let better = |layout| {
        results(layout)
            .times("riscv64-64-n", 1, &[4.0])
            .times("riscv64-64-y", 1, &[5.0])
            .spec(|s| s.sign = Sign::PositiveIsBetter)
    };
    let note = "positive change = better: lower is better, so (base - new) / base";
    let pivot = tables(&better(pivot("hackbench.time", &[Derived::Difference, Derived::Ratio]))).remove(0);
    assert_eq!(body(&pivot)[2..], [["difference", "?-25.00%", "n/a"], ["ratio", "?1.2500", "n/a"]]);
    assert!(pivot.footnotes.iter().any(|n| n == note));

    let time = vec!["hackbench.time".to_string()];
    let list = list(&[ListColumn::Difference(time.clone()), ListColumn::Ratio(time)]);
    let list = tables(&better(list)).remove(0);
    assert_eq!(titles(&list), ["difference of time to 64 onstack", "ratio of time to 64 onstack"]);
    assert_eq!(body(&list), [["", ""], ["?-25.00%", "?1.2500"], ["n/a", "n/a"]]);
    assert!(list.footnotes.iter().any(|n| n == note));
}

/// Durations in one good cell, another that failed, a third without any.
fn with_lines() -> Results {
    let lines = [
        "{OFFSTACK}: mean {mean:hackbench.time} s,  {count:hackbench.time} runs",
        "50/99: {p50:hackbench.time} {p99:hackbench.time}; per run {sum:hackbench.time/count:hackbench.time}",
    ];
    let lines = lines.iter().map(|line| line.parse().unwrap()).collect();
    results(Layout::Lines { lines })
        .times("riscv64-64-n", 1, &[1083760.0, 2.5])
        .times("riscv64-64-n", 2, &[1.0, 13000.4])
        .failed("riscv64-64-y", Stage::Benchmark, "timeout", "no word")
        .spec(|s| (s.significant, s.block) = (Some(6), Some("{NR_CPUS} {OFFSTACK}".parse().unwrap())))
}

#[test]
fn lines_in_text() {
    let text = with_lines().print(Format::Text);
    let expected = "\
a table
64 onstack

onstack: mean 274191 s,  4 runs
50/99: 2.5 13000.4; per run 274191

emulated wall clock (QEMU TCG): not a measure of real hardware
statistics of 4 runs in 2 boots; spread (standard deviation) up to 196.85%
of the mean

a table
64 offstack

offstack: mean FAILED(timeout) s,  FAILED(timeout) runs
50/99: FAILED(timeout) FAILED(timeout); per run FAILED(timeout)

riscv64-64-y: failed at benchmark hackbench, boot 2: no word

a table
512 offstack

offstack: mean missing s,  missing runs
50/99: missing missing; per run missing

missing: not measured
";
    assert_eq!(text, expected);
}

#[test]
fn lines_in_other_formats() {
    let results = with_lines();
    let markdown = results.print(Format::Markdown);
    assert!(markdown.contains("\n\nonstack: mean 274191 s,  4 runs\\\n50/99: 2.5 13000.4;"), "{markdown}");
    let csv = results.print(Format::Csv);
    let p99 = "a table,64 onstack,riscv64-64-n,p99:hackbench.time,13000.4,13000.4,s,hackbench.time,p99,emulated wall clock,4,riscv64-64-n,2,,,";
    assert!(csv.lines().any(|line| line == p99), "{csv}");
    let json: serde_json::Value = serde_json::from_str(&results.print(Format::Json)).unwrap();
    assert_eq!(json[0]["columns"][2], "count:hackbench.time");
    let count = &json[0]["rows"][0][2];
    assert_eq!(
        (&count["value"], &count["unit"], &count["statistic"]),
        (&4.0.into(), &"".into(), &"count".into())
    );
    assert_eq!(json[0]["lines"][0], "onstack: mean 274191 s,  4 runs");
    assert_eq!(json[1]["rows"][0][1]["failed"], "timeout");
}

#[test]
fn blocks_share_footnotes_and_have_names_of_their_own() {
    let results = results(pivot("vmlinux.file", &[]))
        .spec(|s| (s.filter, s.block) = (BTreeMap::new(), Some("on {arch}".parse().unwrap())));
    let text = |results: &Results| results.print(Format::Text);
    assert!(text(&results).starts_with("a table\non riscv64\n\n"));
    assert!(text(&results).contains("\non arm64\n"));
    // The first block alone has an excluded cell.
    assert_eq!(text(&results).matches("missing: not measured").count(), 2);
    let alike = results.spec(|s| s.filter = BTreeMap::from([("NR_CPUS".into(), vec!["64".into()])]));
    assert_eq!(text(&alike).matches("missing: not measured").count(), 1);
    assert!(text(&alike).ends_with("\n\nmissing: not measured\n"));
    assert!(alike.print(Format::Json).matches("missing: not measured").count() == 2, "data stay whole");
}

#[test]
fn a_table_without_cells_says_so() {
    let nowhere = BTreeMap::from([("arch".to_string(), vec!["mips".to_string()])]);
    let lines = Layout::Lines { lines: vec!["{mean:vmlinux.file}".parse().unwrap()] };
    for layout in
        [pivot("vmlinux.file", &[]), list(&[metric("vmlinux.file")]), compare("vmlinux.file"), lines]
    {
        let results = results(layout).spec(|s| s.filter = nowhere.clone());
        let text = results.print(Format::Text);
        assert!(text.ends_with("no cell of the matrix belongs in this table\n"), "{text}");
    }
}

#[test]
fn statistics_and_decimals() {
    let results = |statistic| {
        results(pivot("hackbench.time", &[])).times("riscv64-64-n", 1, &[1.0, 2.0, 6.0]).spec(|s| {
            s.statistic = statistic;
            s.decimals = Some(1);
        })
    };
    let value = |statistic| body(&tables(&results(statistic))[0])[0][1].clone();
    assert_eq!(value(Statistic::Mean), "3.0");
    assert_eq!(value(Statistic::Median), "2.0");
    assert_eq!(value(Statistic::Min), "1.0");
    assert_eq!(value(Statistic::Max), "6.0");
    let note = &tables(&results(Statistic::Median))[0].footnotes[1];
    assert!(note.starts_with("median of 3 runs in 1 boot; "), "{note}");
}

#[test]
fn differences_come_from_unrounded_values() {
    // Both print 1.0; the change is 4 %.
    let results = results(pivot("hackbench.time", &[Derived::Difference]))
        .times("riscv64-64-n", 1, &[1.0])
        .times("riscv64-64-y", 1, &[1.04])
        .spec(|s| s.decimals = Some(1));
    let body = body(&tables(&results)[0]);
    assert_eq!([&body[0][1], &body[1][1]], ["1.0", "1.0"]);
    assert_eq!(body[2][1], "?+4.00%");
    let notes = &tables(&results)[0].footnotes;
    assert_eq!(notes[1], "one run in each cell: spread unknown");
}

#[test]
fn exact_values_that_do_not_repeat_are_noted() {
    let results = results(pivot("vmlinux.file", &[]))
        .sizes("vmlinux.file", &[("riscv64-64-n", 99.0), ("riscv64-64-n", 101.0)]);
    assert_eq!(
        tables(&results)[0].footnotes[1],
        "mean of 2 values; spread (standard deviation) up to 1.41% of the mean"
    );
}

#[test]
fn list_compares_with_the_baseline() {
    let columns = [
        metric("vmlinux.text"),
        ListColumn::Label,
        difference(&["vmlinux.text"]),
        difference(&["vmlinux.text", "vmlinux.data"]),
    ];
    let results = results(list(&columns))
        .sizes("vmlinux.text", &[("riscv64-64-n", 100.0), ("riscv64-64-y", 101.0)])
        .sizes("vmlinux.data", &[("riscv64-64-n", 300.0), ("riscv64-64-y", 300.0)])
        .sizes("vmlinux.text", &[("riscv64-512-y", 90.0)])
        .failed("riscv64-64-y", Stage::Boot, "panic", "no matter");
    let table = &tables(&results)[0];
    assert_eq!(
        titles(table),
        ["text", "cell", "difference of text to 64 onstack", "difference of text+data to 64 onstack"]
    );
    assert_eq!(
        body(table),
        [
            ["100", "riscv64 64 onstack", "", ""],
            ["101", "riscv64 64 offstack", "+1.00%", "+0.25%"],
            ["90", "riscv64 512 offstack", "-10.00%", "n/a"],
        ]
    );
    // The sum wants a metric that has no column of its own.
    assert_eq!(table.footnotes, ["exact: counted, not timed", "missing: not measured"]);
}

#[test]
fn list_with_a_failed_marked_baseline() {
    let layout = Layout::List {
        columns: vec![ListColumn::Label, metric("vmlinux.file"), difference(&["vmlinux.file"])],
        row: "{OFFSTACK}{NR_CPUS} {what}".parse().unwrap(),
        baseline: BTreeMap::from([("OFFSTACK".into(), "y".into())]),
        mark_baseline: true,
    };
    let results = results(layout).sizes("vmlinux.file", &[("riscv64-64-n", 100.0)]).failed(
        "riscv64-64-y",
        Stage::Config,
        "symbol",
        "OFFSTACK is n",
    );
    let table = &tables(&results)[0];
    assert_eq!(titles(table)[2], "difference of file to offstack64 {what}");
    assert_eq!(
        body(table),
        [
            ["onstack64 {what}", "100", "n/a"],
            ["offstack64 {what} (baseline)", "FAILED(symbol)", ""],
            ["offstack512 {what}", "missing", "n/a"],
        ]
    );
}

/// One row of twelve columns, too wide for one block.
fn wide() -> Results {
    let mut results = results(pivot("vmlinux.file", &[]));
    let values: Vec<String> = (0..12).map(|n| format!("{}", 1000 + n)).collect();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    results.matrix.axes[1] = axis("NR_CPUS", &values, &[]);
    results.matrix.cells.clear();
    for value in values {
        let coords = [("arch", "riscv64"), ("NR_CPUS", value), ("OFFSTACK", "n")];
        let cell = cell(&coords);
        let id = cell.id.0.clone();
        results.matrix.cells.push(cell);
        results = results.sizes("vmlinux.file", &[(&id, 20141704.0)]);
    }
    results.spec(|s| {
        s.filter.insert("OFFSTACK".into(), vec!["n".into()]);
        s.title = "A title that is rather long, as titles go, and has to be wrapped \
                   before its end"
            .into();
    })
}

#[test]
fn wide_tables_are_wrapped_with_their_labels() {
    let text = wide().print(Format::Text);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "A title that is rather long, as titles go, and has to be wrapped before its",
            "end",
            "",
            "NR_CPUS      1000      1001      1002      1003      1004      1005",
            "onstack  20141704  20141704  20141704  20141704  20141704  20141704",
            "",
            "NR_CPUS      1006      1007      1008      1009      1010      1011",
            "onstack  20141704  20141704  20141704  20141704  20141704  20141704",
            "",
            "exact: counted, not timed",
        ]
    );
    assert!(lines.iter().all(|l| l.len() <= 75 && l.trim_end() == *l));
}

#[test]
fn control_characters_do_not_get_out() {
    let mut results = with_panic();
    results.matrix.axes[2].labels = BTreeMap::from([
        ("n".into(), "on\u{1b}[31mstack\u{202e}".into()),
        ("y".into(), "off\tst\u{9b}ack\u{7}".into()),
    ]);
    let mut results = results.spec(|s| s.title = "a\r\n\u{0}title".into());
    let failure = results.failures.values_mut().flatten().next().unwrap();
    failure.what = "pa\u{8}nic".into();
    failure.detail = "\u{1b}]0;owned\u{7}".into();
    for format in [Format::Text, Format::Markdown, Format::Csv, Format::Json] {
        let text = results.print(format);
        let bad = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!text.contains(bad), "{text:?}");
        assert!(text.contains("on?"), "{text}");
        assert!(text.contains("FAILED(pa?nic)"), "{text}");
    }
    assert!(results.print(Format::Text).starts_with("a ?title\n"));
}

#[test]
fn csv_is_quoted() {
    let mut results = results(pivot("vmlinux.file", &[]));
    results.matrix.axes[2].labels =
        BTreeMap::from([("n".into(), "says \"on\"".into()), ("y".into(), "plain".into())]);
    let results = results.spec(|s| s.title = "size, bytes".into());
    let text = results.print(Format::Csv);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[1], "\"size, bytes\",,\"says \"\"on\"\"\",64,missing,,,,,,,,,,,");
    assert_eq!(lines[3], "\"size, bytes\",,plain,64,missing,,,,,,,,,,,");
}

#[test]
fn csv_has_one_header_and_names_the_blocks() {
    let results = results(pivot("vmlinux.file", &[])).spec(|s| s.filter.clear());
    let text = results.print(Format::Csv);
    assert_eq!(text.matches("table,block").count(), 1);
    assert_eq!(text.matches("a table,arch arm64,").count(), 4);
    // Rows without a label are numbered.
    let unnamed = self::results(list(&[metric("vmlinux.file")]));
    assert!(unnamed.print(Format::Csv).contains("\na table,,3,file,missing,"));
}

#[test]
fn markdown_is_escaped() {
    let mut results = results(pivot("vmlinux.file", &[]));
    results.matrix.axes[2].labels.insert("n".into(), "a|b\\<i>*".into());
    let text = results.print(Format::Markdown);
    assert!(text.contains("\n| a\\|b\\\\&lt;i>\\* | missing | - |\n"), "{text}");
}

#[test]
fn nothing_to_print() {
    let formats = [Format::Text, Format::Markdown, Format::Json];
    assert_eq!(formats.map(|f| render(&[], f)), ["", "", "[]\n"]);
}
