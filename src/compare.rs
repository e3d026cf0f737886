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

use indexmap::{IndexMap, IndexSet};

use crate::model::{CellId, Direction, Results};
use crate::stats;

pub use crate::model::Unpaired;
pub use crate::stats::{Change, Observations, Test, Untested, correct};
pub use confound::confounders;
pub use json::json;
pub use observe::{Observed, Side};
pub use table::{change, decimals, heading, metric_tables, number, summary};

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
    pub change: Result<Change, Untested>,
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

/// The difference of two sides, tested as fits their values.
///
/// # Errors
/// Why it cannot be tested.
pub fn difference(base: &Side, new: &Side, unpaired: Unpaired) -> Result<Change, Untested> {
    match (base, new) {
        (Side::Values(base), Side::Values(new)) => stats::difference(base, new, unpaired),
        _ => Err(Untested::NoValue),
    }
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
