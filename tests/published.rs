//! Tables that kernel developers published, printed again from recorded
//! values: same shape, and percentages as correct arithmetic gives them.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use matrix::model::{CellId, Failure, Results, Sample};
use matrix::report::check::{FindingKind, check};
use matrix::report::{Field, Format, Table, render, tables};

/// One line of `records.jsonl`.
#[derive(serde::Deserialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
enum Record {
    Sample(Sample),
    Failure { cell: CellId, failure: Failure },
}

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/published").join(name)
}

fn results(name: &str) -> Results {
    let read = |file| fs::read_to_string(directory(name).join(file)).unwrap();
    let mut results = Results {
        matrix: serde_json::from_str(&read("resolved.json")).unwrap(),
        samples: Vec::new(),
        failures: Default::default(),
        frames: Default::default(),
    };
    for line in read("records.jsonl").lines() {
        match serde_json::from_str(line).unwrap() {
            Record::Sample(sample) => results.samples.push(sample),
            Record::Failure { cell, failure } => {
                results.failures.entry(cell).or_default().push(failure);
            }
        }
    }
    results
}

/// The tables of a published run, after comparing their text.
fn all_published(name: &str) -> Vec<Table> {
    let tables = tables(&results(name));
    let expected = fs::read_to_string(directory(name).join("expected.txt")).unwrap();
    assert_eq!(render(&tables, Format::Text), expected);
    assert!(expected.lines().all(|line| line.len() <= 75));
    tables
}

/// The only table of a published run.
fn published(name: &str) -> Table {
    let mut tables = all_published(name);
    assert_eq!(tables.len(), 1);
    tables.remove(0)
}

fn texts<'t>(fields: impl IntoIterator<Item = &'t Field>) -> Vec<String> {
    fields.into_iter().map(|f| f.text().into_owned()).collect()
}

fn column(table: &Table, title: &str) -> Vec<String> {
    let at = table.header.iter().position(|c| c.title == title);
    let at = at.unwrap_or_else(|| panic!("no column {title}: {:?}", table.header));
    texts(table.rows.iter().map(|row| &row[at]))
}

#[test]
fn riscv_vmlinux_size() {
    let table = published("riscv-vmlinux-size");
    assert_eq!(texts(&table.rows[2]), ["difference", "+0.023%", "+0.001%", "-0.001%", "-0.006%", "-0.031%"]);
    assert_eq!(texts(&table.rows[3]), ["is_smaller", "n", "n", "y", "y", "y"]);
    assert_eq!(table.footnotes, ["exact: counted, not timed"]);
}

#[test]
fn riscv_hackbench() {
    let table = published("riscv-hackbench");
    assert_eq!(
        texts(&table.rows[1]),
        ["offstack/s", "6.5616", "6.9500", "6.5698", "6.9100", "6.6630", "6.8202"]
    );
    assert_eq!(
        texts(&table.rows[2]),
        ["difference", "?-6.25%", "?+5.12%", "?-3.15%", "?+3.79%", "?-0.02%", "?-0.71%"]
    );
    assert_eq!(
        table.footnotes,
        [
            "native wall clock",
            "one value in each cell: spread unknown",
            "?: too few boots to tell difference from chance (2 a side are needed)"
        ]
    );
}

#[test]
fn arm64_kernel_size() {
    let table = published("arm64-kernel-size");
    assert_eq!(column(&table, "difference of data to onstack256"), ["", "+0.19%", "+0.15%"]);
    assert_eq!(column(&table, "difference of text+data to onstack256"), ["", "+0.05%", "+0.04%"]);
    assert_eq!(
        column(&table, "cell"),
        ["vmlinuz-6.8.0-rc4-onstack256", "vmlinuz-6.8.0-rc4-onstack512", "vmlinuz-6.8.0-rc4-offstack512"]
    );
    assert_eq!(column(&table, "data"), ["9589248", "9607680", "9603584"]);
}

