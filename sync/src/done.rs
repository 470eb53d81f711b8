//! Which of numbered pieces of work are done: one thread says so, others look without waiting for it.
//!
//! Work is mostly done in its order. So there is a number below which all is done, and bits for what is done ahead of it, as far as these reach.

use std::ops::Range;

use crate::primitives::{AtomicU64, Ordering};

const WORDS: usize = if cfg!(loom) { 1 } else { 16 };
/// How far ahead of the first that is not done others can be told of.
const WINDOW: u64 = if cfg!(loom) { 2 } else { 64 * WORDS as u64 };

/// What is done.
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

    /// Something is done, perhaps before what came earlier. Only the one thread says so.
    pub fn mark(&self, number: u64) {
        let below = self.below.load(Ordering::Relaxed);
        if number >= below && number - below < WINDOW {
            let (word, bit) = self.place(number);
            word.fetch_or(bit, Ordering::Release);
        }
    }

    /// All below this number is done. Only the one thread says so. The numbers that others can be told of from now on: what of these is done
    /// already was marked too early, and must be marked again.
    pub fn advance(&self, below: u64) -> Range<u64> {
        let before = self.below.load(Ordering::Relaxed);
        // First the bits, which serve later numbers as soon as those are in reach. A number that is looked at in between is not done yet.
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

    /// Whether something is done; `None` when it is too far ahead of what is not for this to know.
    #[inline]
    pub fn is_done(&self, number: u64) -> Option<bool> {
        let below = self.below.load(Ordering::Acquire);
        if number < below {
            return Some(true);
        }
        if number - below >= WINDOW {
            return None;
        }
        // A bit that is another number's by now is one of a number so far ahead that this one is done, too.
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
        // It was too far ahead to be marked, and is not any more.
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

    /// What is not done is never said to be, although the places of bits serve again and again.
    #[test]
    fn nothing_is_said_to_be_done_before_it_is() {
        loom::model(|| {
            let all = Arc::new((Done::default(), AtomicBool::new(false)));
            let other = Arc::clone(&all);
            let writer = loom::thread::spawn(move || {
                other.0.mark(1);
                other.0.advance(2);
                // The place of number 1 serves number 3.
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
