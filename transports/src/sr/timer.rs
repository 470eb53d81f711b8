//! How long to wait: round-trip times, and the low and high timeouts that follow from them.

use std::time::Duration;

use softnic_wire::Instant;

use crate::timers::{Timer, TimerTable};

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

    /// Takes the round trip of the negotiation, where none other is known.
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

/// The timeouts of one flight, by one of the timers of its queue pair.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlightTimer {
    timer: Timer,
    /// The timeout that the timer is set to is the long one.
    high: bool,
    /// When a packet left last, or will where the peer must be left alone before.
    sent: Instant,
    /// Low timeouts since something was heard; each doubles the next.
    silent: u32,
}

impl FlightTimer {
    pub(super) fn new(timer: Timer) -> FlightTimer {
        FlightTimer { timer, high: false, sent: Instant::ZERO, silent: 0 }
    }

    pub(super) fn stop(&self, timers: &mut TimerTable) {
        timers.stop(self.timer);
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

    /// Starts the timer anew, `from` now or later: `in_flight` packets are under way; `tail`, there are none to send behind them.
    #[inline]
    pub(super) fn start(
        &mut self,
        timers: &mut TimerTable,
        from: Instant,
        (in_flight, tail): (u32, bool),
        rtt: &RoundTrip,
        high: Option<Duration>,
    ) {
        let long = high.unwrap_or(DEFAULT_HIGH);
        // While others are under way behind a packet, they tell of its loss earlier than any clock.
        let short = if in_flight < FEW || tail { rtt.low() } else { None };
        // However short it is at first, the long one has its turn: a peer that is gone must be noticed.
        let short = short.and_then(|low| low.checked_mul(1u32.checked_shl(self.silent)?));
        let (at, is_high) = match (short, high) {
            // From the last packet on, however much is heard of those before it.
            (Some(short), _) if short < long => ((self.sent + short).max(from), false),
            (_, Some(high)) => (from + high, true),
            // Nobody wants to hear of it; asking goes on.
            (_, None) => (from + long, false),
        };
        self.high = is_high;
        timers.set(self.timer, at);
    }

    /// Whether the time has come.
    pub(super) fn expire(&mut self, timers: &mut TimerTable, now: Instant) -> Option<Expired> {
        if !timers.take_expired(self.timer, now) {
            return None;
        }
        self.silent = self.silent.saturating_add(1);
        Some(if self.high { Expired::High } else { Expired::Low })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn start() -> (FlightTimer, TimerTable, RoundTrip) {
        (FlightTimer::new(Timer::Ack), TimerTable::default(), RoundTrip::default())
    }

    #[test]
    fn a_lone_packet_waits_little_more_than_a_round_trip_then_ever_longer_up_to_the_high_timeout() {
        let (mut timer, mut timers, mut rtt) = start();
        (0..20).for_each(|_| rtt.on_sample(40 * MS));
        let mut now = Instant::from_nanos(0);
        let mut waits = Vec::new();
        for _ in 0..5 {
            timer.on_sent(now);
            timer.start(&mut timers, now, (1, false), &rtt, Some(200 * MS));
            let at = timers.next().unwrap();
            assert_eq!(timer.expire(&mut timers, now), None);
            waits.push((at.saturating_since(now), timer.expire(&mut timers, at)));
            now = at;
        }
        let low = |ms| (ms * MS, Some(Expired::Low));
        assert_eq!(waits[..3], [low(45), low(90), low(180)]);
        assert_eq!(waits[3..], [(200 * MS, Some(Expired::High)); 2]);
        timer.on_progress();
        timer.on_sent(now);
        timer.start(&mut timers, now, (1, false), &rtt, Some(200 * MS));
        assert_eq!(timers.next(), Some(now + 45 * MS));
    }

    #[test]
    fn what_is_heard_of_others_does_not_put_off_the_low_timeout_of_the_last() {
        let (mut timer, mut timers, mut rtt) = start();
        rtt.on_sample(40 * MS);
        let sent = Instant::from_nanos(0);
        timer.on_sent(sent);
        for heard in [0, 39, 44] {
            timer.start(&mut timers, sent + heard * MS, (1, true), &rtt, Some(200 * MS));
            assert_eq!(timers.next(), Some(sent + 45 * MS));
        }
        timer.start(&mut timers, sent + 50 * MS, (1, true), &rtt, Some(200 * MS));
        assert_eq!(timers.next(), Some(sent + 50 * MS), "not before now");
        timer.start(&mut timers, sent + 50 * MS, (30, false), &rtt, Some(200 * MS));
        assert_eq!(timers.next(), Some(sent + 250 * MS), "the high one runs from what was heard last");
    }

    #[test]
    fn a_peer_that_is_gone_meets_the_high_timeout_however_short_the_round_trip_was() {
        let (mut timer, mut timers, mut rtt) = start();
        rtt.on_sample(Duration::from_micros(1));
        let mut now = Instant::from_nanos(0);
        let expired = (0..64).map(|_| {
            timer.start(&mut timers, now, (1, true), &rtt, Some(1000 * MS));
            now = timers.next().unwrap();
            timer.expire(&mut timers, now).unwrap()
        });
        let expired: Vec<_> = expired.collect();
        let low = expired.iter().take_while(|e| **e == Expired::Low).count();
        assert!(low < 20 && expired[low..].iter().all(|e| *e == Expired::High), "{expired:?}");
        assert!(now < Instant::from_nanos(0) + 64 * 1000 * MS);
    }

    #[test]
    fn many_under_way_need_no_low_timeout_unless_nothing_follows_them() {
        let (mut timer, mut timers, mut rtt) = start();
        rtt.on_sample(MS);
        let now = Instant::from_nanos(0);
        timer.start(&mut timers, now, (3, false), &rtt, Some(8 * MS));
        assert_eq!(timers.next(), Some(now + 8 * MS));
        timer.start(&mut timers, now, (3, true), &rtt, Some(8 * MS));
        assert_eq!(timers.next(), Some(now + MS + MS / 8));
        timer.start(&mut timers, now, (30, false), &rtt, None);
        assert_eq!(
            (timers.next(), timer.expire(&mut timers, now + DEFAULT_HIGH)),
            (Some(now + DEFAULT_HIGH), Some(Expired::Low))
        );
    }
}
