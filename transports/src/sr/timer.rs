//! The low and high timeouts.

use std::time::Duration;

use softnic_wire::Instant;

use crate::round_trip::RoundTrip;
use crate::timers::{Timer, TimerTable};

/// With fewer packets in flight than this, their arrival cannot be relied on to show the loss of one of them (IRN, section 3.1).
const FEW: u32 = 3;
/// The high timeout if the program set no timer, or has not set it yet.
const DEFAULT_HIGH: Duration = Duration::from_millis(100);

/// The packets that a timer covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watched {
    /// Few packets, or the last ones: no later packet shows their loss.
    Tail,
    /// Packets that others should follow. There are none if the window or the credits are used up; then, if all acknowledgements were lost,
    /// nothing else would ever arrive.
    Flight,
    /// Data that the peer sends again by itself, if the peer is there and knows that the data is missing.
    Data,
}

impl Watched {
    /// The class of `in_flight` packets; `last` means that there are none to send after them.
    #[inline]
    pub(super) fn of(in_flight: u32, last: bool) -> Watched {
        if in_flight < FEW || last { Watched::Tail } else { Watched::Flight }
    }
}

/// A timeout that has expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expired {
    /// The short one: the oldest packet is sent again.
    Low,
    /// The long one, which counts as a retry: all packets are sent again.
    High,
}

/// The timeouts of one flight, by one of the timers of its queue pair.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlightTimer {
    timer: Timer,
    /// The timer is set to the long timeout.
    high: bool,
    /// When the last packet was sent, or will be sent after an RNR pause.
    sent: Instant,
    /// Number of low timeouts since the last answer; each doubles the next one.
    silent: u32,
}

impl FlightTimer {
    pub(super) fn new(timer: Timer) -> FlightTimer {
        FlightTimer { timer, high: false, sent: Instant::ZERO, silent: 0 }
    }

    pub(super) fn stop(&self, timers: &mut TimerTable) {
        timers.stop(self.timer);
    }

    /// An answer has arrived.
    pub(super) fn on_progress(&mut self) {
        self.silent = 0;
    }

    /// A packet is sent: the answers to it and to all earlier ones arrive within the low timeout.
    #[inline]
    pub(super) fn on_sent(&mut self, now: Instant) {
        self.sent = now;
    }

    /// Restarts the timer, `from` now or later.
    #[inline]
    pub(super) fn start(
        &mut self,
        timers: &mut TimerTable,
        from: Instant,
        watched: Watched,
        rtt: &RoundTrip,
        high: Option<Duration>,
    ) {
        let long = high.unwrap_or(DEFAULT_HIGH);
        // Counted from the last packet sent, whatever answers to earlier ones arrive; for data, from the last data received.
        let (short, since) = match watched {
            Watched::Tail => (rtt.low(), self.sent),
            Watched::Flight => (rtt.probe(), self.sent),
            Watched::Data => (rtt.probe(), from),
        };
        // However short the low timeout is at first, it doubles until the long one applies, so that a dead peer is detected.
        let short = 1u32.checked_shl(self.silent).and_then(|factor| short.checked_mul(factor));
        let (at, is_high) = match (short, high) {
            (Some(short), _) if short < long => ((since + short).max(from), false),
            (_, Some(high)) => (from + high, true),
            // Without an ACK timeout there is no failure; the requests are repeated.
            (_, None) => (from + long, false),
        };
        self.high = is_high;
        timers.set(self.timer, at);
    }

    /// Whether the timer has expired, and which timeout it was.
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
            timer.start(&mut timers, now, Watched::Tail, &rtt, Some(200 * MS));
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
        timer.start(&mut timers, now, Watched::Tail, &rtt, Some(200 * MS));
        assert_eq!(timers.next(), Some(now + 45 * MS));
    }

    #[test]
    fn what_is_heard_of_others_does_not_put_off_the_low_timeout_of_the_last() {
        let (mut timer, mut timers, mut rtt) = start();
        rtt.on_sample(40 * MS);
        let sent = Instant::from_nanos(0);
        timer.on_sent(sent);
        for heard in [0, 39, 44] {
            timer.start(&mut timers, sent + heard * MS, Watched::Tail, &rtt, Some(200 * MS));
            assert_eq!(timers.next(), Some(sent + 45 * MS));
        }
        timer.start(&mut timers, sent + 50 * MS, Watched::Tail, &rtt, Some(200 * MS));
        assert_eq!(timers.next(), Some(sent + 50 * MS), "not before now");
        timer.start(&mut timers, sent + 50 * MS, Watched::Flight, &rtt, Some(200 * MS));
        assert_eq!(timers.next(), Some(sent + 80 * MS), "others may be heard of for longer");
        timer.start(&mut timers, sent + 50 * MS, Watched::Data, &rtt, Some(200 * MS));
        assert_eq!(timers.next(), Some(sent + 130 * MS), "data is waited for from what was heard last");
    }

    #[test]
    fn a_peer_that_is_gone_meets_the_high_timeout_however_short_the_round_trip_was() {
        let (mut timer, mut timers, mut rtt) = start();
        rtt.on_sample(Duration::from_micros(1));
        let mut now = Instant::from_nanos(0);
        let expired = (0..64).map(|_| {
            timer.start(&mut timers, now, Watched::Tail, &rtt, Some(1000 * MS));
            now = timers.next().unwrap();
            timer.expire(&mut timers, now).unwrap()
        });
        let expired: Vec<_> = expired.collect();
        let low = expired.iter().take_while(|e| **e == Expired::Low).count();
        assert!(low < 20 && expired[low..].iter().all(|e| *e == Expired::High), "{expired:?}");
        assert!(now < Instant::from_nanos(0) + 64 * 1000 * MS);
    }

    #[test]
    fn the_loss_of_all_acknowledgements_costs_two_round_trips_where_many_packets_are_under_way() {
        let (mut timer, mut timers, mut rtt) = start();
        let now = Instant::from_nanos(0);
        timer.start(&mut timers, now, Watched::of(30, false), &rtt, Some(4000 * MS));
        assert_eq!(timers.next(), Some(now + DEFAULT_HIGH), "no round trip is known");
        rtt.on_sample(MS);
        timer.start(&mut timers, now, Watched::of(30, false), &rtt, Some(4000 * MS));
        assert_eq!(timers.next(), Some(now + 2 * MS));
        assert_eq!(timer.expire(&mut timers, now + 2 * MS), Some(Expired::Low));
        timer.on_progress();
        timer.start(&mut timers, now, Watched::of(30, true), &rtt, Some(4000 * MS));
        assert_eq!(timers.next(), Some(now + MS + MS / 8), "nothing follows");
    }
}
