//! Numbers that stand for several samples, what can be inferred from them, and
//! how numbers are printed.

mod change;
mod hypothesis;
mod interval;
mod observe;
mod outliers;

use serde::Serialize;

use crate::model::{Direction, Statistic};
pub use change::{Change, Test, correct, difference};
pub use hypothesis::{Outcome, Untested, holm, mann_whitney, paired_t, welch};
pub use interval::{mean_interval, median_interval};
pub use observe::{Observations, by_boot};
pub use outliers::outliers;

/// Chance of an error that is accepted: intervals hold with 95 %, and a
/// difference counts as significant below 5 %.
pub const ALPHA: f64 = 0.05;

/// What a set of samples says, in the samples' unit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Estimate {
    /// How many samples.
    pub n: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Middle sample, or the mean of the two middle ones.
    pub median: f64,
    /// Smallest sample.
    pub min: f64,
    /// Largest sample.
    pub max: f64,
    /// Sample standard deviation (divisor n - 1); a single sample has none.
    pub stddev: Option<f64>,
    /// All samples in ascending order.
    #[serde(skip)]
    sorted: Vec<f64>,
}

impl Estimate {
    /// `None` where there is nothing to estimate from: no sample, or one that
    /// is not a finite number.
    pub fn of(samples: &[f64]) -> Option<Estimate> {
        if samples.iter().any(|v| !v.is_finite()) {
            return None;
        }
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let n = sorted.len();
        // Clamped so that equal samples have exactly their own mean, and no spread.
        let mean = (sorted.iter().sum::<f64>() / n as f64).clamp(min, max);
        let squares: f64 = sorted.iter().map(|v| (v - mean).powi(2)).sum();
        Some(Estimate {
            n,
            mean,
            median: (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0,
            min,
            max,
            stddev: (n > 1).then(|| (squares / (n - 1) as f64).sqrt()),
            sorted,
        })
    }

    /// The value that stands for all samples.
    pub fn value(&self, statistic: Statistic) -> f64 {
        match statistic {
            Statistic::Mean => self.mean,
            Statistic::Median => self.median,
            Statistic::Min => self.min,
            Statistic::Max => self.max,
            Statistic::Sum => self.sorted.iter().sum(),
            Statistic::Count => self.n as f64,
            Statistic::Percentile(percent) => {
                let nth = (self.n * usize::from(percent) / 100).clamp(1, self.n);
                self.sorted[nth - 1]
            }
        }
    }

    /// Sample standard deviation in percent of the mean; `None` for a single
    /// sample or a mean of zero.
    pub fn spread(&self) -> Option<f64> {
        finite(self.stddev? * 100.0 / self.mean.abs())
    }
}

/// Change from `base` to `new` in percent, `(new - base) * 100 / base`;
/// `None` where that is not a number. Multiplying before dividing keeps
/// results exact that are exact in decimal, such as 1/20000 = 0.005 %.
pub fn percent_change(new: f64, base: f64) -> Option<f64> {
    finite((new - base) * 100.0 / base)
}

/// Change from `base` to `new` in percent, positive where `new` is better:
/// `(base - new) * 100 / base` where lower is better.
pub fn improvement(new: f64, base: f64, better: Direction) -> Option<f64> {
    match better {
        Direction::Lower => finite((base - new) * 100.0 / base),
        Direction::Higher => percent_change(new, base),
    }
}

/// The n-th root of the product of n ratios; `None` without any, or where one
/// is not above zero.
pub fn geometric_mean(ratios: &[f64]) -> Option<f64> {
    if ratios.is_empty() || ratios.iter().any(|r| !(*r > 0.0 && r.is_finite())) {
        return None;
    }
    // A sum of logarithms neither overflows nor vanishes as the product might.
    finite((ratios.iter().map(|r| r.ln()).sum::<f64>() / ratios.len() as f64).exp())
}

/// `new / base`; `None` where that is not a number.
pub fn ratio(new: f64, base: f64) -> Option<f64> {
    finite(new / base)
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

/// `value` with so many decimals, half away from zero as people round.
///
/// A decimal tie such as 1.005 is mostly not representable and may lie just
/// below the tie once it is scaled, so four units in the last place are
/// granted. What is not zero but rounds to it keeps its minus sign.
pub fn fixed(value: f64, decimals: u8) -> String {
    let digits = usize::from(decimals);
    let sign = if value < 0.0 { "-" } else { "" };
    let size = value.abs();
    let power = 10f64.powi(i32::from(decimals));
    let scaled = size * power;
    // From 2^53 on an f64 has no fraction left that could be rounded.
    let rounded = if scaled < 2f64.powi(53) {
        (scaled + 0.5 + scaled * 4.0 * f64::EPSILON).floor() / power
    } else {
        size
    };
    format!("{sign}{rounded:.digits$}")
}

/// `value` with so many significant digits, as C's `%.6g` prints it: no zeros
/// at the end, and a power of ten (`1.08376e+06`) where the digits do not reach
/// the decimal point or there would be more than three zeros behind it.
pub fn significant(value: f64, digits: u8) -> String {
    let digits = digits.max(1);
    let scientific = format!("{value:.*e}", usize::from(digits - 1));
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..i32::from(digits)).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.abs());
    }
    let decimals = u8::try_from(i32::from(digits) - 1 - exponent).unwrap_or(0);
    without_zeros(&fixed(value, decimals)).to_owned()
}

