//! What the fields of a table do not say themselves.

use std::collections::BTreeSet;

use indexmap::IndexMap;

use super::{Field, Measured};
use crate::model::{Direction, Failure, Kind, Layout, Sign, Stage, Statistic, TableSpec};
use crate::stats::{self, Observations};

/// Footnotes of a table that is made from the fields `used`: how values came
/// about, what they stand for and how much they spread, what a change's sign
/// means where it is not the plain one, and what failed.
pub(super) fn footnotes(used: &[Field], spec: &TableSpec) -> Vec<String> {
    if used.iter().all(|field| *field == Field::Excluded) {
        return vec!["no cell of the matrix belongs in this table".to_string()];
    }
    let measured: Vec<&Measured> = used.iter().filter_map(Field::measured).collect();
    let kinds: BTreeSet<Kind> = measured.iter().map(|m| m.kind).collect();
    let mut notes: Vec<String> = kinds.into_iter().map(kind).collect();
    notes.extend(samples(&measured, spec.percent_decimals));
    notes.extend(intervals(&measured, spec));
    notes.extend(sign(&measured, spec));
    notes.extend(failures(used));
    if used.contains(&Field::Missing) {
        notes.push("missing: not measured".to_string());
    }
    if used.contains(&Field::Excluded) {
        notes.push("-: not in the matrix".to_string());
    }
    notes
}

fn kind(kind: Kind) -> String {
    let label = kind.label();
    match kind {
        Kind::Exact => format!("{label}: counted, not timed"),
        Kind::EmulatedWallClock => {
            format!("{label} (QEMU TCG): not a measure of real hardware")
        }
        Kind::EmulatedInstructions => {
            format!("{label} (QEMU icount, 1 ns an instruction of any vCPU): not a measure of real hardware")
        }
        Kind::KvmWallClock => format!("{label}: a virtual machine on this host's own processors"),
        Kind::NativeWallClock => label.to_string(),
    }
}

/// What stands beside the values of a table that shows intervals.
fn intervals(measured: &[&Measured], spec: &TableSpec) -> Vec<String> {
    let (exact, others): (Vec<&Measured>, Vec<&Measured>) = measured.iter().partition(|m| repeats(m));
    if !spec.interval {
        return Vec::new();
    }
    let (form, how, least) = match spec.statistic {
        Statistic::Median => ("[ ]", "from one boot's median to another's, by their order", 6),
        _ => ("±", "by Student's t, the mean of each boot being one observation", 2),
    };
    let mut notes = Vec::new();
    if others.iter().any(|m| m.interval.is_some()) {
        notes.push(format!("{form}: 95% interval of the {} over boots, {how}", in_words(spec.statistic)));
    }
    if others.iter().any(|m| m.interval.is_none()) {
        notes.push(format!("±?: interval unknown, it needs {least} boots"));
    }
    if !exact.is_empty() {
        notes.push("no interval: repeats to the last digit".to_owned());
    }
    notes
}

/// What a positive change means, with the formula of each direction that occurs.
fn sign(measured: &[&Measured], spec: &TableSpec) -> Option<String> {
    let has = |better| measured.iter().any(|m| m.better == better);
    let formula = match (has(Direction::Lower), has(Direction::Higher)) {
        (true, true) => "(base - new) / base where lower is better, (new - base) / base where higher is",
        (true, false) => "lower is better, so (base - new) / base",
        (false, true) => "higher is better, so (new - base) / base",
        (false, false) => return None,
    };
    let changes = spec.sign == Sign::PositiveIsBetter && !matches!(spec.layout, Layout::Lines { .. });
    changes.then(|| format!("positive change = better: {formula}"))
}

/// How many samples stand behind each metric's values and how far apart they
/// are. Exact values need no such note, unless they turn out not to repeat.
fn samples(measured: &[&Measured], percent_decimals: u8) -> Vec<String> {
    let mut metrics: IndexMap<&str, Vec<&Measured>> = IndexMap::new();
    for m in measured {
        metrics.entry(&m.metric).or_default().push(m);
    }
    let all = metrics.len();
    let varies = |m: &&Measured| m.kind != Kind::Exact || m.estimate.min != m.estimate.max;
    metrics.retain(|_, values| values.iter().any(varies));
    let mut notes: IndexMap<String, Vec<&str>> = IndexMap::new();
    for (metric, values) in metrics {
        notes.entry(sample_note(&values, percent_decimals)).or_default().push(metric);
    }
    let note = |(note, metrics): (String, Vec<&str>)| {
        if metrics.len() == all { note } else { format!("{}: {note}", metrics.join(", ")) }
    };
    notes.into_iter().map(note).collect()
}

