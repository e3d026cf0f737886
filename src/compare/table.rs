//! A comparison as tables.

use std::collections::BTreeSet;

use indexmap::{IndexMap, IndexSet};

use super::{Change, Comparison, Metric, Observations, Row, Side, Test, Verdict};
use crate::model::{CellId, Direction, Kind};
use crate::report::{Column, Field, Table};
use crate::stats;

/// Beyond this a plain number would be longer than it is readable.
const LARGEST: f64 = 1e15;
const DIGITS: i32 = 5;

/// One table a metric. Metrics that nothing happened to are left out unless
/// `all` are wanted: the summary counts them.
pub fn metric_tables(comparison: &Comparison, all: bool) -> Vec<Table> {
    let axes = varying(comparison);
    let nowhere = |r: &Row| (&r.base, &r.new) == (&Side::Missing, &Side::Missing);
    let same = |r: &Row| r.verdict == Verdict::Equal || nowhere(r);
    let quiet = |m: &&Metric| !all && m.rows.iter().all(same);
    comparison.metrics.iter().filter(|m| !quiet(m)).map(|m| metric_table(m, &axes)).collect()
}

/// Axes with more than one value among the rows: only they tell cells apart.
fn varying(comparison: &Comparison) -> Vec<&str> {
    let mut values: IndexMap<&str, BTreeSet<&str>> = IndexMap::new();
    for (axis, value) in comparison.rows().flat_map(|r| &r.coords) {
        values.entry(axis).or_default().insert(value);
    }
    values.into_iter().filter(|(_, values)| values.len() > 1).map(|(axis, _)| axis).collect()
}

fn metric_table(metric: &Metric, axes: &[&str]) -> Table {
    let sides = || metric.rows.iter().flat_map(|r| [&r.base, &r.new]).filter_map(values);
    let better = match sides().next().map(|v| v.better) {
        Some(Direction::Higher) => ", higher is better",
        Some(Direction::Lower) => ", lower is better",
        None => "",
    };
    let unit = sides().next().map_or(String::new(), |v| format!(" ({})", v.unit));
    let cell = if axes.is_empty() { "cell".to_owned() } else { axes.join(" ") };
    Table {
        title: format!("{}{unit}{better}", metric.name),
        block: None,
        header: columns(&[&cell], &["base", "new", "change", "interval", "verdict"]),
        rows: metric.rows.iter().map(|r| fields(r, axes)).collect(),
        lines: Vec::new(),
        footnotes: notes(metric),
    }
}

fn columns(labels: &[&str], others: &[&str]) -> Vec<Column> {
    let column = |label| move |title: &&str| Column { title: (*title).to_owned(), label, beside: false };
    labels.iter().map(column(true)).chain(others.iter().map(column(false))).collect()
}

fn values(side: &Side) -> Option<&Observations> {
    match side {
        Side::Values(values) => Some(values),
        _ => None,
    }
}

fn fields(row: &Row, axes: &[&str]) -> Vec<Field> {
    let label = match axes {
        [] => row.cell.0.clone(),
        _ => axes.iter().filter_map(|a| Some(row.coords.get(*a)?.as_str())).collect::<Vec<_>>().join(" "),
    };
    let change = row.change.as_ref().ok();
    let median = change.is_some_and(|c| c.test == Test::MannWhitney);
    let level = |v: &Observations| if median { v.estimate.median } else { v.estimate.mean };
    let digits = values(&row.base).or(values(&row.new)).map_or(0, |v| decimals(level(v), whole(v)));
    let side = |side: &Side| match side {
        Side::Values(v) => Field::Text(number(level(v), digits)),
        Side::Failed(what) => {
            Field::Failed { what: what.clone(), cell: row.cell.clone(), story: what.clone() }
        }
        Side::Missing => Field::Missing,
    };
    let text = |text: String| Field::Text(text);
    let na = || Field::NotApplicable;
    vec![
        text(label),
        side(&row.base),
        side(&row.new),
        change.and_then(self::change).map_or_else(na, text),
        change.and_then(interval).map_or_else(na, text),
        text(row.verdict.label().to_owned()),
    ]
}

fn whole(values: &Observations) -> bool {
    values.kind == Kind::Exact || values.unit == "bytes"
}

