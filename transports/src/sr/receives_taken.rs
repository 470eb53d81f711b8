//! Which receives messages have taken: packets name them by number, and come out of order.

use super::responder::Hindrance;

/// Receives, counted from the first; the lower 24 bits are what packets name them by.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReceivesTaken {
    /// Those that were used up.
    used: u32,
    /// Behind the last that a packet lies in.
    filled: u32,
}

impl ReceivesTaken {
    /// How many were used up.
    #[inline]
    pub(super) fn used(&self) -> u32 {
        self.used
    }

    /// One more is used up.
    #[inline]
    pub(super) fn note_used(&mut self) {
        self.used = self.used.wrapping_add(1);
    }

    /// How many are before the one that a packet names by `number`; there are no more than `room`.
    pub(super) fn ahead(&self, number: u32, room: u32) -> Result<u32, Hindrance> {
        let ahead = number.wrapping_sub(self.used) & 0x00ff_ffff;
        // Beyond the queue there is none now; before its beginning there never will be.
        if ahead >= 1 << 23 {
            Err(Hindrance::INVALID)
        } else if ahead >= room {
            Err(Hindrance::NoReceive)
        } else {
            Ok(ahead)
        }
    }

    /// A packet lies in the one that has `ahead` others before it.
    #[inline]
    pub(super) fn note_filled(&mut self, ahead: u32) {
        let behind = self.used.wrapping_add(ahead + 1);
        if behind.wrapping_sub(self.filled) as i32 > 0 {
            self.filled = behind;
        }
    }

    /// Whether a packet lies in one that is not used up.
    pub(super) fn is_filling(&self) -> bool {
        self.filled.wrapping_sub(self.used) as i32 > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receive_is_filled_until_it_and_all_before_it_are_used_up_across_the_wrap() {
        let mut taken = ReceivesTaken { used: u32::MAX, filled: u32::MAX };
        assert!(!taken.is_filling());
        for ahead in [2, 0] {
            taken.note_filled(ahead);
        }
        for _ in 0..3 {
            assert!(taken.is_filling());
            taken.note_used();
        }
        assert_eq!((taken.used(), taken.is_filling()), (2, false));
    }
}