fn sample_note(values: &[&Measured], percent_decimals: u8) -> String {
    let runs: BTreeSet<usize> = values.iter().map(|m| m.estimate.n).collect();
    let boots: BTreeSet<usize> = values.iter().map(|m| m.boots).collect();
    let booted = boots.iter().any(|n| *n > 0);
    let noun = if booted { "run" } else { "value" };
    if runs.iter().all(|n| *n == 1) {
        return format!("one {noun} in each cell: spread unknown");
    }
    let statistics: BTreeSet<String> = values.iter().map(|m| in_words(m.statistic)).collect();
    let statistic = match statistics.first() {
        Some(only) if statistics.len() == 1 => only,
        _ => "statistics",
    };
    let mut note = format!("{statistic} of {}", count(&runs, noun));
    if booted {
        note.push_str(&format!(" in {}", count(&boots, "boot")));
    }
    let spreads = values.iter().filter_map(|m| m.estimate.spread());
    match spreads.reduce(f64::max) {
        Some(spread) => note.push_str(&format!(
            "; spread (standard deviation) up to {}% of the mean",
            stats::fixed(spread, percent_decimals)
        )),
        None => note.push_str("; spread unknown"),
    }
    if runs.contains(&1) {
        note.push_str(&format!(", unknown for one {noun}"));
    }
    note.push_str(&interval(values, percent_decimals).unwrap_or_default());
    note
}

/// Whether another boot would say the same.
fn repeats(measured: &Measured) -> bool {
    measured.observed.as_ref().is_ok_and(Observations::repeats)
}

/// How far the true means, or medians, may lie from the values, as far as
/// boots tell.
fn interval(values: &[&Measured], percent_decimals: u8) -> Option<String> {
    let statistic = values.first()?.statistic;
    if values.iter().any(|m| m.statistic != statistic) {
        return None;
    }
    let reach = |m: &&Measured| {
        let (low, high) = m.interval?;
        let reach = (high - m.value).max(m.value - low) * 100.0 / m.value.abs();
        Some(reach).filter(|reach| reach.is_finite())
    };
    let reaches: Vec<Option<f64>> = values.iter().filter(|m| !repeats(m)).map(reach).collect();
    let greatest = reaches.iter().flatten().copied().reduce(f64::max)?;
    let all = reaches.iter().all(Option::is_some);
    let unknown = if all { "" } else { ", unknown where boots are too few" };
    let (greatest, name) = (stats::fixed(greatest, percent_decimals), in_words(statistic));
    Some(format!("; 95% interval over boots up to ±{greatest}% of the {name}{unknown}"))
}

pub(super) fn in_words(statistic: Statistic) -> String {
    match statistic {
        Statistic::Min => "minimum".to_string(),
        Statistic::Max => "maximum".to_string(),
        Statistic::Percentile(n) => format!("percentile {n}"),
        named => named.to_string(),
    }
}

/// `5 runs`, `4-5 runs`, `1 boot`.
fn count(numbers: &BTreeSet<usize>, noun: &str) -> String {
    let (first, last) = (numbers.first(), numbers.last());
    let (first, last) = (first.copied().unwrap_or(0), last.copied().unwrap_or(0));
    let s = if last == 1 { "" } else { "s" };
    if first == last { format!("{last} {noun}{s}") } else { format!("{first}-{last} {noun}{s}") }
}

/// One note for each story, with all cells that it happened to.
fn failures(used: &[Field]) -> Vec<String> {
    let mut stories: IndexMap<&str, BTreeSet<&str>> = IndexMap::new();
    for field in used {
        if let Field::Failed { cell, story, .. } = field {
            stories.entry(story).or_default().insert(&cell.0);
        }
    }
    let note = |(story, cells): (&str, BTreeSet<&str>)| {
        let cells: Vec<&str> = cells.into_iter().collect();
        format!("{}: {story}", cells.join(", "))
    };
    stories.into_iter().map(note).collect()
}

/// A failure on one line: stage, boot and the first line of its detail;
/// `all` counts the failures that it stands for.
pub(super) fn story(failure: &Failure, all: usize) -> String {
    let stage = match (&failure.benchmark, failure.stage) {
        (Some(name), Stage::Benchmark) => format!("benchmark {name}"),
        (Some(name), stage) => format!("{stage}, {name}"),
        (None, stage) => stage.to_string(),
    };
    let boot = failure.boot.map_or(String::new(), |n| format!(", boot {n}"));
    let detail = failure.detail.lines().map(str::trim);
    let detail = detail.clone().find(|l| !l.is_empty()).unwrap_or(&failure.what);
    let more = match all {
        0 | 1 => String::new(),
        n => format!(" (and {} more)", n - 1),
    };
    format!("failed at {stage}{boot}: {detail}{more}")
}
