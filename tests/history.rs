//! `matrix compare`, `history`, `export` and `import`, on runs that are made up.

#![allow(clippy::unwrap_used)] // the configured exception misses helpers of tests

#[allow(dead_code)] // these tests wait for nothing
mod common;

use common::{Done, Lab};
use matrix::matrix::{ArchFacts, Context, parse};
use matrix::model::{CellId, Direction, Failure, Kind, Matrix, Sample, Stage};
use matrix::store::{Record, RunDir, RunInfo};

const FILE: &str = r#"
name = "made-up"
[source]
package = "linux-source-6.12"
[axes]
arch = ["riscv64"]
NR_CPUS = [512, 4096]
[kernel]
base = "allnoconfig"
[boot]
boots = 4
max_other_load = "off"
[[benchmark]]
name = "messages"
command = "messages"
files = ["messages"]
pattern = '^Time: (?<time>[0-9.]+)$'
unit = "s"
better = "lower"
[[table]]
title = "t"
metric = "messages.time"
columns = "NR_CPUS"
rows = "arch"
"#;

const CELLS: [&str; 2] = ["riscv64-NR_CPUS=512", "riscv64-NR_CPUS=4096"];
/// A few permille of noise, the same each time.
const NOISE: [f64; 4] = [0.999, 1.002, 1.0, 0.998];

fn lab() -> Lab {
    let lab = Lab::new(FILE);
    lab.env("MATRIX_STORE", "history.sqlite").env("TZ", "UTC")
}

fn matrix(lab: &Lab) -> Matrix {
    let facts = ArchFacts { name: "riscv64".into(), max_vcpus: 512, levels: vec![], max_numa_nodes: 1 };
    let archs = vec![facts];
    parse("f", FILE, &lab.path(""), &Context { archs, ..Context::default() }).unwrap()
}

fn sample(cell: &str, metric: &str, kind: Kind, boot: Option<u32>, value: f64) -> Record {
    let unit = if kind == Kind::Exact { "bytes" } else { "s" };
    Record::Sample(Sample {
        cell: CellId(cell.into()),
        metric: metric.into(),
        value,
        unit: unit.into(),
        better: Direction::Lower,
        kind,
        boot,
        iteration: boot,
    })
}

/// What a good run of this time and size has.
fn records(time: f64, size: f64) -> Vec<Record> {
    let of = |cell: &'static str| {
        let times = (1..).zip(NOISE).map(move |(boot, noise)| {
            sample(cell, "messages.time", Kind::EmulatedWallClock, Some(boot), time * noise)
        });
        times.chain([sample(cell, "vmlinux.file", Kind::Exact, None, size)])
    };
    CELLS.into_iter().flat_map(of).collect()
}

/// Writes a run that began on this day of November 2026.
fn made(lab: &Lab, name: &str, day: u32, records: &[Record]) {
    let began: jiff::Timestamp = format!("2026-11-{day:02}T12:00:00Z").parse().unwrap();
    let info = serde_json::json!({
        "matrix_version": "0.1.0", "began": began, "command": ["matrix", "run"],
        "host": {"cores": "2"}, "tools": {"qemu": "QEMU 7.2"},
    });
    let info: RunInfo = serde_json::from_value(info).unwrap();
    let mut run = RunDir::create(Some(&lab.path(name)), &matrix(lab), FILE, &info).unwrap();
    run.append(records).unwrap();
    for cell in CELLS {
        let evidence = run.cell(&CellId(cell.into())).unwrap();
        let commit = format!("{day:02}").repeat(20);
        let built = serde_json::json!({ "source": format!("git v6.{day} ({commit})") });
        std::fs::write(evidence.join("build.json"), built.to_string()).unwrap();
    }
}

#[track_caller]
fn prints(done: &Done, texts: &[&str]) {
    for text in texts {
        assert!(done.stdout.contains(text), "no `{text}` in:\n{}", done.stdout);
    }
}

