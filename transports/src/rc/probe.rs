//! The probe of a connection whose shim repairs losses: handles losses that the shim could not repair.
//!
//! The ACK timeout is set by the program, and may be seconds, because the standard's recovery is meant for rare losses. A connection that
//! agreed on an extension for lossy networks does not wait for it. After two round trips without an answer, plus the time for which the
//! shim may hold packets back for a repair, the outstanding packets are sent again. This counts as no retry, and the program's timeout
//! still applies, so a peer that is gone is detected as usual.

use std::time::Duration;

use softnic_wire::Instant;

use crate::round_trip::RoundTrip;
use crate::shim::LONGEST_HOLD;

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Probe {
    rtt: RoundTrip,
    /// The packet whose answer gives the round-trip time: its number, and when it was sent. Retransmitted packets are not timed.
    timed: Option<(u64, Instant)>,
    /// Number of probes since the last answer; each doubles the wait for the next probe.
    silent: u32,
}

impl Probe {
    /// Packet `n` was sent and requests an answer. Returns how long to wait for it; `None` if the ACK timeout, `timeout`, comes first.
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

    /// All packets before `una` are acknowledged. Returns how long to wait for the next answer.
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

    /// The wait has expired without an answer.
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
