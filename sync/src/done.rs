//! Progress of numbered work: one thread marks numbers as done, and other threads read the marks without waiting.
//!
//! Work mostly completes in order. So the state is a number below which all work is done, and a window of bits for work that is done ahead
//! of it.

use std::ops::Range;

use crate::primitives::{AtomicU64, Ordering};

const WORDS: usize = if cfg!(loom) { 1 } else { 16 };
/// Size of the window of bits ahead of the first number that is not done.
const WINDOW: u64 = if cfg!(loom) { 2 } else { 64 * WORDS as u64 };

/// The numbers that are done.
#[derive(Debug, Default)]
pub struct Done {
    below: AtomicU64,
    ahead: [AtomicU64; WORDS],
}

impl Done {
    fn place(&self, number: u64) -> (&AtomicU64, u64) {
        let at = number % WINDOW;
        (&self.ahead[at as usize / 64], 1 << (at % 64))
    }

    /// Marks a number as done, possibly ahead of earlier ones. Called by the one marking thread only.
    pub fn mark(&self, number: u64) {
        let below = self.below.load(Ordering::Relaxed);
        if number >= below && number - below < WINDOW {
            let (word, bit) = self.place(number);
            word.fetch_or(bit, Ordering::Release);
        }
    }

    /// Marks all numbers below `below` as done. Called by the one marking thread only. Returns the numbers that enter the window: one of
    /// these that is already done was marked too early, and must be marked again.
    pub fn advance(&self, below: u64) -> Range<u64> {
        let before = self.below.load(Ordering::Relaxed);
        // The bits are cleared first, because they serve later numbers as soon as those enter the window. A number that another thread
        // reads in between is reported as not done yet.
        for number in before..below.min(before.saturating_add(WINDOW)) {
            let (word, bit) = self.place(number);
            word.fetch_and(!bit, Ordering::Relaxed);
        }
        if below <= before {
            return 0..0;
        }
        self.below.store(below, Ordering::Release);
        (before + WINDOW).max(below)..below + WINDOW
    }

    /// Whether a number is done; `None` if the number is ahead of the window.
    #[inline]
    pub fn is_done(&self, number: u64) -> Option<bool> {
        let below = self.below.load(Ordering::Acquire);
        if number < below {
            return Some(true);
        }
        if number - below >= WINDOW {
            return None;
        }
        // A bit that meanwhile serves another number serves one so far ahead that this number is done, too.
        let (word, bit) = self.place(number);
        Some(word.load(Ordering::Acquire) & bit != 0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_is_known_in_order_and_ahead_of_it() {
        let done = Done::default();
        done.mark(3);
        done.mark(WINDOW);
        assert_eq!([0, 3, 4].map(|n| done.is_done(n)), [Some(false), Some(true), Some(false)]);
        assert_eq!((done.is_done(WINDOW - 1), done.is_done(WINDOW)), (Some(false), None));
        assert_eq!(done.advance(2), WINDOW..WINDOW + 2);
        assert_eq!([1, 2, 3].map(|n| done.is_done(n)), [Some(true), Some(false), Some(true)]);
        // The number was too far ahead to be marked, and is now inside the window.
        assert_eq!(done.is_done(WINDOW), Some(false));
        done.mark(WINDOW);
        assert_eq!(done.is_done(WINDOW), Some(true));
        assert_eq!(done.advance(2), 0..0);
        done.advance(5);
        assert_eq!([3, 4, 5, 3 + WINDOW].map(|n| done.is_done(n)), [Some(true), Some(true), Some(false), Some(false)]);
        done.advance(10 * WINDOW);
        assert_eq!((done.is_done(9 * WINDOW), done.is_done(10 * WINDOW)), (Some(true), Some(false)));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::primitives::{Arc, AtomicBool};

    /// A number that is not done is never reported as done, although the bits are reused.
    #[test]
    fn nothing_is_said_to_be_done_before_it_is() {
        loom::model(|| {
            let all = Arc::new((Done::default(), AtomicBool::new(false)));
            let other = Arc::clone(&all);
            let writer = loom::thread::spawn(move || {
                other.0.mark(1);
                other.0.advance(2);
                // Number 3 reuses the bit of number 1.
                other.1.store(true, Ordering::Release);
                other.0.mark(3);
            });
            if all.0.is_done(3) == Some(true) {
                assert!(all.1.load(Ordering::Acquire), "3 was not done");
            }
            assert_ne!(all.0.is_done(2), Some(true));
            writer.join().unwrap();
            assert_eq!([0, 1, 2, 3].map(|n| all.0.is_done(n)), [Some(true), Some(true), Some(false), Some(true)]);
        });
    }
}
