//! Two runs, metric by metric and cell by cell: what changed, and whether that
//! is more than chance.
//!
//! The boot is what is repeated: the mean of a boot's samples is one
//! observation, since runs within one boot share its memory layout and more,
//! and would feign a precision that the next boot does not keep.

mod confound;
mod json;
mod observe;
mod table;

use std::collections::BTreeMap;

use indexmap::{IndexMap, IndexSet};

use crate::model::{CellId, Direction, Kind, Results};
use crate::stats::{self, ALPHA};

pub use confound::confounders;
pub use json::json;
pub use observe::{Observed, Side, Values};
pub use table::{change, decimals, heading, metric_tables, number, summary};

/// Test for observations that belong to no pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Unpaired {
    /// Welch's t-test: means of about normal values, any variances
    #[default]
    Welch,
    /// Mann-Whitney U test: ranks, for values of any distribution
    MannWhitney,
}

/// How a pair of sides was compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Test {
    /// Values that repeat to the last digit: a difference is a difference.
    Exact,
    /// Means of boots with the same seeds.
    PairedT,
    /// Means.
    Welch,
    /// Ranks.
    MannWhitney,
}

impl Test {
    /// How footnotes and exports name it.
    pub fn label(self) -> &'static str {
        match self {
            Test::Exact => "exact comparison",
            Test::PairedT => "paired t-test",
            Test::Welch => "Welch's t-test",
            Test::MannWhitney => "Mann-Whitney U test",
        }
    }
}

/// What is wanted of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// For observations without pairs.
    pub test: Unpaired,
    /// Changes up to so many percent are no regression and no improvement.
    pub threshold: f64,
    /// Only these metrics; empty for all.
    pub metrics: Vec<String>,
}

/// What is different, as far as it can be told.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// How it was tested.
    pub test: Test,
    /// How much greater the new value is, in the metric's unit.
    pub shift: f64,
    /// The same in percent of the base; none for a base of zero.
    pub percent: Option<f64>,
    /// 95 % interval of `percent`; exact values need none.
    pub interval: Option<(f64, f64)>,
    /// The test's p-value, by itself; exact values need none.
    pub p: Option<f64>,
    /// The same, corrected for all comparisons made at once.
    pub adjusted: Option<f64>,
}

impl Change {
    /// Whether it is more than chance.
    pub fn significant(&self) -> bool {
        self.adjusted.map_or(self.shift != 0.0, |p| p < ALPHA)
    }
}

/// What a comparison comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Worse beyond the threshold, and significantly.
    Regression,
    /// Better beyond the threshold, and significantly.
    Improvement,
    /// Significant, but within the threshold.
    Small,
    /// May be chance.
    Insignificant,
    /// Exactly equal.
    Equal,
    /// Cannot be told.
    Untested,
    /// There was a value, and now there is none.
    Lost,
    /// There was no value.
    NoBase,
}

impl Verdict {
    /// All of them, worst first.
    pub const ALL: [Verdict; 8] = [
        Verdict::Regression,
        Verdict::Lost,
        Verdict::Improvement,
        Verdict::Small,
        Verdict::Insignificant,
        Verdict::Equal,
        Verdict::Untested,
        Verdict::NoBase,
    ];

    /// As tables print it.
    pub fn label(self) -> &'static str {
        match self {
            Verdict::Regression => "regression",
            Verdict::Improvement => "improvement",
            Verdict::Small => "small",
            Verdict::Insignificant => "~",
            Verdict::Equal => "=",
            Verdict::Untested => "untested",
            Verdict::Lost => "lost",
            Verdict::NoBase => "no base",
        }
    }
}

/// One cell under one metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The cell.
    pub cell: CellId,
    /// Its values on the axes.
    pub coords: IndexMap<String, String>,
    /// What it was.
    pub base: Side,
    /// What it is.
    pub new: Side,
    /// What changed, or why that cannot be told.
    pub change: Result<Change, String>,
    /// What that comes to.
    pub verdict: Verdict,
}

/// All cells under one metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// Its name.
    pub name: String,
    /// The cells of both sides, in the base's order.
    pub rows: Vec<Row>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// What was compared.
    pub metrics: Vec<Metric>,
    /// How many of the comparisons have a p-value, which Holm's correction is for.
    pub tests: usize,
    /// Changes up to so many percent are neither regression nor improvement.
    pub threshold: f64,
    /// Cells that the new run's matrix does not have.
    pub only_base: Vec<CellId>,
    /// Cells that the base's matrix does not have.
    pub only_new: Vec<CellId>,
}

impl Comparison {
    /// All rows of all metrics.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.metrics.iter().flat_map(|m| &m.rows)
    }

    /// How many rows came to this.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.rows().filter(|r| r.verdict == verdict).count()
    }
}

/// Compares the cells that both have, in all metrics that both should have.
pub fn compare(base: &Results, new: &Results, options: &Options) -> Comparison {
    let (before, after) = (Observed::of(base), Observed::of(new));
    let names: IndexSet<&str> = before.metrics().chain(after.metrics()).collect();
    let wanted = |name: &&str| options.metrics.is_empty() || options.metrics.iter().any(|m| m == name);
    let metrics = names.into_iter().filter(wanted).map(|name| {
        let rows = base.matrix.cells.iter().filter_map(|cell| {
            let (base, new) = (before.side(&cell.id, name)?, after.side(&cell.id, name)?);
            let change = difference(&base, &new, options.test);
            let (cell, coords) = (cell.id.clone(), cell.coords.clone());
            Some(Row { cell, coords, base, new, change, verdict: Verdict::Untested })
        });
        Metric { name: name.to_owned(), rows: rows.collect() }
    });
    let mut metrics: Vec<Metric> = metrics.collect();
    metrics.retain(|m| !m.rows.is_empty());
    let mut rows: Vec<&mut Row> = metrics.iter_mut().flat_map(|m| &mut m.rows).collect();
    let tests = correct(rows.iter_mut().filter_map(|r| r.change.as_mut().ok()));
    for row in rows {
        row.verdict = verdict(row, options.threshold);
    }
    let missing = |from: &Results, to: &Observed| {
        from.matrix.cells.iter().map(|c| c.id.clone()).filter(|id| !to.has(id)).collect()
    };
    let (only_base, only_new) = (missing(base, &after), missing(new, &before));
    Comparison { metrics, tests, threshold: options.threshold, only_base, only_new }
}