#[test]
fn exit_codes_of_compare() {
    let lab = lab();
    made(&lab, "base", 1, &records(3.0, 1e6));
    made(&lab, "same", 2, &records(3.0, 1e6));
    made(&lab, "slow", 3, &records(3.15, 1e6));
    made(&lab, "fast", 4, &records(2.9, 1e6));
    let failure = Failure::new(Stage::Boot, "panic", "no init");
    let failed = Record::Failure { cell: CellId(CELLS[1].into()), failure };
    made(&lab, "failed", 5, &[records(3.0, 1e6), vec![failed.clone()]].concat());
    made(&lab, "worst", 6, &[records(3.15, 1e6), vec![failed]].concat());

    let same = lab.matrix(&["compare", "base", "same"]).code(0);
    prints(
        &same,
        &[
            "512      2.9993  2.9993   0.00%  [-0.30%, +0.30%]        ~",
            "~",
            "~: not significant, may be chance",
        ],
    );
    let slow = lab.matrix(&["compare", "base", "slow"]).code(3);
    prints(
        &slow,
        &[
            "+5.00%",
            "regression",
            "Welch's t-test, two-sided: 2 comparisons",
            "Holm",
            "git v6.3 (030303030303)",
        ],
    );
    prints(&lab.matrix(&["compare", "base", "fast"]).code(0), &["improvement"]);
    prints(&lab.matrix(&["compare", "base", "failed"]).code(1), &["FAILED(panic)", "lost"]);
    prints(&lab.matrix(&["compare", "failed", "base"]).code(0), &["FAILED(panic)", "no base"]);
    lab.matrix(&["compare", "base", "worst"]).code(3);

    prints(&lab.matrix(&["compare", "base", "slow", "--threshold", "6%"]).code(0), &["small"]);
    lab.matrix(&["compare", "base", "slow", "--metric", "vmlinux.file"]).code(0);
    made(&lab, "large", 7, &records(3.0, 2e6));
    lab.matrix(&["compare", "base", "large"]).code(3);
    let shown = lab.matrix(&["compare", "base", "large", "--tables"]).code(0);
    assert!(shown.stdout.contains("messages.time (s)") && !shown.stdout.contains("vmlinux"));
    lab.matrix(&["compare", "base", "failed", "--only", "NR_CPUS=512"]).code(0);
    let ranks = lab.matrix(&["compare", "base", "slow", "--test", "mann-whitney"]).code(0);
    prints(&ranks, &["Mann-Whitney U test", "~"]);

    for (args, about) in [
        (&["compare", "base", "none"][..], "no run `none`"),
        (&["compare", "base", "cells"], "no run `cells`"),
        (&["compare", "base", "linux"], "not a run directory"),
        (&["compare", "base", "same", "--metric", "x"], "the base has messages.time, vmlinux.file"),
        (&["compare", "base", "same", "--only", "NR_CPUS=1"], "has no value `1`"),
        (&["compare", "base", "same", "--threshold=-1"], "not a percentage of 0 or more"),
        (&["compare", "base"], "required"),
    ] {
        lab.matrix(args).code(2).says(&[about]);
    }
    assert!(!lab.path("history.sqlite").exists());
}

#[test]
fn sizes_are_compared_exactly_and_programs_read_it() {
    let lab = lab();
    made(&lab, "base", 1, &records(3.0, 1e6));
    made(&lab, "bigger", 2, &records(3.0, 1e6 + 1.0));
    let done = lab.matrix(&["compare", "base", "bigger", "--format", "json"]).code(3);
    let json: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    let size = &json["metrics"][1];
    assert_eq!((&size["metric"], &json["comparisons_tested"]), (&"vmlinux.file".into(), &2.into()));
    assert_eq!(size["cells"][0]["verdict"], "regression");
    assert_eq!(size["cells"][0]["change"]["shift"], 1.0);
    assert_eq!(json["new"]["sources"][CELLS[0]], format!("git v6.2 ({})", "02".repeat(20)));
    let markdown = lab.matrix(&["compare", "base", "bigger", "--format", "markdown"]).code(3);
    prints(&markdown, &["| 512 | 1000000 | 1000001 | +0.00% | exact | regression |"]);
}

#[test]
fn hosts_and_programs_that_differ_are_warned_of() {
    let lab = lab();
    made(&lab, "base", 1, &records(3.0, 1e6));
    made(&lab, "new", 2, &records(3.0, 1e6));
    let info = lab.read("new/run.json").replace("QEMU 7.2", "QEMU 8.0");
    lab.write("new/run.json", &info);
    let done = lab.matrix(&["compare", "base", "new"]).code(0);
    let warning = "warning: different in more than the source: qemu: QEMU 7.2 -> QEMU 8.0";
    let (at, table) = (done.stdout.find(warning), done.stdout.find("messages.time"));
    assert!(at.is_some() && at < table, "{}", done.stdout);
}

