//! Values that stand apart from the others; they are told, never dropped.

/// With fewer values, one of ten sets of normal ones would have an outlier.
const ENOUGH: usize = 7;
const FENCE: f64 = 3.0;

/// Positions of the values beyond Tukey's outer fences: three interquartile
/// ranges away from the quartiles (J. W. Tukey, Exploratory Data Analysis,
/// 1977; NIST/SEMATECH e-Handbook of Statistical Methods, 7.1.6). Of seven
/// normal values one is beyond them in one case of twenty.
pub fn outliers(values: &[f64]) -> Vec<usize> {
    if values.len() < ENOUGH || values.iter().any(|v| !v.is_finite()) {
        return Vec::new();
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (quantile(&sorted, 0.25), quantile(&sorted, 0.75));
    let away = FENCE * (high - low);
    (0..values.len()).filter(|i| values[*i] < low - away || values[*i] > high + away).collect()
}

/// Between the values at both sides of the place, as R does it by default.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let place = part * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uranium measurements from G. Tietjen, R. Moore, Technometrics 14 (1972),
    /// as in the e-Handbook, 1.3.5.17.1, where 245.57 is the outlier. Quartiles
    /// 200.025 and 202.0075, so the fences are at 194.08 and 207.96.
    #[test]
    fn tietjen_and_moore() {
        let uranium = [199.31, 199.53, 200.19, 200.82, 201.92, 201.95, 202.18, 245.57];
        assert_eq!(outliers(&uranium), [7]);
        assert_eq!((quantile(&uranium, 0.25), quantile(&uranium, 0.5)), (200.025, 201.37));
        for (value, out) in [(207.95, false), (207.96, true)] {
            let mut set = uranium;
            set[7] = value;
            assert_eq!(!outliers(&set).is_empty(), out, "{value}");
        }
        assert!(outliers(&uranium[..7]).is_empty());
    }

    #[test]
    fn little_and_equal_values() {
        assert!(outliers(&[1.0, 1.0, 1.0, 1.0, 1.1, 9.0]).is_empty());
        assert!(outliers(&[1.0; 9]).is_empty());
        assert_eq!(outliers(&[1.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]), [0]);
        assert!(outliers(&[f64::MAX, -f64::MAX, 0.0, 0.0, 1.0, 1.0, f64::NAN]).is_empty());
        assert!(outliers(&[f64::MAX, -f64::MAX, f64::MAX, -f64::MAX, 0.0, 0.0, 0.0]).is_empty());
    }
}
