//! The probe of a connection whose shim mends losses, where the shim could not.
//!
//! The ACK timeout is the program's, and may be seconds: the standard's recovery is meant for losses that hardly ever happen. Who agreed on an
//! extension for networks that lose packets does not wait for it: two round trips without an answer, and as long as the shim may keep
//! packets back to mend one, and what is outstanding is sent again. It counts as no retry, and the program's timeout has its turn: a
//! peer that is gone is noticed as ever.

use std::time::Duration;

use softnic_wire::Instant;

use crate::round_trip::RoundTrip;
use crate::shim::LONGEST_HOLD;

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Probe {
    rtt: RoundTrip,
    /// A packet whose answer tells the round-trip time: its number, and when it left. None that is sent again is timed.
    timed: Option<(u64, Instant)>,
    /// Probes since something was heard; each doubles the wait for the next.
    silent: u32,
}

impl Probe {
    /// Packet `n` left, and asks for an answer: how long that is waited for. `None`: the ACK timeout, `timeout`, comes first.
    #[inline]
    pub(super) fn on_asked(
        &mut self,
        now: Instant,
        n: u64,
        resent: bool,
        timeout: Option<Duration>,
    ) -> Option<Duration> {
        self.timed = match self.timed {
            _ if resent => None,
            None => Some((n, now)),
            timed => timed,
        };
        self.wait(timeout)
    }

    /// All before packet `una` is acknowledged: how long the next answer is waited for.
    #[inline]
    pub(super) fn on_acknowledged(&mut self, now: Instant, una: u64, timeout: Option<Duration>) -> Option<Duration> {
        self.silent = 0;
        if let Some((n, left)) = self.timed
            && n < una
        {
            self.timed = None;
            self.rtt.on_sample(now.saturating_since(left));
        }
        self.wait(timeout)
    }

    /// Nothing was heard for that long.
    pub(super) fn on_expired(&mut self) {
        self.timed = None;
        self.silent = self.silent.saturating_add(1);
    }

    fn wait(&self, timeout: Option<Duration>) -> Option<Duration> {
        let wait = (self.rtt.probe() + LONGEST_HOLD).checked_mul(1u32.checked_shl(self.silent)?)?;
        (timeout.is_none_or(|timeout| wait < timeout)).then_some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const TIMEOUT: Option<Duration> = Some(Duration::from_secs(4));

    #[test]
    fn two_round_trips_are_waited_for_then_ever_longer_up_to_the_ack_timeout() {
        let mut p = Probe::default();
        assert_eq!(p.on_asked(Instant::ZERO, 0, false, TIMEOUT), Some(104 * MS), "no round trip is known");
        assert_eq!(p.on_acknowledged(Instant::ZERO + 40 * MS, 1, TIMEOUT), Some(84 * MS));
        let mut waits = Vec::new();
        while let Some(wait) = p.on_asked(Instant::ZERO, 1, !waits.is_empty(), TIMEOUT) {
            waits.push(wait);
            p.on_expired();
        }
        assert_eq!(waits, [84, 168, 336, 672, 1344, 2688].map(|ms| ms * MS));
        assert_eq!(
            p.on_acknowledged(Instant::ZERO + 9000 * MS, 2, TIMEOUT),
            Some(84 * MS),
            "no time of what was sent twice"
        );
    }
}
