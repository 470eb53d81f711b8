//! The pacer of a port: it hands out turns to give credit, one after another, so that credit of all queue pairs together is what the link
//! of the port carries (EQDS: Olteanu et al., NSDI 2022, section 4).
//!
//! There is no list of queue pairs. Who has somebody waiting takes one turn, the next that is free, and takes another one when that has
//! come: behind all that took theirs meanwhile. So all have turns in a circle, and a queue pair that nobody asks for credit costs nothing.

use std::time::Duration;

use softnic_wire::Instant;

/// Picoseconds in a nanosecond: a rate is kept over millions of turns.
const PICOS: u128 = 1000;

/// When the next turn of a port is.
#[derive(Debug, Clone, Copy)]
pub struct CreditPacer {
    rate: u64,
    /// When the turn is over that was taken last, in picoseconds.
    free: u128,
}

impl CreditPacer {
    /// For a link of this rate, in bits a second, everything on the wire counted.
    pub fn new(rate: u64) -> CreditPacer {
        CreditPacer { rate: rate.max(1), free: 0 }
    }

    /// The link has another rate from now on.
    pub fn set_rate(&mut self, rate: u64) {
        self.rate = rate.max(1);
    }

    /// A turn to give credit for `bytes`: when it is. Who comes no more than `late` behind the end of the last turn makes up for it; a
    /// longer pause is worth nothing.
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
        let mut pacer = CreditPacer::new(8_000_000_000); // a byte a nanosecond
        let none = Duration::ZERO;
        assert_eq!([1000, 500, 1000].map(|bytes| pacer.take_turn(at(0), bytes, none)), [at(0), at(1000), at(1500)]);
        assert_eq!(pacer.take_turn(at(10_000), 1000, none), at(10_000));
        assert_eq!(pacer.take_turn(at(10_000), 1000, none), at(11_000));
        // A driver that came 700 ns late makes up for it.
        let late = Duration::from_nanos(5000);
        assert_eq!(pacer.take_turn(at(12_700), 1000, late), at(12_700));
        assert_eq!([1000; 2].map(|bytes| pacer.take_turn(at(12_700), bytes, late)), [at(13_000), at(14_000)]);
        assert_eq!(pacer.take_turn(at(20_001), 1000, late), at(20_001));
        assert_eq!(pacer.take_turn(at(20_001), 1000, late), at(21_001));
    }
}