/// Holm's correction over all changes that have a p-value; returns their number.
pub fn correct<'c>(changes: impl Iterator<Item = &'c mut Change>) -> usize {
    let tested: Vec<&mut Change> = changes.filter(|c| c.p.is_some()).collect();
    let adjusted = stats::holm(&tested.iter().filter_map(|c| c.p).collect::<Vec<_>>());
    let tests = adjusted.len();
    for (change, p) in tested.into_iter().zip(adjusted) {
        change.adjusted = Some(p);
    }
    tests
}

/// The difference of two sides, tested as fits their values.
///
/// # Errors
/// Why it cannot be tested.
pub fn difference(base: &Side, new: &Side, unpaired: Unpaired) -> Result<Change, String> {
    let (base, new) = match (base, new) {
        (Side::Values(base), Side::Values(new)) => (base, new),
        _ => return Err("no value on either side or both".to_owned()),
    };
    let test = fitting(base, new, unpaired)?;
    let (old, recent) = (base.observations(), new.observations());
    let (level, outcome) = match test {
        Test::Exact => return Ok(exact(base.estimate.mean, new.estimate.mean)),
        Test::Welch => (base.estimate.mean, stats::welch(&old, &recent)),
        Test::MannWhitney => (base.estimate.median, stats::mann_whitney(&old, &recent)),
        Test::PairedT => {
            let pairs = pairs(base, new);
            let level = pairs.iter().map(|p| p.0).sum::<f64>() / pairs.len() as f64;
            (level, stats::paired_t(&pairs))
        }
    };
    let outcome = outcome.map_err(|e| e.to_string())?;
    let percent = |shift: f64| Some(shift * 100.0 / level.abs()).filter(|p| p.is_finite());
    Ok(Change {
        test,
        shift: outcome.shift,
        percent: percent(outcome.shift),
        interval: percent(outcome.interval.0).zip(percent(outcome.interval.1)),
        p: Some(outcome.p),
        adjusted: None,
    })
}

fn exact(base: f64, new: f64) -> Change {
    let percent = stats::percent_change(new, base).map(|p| p * base.signum());
    let percent = if new == base { Some(0.0) } else { percent };
    Change { test: Test::Exact, shift: new - base, percent, interval: None, p: None, adjusted: None }
}

/// The test that fits how the values came about.
fn fitting(base: &Values, new: &Values, unpaired: Unpaired) -> Result<Test, String> {
    if base.kind != new.kind {
        return Err(format!("{} cannot be held against {}", new.kind.label(), base.kind.label()));
    }
    if (&base.unit, base.better) != (&new.unit, new.better) {
        return Err(format!("another unit or direction: {} and {}", base.unit, new.unit));
    }
    if base.command != new.command {
        return Err("the benchmark's command is another".to_owned());
    }
    let counted = base.kind == Kind::EmulatedInstructions;
    if counted && base.seeded != new.seeded {
        return Err("the boots of one side alone have seeds of their own (`perturb`)".to_owned());
    }
    // One boot under one of several possible seeds has not been seen to repeat.
    let repeats = |v: &Values| v.constant() && (v.boots.len() > 1 || !(counted && v.seeded));
    Ok(match base.kind {
        Kind::Exact | Kind::EmulatedInstructions if repeats(base) && repeats(new) => Test::Exact,
        Kind::EmulatedInstructions if base.seeded => Test::PairedT,
        _ if unpaired == Unpaired::Welch => Test::Welch,
        _ => Test::MannWhitney,
    })
}

/// Boots with the same number, which have the same seed.
fn pairs(base: &Values, new: &Values) -> Vec<(f64, f64)> {
    let new: BTreeMap<_, _> = new.boots.iter().copied().collect();
    base.boots.iter().filter_map(|(boot, value)| Some((*value, *new.get(boot)?))).collect()
}

fn verdict(row: &Row, threshold: f64) -> Verdict {
    match (&row.base, &row.new, &row.change) {
        (Side::Values(_), Side::Failed(_) | Side::Missing, _) => Verdict::Lost,
        (Side::Failed(_) | Side::Missing, ..) => Verdict::NoBase,
        (_, _, Err(_)) => Verdict::Untested,
        (Side::Values(base), _, Ok(change)) => judged(change, base.better, threshold),
    }
}

/// What a change comes to.
pub fn judged(change: &Change, better: Direction, threshold: f64) -> Verdict {
    let worse = match better {
        Direction::Lower => change.shift > 0.0,
        Direction::Higher => change.shift < 0.0,
    };
    if change.test == Test::Exact && change.shift == 0.0 {
        Verdict::Equal
    } else if !change.significant() {
        Verdict::Insignificant
    } else if change.percent.is_some_and(|p| p.abs() <= threshold) {
        Verdict::Small
    } else if worse {
        Verdict::Regression
    } else {
        Verdict::Improvement
    }
}

#[cfg(test)]
mod tests;