#[test]
fn a_shard_answers_for_its_own_cells() {
    let lab = lab();
    made(&lab, "base", 1, &records(3.0, 1e6));
    made(&lab, "part", 2, &records(3.0, 1e6)[..5]);
    prints(&lab.matrix(&["compare", "base", "part"]).code(1), &["missing", "lost"]);
    let info = lab.read("part/run.json").replacen('{', "{\"shard\": \"1/2\",", 1);
    lab.write("part/run.json", &info);
    let done = lab.matrix(&["compare", "base", "part"]).code(0);
    prints(&done, &["only in the base: riscv64-NR_CPUS=4096"]);
}

#[test]
fn a_history_from_its_beginning() {
    let lab = lab();
    lab.matrix(&["history"]).code(2).says(&["no history in history.sqlite"]);
    made(&lab, "a", 1, &records(3.0, 1e6));
    made(&lab, "b", 2, &records(3.15, 1e6));
    made(&lab, "c", 3, &records(3.15, 2e6));
    lab.matrix(&["history", "add", "a", "b"]).code(0).says(&["a: run 1 of the history", "b: run 2"]);
    lab.matrix(&["history", "add", "b", "c"])
        .code(0)
        .says(&["b: already in the history as run 2, nothing changed", "c: run 3"]);
    lab.matrix(&["history", "add", "linux"]).code(2).says(&["not a run directory"]);
    lab.matrix(&["history", "baseline", "good", "v6.1"]).code(0).says(&["baseline good: run 1"]);

    let list = lab.matrix(&["history"]).code(0);
    prints(&list, &["1    2026-11-01 12:00  made-up  2      git v6.1 (010101010101)  good"]);
    let times = lab.matrix(&["history", "messages.time", "--cell", CELLS[0]]).code(0);
    let rows: Vec<String> =
        times.stdout.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for row in [
        "1 v6.1 (010101010101) 4 2.9993 0.0082",
        "2 v6.2 (020202020202) 4 3.1492 0.0086 +5.00% regression",
        "3 v6.3 (030303030303) 4 3.1492 0.0086 0.00% ~",
    ] {
        assert!(rows.iter().any(|r| r == row), "no `{row}` in:\n{}", times.stdout);
    }
    let sizes = lab.matrix(&["history", "vmlinux.file", "--only", "NR_CPUS=4096", "--limit", "2"]).code(0);
    prints(&sizes, &["made-up: riscv64-NR_CPUS=4096", "+100.00%  regression"]);
    assert!(!sizes.stdout.contains("NR_CPUS=512") && !sizes.stdout.contains("v6.1 "), "{}", sizes.stdout);
    lab.matrix(&["history", "no.metric"]).code(2).says(&["no value of `no.metric`"]);

    lab.matrix(&["compare", "1", "2", "--tables"]).code(2).says(&["run 2 has no tables"]);
    for base in ["good", "1", "v6.1", "0101010", "2026-11-01", "latest~2", "a"] {
        lab.matrix(&["compare", base, "v6.2", "--metric", "messages.time"]).code(3);
    }
    lab.matrix(&["compare", "latest~1", "latest", "--metric", "messages.time"]).code(0);
    lab.matrix(&["compare", "latest", "nonsense"]).code(2).says(&["no run `nonsense`"]);
    lab.matrix(&["history", "remove", "1"]).code(2).says(&["is the baseline good"]);
    lab.matrix(&["history", "remove", "2"]).code(0).says(&["run 2 removed"]);
}

#[test]
fn a_failed_run_stays_in_sight() {
    let lab = lab();
    made(&lab, "a", 1, &records(3.0, 1e6));
    let failure = Failure::new(Stage::Boot, "hung", "silence");
    let failed = CELLS.map(|c| Record::Failure { cell: CellId(c.into()), failure: failure.clone() });
    made(&lab, "b", 2, &failed);
    made(&lab, "c", 3, &records(3.15, 1e6));
    lab.matrix(&["history", "add", "a", "b", "c"]).code(0);
    prints(&lab.matrix(&["history"]).code(0), &["2 (2 failed)"]);
    let times = lab.matrix(&["history", "messages.time"]).code(0);
    prints(&times, &["FAILED(hung)", "+5.00%  regression"]);
}

