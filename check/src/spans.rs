//! Stretches of memory that outstanding work writes to, looked up by what overlaps them.

use std::collections::BTreeMap;

/// Stretches, each with the ticket of its work request.
#[derive(Debug, Default)]
pub(crate) struct Spans {
    /// By their first byte and ticket: the byte behind the last one.
    ends: BTreeMap<(u64, u64), u64>,
    /// The longest that there was since there was none.
    longest: u64,
}

/// How many stretches one search looks at. What lies behind them is not found: better that than a search that takes for ever.
const AT_MOST: usize = 64;

impl Spans {
    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(crate) fn insert(&mut self, (address, len): (u64, u64), ticket: u64) {
        if len > 0 {
            self.longest = if self.ends.is_empty() { len } else { self.longest.max(len) };
            self.ends.insert((address, ticket), address.saturating_add(len));
        }
    }

    pub(crate) fn remove(&mut self, (address, _): (u64, u64), ticket: u64) {
        self.ends.remove(&(address, ticket));
    }

    /// The ticket of one that overlaps, if there is one.
    pub(crate) fn overlapping(&self, (address, len): (u64, u64)) -> Option<u64> {
        if len == 0 || self.ends.is_empty() {
            return None;
        }
        let from = (address.saturating_sub(self.longest), 0);
        let to = (address.saturating_add(len), 0);
        let mut near = self.ends.range(from..to).rev().take(AT_MOST);
        near.find(|(_, end)| **end > address).map(|((_, ticket), _)| *ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlaps_is_found_and_what_touches_is_not() {
        let mut spans = Spans::default();
        spans.insert((100, 50), 1);
        spans.insert((1000, 8), 2);
        for (span, found) in [
            ((100, 50), Some(1)),
            ((149, 1), Some(1)),
            ((90, 11), Some(1)),
            ((90, 1000), Some(2)),
            ((150, 850), None),
            ((99, 1), None),
            ((1007, 9), Some(2)),
            ((100, 0), None),
        ] {
            assert_eq!(spans.overlapping(span), found, "{span:?}");
        }
        spans.remove((100, 50), 1);
        assert_eq!(spans.overlapping((100, 50)), None);
    }

    #[test]
    fn the_same_stretch_twice_is_two() {
        let mut spans = Spans::default();
        spans.insert((0, 10), 1);
        spans.insert((0, 10), 2);
        spans.remove((0, 10), 2);
        assert_eq!(spans.overlapping((5, 1)), Some(1));
        spans.remove((0, 10), 1);
        assert!(spans.is_empty());
    }
}
