//! Round-trip times, added up in little memory: exact extremes, quantiles to within 2 %.

use std::time::Duration;

/// Each power of two is cut into this many parts: a quantile is off by less than one part.
const PARTS_LOG2: u32 = 6;

/// How long requests waited for their answers.
#[derive(Debug, Clone, Default)]
pub struct RoundTrips {
    count: u64,
    min: u64,
    max: u64,
    /// How many fell into each part; as long as the longest needs.
    parts: Vec<u32>,
}

impl RoundTrips {
    pub(super) fn add(&mut self, nanos: u64) {
        self.min = if self.count == 0 { nanos } else { self.min.min(nanos) };
        self.max = self.max.max(nanos);
        self.count += 1;
        let part = part_of(nanos);
        if part >= self.parts.len() {
            self.parts.resize(part + 1, 0);
        }
        self.parts[part] = self.parts[part].saturating_add(1);
    }

    /// How many were measured.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The shortest; `None` where none was measured.
    pub fn min(&self) -> Option<Duration> {
        (self.count > 0).then(|| Duration::from_nanos(self.min))
    }

    /// The longest; `None` where none was measured.
    pub fn max(&self) -> Option<Duration> {
        (self.count > 0).then(|| Duration::from_nanos(self.max))
    }

    /// The least time that `share` (0 to 1) of all round trips did not exceed; `None` where none was measured.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let wanted = ((self.count as f64 * share).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (part, &n) in self.parts.iter().enumerate() {
            seen += u64::from(n);
            if seen >= wanted {
                return Some(Duration::from_nanos(middle_of(part).clamp(self.min, self.max)));
            }
        }
        None
    }
}

fn part_of(nanos: u64) -> usize {
    let exponent = (u64::BITS - nanos.leading_zeros()).saturating_sub(PARTS_LOG2 + 1);
    ((u64::from(exponent) << PARTS_LOG2) + (nanos >> exponent)) as usize
}

/// A time in the middle of a part.
fn middle_of(part: usize) -> u64 {
    let parts = 1usize << PARTS_LOG2;
    if part < 2 * parts {
        return part as u64;
    }
    let exponent = part / parts - 1;
    let least = ((part % parts + parts) as u64) << exponent;
    least + (1 << exponent) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_lies_near_the_middle_of_its_part() {
        for nanos in (0..63).flat_map(|e| [1u64 << e, (1 << e) + (1 << e) / 3, (2 << e) - 1]) {
            let middle = middle_of(part_of(nanos));
            assert!(middle.abs_diff(nanos) as f64 <= nanos as f64 / 64.0, "{nanos} became {middle}");
        }
    }

    #[test]
    fn quantiles_of_what_was_added() {
        let mut r = RoundTrips::default();
        assert_eq!((r.min(), r.quantile(0.5)), (None, None));
        (1..=1000).for_each(|us| r.add(us * 1000));
        assert_eq!((r.count(), r.min(), r.max()), (1000, Some(us(1)), Some(us(1000))));
        let near = |share, expected: u64| {
            let found = r.quantile(share).unwrap();
            assert!(found.abs_diff(us(expected)) < us(expected) / 50, "{share}: {found:?}");
        };
        near(0.5, 500);
        near(0.99, 990);
        near(0.0, 1);
        assert_eq!(r.quantile(1.0), r.max(), "never beyond the extremes");
    }

    fn us(n: u64) -> Duration {
        Duration::from_micros(n)
    }
}