/// Decimals that show five digits of a number, or none where it is whole and counted.
pub fn decimals(value: f64, whole: bool) -> u8 {
    if value == 0.0 || (whole && value.fract() == 0.0) {
        return 0;
    }
    let size = value.abs().log10().floor() as i32;
    u8::try_from((DIGITS - 1 - size).clamp(0, 12)).unwrap_or(0)
}

/// A number that stays readable however large or small it is.
pub fn number(value: f64, decimals: u8) -> String {
    let tiny = value != 0.0 && value.abs() < 10f64.powi(-i32::from(decimals));
    if value.abs() >= LARGEST || (tiny && decimals >= 12) {
        format!("{value:.4e}")
    } else {
        stats::fixed(value, decimals)
    }
}

fn percent(value: f64) -> String {
    if value.abs() < 1e9 { stats::signed_percent(value, 2) } else { format!("{value:+.2e}%") }
}

/// A change in percent; `None` for a base of zero.
pub fn change(change: &Change) -> Option<String> {
    change.percent.map(percent)
}

fn interval(change: &Change) -> Option<String> {
    match (change.test, change.interval) {
        (Test::Exact, _) => Some("exact".to_owned()),
        (_, Some((low, high))) => Some(format!("[{}, {}]", percent(low), percent(high))),
        _ => None,
    }
}

// --- footnotes ---

fn notes(metric: &Metric) -> Vec<String> {
    let sides = || metric.rows.iter().flat_map(|r| [&r.base, &r.new]).filter_map(values);
    let kinds: BTreeSet<Kind> = sides().map(|v| v.kind).collect();
    let kinds: Vec<&str> = kinds.into_iter().map(Kind::label).collect();
    let mut notes = Vec::new();
    if !kinds.is_empty() {
        notes.push(format!("{}; {}", kinds.join(", "), observations(sides())));
    }
    let tests: BTreeSet<Test> =
        metric.rows.iter().filter_map(|r| Some(r.change.as_ref().ok()?.test)).collect();
    notes.extend(tests.iter().filter(|t| **t != Test::Exact).map(|t| test_note(*t)));
    let mut reasons: IndexMap<String, Vec<&str>> = IndexMap::new();
    for row in metric.rows.iter().filter(|r| r.verdict == Verdict::Untested) {
        if let Err(reason) = &row.change {
            reasons.entry(reason.to_string()).or_default().push(&row.cell.0);
        }
    }
    let all = |cells: &[&str]| cells.len() == metric.rows.len();
    notes.extend(reasons.into_iter().map(|(reason, cells)| match all(&cells) {
        true => format!("untested: {reason}"),
        false => format!("untested: {}: {reason}", cells.join(", ")),
    }));
    let sided = |row| ["base", "new"].map(|side| outlying(row, side));
    let outlying: Vec<String> = metric.rows.iter().flat_map(sided).flatten().collect();
    if !outlying.is_empty() {
        let all = outlying.join("; ");
        notes.push(format!("outliers (beyond Tukey's outer fences), not left out: {all}"));
    }
    notes
}

/// `n: 5 boots a side, the mean of each is one observation`.
fn observations<'v>(sides: impl Iterator<Item = &'v Observations>) -> String {
    let counts: BTreeSet<usize> =
        sides.map(|v| if v.boots.iter().any(|b| b.0.is_some()) { v.boots.len() } else { 0 }).collect();
    let (least, most) = (counts.first().copied().unwrap_or(0), counts.last().copied().unwrap_or(0));
    match (least, most) {
        (_, 0) => "one value a side".to_owned(),
        (1, 1) => "n: 1 boot a side".to_owned(),
        (a, b) if a == b => format!("n: {b} boots a side, the mean of each is one observation"),
        (a, b) => format!("n: {a}-{b} boots a side, the mean of each is one observation"),
    }
}

fn test_note(test: Test) -> String {
    let more = match test {
        Test::Exact => "any difference counts",
        Test::PairedT => "means, boots paired by their seed",
        Test::Welch => "means",
        Test::MannWhitney => "medians; change and interval are Hodges and Lehmann's shift",
    };
    format!("{}: {more}", test.label())
}

