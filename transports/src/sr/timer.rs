//! How long to wait: the low and high timeouts.

use std::time::Duration;

use softnic_wire::Instant;

use crate::round_trip::RoundTrip;
use crate::timers::{Timer, TimerTable};

/// Fewer packets under way than this cannot be relied on to tell of the loss of one of them (IRN, section 3.1).
const FEW: u32 = 3;
/// The high timeout where the program asked for none, or has not said yet.
const DEFAULT_HIGH: Duration = Duration::from_millis(100);

/// What a timer watches over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watched {
    /// So few packets, or the last ones: nothing behind them tells of their loss.
    Tail,
    /// Packets that others should follow. They do not where the window or credits are used up, and where all
    /// acknowledgements of it were lost nothing else would ever be heard.
    Flight,
    /// Data that the peer sends again by itself, if it is there and knows that it is missing.
    Data,
}

impl Watched {
    /// What `in_flight` packets are; `last`: there are none to send behind them.
    #[inline]
    pub(super) fn of(in_flight: u32, last: bool) -> Watched {
        if in_flight < FEW || last { Watched::Tail } else { Watched::Flight }
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

    /// Starts the timer anew, `from` now or later.
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
        // From the last packet on, however much is heard of those before it; data is waited for from the last of it on.
        let (short, since) = match watched {
            Watched::Tail => (rtt.low(), self.sent),
            Watched::Flight => (rtt.probe(), self.sent),
            Watched::Data => (rtt.probe(), from),
        };
        // However short it is at first, the long one has its turn: a peer that is gone must be noticed.
        let short = 1u32.checked_shl(self.silent).and_then(|factor| short.checked_mul(factor));
        let (at, is_high) = match (short, high) {
            (Some(short), _) if short < long => ((since + short).max(from), false),
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
