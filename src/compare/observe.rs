//! What one run says of a cell under a metric.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use indexmap::IndexSet;

use crate::model::{Cell, CellId, Direction, Failure, Kind, Results, Sample, is_size};
use crate::stats::{self, Estimate};

/// What there is of a cell under a metric.
#[derive(Debug, Clone, PartialEq)]
pub enum Side {
    /// Values.
    Values(Box<Values>),
    /// A failure, in a word or two.
    Failed(String),
    /// Nothing, although there should be.
    Missing,
}

/// The observations of a cell under a metric: one for each boot.
#[derive(Debug, Clone, PartialEq)]
pub struct Values {
    /// How they came about.
    pub kind: Kind,
    /// Their unit.
    pub unit: String,
    /// Which way is good.
    pub better: Direction,
    /// Boot and mean of its samples; no number for what needs no boot.
    pub boots: Vec<(Option<u32>, f64)>,
    /// What the observations say together.
    pub estimate: Estimate,
    /// 95 % interval of the mean.
    pub interval: Option<(f64, f64)>,
    /// Boots whose observation stands apart from the others'.
    pub outliers: Vec<Option<u32>>,
    /// Whether every boot had a seed of its own (`perturb`).
    pub seeded: bool,
    /// What the guest ran for it.
    pub command: Option<Vec<String>>,
}

impl Values {
    /// One number a boot.
    pub fn observations(&self) -> Vec<f64> {
        self.boots.iter().map(|(_, value)| *value).collect()
    }

    /// Whether all observations are the same.
    pub fn constant(&self) -> bool {
        self.estimate.min == self.estimate.max
    }
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
        let Some(first) = samples.first() else { return Side::Missing };
        let about = |s: &Sample| (s.kind, s.unit.clone(), s.better == first.better);
        if samples.iter().map(|s| about(s)).collect::<BTreeSet<_>>().len() > 1 {
            return Side::Failed("mixed kinds".to_owned());
        }
        let mut boots: BTreeMap<Option<u32>, Vec<f64>> = BTreeMap::new();
        for sample in samples {
            boots.entry(sample.boot).or_default().push(sample.value);
        }
        let mean = |(boot, values): (Option<u32>, Vec<f64>)| Some((boot, Estimate::of(&values)?.mean));
        let boots: Vec<_> = boots.into_iter().filter_map(mean).collect();
        let observations: Vec<f64> = boots.iter().map(|(_, value)| *value).collect();
        let Some(estimate) = Estimate::of(&observations) else { return Side::Missing };
        Side::Values(Box::new(Values {
            kind: first.kind,
            unit: first.unit.clone(),
            better: first.better,
            interval: stats::mean_interval(&observations),
            outliers: stats::outliers(&observations).into_iter().map(|at| boots[at].0).collect(),
            boots,
            estimate,
            seeded: self.results.matrix.boot_of(cell).perturb,
            command: self.command(cell, &first.metric),
        }))
    }

    fn command(&self, cell: &Cell, metric: &str) -> Option<Vec<String>> {
        let (name, _) = metric.split_once('.')?;
        let benchmark = self.results.matrix.benchmarks_of(cell).into_iter().find(|b| b.name == name)?;
        Some(benchmark.argv())
    }
}
