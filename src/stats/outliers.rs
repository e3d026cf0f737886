//! Values that stand apart from the others; they are told, never dropped.

use super::Estimate;

/// Fewer values have no shape that one of them could fall out of.
const ENOUGH: usize = 5;
const LIMIT: f64 = 3.5;

/// Positions of the values whose modified z-score is beyond 3.5 (B. Iglewicz,
/// D. Hoaglin: How to Detect and Handle Outliers, 1993; NIST/SEMATECH
/// e-Handbook of Statistical Methods, 1.3.5.17). Where more than half of the
/// values are equal, the mean absolute deviation takes the median one's place.
pub fn outliers(values: &[f64]) -> Vec<usize> {
    let Some(all) = Estimate::of(values).filter(|e| e.n >= ENOUGH) else { return Vec::new() };
    let away: Vec<f64> = values.iter().map(|v| (v - all.median).abs()).collect();
    let Some(deviation) = Estimate::of(&away) else { return Vec::new() };
    // Each makes the deviation of normal data a standard deviation.
    let unit = match deviation.median > 0.0 {
        true => deviation.median / 0.6745,
        false => deviation.mean * 1.253314,
    };
    (0..values.len()).filter(|i| unit > 0.0 && away[*i] / unit > LIMIT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uranium measurements from G. Tietjen, R. Moore, Technometrics 14 (1972),
    /// as in the e-Handbook, 1.3.5.17.1, where 245.57 is the outlier. Median
    /// 201.37, median deviation 0.995: its score is 0.6745 * 44.20 / 0.995 = 29.96.
    #[test]
    fn tietjen_and_moore() {
        let uranium = [199.31, 199.53, 200.19, 200.82, 201.92, 201.95, 202.18, 245.57];
        assert_eq!(outliers(&uranium), [7]);
        assert!(outliers(&uranium[..7]).is_empty());
    }

    #[test]
    fn little_and_equal_values() {
        assert!(outliers(&[1.0, 1.0, 1.1, 9.0]).is_empty());
        assert!(outliers(&[1.0; 9]).is_empty());
        assert_eq!(outliers(&[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.5]), [8]);
        assert!(outliers(&[f64::MAX, -f64::MAX, 0.0, 0.0, 1.0, f64::NAN]).is_empty());
    }
}
