//! When a cell has been booted often enough. Pure.

use indexmap::IndexMap;

use crate::model::{Benchmark, Sample, Statistic, is_of};
use crate::stats::{by_boot, mean_interval};
use crate::store::BootRecord;

/// Fewer say nothing of how far boots lie apart.
const LEAST: usize = 3;

/// Whether the 95 % interval of every benchmark metric's mean reaches at most
/// `percent` of that mean to either side. The mean of a boot is one observation.
pub fn is_known(boots: &[&BootRecord], benchmarks: &[Benchmark], percent: f64) -> bool {
    if boots.iter().any(|boot| !boot.failures.is_empty()) {
        return true;
    }
    let mut samples: IndexMap<&str, Vec<&Sample>> = IndexMap::new();
    for sample in boots.iter().flat_map(|boot| &boot.samples) {
        if benchmarks.iter().any(|b| is_of(&sample.metric, &b.name)) {
            samples.entry(&sample.metric).or_default().push(sample);
        }
    }
    let known = |samples: Vec<&Sample>| {
        let means = by_boot(samples, Statistic::Mean).filter(|means| means.len() == boots.len())?;
        let means: Vec<f64> = means.into_iter().map(|(_, mean)| mean).collect();
        let (low, high) = mean_interval(&means)?;
        let (half, mean) = ((high - low) / 2.0, (low + high) / 2.0);
        Some(half <= mean.abs() * percent / 100.0)
    };
    boots.len() >= LEAST && samples.into_values().all(|samples| known(samples) == Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{CellId, Direction, Failure, Kind, Stage};

    fn boot(metric: &str, values: &[f64]) -> BootRecord {
        let sample = |value: &f64| Sample {
            cell: CellId("c".into()),
            metric: metric.into(),
            value: *value,
            unit: "s".into(),
            better: Direction::Lower,
            kind: Kind::EmulatedWallClock,
            boot: Some(1),
            iteration: Some(1),
        };
        let samples = values.iter().map(sample).collect();
        BootRecord { cell: CellId("c".into()), boot: 1, kernel: "k".into(), samples, failures: vec![] }
    }

    fn known(boots: &[BootRecord], percent: f64) -> bool {
        let benchmark = Benchmark {
            name: "b".into(),
            command: vec![],
            repeat: 1,
            timeout_s: 1,
            pattern: String::new(),
            section: None,
            metrics: IndexMap::new(),
            packages: vec![],
            files: vec![],
            guest: Default::default(),
            console: None,
        };
        let mut boots = boots.to_vec();
        for (n, boot) in (1..).zip(&mut boots) {
            boot.boot = n;
            boot.samples.iter_mut().for_each(|sample| sample.boot = Some(n));
        }
        is_known(&boots.iter().collect::<Vec<_>>(), &[benchmark], percent)
    }

    #[test]
    fn boots_are_what_is_counted() {
        // Means 99, 100, 101: standard error 1/sqrt(3), t(2) = 4.3027, half width 2.484.
        let boots = [boot("b.t", &[98.0, 100.0]), boot("b.t", &[100.0]), boot("b.t", &[101.0])];
        assert!(known(&boots, 2.5));
        assert!(!known(&boots, 2.4));
        assert!(!known(&boots[..2], 100.0), "two are too few");
    }

    #[test]
    fn what_is_no_benchmark_s_does_not_count_and_a_failure_ends_it() {
        let other = [boot("boot.init", &[1.0]), boot("boot.init", &[9.0]), boot("bc.t", &[5.0])];
        assert!(known(&other, 1.0));
        let mut failed = [boot("b.t", &[1.0]), boot("b.t", &[9.0])];
        assert!(!known(&failed, 1.0));
        failed[1].failures.push(Failure::new(Stage::Boot, "panic", ""));
        assert!(known(&failed, 1.0));
    }

    #[test]
    fn a_metric_that_some_boots_lack_is_not_known() {
        assert!(!known(&[boot("b.t", &[1.0]), boot("b.t", &[1.0]), boot("b.u", &[1.0])], 50.0));
    }
}
