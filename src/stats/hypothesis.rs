//! Is the difference of two sets of observations more than chance? Two-sided
//! tests, each with an estimate of the shift and its 95 % interval.

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use super::interval::t_quantile;
use super::{ALPHA, Estimate};

/// What a test says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// Chance of at least this difference if there were none.
    pub p: f64,
    /// How much greater the new observations are than the base's.
    pub shift: f64,
    /// Where the true shift lies, with 95 % confidence.
    pub interval: (f64, f64),
}

/// Why a test can say nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Untested {
    /// Nothing to compare.
    #[error("no value on either side or both")]
    NoValue,
    /// Values that cannot be held against each other, and why.
    #[error("{0}")]
    Unlike(String),
    /// Not enough observations.
    #[error("too few boots: the test needs {0} on each side")]
    TooFew(usize),
    /// Constant on both sides: the spread that a difference is held against is unknown.
    #[error("no spread on either side")]
    NoSpread,
    /// Numbers whose squares are none.
    #[error("values out of range")]
    Range,
}

/// Welch's t-test of two means, for normal observations of any two variances
/// (B. L. Welch, Biometrika 34, 1947).
///
/// # Errors
/// Too few observations, or ones without spread.
pub fn welch(base: &[f64], new: &[f64]) -> Result<Outcome, Untested> {
    let (a, b) = (estimate(base)?, estimate(new)?);
    let error_of = |e: &Estimate| e.stddev.map(|s| s * s / e.n as f64).ok_or(Untested::TooFew(2));
    let (va, vb) = (error_of(&a)?, error_of(&b)?);
    let shift = b.mean - a.mean;
    let error = (va + vb).sqrt();
    // As much as rounding alone makes of constants.
    if error <= 10.0 * f64::EPSILON * a.mean.abs().max(b.mean.abs()) {
        return same(shift).ok_or(Untested::NoSpread);
    }
    // As shares of the sum: squares of it would leave the range sooner.
    let (wa, wb) = (va / (va + vb), vb / (va + vb));
    let freedom = 1.0 / (wa * wa / (a.n - 1) as f64 + wb * wb / (b.n - 1) as f64);
    by_t(shift, error, freedom)
}

/// Student's t-test of the differences within pairs (base, new).
///
/// # Errors
/// Less than two pairs.
pub fn paired_t(pairs: &[(f64, f64)]) -> Result<Outcome, Untested> {
    let differences: Vec<f64> = pairs.iter().map(|(base, new)| new - base).collect();
    let all = estimate(&differences)?;
    let error = all.stddev.ok_or(Untested::TooFew(2))? / (all.n as f64).sqrt();
    let largest = pairs.iter().fold(0.0, |max: f64, (a, b)| max.max(a.abs()).max(b.abs()));
    if error <= 10.0 * f64::EPSILON * largest {
        // The same difference in every pair: the limit of an ever smaller spread.
        let exact = Outcome { p: 0.0, shift: all.mean, interval: (all.mean, all.mean) };
        return Ok(same(all.mean).unwrap_or(exact));
    }
    by_t(all.mean, error, (all.n - 1) as f64)
}

/// The Mann-Whitney U test (Wilcoxon's rank sum), for observations of any
/// distribution; the shift is that of Hodges and Lehmann. Exact where no two
/// observations are equal and both sides are below 50, else the normal
/// approximation with corrections for ties and continuity.
///
/// # Errors
/// So few observations that no difference could be significant.
pub fn mann_whitney(base: &[f64], new: &[f64]) -> Result<Outcome, Untested> {
    estimate(base)?;
    estimate(new)?;
    let (m, n) = (base.len(), new.len());
    let ranks = Ranks::of(m, n);
    if 2.0 * ranks.below(0) > ALPHA {
        return Err(Untested::TooFew((1..).find(|k| 2.0 * Ranks::of(*k, *k).below(0) <= ALPHA).unwrap_or(4)));
    }
    let mut shifts: Vec<f64> = new.iter().flat_map(|b| base.iter().map(move |a| b - a)).collect();
    shifts.sort_by(f64::total_cmp);
    let above = shifts.iter().filter(|d| **d > 0.0).count() as f64;
    let equal = shifts.iter().filter(|d| **d == 0.0).count() as f64;
    let u = above + equal / 2.0;
    let ties = ties(base, new);
    let p = if ties == 0.0 && ranks.exact() {
        let tail = u.min((m * n) as f64 - u);
        (2.0 * ranks.below(tail as usize)).min(1.0)
    } else {
        normal_p(u, m as f64, n as f64, ties)
    };
    let cut = (0..m * n / 2).take_while(|k| ranks.below(*k) <= ALPHA / 2.0).count().saturating_sub(1);
    let middle = (shifts[(m * n - 1) / 2] + shifts[m * n / 2]) / 2.0;
    Ok(Outcome { p, shift: middle, interval: (shifts[cut], shifts[m * n - 1 - cut]) })
}

