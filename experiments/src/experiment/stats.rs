//! Means over seeds, and how far the seeds lie apart.

/// What several seeds came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub(super) mean: f64,
    /// Standard deviation of a seed; 0 of a single one.
    pub(super) deviation: f64,
    /// Of all seeds.
    pub(super) lowest: f64,
    pub(super) highest: f64,
    pub(super) seeds: usize,
}

impl Spread {
    /// Of those that are there, if any is.
    pub(super) fn of(values: impl IntoIterator<Item = Option<f64>>) -> Option<Spread> {
        let values: Vec<f64> = values.into_iter().flatten().collect();
        let n = values.len() as f64;
        if values.is_empty() {
            return None;
        }
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
        let deviation = if values.len() > 1 { (squares / (n - 1.0)).sqrt() } else { 0.0 };
        let lowest = values.iter().copied().fold(f64::MAX, f64::min);
        let highest = values.iter().copied().fold(f64::MIN, f64::max);
        Some(Spread { mean, deviation, lowest, highest, seeds: values.len() })
    }

    /// All of it in another unit.
    pub(super) fn times(self, factor: f64) -> Spread {
        let of = |value: f64| value * factor;
        Spread {
            mean: of(self.mean),
            deviation: of(self.deviation),
            lowest: of(self.lowest),
            highest: of(self.highest),
            seeds: self.seeds,
        }
    }
}

/// One over the other, where there are both.
pub(super) fn ratio(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) if b != 0.0 => Some(a / b),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_does_not_count() {
        let spread = Spread::of([Some(1.0), None, Some(3.0)]).unwrap();
        assert_eq!((spread.mean, spread.deviation, spread.seeds), (2.0, 2f64.sqrt(), 2));
        assert_eq!((spread.lowest, spread.highest), (1.0, 3.0));
        assert_eq!(Spread::of([Some(5.0)]).unwrap().deviation, 0.0);
        assert_eq!(Spread::of([None, None]), None);
        assert_eq!(ratio(Some(1.0), Some(0.0)), None);
    }
}
