//! How long to wait: round-trip times, and the low and high timeouts that follow from them.

use std::time::Duration;

use softnic_wire::Instant;

/// Fewer packets under way than this cannot be relied on to tell of the loss of one of them (IRN, section 3.1).
const FEW: u32 = 3;
/// A low timeout is no shorter: a program that lost its core for a moment has not lost packets.
const SHORTEST: Duration = Duration::from_micros(50);
/// The high timeout where the program asked for none, or has not said yet.
const DEFAULT_HIGH: Duration = Duration::from_millis(100);

/// Round-trip times as they were seen.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RoundTrip {
    smoothed: Option<Duration>,
    variation: Duration,
    shortest: Option<Duration>,
}

impl RoundTrip {
    pub(super) fn on_sample(&mut self, sample: Duration) {
        self.shortest = Some(self.shortest.map_or(sample, |s| s.min(sample)));
        let Some(smoothed) = self.smoothed else {
            // The first sample says nothing about how much they vary.
            self.smoothed = Some(sample);
            return;
        };
        self.variation = (self.variation * 3 + smoothed.abs_diff(sample)) / 4;
        self.smoothed = Some((smoothed * 7 + sample) / 8);
    }

    /// What the negotiation took, where nothing else is known.
    pub(super) fn on_first_sample(&mut self, sample: Duration) {
        if self.smoothed.is_none() {
            self.on_sample(sample);
        }
    }

    pub(super) fn shortest(&self) -> Option<Duration> {
        self.shortest
    }

    /// When nothing can be heard any more of a packet that came: a little more than a round trip.
    fn low(&self) -> Option<Duration> {
        let smoothed = self.smoothed?;
        Some((smoothed + (smoothed / 8).max(self.variation * 4)).max(SHORTEST))
    }
}

/// A timeout that has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expired {
    /// The short one: the oldest packet is sent again.
    Low,
    /// The long one, that counts as a retry: everything is.
    High,
}

/// The clock of one flight.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Timer {
    deadline: Option<(Instant, bool)>,
    /// When a packet left last, or will where the peer must be left alone before.
    sent: Instant,
    /// Low timeouts since something was heard; each doubles the next.
    silent: u32,
}

impl Timer {
    #[inline]
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline.map(|(at, _)| at)
    }

    pub(super) fn stop(&mut self) {
        self.deadline = None;
    }

    /// Something was heard.
    pub(super) fn on_progress(&mut self) {
        self.silent = 0;
    }

    /// A packet leaves: what will be heard of it and of all before it is heard within the low timeout.
    #[inline]
    pub(super) fn on_sent(&mut self, now: Instant) {
        self.sent = now;
    }

    /// Starts the clock anew, `from` now or later: `in_flight` packets are under way; `tail`, there are none to send behind them.
    #[inline]
    pub(super) fn start(&mut self, from: Instant, in_flight: u32, tail: bool, rtt: &RoundTrip, high: Option<Duration>) {
        let long = high.unwrap_or(DEFAULT_HIGH);
        // While others are under way behind a packet, they tell of its loss earlier than any clock.
        let short = if in_flight < FEW || tail { rtt.low() } else { None };
        // However short it is at first, the long one has its turn: a peer that is gone must be noticed.
        let short = short.and_then(|low| low.checked_mul(1u32.checked_shl(self.silent)?));
        self.deadline = Some(match (short, high) {
            // From the last packet on, however much is heard of those before it.
            (Some(short), _) if short < long => ((self.sent + short).max(from), false),
            (_, Some(high)) => (from + high, true),
            // Nobody wants to hear of it; asking goes on.
            (_, None) => (from + long, false),
        });
    }

    /// Whether the time has come.
    pub(super) fn expire(&mut self, now: Instant) -> Option<Expired> {
        let (at, high) = self.deadline?;
        if now < at {
            return None;
        }
        self.deadline = None;
        self.silent = self.silent.saturating_add(1);
        Some(if high { Expired::High } else { Expired::Low })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_lone_packet_waits_little_more_than_a_round_trip_then_ever_longer_up_to_the_high_timeout() {
        let (mut timer, mut rtt) = (Timer::default(), RoundTrip::default());
        (0..20).for_each(|_| rtt.on_sample(40 * MS));
        let mut now = Instant::from_nanos(0);
        let mut waits = Vec::new();
        for _ in 0..5 {
            timer.on_sent(now);
            timer.start(now, 1, false, &rtt, Some(200 * MS));
            let at = timer.deadline().unwrap();
            assert_eq!(timer.expire(now), None);
            waits.push((at.saturating_since(now), timer.expire(at)));
            now = at;
        }
        let low = |ms| (ms * MS, Some(Expired::Low));
        assert_eq!(waits[..3], [low(45), low(90), low(180)]);
        assert_eq!(waits[3..], [(200 * MS, Some(Expired::High)); 2]);
        timer.on_progress();
        timer.on_sent(now);
        timer.start(now, 1, false, &rtt, Some(200 * MS));
        assert_eq!(timer.deadline(), Some(now + 45 * MS));
    }

    #[test]
    fn what_is_heard_of_others_does_not_put_off_the_low_timeout_of_the_last() {
        let (mut timer, mut rtt) = (Timer::default(), RoundTrip::default());
        rtt.on_sample(40 * MS);
        let sent = Instant::from_nanos(0);
        timer.on_sent(sent);
        for heard in [0, 39, 44] {
            timer.start(sent + heard * MS, 1, true, &rtt, Some(200 * MS));
            assert_eq!(timer.deadline(), Some(sent + 45 * MS));
        }
        timer.start(sent + 50 * MS, 1, true, &rtt, Some(200 * MS));
        assert_eq!(timer.deadline(), Some(sent + 50 * MS), "not before now");
        timer.start(sent + 50 * MS, 30, false, &rtt, Some(200 * MS));
        assert_eq!(timer.deadline(), Some(sent + 250 * MS), "the high one runs from what was heard last");
    }

    #[test]
    fn a_peer_that_is_gone_meets_the_high_timeout_however_short_the_round_trip_was() {
        let (mut timer, mut rtt) = (Timer::default(), RoundTrip::default());
        rtt.on_sample(Duration::from_micros(1));
        let mut now = Instant::from_nanos(0);
        let expired = (0..64).map(|_| {
            timer.start(now, 1, true, &rtt, Some(1000 * MS));
            now = timer.deadline().unwrap();
            timer.expire(now).unwrap()
        });
        let expired: Vec<_> = expired.collect();
        let low = expired.iter().take_while(|e| **e == Expired::Low).count();
        assert!(low < 20 && expired[low..].iter().all(|e| *e == Expired::High), "{expired:?}");
        assert!(now < Instant::from_nanos(0) + 64 * 1000 * MS);
    }

    #[test]
    fn many_under_way_need_no_low_timeout_unless_nothing_follows_them() {
        let (mut timer, mut rtt) = (Timer::default(), RoundTrip::default());
        rtt.on_sample(MS);
        let now = Instant::from_nanos(0);
        timer.start(now, 3, false, &rtt, Some(8 * MS));
        assert_eq!(timer.deadline(), Some(now + 8 * MS));
        timer.start(now, 3, true, &rtt, Some(8 * MS));
        assert_eq!(timer.deadline(), Some(now + MS + MS / 8));
        timer.start(now, 30, false, &rtt, None);
        assert_eq!(
            (timer.deadline(), timer.expire(now + DEFAULT_HIGH)),
            (Some(now + DEFAULT_HIGH), Some(Expired::Low))
        );
    }
}
