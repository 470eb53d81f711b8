//! Replay protection: records the epochs received from a peer, and accepts each only once.

/// Number of epochs below the highest one that are recorded.
pub(super) const WINDOW: u64 = 2048;
/// Number of words of the bitmap: more than the window, so that the words ahead are cleared before they are used.
const WORDS: u64 = 2 * WINDOW / 64;

/// A bitmap of the received epochs.
#[derive(Debug, Clone)]
pub(super) struct ReplayWindow {
    highest: u64,
    words: [u64; WORDS as usize],
}

impl ReplayWindow {
    /// No epoch was received yet; epochs start with 1.
    pub(super) const fn new() -> ReplayWindow {
        ReplayWindow { highest: 0, words: [0; WORDS as usize] }
    }

    /// Records an epoch; returns `false` if it was received before, or may have been.
    #[inline]
    pub(super) fn take(&mut self, epoch: u64) -> bool {
        if epoch > self.highest {
            self.advance(epoch);
        } else if epoch == 0 || self.highest - epoch >= WINDOW {
            return false;
        }
        let (word, bit) = (&mut self.words[(epoch / 64 % WORDS) as usize], 1 << (epoch % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// A new highest epoch: clears the words up to it, which hold expired epochs.
    #[inline]
    fn advance(&mut self, epoch: u64) {
        let (from, to) = (self.highest / 64, epoch / 64);
        for word in (from + 1..=to).take(WORDS as usize) {
            self.words[(word % WORDS) as usize] = 0;
        }
        self.highest = epoch;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn an_epoch_counts_once_and_not_behind_the_window() {
        let mut w = ReplayWindow::new();
        assert!(!w.take(0));
        assert!(w.take(1) && !w.take(1));
        assert!(w.take(5000) && !w.take(1) && !w.take(5000));
        assert!(!w.take(5000 - WINDOW) && w.take(5001 - WINDOW) && !w.take(5001 - WINDOW));
        assert!(w.take(u64::MAX >> 16) && !w.take(5001));
    }

    /// Compared with a set of all received epochs.
    #[test]
    fn any_order_of_epochs_is_taken_as_a_set_would() {
        let (mut w, mut seen, mut state, mut highest) = (ReplayWindow::new(), BTreeSet::new(), 1u64, 0u64);
        for _ in 0..200_000 {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let step = state >> 40;
            let epoch = match step % 16 {
                0 => highest + step % 5000,
                1..8 => highest + step % 3,
                _ => (highest + 2).saturating_sub(step % 2200),
            };
            let expected = epoch > 0 && epoch + WINDOW > highest && seen.insert(epoch);
            assert_eq!(w.take(epoch), expected, "{epoch} with {highest}");
            highest = highest.max(epoch);
        }
    }
}