/// Holm's correction for several comparisons at once (S. Holm, Scandinavian
/// Journal of Statistics 6, 1979): each p-value as it is to be held against
/// [`ALPHA`], so that one false alarm among all has that chance.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let mut adjusted = vec![0.0; p.len()];
    let mut greatest: f64 = 0.0;
    for (rank, at) in order.into_iter().enumerate() {
        greatest = greatest.max(p[at] * (p.len() - rank) as f64).min(1.0);
        adjusted[at] = greatest;
    }
    adjusted
}

fn estimate(values: &[f64]) -> Result<Estimate, Untested> {
    if values.is_empty() {
        return Err(Untested::TooFew(2));
    }
    Estimate::of(values).ok_or(Untested::Range)
}

/// No difference at all, and no spread.
fn same(shift: f64) -> Option<Outcome> {
    (shift == 0.0).then_some(Outcome { p: 1.0, shift, interval: (0.0, 0.0) })
}

fn by_t(shift: f64, error: f64, freedom: f64) -> Result<Outcome, Untested> {
    if !(shift.is_finite() && error.is_finite()) {
        return Err(Untested::Range);
    }
    let t = StudentsT::new(0.0, 1.0, freedom).map_err(|_| Untested::Range)?;
    let half = error * t_quantile(freedom).ok_or(Untested::Range)?;
    let p = (2.0 * t.cdf(-(shift / error).abs())).min(1.0);
    Ok(Outcome { p, shift, interval: (shift - half, shift + half) })
}

/// Distribution of U without ties if there is no difference.
struct Ranks {
    sizes: (usize, usize),
    /// Chance of at most so much; empty where the normal one is near enough.
    cumulative: Vec<f64>,
}

impl Ranks {
    /// Largest side that is counted out, as R does it.
    const COUNTED: usize = 49;

    fn of(m: usize, n: usize) -> Ranks {
        if m.max(n) > Ranks::COUNTED {
            return Ranks { sizes: (m, n), cumulative: Vec::new() };
        }
        // Ways to choose `taken` of the first ranks with a sum of `u` above the least.
        let mut ways = vec![vec![0.0; m * n + 1]; m + 1];
        ways[0][0] = 1.0;
        for rank in 1..=m + n {
            for taken in (1..=m.min(rank)).rev() {
                let step = rank - taken;
                for u in (step..=m * n).rev() {
                    ways[taken][u] += ways[taken - 1][u - step];
                }
            }
        }
        let total: f64 = ways[m].iter().sum();
        let running = ways[m].iter().scan(0.0, |sum, w| {
            *sum += w;
            Some(*sum / total)
        });
        Ranks { sizes: (m, n), cumulative: running.collect() }
    }

    fn exact(&self) -> bool {
        !self.cumulative.is_empty()
    }

    /// Chance of a U of at most `u`.
    fn below(&self, u: usize) -> f64 {
        let (m, n) = (self.sizes.0 as f64, self.sizes.1 as f64);
        match self.cumulative.get(u) {
            Some(p) => *p,
            None if self.exact() => 1.0,
            None => {
                Normal::standard().cdf((u as f64 + 0.5 - m * n / 2.0) / (m * n * (m + n + 1.0) / 12.0).sqrt())
            }
        }
    }
}

/// Sum of t³ - t over the groups of equal observations.
fn ties(base: &[f64], new: &[f64]) -> f64 {
    let mut all = [base, new].concat();
    all.sort_by(f64::total_cmp);
    let groups = all.chunk_by(|a, b| a == b).map(|group| group.len() as f64);
    groups.map(|t| t * t * t - t).sum()
}

