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
