//! What is repeated is the boot: its samples come to one observation.
//!
//! Runs within one boot share its memory layout and more; each taken for an
//! observation of its own would feign a precision that the next boot does not
//! keep.

use std::collections::BTreeMap;

use super::{Estimate, Untested, mean_interval, median_interval, outliers};
use crate::model::{Direction, Kind, Sample, Statistic};

/// The observations of a cell under a metric: one for each boot.
#[derive(Debug, Clone, PartialEq)]
pub struct Observations {
    /// How they came about.
    pub kind: Kind,
    /// Their unit.
    pub unit: String,
    /// Which way is good.
    pub better: Direction,
    /// Boot and what its samples come to; no number for what needs no boot.
    pub boots: Vec<(Option<u32>, f64)>,
    /// What the observations say together.
    pub estimate: Estimate,
    /// Whether every boot had a seed of its own (`perturb`).
    pub seeded: bool,
    /// What the guest ran for it, where another command would be another matter.
    pub command: Option<Vec<String>>,
}

/// What each boot's samples of one metric come to, in the order of the boots;
/// `None` without a sample, or with one that is not a finite number.
pub fn by_boot<'s>(
    samples: impl IntoIterator<Item = &'s Sample>,
    statistic: Statistic,
) -> Option<Vec<(Option<u32>, f64)>> {
    let mut boots: BTreeMap<Option<u32>, Vec<f64>> = BTreeMap::new();
    for sample in samples {
        boots.entry(sample.boot).or_default().push(sample.value);
    }
    let observation = |(boot, values): (_, Vec<f64>)| Some((boot, Estimate::of(&values)?.value(statistic)));
    let boots: Option<Vec<_>> = boots.into_iter().map(observation).collect();
    boots.filter(|boots| !boots.is_empty())
}

impl Observations {
    /// Those of one cell's samples of one metric; `statistic` is what a boot's
    /// samples come to.
    ///
    /// # Errors
    /// No sample, or samples that do not belong together.
    pub fn of(samples: &[&Sample], statistic: Statistic, seeded: bool) -> Result<Observations, Untested> {
        let first = samples.first().ok_or(Untested::NoValue)?;
        let alike = |s: &&Sample| (s.kind, &s.unit, s.better) == (first.kind, &first.unit, first.better);
        if !samples.iter().all(alike) {
            return Err(Untested::Unlike("mixed kinds".to_owned()));
        }
        let boots = by_boot(samples.iter().copied(), statistic).ok_or(Untested::Range)?;
        Ok(Observations {
            kind: first.kind,
            unit: first.unit.clone(),
            better: first.better,
            estimate: estimate(&boots)?,
            boots,
            seeded,
            command: None,
        })
    }

    /// What `figure` makes of several in each boot that all of them have.
    ///
    /// # Errors
    /// No boot that all have, or values of more than one kind.
    pub fn combined(all: &[&Observations], figure: impl Fn(&[f64]) -> f64) -> Result<Observations, Untested> {
        let (first, others) = all.split_first().ok_or(Untested::NoValue)?;
        if others.iter().any(|o| (o.kind, o.seeded) != (first.kind, first.seeded)) {
            return Err(Untested::Unlike("values of more than one kind".to_owned()));
        }
        let in_boot = |boot| all.iter().map(|o| o.in_boot(boot)).collect::<Option<Vec<f64>>>();
        let boots = first.boots.iter().filter_map(|(boot, _)| Some((*boot, figure(&in_boot(*boot)?))));
        let boots: Vec<_> = boots.collect();
        Ok(Observations { estimate: estimate(&boots)?, boots, ..(*first).clone() })
    }

    fn in_boot(&self, boot: Option<u32>) -> Option<f64> {
        self.boots.iter().find(|(b, _)| *b == boot).map(|(_, value)| *value)
    }

    /// One number a boot.
    pub fn values(&self) -> Vec<f64> {
        numbers(&self.boots)
    }

    /// 95 % interval of their mean, or of their median; `None` where there are
    /// too few of them, and for whatever else they come to.
    pub fn interval(&self, statistic: Statistic) -> Option<(f64, f64)> {
        match statistic {
            Statistic::Mean => mean_interval(&self.values()),
            Statistic::Median => median_interval(&self.values()),
            _ => None,
        }
    }

    /// Boots whose observation stands apart from the others'.
    pub fn outliers(&self) -> Vec<Option<u32>> {
        outliers(&self.values()).into_iter().map(|at| self.boots[at].0).collect()
    }

    /// Whether another boot would say the same to the last digit. One boot
    /// under one of several possible seeds has not been seen to repeat.
    pub fn repeats(&self) -> bool {
        let constant = self.estimate.min == self.estimate.max;
        match self.kind {
            Kind::Exact => constant,
            Kind::EmulatedInstructions => constant && (self.boots.len() > 1 || !self.seeded),
            _ => false,
        }
    }

    /// Both values of each boot number that both have, which is their seed.
    pub(super) fn paired_with(&self, new: &Observations) -> Vec<(f64, f64)> {
        let new: BTreeMap<_, _> = new.boots.iter().copied().collect();
        self.boots.iter().filter_map(|(boot, value)| Some((*value, *new.get(boot)?))).collect()
    }
}

