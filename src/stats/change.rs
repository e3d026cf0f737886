//! The difference of two sets of observations, tested as fits what they are.

use super::{ALPHA, Observations, Untested, holm, mann_whitney, paired_t, percent_change, welch};
use crate::model::{Kind, Unpaired};

/// How two sets of observations were compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
        self.adjusted.or(self.p).map_or(self.shift != 0.0, |p| p < ALPHA)
    }
}

/// Holm's correction over all changes that have a p-value; returns their number.
pub fn correct<'c>(changes: impl Iterator<Item = &'c mut Change>) -> usize {
    let tested: Vec<&mut Change> = changes.filter(|c| c.p.is_some()).collect();
    let adjusted = holm(&tested.iter().filter_map(|c| c.p).collect::<Vec<_>>());
    let tests = adjusted.len();
    for (change, p) in tested.into_iter().zip(adjusted) {
        change.adjusted = Some(p);
    }
    tests
}

/// The difference of two cells' observations, tested as fits them.
///
/// # Errors
/// Why it cannot be tested.
pub fn difference(base: &Observations, new: &Observations, unpaired: Unpaired) -> Result<Change, Untested> {
    let test = fitting(base, new, unpaired)?;
    let (old, recent) = (base.values(), new.values());
    let (level, outcome) = match test {
        Test::Exact => return Ok(exact(base.estimate.mean, new.estimate.mean)),
        Test::Welch => (base.estimate.mean, welch(&old, &recent)?),
        Test::MannWhitney => (base.estimate.median, mann_whitney(&old, &recent)?),
        Test::PairedT => {
            let pairs = base.paired_with(new);
            let level = pairs.iter().map(|p| p.0).sum::<f64>() / pairs.len() as f64;
            (level, paired_t(&pairs)?)
        }
    };
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
    let percent = percent_change(new, base).map(|p| p * base.signum());
    let percent = if new == base { Some(0.0) } else { percent };
    Change { test: Test::Exact, shift: new - base, percent, interval: None, p: None, adjusted: None }
}

/// The test that fits how the values came about.
fn fitting(base: &Observations, new: &Observations, unpaired: Unpaired) -> Result<Test, Untested> {
    let unlike = |why: String| Err(Untested::Unlike(why));
    if base.kind != new.kind {
        return unlike(format!("{} cannot be held against {}", new.kind.label(), base.kind.label()));
    }
    if (&base.unit, base.better) != (&new.unit, new.better) {
        return unlike(format!("another unit or direction: {} and {}", base.unit, new.unit));
    }
    if base.command != new.command {
        return unlike("the benchmark's command is another".to_owned());
    }
    let counted = base.kind == Kind::EmulatedInstructions;
    if counted && base.seeded != new.seeded {
        return unlike("the boots of one side alone have seeds of their own (`perturb`)".to_owned());
    }
    Ok(if base.repeats() && new.repeats() {
        Test::Exact
    } else if counted && base.seeded {
        Test::PairedT
    } else {
        match unpaired {
            Unpaired::Welch => Test::Welch,
            Unpaired::MannWhitney => Test::MannWhitney,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::observe::tests::observed;
    use super::*;

    const CLOCK: Kind = Kind::EmulatedWallClock;
    const COUNT: Kind = Kind::EmulatedInstructions;

    fn of(base: &Observations, new: &Observations) -> Result<Change, Untested> {
        difference(base, new, Unpaired::Welch)
    }

    /// SciPy 1.17: `ttest_ind(equal_var=False)` of the boots' means 1, 2, 3 and
    /// 2, 4, 5 gives p = 0.2002 (statistic 1.5811, 3.448 degrees of freedom).
    #[test]
    fn boots_are_held_against_boots() {
        let base = observed(CLOCK, false, &[&[0.5, 1.5], &[2.0], &[3.0, 3.0, 3.0]]);
        let new = observed(CLOCK, false, &[&[2.0], &[4.0], &[4.0, 6.0]]);
        let change = of(&base, &new).unwrap();
        assert_eq!((change.test, change.percent.map(f64::round)), (Test::Welch, Some(83.0)));
        assert!((change.p.unwrap() - 0.200_173_039_520).abs() < 1e-9, "{change:?}");
        assert!(!change.significant());
    }

    #[test]
    fn what_fits() {
        let (count, seeds) = (observed(COUNT, false, &[&[1.0]]), observed(COUNT, true, &[&[1.0], &[1.1]]));
        assert_eq!(of(&count, &count).unwrap().test, Test::Exact);
        assert_eq!(of(&seeds, &seeds).unwrap().test, Test::PairedT);
        let one_side = "the boots of one side alone have seeds of their own (`perturb`)";
        assert_eq!(of(&count, &seeds).unwrap_err().to_string(), one_side);
        let clock = observed(CLOCK, false, &[&[1.0]]);
        assert_eq!(of(&clock, &clock), Err(Untested::TooFew(2)));
        let other = Observations { command: Some(vec!["b".into()]), ..clock.clone() };
        assert_eq!(of(&clock, &other).unwrap_err().to_string(), "the benchmark's command is another");
    }

    #[test]
    fn correction_makes_less_significant() {
        let change =
            |p| Change { test: Test::Welch, shift: 1.0, percent: None, interval: None, p, adjusted: None };
        let mut all = [change(Some(0.03)), change(None), change(Some(0.02))];
        assert!(all.iter().all(Change::significant));
        assert_eq!(correct(all.iter_mut()), 2);
        assert_eq!(all.each_ref().map(|c| c.adjusted), [Some(0.04), None, Some(0.04)]);
        assert_eq!(correct([change(Some(0.03)), change(Some(0.03))].iter_mut()), 2);
    }
}
