//! Intervals that hold the true value with 95 % confidence.

use statrs::distribution::{Binomial, ContinuousCDF, DiscreteCDF, StudentsT};

use super::{ALPHA, Estimate};

/// Interval of the mean by Student's t; `None` below two samples.
pub fn mean_interval(samples: &[f64]) -> Option<(f64, f64)> {
    let estimate = Estimate::of(samples)?;
    around(estimate.mean, estimate.stddev?, estimate.n)
}

fn around(mean: f64, stddev: f64, n: usize) -> Option<(f64, f64)> {
    let error = stddev / (n as f64).sqrt();
    let half = error * t_quantile((n - 1) as f64)?;
    half.is_finite().then_some((mean - half, mean + half))
}

/// What a t-distributed quantity exceeds to either side with [`ALPHA`].
pub(super) fn t_quantile(freedom: f64) -> Option<f64> {
    Some(StudentsT::new(0.0, 1.0, freedom).ok()?.inverse_cdf(1.0 - ALPHA / 2.0))
}

/// Interval of the median between two of the samples, whatever their
/// distribution (W. J. Conover, Practical Nonparametric Statistics, 3.2);
/// `None` below six samples, where even the outermost are too close.
pub fn median_interval(samples: &[f64]) -> Option<(f64, f64)> {
    if samples.iter().any(|v| !v.is_finite()) {
        return None;
    }
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    // How many samples lie below the median is binomial.
    let below = Binomial::new(0.5, n as u64).ok()?;
    let cut = (0..n / 2).take_while(|k| below.cdf(*k as u64) <= ALPHA / 2.0).count();
    cut.checked_sub(1).map(|k| (sorted[k], sorted[n - 1 - k]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.5.2: ZARR13.DAT.
    #[test]
    fn nist_heat_flow() {
        let (low, high) = around(9.261460, 0.022789, 195).unwrap();
        assert!((low - 9.258242).abs() < 1e-6 && (high - 9.264679).abs() < 1e-6, "{low} {high}");
    }

    /// Tables of Student's t, for example in the same handbook, 1.3.6.7.2.
    #[test]
    fn quantiles_of_t() {
        for (freedom, t) in [(1.0, 12.706), (2.0, 4.303), (4.0, 2.776), (9.0, 2.262), (100.0, 1.984)] {
            assert!((t_quantile(freedom).unwrap() - t).abs() < 5e-4, "{freedom}");
        }
    }

    #[test]
    fn one_sample_has_no_interval() {
        assert_eq!(mean_interval(&[1.0]), None);
        assert_eq!(mean_interval(&[]), None);
        assert_eq!(mean_interval(&[1.0, f64::NAN]), None);
        assert_eq!(mean_interval(&[2.0, 2.0]), Some((2.0, 2.0)));
        assert_eq!(mean_interval(&[f64::MAX, -f64::MAX]), None);
    }

    /// Ranks as in tables of the sign test: 6 samples reach 96.9 %, 10 need
    /// the second to the ninth (97.9 %), 20 the sixth to the fifteenth (95.9 %).
    #[test]
    fn ranks_of_the_median() {
        let ranks = |n: u32| median_interval(&(1..=n).rev().map(f64::from).collect::<Vec<_>>());
        assert_eq!(ranks(0), None);
        assert_eq!(ranks(5), None);
        assert_eq!(ranks(6), Some((1.0, 6.0)));
        assert_eq!(ranks(10), Some((2.0, 9.0)));
        assert_eq!(ranks(20), Some((6.0, 15.0)));
    }
}
