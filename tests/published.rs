//! Tables that kernel developers published, printed again from recorded
//! values: same shape, and percentages as correct arithmetic gives them.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use matrix::model::{CellId, Failure, Results, Sample};
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

/// The only table of a published run, after comparing its text.
fn published(name: &str) -> Table {
    let mut tables = tables(&results(name));
    let expected = fs::read_to_string(directory(name).join("expected.txt")).unwrap();
    assert_eq!(render(&tables, Format::Text), expected);
    assert!(expected.lines().all(|line| line.len() <= 75));
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
        ["difference", "-6.25%", "+5.12%", "-3.15%", "+3.79%", "-0.02%", "-0.71%"]
    );
    assert_eq!(table.footnotes, ["native wall clock", "one value in each cell: spread unknown"]);
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
    assert_eq!(column(&table, "difference of time to 256 CPUs on stack"), ["", "+0.19%", "+0.45%"]);
    assert_eq!(
        column(&table, "cell"),
        ["256 CPUs on stack (baseline)", "512 CPUs on stack", "512 CPUs off stack"]
    );
    assert_eq!(column(&table, "time (s)"), ["7.8564", "7.8713", "7.8916"]);
}
