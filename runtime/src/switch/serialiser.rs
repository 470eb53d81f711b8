//! The rate of a port: when the next frame may begin to leave.

use softnic_fault_injector::bottleneck::{wire_bytes, wire_time};
use softnic_wire::Instant;

/// Frames leave one behind the other, as on a cable of that rate.
#[derive(Debug, Clone)]
pub(super) struct Serialiser {
    rate: u64,
    /// When the last frame has left, or when nothing was there to leave; picoseconds.
    free_at: u128,
}

impl Serialiser {
    pub(super) fn new(rate: u64) -> Serialiser {
        Serialiser { rate, free_at: 0 }
    }

    /// Nothing waits: what comes later begins no earlier than now. Who looks late at a queue that was never empty sends
    /// what would have left by then.
    pub(super) fn idle(&mut self, now: Instant) {
        self.free_at = self.free_at.max(picos(now));
    }

    pub(super) fn is_free(&self, now: Instant) -> bool {
        self.free_at <= picos(now)
    }

    /// When it is free; may be over.
    pub(super) fn free_at(&self) -> Instant {
        Instant::from_nanos(self.free_at.div_ceil(1000) as u64)
    }

    /// A frame begins to leave.
    pub(super) fn send(&mut self, len: usize) {
        self.free_at += u128::from(wire_time(wire_bytes(len as u64), self.rate));
    }
}

fn picos(at: Instant) -> u128 {
    u128::from(at.as_nanos()) * 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_leave_at_the_rate_and_an_idle_time_is_not_made_up_for() {
        let mut s = Serialiser::new(1_000_000_000);
        let at = Instant::from_nanos;
        s.idle(at(5_000));
        assert!(s.is_free(at(5_000)));
        // 1226 bytes and 24 of every frame's own are 10 µs.
        s.send(1226);
        assert_eq!(s.free_at(), at(15_000));
        assert!(!s.is_free(at(14_999)) && s.is_free(at(15_000)));
        // Looked at late, with frames waiting all the time: two may leave at once.
        s.send(1226);
        assert!(s.is_free(at(26_000)));
        s.send(1226);
        assert!(!s.is_free(at(26_000)));
        // Nothing waited until then.
        s.idle(at(90_000));
        s.send(1226);
        assert_eq!(s.free_at(), at(100_000));
    }
}