/// Boots of one side of a row that stand apart from the others.
fn outlying(row: &Row, side: &str) -> Option<String> {
    let values = values(if side == "base" { &row.base } else { &row.new })?;
    let boots: Vec<String> = values.outliers().iter().flatten().map(u32::to_string).collect();
    let s = if boots.len() == 1 { "" } else { "s" };
    (!boots.is_empty()).then(|| format!("{}, {side}, boot{s} {}", row.cell, boots.join(", ")))
}

// --- around the metrics ---

/// What is compared with what, and what else is different: each side as name
/// of the run, matrix, begin and source.
pub fn heading(base: [String; 4], new: [String; 4], warnings: &[String]) -> Table {
    let row = |side: &str, texts: [String; 4]| {
        std::iter::once(side.to_owned()).chain(texts).map(Field::Text).collect()
    };
    Table {
        title: "comparison".to_owned(),
        block: None,
        header: columns(&["", "run", "matrix", "began", "source"], &[]),
        rows: vec![row("base", base), row("new", new)],
        lines: Vec::new(),
        footnotes: warnings
            .iter()
            .map(|w| format!("warning: different in more than the source: {w}"))
            .collect(),
    }
}

/// How many cells came to what, by metric, and how that was found out.
pub fn summary(comparison: &Comparison) -> Table {
    let seen: Vec<Verdict> =
        Verdict::ALL.into_iter().filter(|v| comparison.count(*v) > 0 || *v == Verdict::Regression).collect();
    let labels: Vec<&str> = seen.iter().map(|v| v.label()).collect();
    let row = |metric: &Metric| {
        let count = |v: &Verdict| metric.rows.iter().filter(|r| r.verdict == *v).count().to_string();
        std::iter::once(metric.name.clone()).chain(seen.iter().map(count)).map(Field::Text).collect()
    };
    let mut notes = method(comparison);
    notes.extend(seen.iter().filter_map(|v| explained(*v, comparison.threshold)));
    let left_out = |side: &str, cells: &[CellId]| {
        let names: Vec<&str> = cells.iter().map(|c| c.0.as_str()).collect();
        (!cells.is_empty()).then(|| format!("only in the {side}: {}", names.join(", ")))
    };
    notes.extend(left_out("base", &comparison.only_base));
    notes.extend(left_out("new run", &comparison.only_new));
    Table {
        title: "summary (cells)".to_owned(),
        block: None,
        header: columns(&["metric"], &labels),
        rows: comparison.metrics.iter().map(row).collect(),
        lines: Vec::new(),
        footnotes: notes,
    }
}

/// Tests by name, number of comparisons and the correction for it.
fn method(comparison: &Comparison) -> Vec<String> {
    let changes = || comparison.rows().filter_map(|r| r.change.as_ref().ok());
    let tests: IndexSet<&str> = changes().filter(|c| c.p.is_some()).map(|c| c.test.label()).collect();
    let exact = changes().filter(|c| c.p.is_none()).count();
    let mut notes = Vec::new();
    if comparison.tests > 0 {
        let names: Vec<&str> = tests.into_iter().collect();
        notes.push(format!(
            "{}, two-sided: {}, p-values corrected for their number by Holm's method, significant below 5%",
            names.join(", "),
            comparisons(comparison.tests)
        ));
        notes.push(
            "interval: 95%, of the difference in percent of the base's value, each by itself (not corrected)"
                .to_owned(),
        );
    }
    if exact > 0 {
        notes.push(format!("exact: {} of values that repeat to the last digit", comparisons(exact)));
    }
    notes
}

fn comparisons(n: usize) -> String {
    if n == 1 { "1 comparison".to_owned() } else { format!("{n} comparisons") }
}

fn explained(verdict: Verdict, threshold: f64) -> Option<String> {
    match verdict {
        Verdict::Insignificant => Some("~: not significant, may be chance".to_owned()),
        Verdict::Small => Some(format!("small: significant, but within the threshold of {threshold}%")),
        Verdict::Lost => Some("lost: a value in the base, none in the new run".to_owned()),
        Verdict::NoBase => Some("no base: no value in the base".to_owned()),
        _ => None,
    }
}
