//! JUnit XML, which CI systems show as test results: a test for each cell.

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use crate::model::{Cell, Results};

/// Writes the results: a cell that failed is a failed test with its story, one
/// that was not measured a skipped one.
///
/// # Errors
/// A text cannot be written as XML.
pub fn render(results: &Results) -> anyhow::Result<String> {
    let mut suite = TestSuite::new(results.matrix.name.as_str());
    for cell in &results.matrix.cells {
        suite.add_test_case(case(results, cell));
    }
    let mut report = Report::new("matrix");
    report.add_test_suite(suite);
    Ok(report.to_string()?)
}

fn case(results: &Results, cell: &Cell) -> TestCase {
    let samples: Vec<_> = results.samples.iter().filter(|s| s.cell == cell.id).collect();
    let status = match results.failures.get(&cell.id).map(Vec::as_slice) {
        Some([first, ..]) => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            let stories: Vec<_> = results.failures[&cell.id].iter().map(|f| f.detail.as_str()).collect();
            status
                .set_message(format!("{}: {}", first.stage, first.what))
                .set_description(stories.join("\n"));
            status
        }
        _ if samples.is_empty() => {
            let mut status = TestCaseStatus::skipped();
            status.set_message("not measured");
            status
        }
        _ => TestCaseStatus::success(),
    };
    let mut case = TestCase::new(cell.id.0.as_str(), status);
    case.set_classname(results.matrix.name.as_str());
    // The sections of each kernel would drown the rest.
    let told = samples.iter().filter(|s| !s.metric.starts_with("vmlinux.section."));
    let lines: Vec<String> =
        told.map(|s| format!("{} {} {} ({})", s.metric, s.value, s.unit, s.kind.label())).collect();
    case.set_system_out(lines.join("\n"));
    case
}