fn numbers(boots: &[(Option<u32>, f64)]) -> Vec<f64> {
    boots.iter().map(|(_, value)| *value).collect()
}

fn estimate(boots: &[(Option<u32>, f64)]) -> Result<Estimate, Untested> {
    Estimate::of(&numbers(boots)).ok_or(if boots.is_empty() { Untested::NoValue } else { Untested::Range })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::model::CellId;

    pub fn sample(boot: Option<u32>, value: f64) -> Sample {
        Sample {
            cell: CellId("c".into()),
            metric: "b.time".into(),
            value,
            unit: "s".into(),
            better: Direction::Lower,
            kind: Kind::EmulatedWallClock,
            boot,
            iteration: None,
        }
    }

    /// One cell's observations: the samples of boots 1, 2, ...
    pub fn observed(kind: Kind, seeded: bool, boots: &[&[f64]]) -> Observations {
        let boots = (1..).zip(boots);
        let samples: Vec<Sample> = boots
            .flat_map(|(boot, values)| values.iter().map(move |v| Sample { kind, ..sample(Some(boot), *v) }))
            .collect();
        Observations::of(&samples.iter().collect::<Vec<_>>(), Statistic::Mean, seeded).unwrap()
    }

    const CLOCK: Kind = Kind::EmulatedWallClock;
    const COUNT: Kind = Kind::EmulatedInstructions;

    #[test]
    fn a_boot_is_one_observation() {
        let samples = [(2, 5.0), (1, 1.0), (1, 9.0), (1, 2.0)].map(|(boot, v)| sample(Some(boot), v));
        let of = |statistic| by_boot(&samples, statistic).unwrap();
        assert_eq!(of(Statistic::Mean), [(Some(1), 4.0), (Some(2), 5.0)]);
        assert_eq!(of(Statistic::Median), [(Some(1), 2.0), (Some(2), 5.0)]);
        assert_eq!(of(Statistic::Max), [(Some(1), 9.0), (Some(2), 5.0)]);
        assert_eq!(by_boot(&[], Statistic::Mean), None);
        assert_eq!(by_boot(&[sample(None, 1.0), sample(None, f64::NAN)], Statistic::Mean), None);
    }

    #[test]
    fn what_does_not_belong_together() {
        let (one, mut other) = (sample(Some(1), 1.0), sample(Some(2), 1.0));
        other.unit = "ms".into();
        let of = |samples: &[&Sample]| Observations::of(samples, Statistic::Mean, false);
        assert_eq!(of(&[&one, &other]).unwrap_err().to_string(), "mixed kinds");
        assert_eq!(of(&[]), Err(Untested::NoValue));
        let (clock, count) = (observed(CLOCK, false, &[&[1.0]]), observed(COUNT, false, &[&[1.0]]));
        let sum = |all: &[&Observations]| Observations::combined(all, |v| v.iter().sum());
        assert_eq!(sum(&[&clock, &count]).unwrap_err().to_string(), "values of more than one kind");
        assert_eq!(sum(&[]), Err(Untested::NoValue));
    }

    #[test]
    fn combined_in_the_boots_that_all_have() {
        let (a, b) = (observed(CLOCK, false, &[&[1.0, 3.0], &[5.0]]), observed(CLOCK, false, &[&[10.0]]));
        let sum = Observations::combined(&[&a, &b], |v| v.iter().sum()).unwrap();
        assert_eq!(sum.boots, [(Some(1), 12.0)]);
        let mut elsewhere = b.clone();
        elsewhere.boots[0].0 = Some(7);
        assert_eq!(Observations::combined(&[&a, &elsewhere], |v| v[0]), Err(Untested::NoValue));
    }

    #[test]
    fn what_repeats_is_exact() {
        assert!(observed(Kind::Exact, false, &[&[1.0]]).repeats());
        assert!(!observed(Kind::Exact, false, &[&[1.0], &[2.0]]).repeats());
        assert!(observed(COUNT, false, &[&[1.0, 2.0]]).repeats());
        assert!(!observed(COUNT, true, &[&[1.0]]).repeats(), "another seed may say something else");
        assert!(observed(COUNT, true, &[&[1.0], &[1.0]]).repeats());
        assert!(!observed(CLOCK, false, &[&[1.0], &[1.0]]).repeats());
    }

    /// Boots 99, 100, 101: standard error 1/sqrt(3), t(0.975, 2) = 4.30265
    /// (table), half width 2.48414. Of six sorted values the interval of the
    /// median is from the first to the last (binomial(6, 1/2): 96.9 %).
    #[test]
    fn intervals_over_boots() {
        let three = observed(CLOCK, false, &[&[98.0, 100.0], &[100.0], &[101.0]]);
        let (low, high) = three.interval(Statistic::Mean).unwrap();
        assert!((low - 97.51586).abs() < 1e-5 && (high - 102.48414).abs() < 1e-5, "{low} {high}");
        assert_eq!(three.interval(Statistic::Median), None);
        assert_eq!(three.interval(Statistic::Max), None);
        let six = observed(CLOCK, false, &[&[4.0], &[2.0], &[6.0], &[1.0], &[3.0], &[5.0]]);
        assert_eq!(six.interval(Statistic::Median), Some((1.0, 6.0)));
    }
}
