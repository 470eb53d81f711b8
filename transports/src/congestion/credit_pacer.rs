//! The pacer of a port: it assigns turns to grant credit, one after another, so that the credit of all queue pairs together matches the
//! rate of the port's link (EQDS: Olteanu et al., NSDI 2022, section 4).
//!
//! There is no list of queue pairs. A queue pair whose peer waits takes one turn, the next free one, and takes another when that turn has
//! come, after all that took theirs meanwhile. So the turns rotate among the queue pairs, and a queue pair whose peer requests no credit
//! costs nothing.

use std::time::Duration;

use softnic_wire::Instant;

/// Picoseconds in a nanosecond: the resolution keeps a rate exact over millions of turns.
const PICOS: u128 = 1000;

/// The time of the next turn of a port.
#[derive(Debug, Clone, Copy)]
pub struct CreditPacer {
    rate: u64,
    /// The end of the last turn that was taken, in picoseconds.
    free: u128,
}

impl CreditPacer {
    /// For a link of this rate in bits per second, including all bytes on the wire.
    pub fn new(rate: u64) -> CreditPacer {
        CreditPacer { rate: rate.max(1), free: 0 }
    }

    /// Changes the rate of the link.
    pub fn set_rate(&mut self, rate: u64) {
        self.rate = rate.max(1);
    }

    /// Takes a turn to grant credit for `bytes`; returns its time. A caller that is no more than `late` behind the end of the last turn
    /// catches up; a longer pause earns no extra turns.
    pub fn take_turn(&mut self, now: Instant, bytes: u32, late: Duration) -> Instant {
        let now_picos = u128::from(now.as_nanos()) * PICOS;
        if self.free + late.as_nanos() * PICOS < now_picos {
            self.free = now_picos;
        }
        let at = self.free.div_ceil(PICOS);
        self.free += u128::from(bytes) * 8_000_000_000 * PICOS / u128::from(self.rate);
        Instant::from_nanos(u64::try_from(at).unwrap_or(u64::MAX)).max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_follow_each_other_at_the_rate_of_the_link_and_a_pause_is_worth_nothing() {
        let at = Instant::from_nanos;
        let mut pacer = CreditPacer::new(8_000_000_000); // one byte per nanosecond
        let none = Duration::ZERO;
        assert_eq!([1000, 500, 1000].map(|bytes| pacer.take_turn(at(0), bytes, none)), [at(0), at(1000), at(1500)]);
        assert_eq!(pacer.take_turn(at(10_000), 1000, none), at(10_000));
        assert_eq!(pacer.take_turn(at(10_000), 1000, none), at(11_000));
        // A driver that is 700 ns late catches up.
        let late = Duration::from_nanos(5000);
        assert_eq!(pacer.take_turn(at(12_700), 1000, late), at(12_700));
        assert_eq!([1000; 2].map(|bytes| pacer.take_turn(at(12_700), bytes, late)), [at(13_000), at(14_000)]);
        assert_eq!(pacer.take_turn(at(20_001), 1000, late), at(20_001));
        assert_eq!(pacer.take_turn(at(20_001), 1000, late), at(21_001));
    }
}