#[test]
fn arm64_hackbench() {
    let table = published("arm64-hackbench");
    assert_eq!(column(&table, "difference of time to 256 CPUs on stack"), ["", "?+0.19%", "?+0.45%"]);
    assert_eq!(
        column(&table, "cell"),
        ["256 CPUs on stack (baseline)", "512 CPUs on stack", "512 CPUs off stack"]
    );
    assert_eq!(column(&table, "time (s)"), ["7.8564", "7.8713", "7.8916"]);
}

/// A block of `sched-idle-search/published.toml`.
#[derive(serde::Deserialize)]
struct Changes {
    table: String,
    mode: String,
    published: Vec<f64>,
    expected: Vec<f64>,
}

#[test]
fn sched_idle_search() {
    let tables = all_published("sched-idle-search");
    let text = fs::read_to_string(directory("sched-idle-search").join("published.toml")).unwrap();
    let mut blocks: BTreeMap<String, Vec<Changes>> = toml::from_str(&text).unwrap();
    let blocks = blocks.remove("block").unwrap();
    assert_eq!((blocks.len(), tables.len()), (15, 15));
    let mut truncated = 0;
    for (block, table) in blocks.iter().zip(&tables) {
        assert_eq!((&block.table, Some(&block.mode)), (&table.title, table.block.as_ref()));
        // A published mean alone does not tell what chance would make of it.
        let pct = |value: &f64| format!("(?{value:.2} pct)");
        assert_eq!(column(table, "util-avg change"), block.expected.iter().map(pct).collect::<Vec<_>>());
        assert!(column(table, "sched-tip change").iter().all(|change| change == "(0.00 pct)"));
        let slips = block.published.iter().zip(&block.expected).filter(|(p, e)| p != e);
        truncated += slips.inspect(|(p, e)| assert!(p.abs() < e.abs(), "{p} {e}")).count();
    }
    assert!(truncated > 0);
    let tbench = tables.iter().find(|t| t.title == "tbench").unwrap();
    let note = "positive change = better: higher is better, so (new - base) / base";
    assert!(tbench.footnotes.iter().any(|n| n == note));
}

#[test]
fn topology_span() {
    let table = published("topology-span");
    assert_eq!(column(&table, "before"), ["2.18", "2089.765", "2.33"]);
    assert_eq!(column(&table, "after"), ["1.01", "970.038", "1.14"]);
    // (2.18 - 1.01) / 2.18, (2089.765 - 970.038) / 2089.765, (2.33 - 1.14) / 2.33
    assert_eq!(column(&table, "after change"), ["(?53.67 pct)", "(?53.58 pct)", "(?51.07 pct)"]);
}

#[test]
fn rcuscale_offsets() {
    let [same, next] = all_published("rcuscale-offsets").try_into().unwrap();
    assert_eq!(next.block.unwrap(), "reader_cpu_offset=0 writer_cpu_offset=1");
    assert_eq!(next.lines[1], "Minimum grace-period duration: 8999.84");
    assert_eq!(
        same.lines,
        [
            "Average grace-period duration: 108376 microseconds",
            "Minimum grace-period duration: 13000.4",
            "50th percentile grace-period duration: 115000",
            "90th percentile grace-period duration: 121000",
            "99th percentile grace-period duration: 121004",
            "Maximum grace-period duration: 219000",
            "Grace periods: 101 Batches: 1 Ratio: 101",
        ]
    );
}

#[test]
fn what_is_printed_stands_up_to_the_check() {
    for (name, blocks, percentages, others) in [
        ("riscv-vmlinux-size", 1, 5, 5),
        ("riscv-hackbench", 1, 6, 0),
        ("arm64-kernel-size", 1, 4, 0),
        ("arm64-hackbench", 1, 2, 0),
        ("sched-idle-search", 15, 102, 0),
        ("topology-span", 1, 3, 0),
    ] {
        let tables = tables(&results(name));
        for format in [Format::Text, Format::Markdown] {
            let report = check(name, &render(&tables, format));
            assert_eq!(report.tables, blocks, "{}", report.text());
            assert_eq!((report.percentages.checked, report.percentages.right), (percentages, percentages));
            assert_eq!((report.others.checked, report.others.right), (others, others));
            let slip = report.findings.iter().find(|f| f.kind != FindingKind::ReadAs);
            assert_eq!(slip, None, "{}", report.text());
        }
    }
}