fn normal_p(u: f64, m: f64, n: f64, ties: f64) -> f64 {
    let all = m + n;
    let variance = m * n / 12.0 * (all + 1.0 - ties / (all * (all - 1.0)));
    let away = ((u - m * n / 2.0).abs() - 0.5).max(0.0);
    if variance <= 0.0 { 1.0 } else { (2.0 * Normal::standard().cdf(-away / variance.sqrt())).min(1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hours of sleep gained under two drugs, ten patients: A. R. Cushny and
    /// A. R. Peebles (1905), in Student, Biometrika 6 (1908); R's data set `sleep`.
    const DRUG_1: [f64; 10] = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
    const DRUG_2: [f64; 10] = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];

    #[track_caller]
    fn near(value: f64, expected: f64, digits: f64) {
        assert!((value - expected).abs() <= digits, "{value} is not {expected}");
    }

    /// R's documentation of `t.test`, t.test(extra ~ group, data = sleep):
    /// p-value = 0.07939, interval -3.3654832 0.2054832 for the other direction.
    #[test]
    fn welch_of_sleep() {
        let outcome = welch(&DRUG_1, &DRUG_2).unwrap();
        near(outcome.p, 0.07939, 5e-6);
        near(outcome.shift, 1.58, 1e-12);
        near(outcome.interval.0, -0.2054832, 5e-8);
        near(outcome.interval.1, 3.3654832, 5e-8);
    }

    /// The same with `paired = TRUE`: p-value = 0.002833, 0.7001142 2.4598858.
    #[test]
    fn paired_t_of_sleep() {
        let pairs: Vec<_> = DRUG_1.into_iter().zip(DRUG_2).collect();
        let outcome = paired_t(&pairs).unwrap();
        near(outcome.p, 0.002833, 5e-7);
        near(outcome.interval.0, 0.7001142, 5e-8);
        near(outcome.interval.1, 2.4598858, 5e-8);
    }

    /// M. Hollander, D. A. Wolfe: Nonparametric Statistical Methods (1973),
    /// p. 69: permeability of the chorioamnion; R's documentation of
    /// `wilcox.test` gives W = 35 and a one-sided p-value of 0.1272.
    #[test]
    fn mann_whitney_counted_out() {
        let term = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46];
        let early = [1.15, 0.88, 0.90, 0.74, 1.21];
        let outcome = mann_whitney(&early, &term).unwrap();
        near(outcome.p / 2.0, 0.1272, 5e-5);
        near(outcome.shift, 0.305, 1e-12);
        let other = mann_whitney(&term, &early).unwrap();
        near(other.p, outcome.p, 1e-12);
        assert_eq!(other.interval, (-outcome.interval.1, -outcome.interval.0));
    }

    /// With ties: wilcox.test(extra ~ group, data = sleep) in R gives
    /// W = 25.5, p-value = 0.06933.
    #[test]
    fn mann_whitney_with_ties() {
        near(mann_whitney(&DRUG_1, &DRUG_2).unwrap().p, 0.06933, 5e-6);
        assert_eq!(mann_whitney(&[1.0; 5], &[1.0; 5]).unwrap().p, 1.0);
    }

    /// The interval holds exactly the shifts that the test does not reject.
    #[test]
    fn interval_of_mann_whitney_is_the_test_inverted() {
        let base: Vec<f64> = (0..7).map(|i| f64::from(i * i) * 0.37).collect();
        let new: Vec<f64> = (0..9).map(|i| f64::from(i) * 1.91 + 0.13).collect();
        let (low, high) = mann_whitney(&base, &new).unwrap().interval;
        let p = |by: f64| mann_whitney(&base, &new.iter().map(|v| v - by).collect::<Vec<_>>()).unwrap().p;
        assert!(p(low - 1e-9) <= ALPHA && p(low + 1e-9) > ALPHA, "{} {}", p(low - 1e-9), p(low + 1e-9));
        assert!(p(high + 1e-9) <= ALPHA && p(high - 1e-9) > ALPHA);
    }

    #[test]
    fn exact_and_normal_distributions_meet() {
        let exact = Ranks::of(49, 49);
        let normal = Ranks { sizes: (49, 49), cumulative: Vec::new() };
        for u in [700, 900, 1000, 1200] {
            near(exact.below(u), normal.below(u), 5e-4);
        }
        assert_eq!(Ranks::of(60, 3).cumulative.len(), 0);
        near(Ranks::of(2, 3).below(0), 0.1, 1e-12);
    }

    #[test]
    fn too_little_is_said() {
        assert_eq!(welch(&[1.0], &[1.0, 2.0]), Err(Untested::TooFew(2)));
        assert_eq!(welch(&[1.0, 2.0], &[]), Err(Untested::TooFew(2)));
        assert_eq!(paired_t(&[(1.0, 2.0)]), Err(Untested::TooFew(2)));
        assert_eq!(paired_t(&[]), Err(Untested::TooFew(2)));
        // 3 against 3: 2 of 20 orders are as extreme, 10 %.
        assert_eq!(mann_whitney(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]), Err(Untested::TooFew(4)));
        near(mann_whitney(&[1.0, 2.0, 3.0, 4.0], &[5.0, 6.0, 7.0, 8.0]).unwrap().p, 2.0 / 70.0, 1e-12);
    }

    #[test]
    fn constants() {
        assert_eq!(welch(&[3.0; 4], &[3.1; 4]), Err(Untested::NoSpread));
        assert_eq!(welch(&[0.1; 4], &[0.1; 3]).unwrap().p, 1.0);
        assert_eq!(paired_t(&[(1.0, 1.5), (2.0, 2.5), (9.0, 9.5)]).unwrap().p, 0.0);
        assert_eq!(paired_t(&[(1.0, 1.0), (2.0, 2.0)]).unwrap().p, 1.0);
    }

    #[test]
    fn numbers_out_of_range() {
        let huge = [f64::MAX, -f64::MAX, 1.0];
        assert_eq!(welch(&huge, &[1.0, 2.0]), Err(Untested::Range));
        assert_eq!(welch(&[f64::NAN, 1.0], &[1.0, 2.0]), Err(Untested::Range));
        assert_eq!(paired_t(&[(f64::MAX, -f64::MAX), (0.0, 1.0)]), Err(Untested::Range));
    }

    /// R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm") is 0.03 0.06 0.06 0.02.
    #[test]
    fn holm_of_four() {
        let adjusted = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (value, expected) in adjusted.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            near(*value, expected, 1e-12);
        }
        assert_eq!(holm(&[0.9, 0.8]), [1.0, 1.0]);
        assert!(holm(&[]).is_empty());
    }
}
