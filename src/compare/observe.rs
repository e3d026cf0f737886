//! What one run says of a cell under a metric.

use std::collections::HashMap;

use indexmap::IndexSet;

use crate::model::{Cell, CellId, Failure, Results, Sample, Statistic, is_size};
use crate::stats::{Observations, Untested};

/// What there is of a cell under a metric.
#[derive(Debug, Clone, PartialEq)]
pub enum Side {
    /// Values.
    Values(Box<Observations>),
    /// A failure, in a word or two.
    Failed(String),
    /// Nothing, although there should be.
    Missing,
}

/// A run's samples by cell and metric.
#[derive(Debug)]
pub struct Observed<'a> {
    results: &'a Results,
    cells: HashMap<&'a CellId, &'a Cell>,
    samples: HashMap<(&'a CellId, &'a str), Vec<&'a Sample>>,
    metrics: IndexSet<&'a str>,
}

impl<'a> Observed<'a> {
    /// Sorts a run's samples; those of cells that its matrix does not have
    /// (or no longer, after a selection) are left aside.
    pub fn of(results: &'a Results) -> Observed<'a> {
        let cells: HashMap<_, _> = results.matrix.cells.iter().map(|c| (&c.id, c)).collect();
        let mut samples: HashMap<_, Vec<&Sample>> = HashMap::new();
        let mut metrics = IndexSet::new();
        for sample in results.samples.iter().filter(|s| cells.contains_key(&s.cell)) {
            samples.entry((&sample.cell, sample.metric.as_str())).or_default().push(sample);
            metrics.insert(sample.metric.as_str());
        }
        Observed { results, cells, samples, metrics }
    }

    /// Everything that was measured in any cell.
    pub fn metrics(&self) -> impl Iterator<Item = &'a str> {
        self.metrics.iter().copied()
    }

    /// Whether the matrix has this cell.
    pub fn has(&self, cell: &CellId) -> bool {
        self.cells.contains_key(cell)
    }

    /// What there is of a cell under a metric; `None` where the matrix does not
    /// ask for it.
    pub fn side(&self, id: &CellId, metric: &str) -> Option<Side> {
        let cell = *self.cells.get(id)?;
        let failures = self.results.failures.get(id).into_iter().flatten();
        if let Some(failure) = failures.clone().find(|f: &&Failure| f.concerns(metric)) {
            return self.expected(metric).then(|| Side::Failed(failure.what.clone()));
        }
        match self.samples.get(&(id, metric)) {
            Some(samples) => Some(self.values(cell, samples)),
            None => self.expected(metric).then_some(Side::Missing),
        }
    }

    fn expected(&self, metric: &str) -> bool {
        let benchmark = metric.split_once('.').map(|(name, _)| name);
        let runs = || self.results.matrix.benchmarks.iter().any(|b| Some(b.name.as_str()) == benchmark);
        self.metrics.contains(metric) || is_size(metric) || runs()
    }

    fn values(&self, cell: &Cell, samples: &[&Sample]) -> Side {
        let seeded = self.results.matrix.boot_of(cell).perturb;
        match Observations::of(samples, Statistic::Mean, seeded) {
            Ok(values) => {
                let command = samples.first().and_then(|first| self.command(cell, &first.metric));
                Side::Values(Box::new(Observations { command, ..values }))
            }
            Err(Untested::Unlike(what)) => Side::Failed(what),
            Err(_) => Side::Missing,
        }
    }

    fn command(&self, cell: &Cell, metric: &str) -> Option<Vec<String>> {
        let (name, _) = metric.split_once('.')?;
        let benchmark = self.results.matrix.benchmarks_of(cell).into_iter().find(|b| b.name == name)?;
        Some(benchmark.argv())
    }
}
