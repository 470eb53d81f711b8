//! The receives that messages have taken. Packets name their receive by number, and arrive out of order.

use super::responder::Hindrance;

/// Numbers of receives, counted from the first; packets contain the lower 24 bits.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReceivesTaken {
    /// Number of receives that were used up.
    used: u32,
    /// The number after the last receive that holds data.
    filled: u32,
}

impl ReceivesTaken {
    /// Number of receives that were used up.
    #[inline]
    pub(super) fn used(&self) -> u32 {
        self.used
    }

    /// One more receive was used up.
    #[inline]
    pub(super) fn note_used(&mut self) {
        self.used = self.used.wrapping_add(1);
    }

    /// The number of receives before the one that a packet names by `number`; there are at most `room`.
    pub(super) fn ahead(&self, number: u32, room: u32) -> Result<u32, Hindrance> {
        let ahead = number.wrapping_sub(self.used) & 0x00ff_ffff;
        // A receive past the queue's end does not exist yet; one before its start never will.
        if ahead >= 1 << 23 {
            Err(Hindrance::INVALID)
        } else if ahead >= room {
            Err(Hindrance::NoReceive)
        } else {
            Ok(ahead)
        }
    }

    /// Data was placed in the receive with `ahead` others before it.
    #[inline]
    pub(super) fn note_filled(&mut self, ahead: u32) {
        let behind = self.used.wrapping_add(ahead + 1);
        if behind.wrapping_sub(self.filled) as i32 > 0 {
            self.filled = behind;
        }
    }

    /// Whether a receive that is not used up holds data.
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
