//! Reports for programs and pages for people, of results with and without failures.

#![allow(clippy::unwrap_used)] // the configured exception misses helpers of tests

use std::path::Path;

use matrix::model::{Failure, Results, Stage};
use matrix::report::{self, html, junit, kcidb};
use matrix::store;

/// Published results, of which the second cell has failed and the third is missing.
fn results() -> Results {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/published/riscv-hackbench");
    let mut results = store::load(&dir).unwrap();
    let cell = |n: usize| results.matrix.cells[n].id.clone();
    let (failed, missing) = (cell(1), cell(2));
    results.samples.retain(|s| s.cell != failed && s.cell != missing);
    let detail = "the console says: <script>alert(1)</script> & more\nline 2";
    results.failures.insert(failed, vec![Failure::new(Stage::Boot, "panic", detail)]);
    results
}

#[test]
fn junit_has_a_test_for_each_cell() {
    let results = results();
    let xml = junit::render(&results).unwrap();
    let read = quick_junit::Report::deserialize_from_str(&xml).unwrap();
    let suite = &read.test_suites[0];
    assert_eq!((suite.tests, suite.failures), (results.matrix.cells.len(), 1));
    assert_eq!(xml.matches("not measured").count(), 1);
    assert!(xml.contains("boot: panic") && xml.contains("&lt;script") && !xml.contains("<script"), "{xml}");
    let first = suite.test_cases[0].system_out.as_ref().unwrap();
    assert!(first.as_str().contains("native wall clock"), "{first:?}");
}

#[test]
fn kcidb_refers_to_what_is_there() {
    let results = results();
    let run = kcidb::Run { origin: "matrix", id: "r-1", began: "2026-01-02T03:04:05Z" };
    let json: serde_json::Value = serde_json::from_str(&kcidb::render(&results, run).unwrap()).unwrap();
    assert_eq!(json["version"], serde_json::json!({ "major": 5, "minor": 3 }));
    let ids = |what: &str, key: &str| -> Vec<String> {
        json[what].as_array().unwrap().iter().map(|o| o[key].as_str().unwrap().to_owned()).collect()
    };
    let builds = ids("builds", "id");
    assert_eq!(builds.len(), results.matrix.cells.len());
    assert!(ids("builds", "checkout_id").iter().all(|id| ids("checkouts", "id").contains(id)));
    assert!(ids("tests", "build_id").iter().all(|id| builds.contains(id)));
    let mut tests = ids("tests", "id");
    assert!(tests.iter().all(|id| id.starts_with("matrix:r-1-")));
    tests.sort();
    tests.dedup();
    assert_eq!(tests.len(), json["tests"].as_array().unwrap().len(), "identifiers repeat");
    let failed = json["tests"].as_array().unwrap().iter().find(|t| t["status"] == "FAIL").unwrap();
    assert_eq!(failed["path"], "boot");
    let path = regex::Regex::new(r"^([a-zA-Z0-9_-]+(\.[a-zA-Z0-9_-]+)*)?$").unwrap();
    assert!(ids("tests", "path").iter().all(|p| path.is_match(p)));
}

#[test]
fn page_loads_nothing_and_escapes_what_guests_say() {
    let results = results();
    let tables = report::tables(&results);
    let about = [("processor".to_owned(), "A & B".to_owned())];
    let page = html::render(&html::Page { title: "t<i>", tables: &tables, about: &about, along_rows: false });
    assert!(page.starts_with("<!DOCTYPE html>"));
    for outside in ["http://", "https://", "src=", "<link", "<script", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(
        page.contains("&lt;script&gt;alert(1)") && page.contains("t&lt;i&gt;") && page.contains("A &amp; B")
    );
    assert!(page.contains("FAILED(panic)") && page.contains("class=\"missing\""));
    // A line for each row, with gaps where a value is not there.
    assert_eq!(page.matches("<g class=\"series ").count(), 2);
    let measured = results.samples.len();
    assert_eq!(page.matches("<circle").count(), measured);
}

#[test]
fn kernels_without_frames_are_built_all_the_same() {
    let mut results = results();
    let cell = results.matrix.cells[0].id.clone();
    let mut failure = Failure::new(Stage::Build, "no frames", "objdump failed");
    failure.benchmark = Some("frames".to_owned());
    results.failures.insert(cell, vec![failure]);
    let run = kcidb::Run { origin: "matrix", id: "r-1", began: "2026-01-02T03:04:05Z" };
    let json: serde_json::Value = serde_json::from_str(&kcidb::render(&results, run).unwrap()).unwrap();
    assert_ne!(json["builds"][0]["status"], "FAIL");
    assert_eq!((&json["tests"][0]["path"], &json["tests"][0]["status"]), (&"frames".into(), &"ERROR".into()));
}

#[test]
fn runs_one_after_the_other_are_one_line() {
    let mut table = report::tables(&results()).remove(0);
    // A column of values as the history has it, one of them missing.
    let last = table.header.len() - 1;
    table.header.swap(1, last);
    table.header.truncate(2);
    table.rows.truncate(2);
    for row in &mut table.rows {
        row.swap(1, last);
        row.truncate(2);
    }
    table.rows.push(vec![report::Field::Text("later".into()), report::Field::Missing]);
    let page = html::Page { title: "m", tables: &[table], about: &[], along_rows: true };
    let text = html::render(&page);
    assert_eq!(text.matches("<g class=\"series ").count(), 1);
    assert_eq!(text.matches("<circle").count(), 2);
}

#[test]
fn a_comparison_is_drawn_along_its_rows() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/published/sched-idle-search");
    let tables = report::tables(&store::load(&dir).unwrap());
    let groups = tables.iter().find(|t| t.rows.len() == 5 && t.title.starts_with("hackbench")).unwrap();
    let page = html::Page { title: "m", tables: std::slice::from_ref(groups), about: &[], along_rows: false };
    let text = html::render(&page);
    assert_eq!(text.matches("<g class=\"series ").count(), 2, "base and new");
    assert_eq!(text.matches("<circle").count(), 10);
    assert!(text.contains(">1-groups</text>"), "{text}");
}