fn without_zeros(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

/// A change in percent: always signed, as `+0.023%`. `-0.00%` is a decrease
/// too small for the decimals; only no change at all, `0.00%`, has no sign.
pub fn signed_percent(value: f64, decimals: u8) -> String {
    let plus = if value > 0.0 { "+" } else { "" };
    format!("{plus}{}%", fixed(value, decimals))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimate_of_known_samples() {
        // Squares of the deviations from 5: 9 1 1 1 0 0 4 16 = 32; 32/7 = 4.5714.
        let e = Estimate::of(&[9.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 2.0]).unwrap();
        assert_eq!((e.n, e.mean, e.median), (8, 5.0, 4.5));
        assert_eq!((e.min, e.max), (2.0, 9.0));
        assert!((e.stddev.unwrap() - (32.0f64 / 7.0).sqrt()).abs() < 1e-15);
        assert_eq!(fixed(e.spread().unwrap(), 2), "42.76");
        let values = [Statistic::Mean, Statistic::Median, Statistic::Min, Statistic::Max].map(|s| e.value(s));
        assert_eq!(values, [5.0, 4.5, 2.0, 9.0]);
        assert_eq!(Estimate::of(&[3.0, 1.0, 2.0]).unwrap().median, 2.0);
    }

    #[test]
    fn estimate_of_little() {
        let e = Estimate::of(&[6.5]).unwrap();
        assert_eq!((e.n, e.mean, e.median), (1, 6.5, 6.5));
        assert_eq!((e.stddev, e.spread()), (None, None));
        assert_eq!(Estimate::of(&[]), None);
        assert_eq!(Estimate::of(&[1.0, f64::NAN]), None);
        assert_eq!(Estimate::of(&[f64::INFINITY]), None);
    }

    #[test]
    fn equal_samples_have_no_spread() {
        let e = Estimate::of(&[0.1, 0.1, 0.1]).unwrap();
        assert_eq!((e.mean, e.spread()), (0.1, Some(0.0)));
        assert_eq!(Estimate::of(&[-1.0, 1.0]).unwrap().spread(), None);
    }

    #[test]
    fn percentiles_are_samples() {
        // A hundred and one samples: trunc(101 * p / 100) is p up to 99.
        let samples: Vec<f64> = (1..=101).rev().map(f64::from).collect();
        let value = |samples: &[f64], p| Estimate::of(samples).unwrap().value(Statistic::Percentile(p));
        assert_eq!([1, 50, 90, 99, 100].map(|p| value(&samples, p)), [1.0, 50.0, 90.0, 99.0, 101.0]);
        // Of five: trunc(2.5) = 2, trunc(4.5) = 4, trunc(4.95) = 4; trunc(0.05) = 0 is the first.
        let five = [50.0, 10.0, 40.0, 20.0, 30.0];
        assert_eq!([1, 50, 90, 99, 100].map(|p| value(&five, p)), [10.0, 20.0, 40.0, 40.0, 50.0]);
        assert_eq!(value(&[7.0], 1), 7.0);
        let five = Estimate::of(&five).unwrap();
        assert_eq!([Statistic::Sum, Statistic::Count].map(|s| five.value(s)), [150.0, 5.0]);
    }

    #[test]
    fn geometric_means() {
        assert_eq!(fixed(geometric_mean(&[2.0, 8.0]).unwrap(), 12), "4.000000000000");
        assert_eq!(fixed(geometric_mean(&[0.5, 1.0, 4.0]).unwrap(), 6), "1.259921"); // cube root of 2
        assert_eq!(geometric_mean(&[1.0, 1.0, 1.0]), Some(1.0));
        assert!(geometric_mean(&[1e-300; 4]).unwrap() > 0.0, "the product alone would be zero");
        for bad in [&[] as &[f64], &[1.0, 0.0], &[1.0, -2.0], &[f64::NAN], &[f64::INFINITY]] {
            assert_eq!(geometric_mean(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn positive_is_better() {
        assert_eq!(improvement(90.0, 100.0, Direction::Lower), Some(10.0));
        assert_eq!(improvement(90.0, 100.0, Direction::Higher), Some(-10.0));
        assert_eq!(fixed(improvement(100.0, 100.0, Direction::Lower).unwrap(), 2), "0.00");
        assert_eq!(improvement(1.0, 0.0, Direction::Lower), None);
    }

    #[test]
    fn significant_digits() {
        let six = |value| significant(value, 6);
        assert_eq!(six(108_376.0), "108376");
        assert_eq!(six(13_000.4), "13000.4");
        assert_eq!(six(8_999.84), "8999.84");
        assert_eq!(six(1_083_760.0), "1.08376e+06");
        assert_eq!(six(999_999.4), "999999");
        assert_eq!(six(999_999.5), "1e+06");
        assert_eq!(six(115_000.0), "115000");
        assert_eq!(six(0.5), "0.5");
        assert_eq!(six(0.000_123_456_7), "0.000123457");
        assert_eq!(six(0.000_012_345_67), "1.23457e-05");
        assert_eq!(six(-2.25), "-2.25");
        assert_eq!(six(0.0), "0");
        assert_eq!([significant(2.5, 1), significant(1e100, 3)], ["3", "1e+100"]);
    }

    #[test]
    fn changes() {
        assert_eq!(percent_change(110.0, 100.0), Some(10.0));
        assert_eq!(percent_change(20001.0, 20000.0), Some(0.005));
        assert_eq!(percent_change(1.0, 0.0), None);
        assert_eq!(percent_change(0.0, 0.0), None);
        assert_eq!(ratio(3.0, 2.0), Some(1.5));
        assert_eq!(ratio(1.0, 0.0), None);
    }

    #[test]
    fn rounds_half_away_from_zero() {
        assert_eq!(fixed(0.5, 0), "1");
        assert_eq!(fixed(2.5, 0), "3");
        assert_eq!(fixed(-2.5, 0), "-3");
        assert_eq!(fixed(0.125, 2), "0.13");
        // The f64 nearest to each of these lies below the tie.
        assert_eq!(fixed(1.005, 2), "1.01");
        assert_eq!(fixed(8.345, 2), "8.35");
        assert_eq!(fixed(-1.005, 2), "-1.01");
        assert_eq!(fixed(1.00499999999, 2), "1.00");
        assert_eq!(fixed(2.4999999999, 0), "2");
        assert_eq!(fixed(0.1495, 2), "0.15");
        assert_eq!(fixed(0.1495, 3), "0.150");
        assert_eq!(fixed(9.9999, 3), "10.000");
    }

    #[test]
    fn prints_extremes() {
        assert_eq!(fixed(20141704.0, 0), "20141704");
        assert_eq!(fixed(1e15, 4), "1000000000000000.0000");
        assert_eq!(fixed(2f64.powi(60), 3), "1152921504606846976.000");
        assert_eq!(fixed(0.0, 2), "0.00");
        assert_eq!(fixed(-0.0, 2), "0.00");
        assert_eq!(fixed(6.9992, 4), "6.9992");
    }

    #[test]
    fn signed_percentages() {
        assert_eq!(signed_percent(0.1495, 2), "+0.15%");
        assert_eq!(signed_percent(-0.0056, 3), "-0.006%");
        assert_eq!(signed_percent(percent_change(20001.0, 20000.0).unwrap(), 2), "+0.01%");
        assert_eq!(signed_percent(-0.0001, 2), "-0.00%");
        assert_eq!(signed_percent(0.0001, 2), "+0.00%");
        assert_eq!(signed_percent(0.0, 2), "0.00%");
        assert_eq!(signed_percent(-0.0, 2), "0.00%");
    }
}