#[test]
fn the_newest_value_is_checked_where_that_is_asked_for() {
    let lab = lab();
    let runs = [("a", 3.0), ("b", 3.15), ("c", 3.15), ("d", 3.2)];
    for (day, (name, time)) in (1..).zip(runs) {
        made(&lab, name, day, &records(time, 1e6));
    }
    let times = |more: &[&str]| lab.matrix(&[&["history", "messages.time"], more].concat());
    lab.matrix(&["history", "add", "a", "b"]).code(0);
    prints(&times(&[]).code(0), &["+5.00%  regression"]);
    prints(&times(&["--check"]).code(3), &["+5.00%  regression"]);
    let small = times(&["--check", "--threshold", "6%"]).code(0);
    prints(&small, &["+5.00%    small", "small: significant, but within the threshold of 6%"]);
    assert!(!small.stdout.contains("regression"), "{}", small.stdout);
    lab.matrix(&["history", "add", "c"]).code(0);
    prints(&times(&["--check", "--threshold", "2%"]).code(0), &["+5.00%  regression"]);
    lab.matrix(&["history", "add", "d"]).code(0);
    prints(&times(&["--check", "--threshold", "2%"]).code(0), &["+1.59%       small"]);
    times(&["--check"]).code(3);

    // A cell that has no value any more is not good either.
    let failure = Failure::new(Stage::Boot, "hung", "silence");
    let failed = Record::Failure { cell: CellId(CELLS[1].into()), failure };
    made(&lab, "e", 5, &[records(3.2, 1e6), vec![failed]].concat());
    lab.matrix(&["history", "add", "e"]).code(0);
    times(&["--check"]).code(1);
    times(&["--check", "--cell", CELLS[0]]).code(0);
    times(&[]).code(0);
    lab.matrix(&["history", "--check"]).code(2);
}

#[test]
fn export_and_import_through_files_and_pipes() {
    let lab = lab();
    made(&lab, "a", 1, &records(3.0, 1e6));
    lab.matrix(&["export", "out.jsonl"]).code(2).says(&["no history"]);
    lab.matrix(&["history", "add", "a"]).code(0);
    lab.matrix(&["export", "out.jsonl"]).code(0).says(&["1 runs exported"]);
    let text = lab.read("out.jsonl");
    assert_eq!(lab.matrix(&["export", "-"]).code(0).stdout, text);
    let other = ["--store", "deep/other.sqlite"];
    let with = |args: &[&str]| lab.matrix(&[args, &other].concat());
    with(&["import", "out.jsonl"]).code(0).says(&["1 runs imported, 0 brought up to date, 0 already there"]);
    with(&["import", "out.jsonl"]).code(0).says(&["0 runs imported", "1 already there"]);
    assert_eq!(with(&["export", "-"]).code(0).stdout, text);
    lab.write("cut.jsonl", &text[..text.len() / 2]);
    with(&["import", "cut.jsonl"]).code(2).says(&["nothing imported"]);
    lab.write("history.sqlite", "this is no database at all, whoever wrote it, and never was");
    lab.matrix(&["history"]).code(2).says(&["history.sqlite", "no history, or damaged"]);
}

#[test]
fn a_run_records_itself_when_asked_to() {
    let text =
        FILE.replace("package = \"linux-source-6.12\"", "path = \"linux\"").replace("boots = 4", "vcpus = 2");
    let lab = Lab::new(&text).env("MATRIX_STORE", "history.sqlite");
    lab.run().code(0);
    assert!(!lab.path("history.sqlite").exists());
    lab.matrix(&["run", "lab.toml", "--output", "again", "--record"])
        .code(0)
        .says(&["again: run 1 of the history"]);
    lab.matrix(&["history", "add", "again"]).code(0).says(&["already in the history as run 1"]);
    let done = lab.matrix(&["compare", "run", "latest"]).code(0);
    prints(&done, &["untested: too few boots", "exact: "]);
}
