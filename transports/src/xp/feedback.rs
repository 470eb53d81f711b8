//! Congestion control without reliability (OptiNIC §3.1.3): the data in flight is what was sent after the newest packet named by feedback,
//! so a lost packet needs no state and no timer.

use std::time::Duration;

use softnic_wire::xp::XpFeedback;
use softnic_wire::{Instant, Psn};

use crate::congestion::{CongestionPoint, Feedback};
use crate::planted::{Bug, planted};

/// Maximum number of packets that requested feedback which may still count.
const ASKED: usize = 32;
/// One packet in this number requests feedback, or one per eighth of the window if that is more. Feedback for a packet that is no longer
/// recorded is useless.
const ASK_EVERY: u32 = 16;
const ASKS_PER_WINDOW: u64 = 8;
/// If no feedback has opened a closed window for this time, one packet is sent, which requests feedback: all earlier requests may have been
/// lost.
const PROBE: Duration = Duration::from_millis(4);

/// A packet that requested feedback.
#[derive(Debug, Clone, Copy)]
struct Ask {
    psn: Psn,
    /// Number of payload bytes sent up to and including this packet.
    sent: u64,
    at: Instant,
}

/// Number of round trips that are measured before the limit may grow: the shortest of them is one without queueing.
const SAMPLES: u32 = 4;
/// The maximum limit: what fills a path of 100 Gbit/s and 80 ms.
const MAX_LIMIT: u64 = 1 << 30;

/// A sender's record of its packets in flight; only kept if congestion control needs it.
#[derive(Debug)]
pub(super) struct Flight {
    asked: [Option<Ask>; ASKED],
    next: usize,
    since_ask: u32,
    /// Number of bytes sent when the last packet with a feedback request was sent.
    last_ask: u64,
    /// Number of bytes sent, and the part of them that was sent up to the newest packet named by feedback.
    sent: u64,
    passed: u64,
    /// When one packet may be sent although the window is closed.
    probe_at: Instant,
    limit: Option<Limit>,
}

/// The maximum amount in flight if no controller determines it: the buffer of a software receiver, and more if the round-trip time shows
/// that packets are in flight rather than in a queue, as with Go-Back-N.
#[derive(Debug)]
pub(super) struct Limit {
    first: u64,
    bytes: u64,
    /// The limit has delayed a packet.
    reached: bool,
    shortest: Duration,
    samples: u32,
    /// Number of bytes sent at the last adjustment, which is made once per round trip.
    looked_at: u64,
}

impl Limit {
    /// An initial limit of this many bytes.
    pub(super) fn new(bytes: u64) -> Limit {
        let (reached, shortest) = (false, Duration::MAX);
        Limit { first: bytes, bytes, reached, shortest, samples: 0, looked_at: 0 }
    }

    /// Processes a round trip of a packet that was sent when `asked` bytes had been sent; by now `sent` bytes have been.
    fn on_round_trip(&mut self, rtt: Duration, asked: u64, sent: u64) {
        (self.shortest, self.samples) = (self.shortest.min(rtt), self.samples.saturating_add(1));
        if asked <= self.looked_at {
            return;
        }
        self.looked_at = sent;
        if self.reached && self.samples >= SAMPLES && rtt < 2 * self.shortest {
            self.bytes = (2 * self.bytes).min(MAX_LIMIT);
        } else if rtt > 4 * self.shortest {
            self.bytes = (self.bytes - self.bytes / 8).max(self.first);
        }
        self.reached = false;
    }
}

impl Flight {
    pub(super) fn new(limit: Option<Limit>) -> Flight {
        let (asked, probe_at) = ([None; ASKED], Instant::ZERO);
        Flight { asked, next: 0, since_ask: 0, last_ask: 0, sent: 0, passed: 0, probe_at, limit }
    }

    /// Maximum number of bytes in flight.
    fn window(&self, congestion: &CongestionPoint) -> u64 {
        self.limit.as_ref().map_or(u64::MAX, |limit| limit.bytes).min(congestion.window())
    }

    fn fits(&self, in_flight: u64, congestion: &CongestionPoint) -> bool {
        in_flight <= self.window(congestion)
    }

    /// Whether the next packet requests feedback: one in several, at least one at a time, and the one that closes the window.
    pub(super) fn asks(&self, payload: u32, congestion: &CongestionPoint) -> bool {
        let after_next = self.sent - self.passed + 2 * u64::from(payload);
        let enough = self.since_ask + 1 >= ASK_EVERY
            && (self.sent - self.last_ask).saturating_mul(ASKS_PER_WINDOW) >= self.window(congestion);
        let asked_long_ago = self.sent - self.last_ask + u64::from(payload) >= congestion.ask_every();
        enough || asked_long_ago || self.last_ask <= self.passed || !self.fits(after_next, congestion)
    }

    /// Until when the window is closed; `None` while it is open.
    pub(super) fn closed_until(&mut self, now: Instant, payload: u32, congestion: &CongestionPoint) -> Option<Instant> {
        let in_flight = self.sent - self.passed;
        let open = in_flight == 0 || self.fits(in_flight + u64::from(payload), congestion);
        if let (false, Some(limit)) = (open, &mut self.limit) {
            limit.reached = true;
        }
        (!open && now < self.probe_at).then_some(self.probe_at)
    }

    /// A packet was sent.
    pub(super) fn on_sent(&mut self, now: Instant, psn: Psn, payload: u32, asked: bool) {
        self.sent += u64::from(payload);
        self.since_ask = if asked { 0 } else { self.since_ask + 1 };
        self.probe_at = now + PROBE;
        if asked {
            self.last_ask = self.sent;
            self.asked[self.next] = Some(Ask { psn, sent: self.sent, at: now });
            self.next = (self.next + 1) % ASKED;
        }
    }

    /// Handles feedback; returns `false` if no packet with this PSN requested any, or a newer one was named before.
    pub(super) fn on_feedback(
        &mut self,
        now: Instant,
        psn: Psn,
        feedback: &XpFeedback,
        congestion: &mut CongestionPoint,
    ) -> bool {
        let named = self.asked.iter().flatten().find(|ask| ask.psn == psn && ask.sent > self.passed).copied();
        let Some(mut ask) = named else { return false };
        if planted(Bug::XpFeedbackOfAnother) {
            ask = self.asked.iter().flatten().max_by_key(|ask| ask.sent).copied().unwrap_or(ask);
        }
        let bytes = ask.sent - self.passed;
        self.passed = ask.sent;
        let held = Duration::from_nanos(feedback.held.into());
        let rtt = now.saturating_since(ask.at).checked_sub(held);
        if let (Some(limit), Some(rtt)) = (&mut self.limit, rtt) {
            limit.on_round_trip(rtt, ask.sent, self.sent);
        }
        congestion.feed_back(now, Feedback::Acknowledged { bytes, rtt });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::Fixed;

    #[test]
    fn in_flight_is_what_left_after_the_newest_packet_that_feedback_named() {
        let mut congestion = CongestionPoint::default();
        congestion.set_controller(Some(Box::new(Fixed::new(1_000_000_000, 4000))));
        let (mut flight, at) = (Flight::new(None), |us: u64| Instant::from_nanos(us * 1000));
        for n in 0..4 {
            assert_eq!(flight.closed_until(at(1), 1000, &congestion), None, "packet {n}");
            let asks = flight.asks(1000, &congestion);
            assert_eq!(asks, n == 0 || n == 3, "the first, and the one that closes the window");
            flight.on_sent(at(1), Psn::new(n), 1000, asks);
        }
        let probe = at(1) + PROBE;
        assert_eq!(flight.closed_until(at(2), 1000, &congestion), Some(probe));
        assert_eq!(flight.closed_until(probe, 1000, &congestion), None, "feedback may be lost for good");
        for (psn, counts) in [(2, false), (77, false), (0, true), (0, false)] {
            let told = flight.on_feedback(at(9), Psn::new(psn), &XpFeedback::default(), &mut congestion);
            assert_eq!(told, counts, "of packet {psn}");
        }
        assert_eq!(flight.closed_until(at(9), 1000, &congestion), None, "the first of four is no more in flight");
        assert!(flight.on_feedback(at(9), Psn::new(3), &XpFeedback::default(), &mut congestion));
        assert_eq!(flight.sent, flight.passed, "nor are the two before it, whatever became of them");
    }

    #[test]
    fn a_limit_that_is_reached_grows_on_a_long_path_and_shrinks_where_a_queue_grows() {
        let us = |n| Duration::from_micros(n);
        let mut limit = Limit::new(1000);
        let mut sent = 0;
        let mut after = |limit: &mut Limit, rtt, reached| {
            limit.reached = reached;
            sent += 1000;
            limit.on_round_trip(us(rtt), sent, sent + 500);
            sent += 500;
            limit.bytes
        };
        assert_eq!([100, 90, 100].map(|rtt| after(&mut limit, rtt, true)), [1000; 3], "too little is known");
        assert_eq!(after(&mut limit, 100, false), 1000, "it was not reached");
        assert_eq!([100, 100].map(|rtt| after(&mut limit, rtt, true)), [2000, 4000]);
        assert_eq!(after(&mut limit, 200, true), 4000, "some queue");
        assert_eq!([400, 400].map(|rtt| after(&mut limit, rtt, true)), [3500, 3063]);
        assert_eq!((0..20).map(|_| after(&mut limit, 400, true)).last(), Some(1000), "no less than at first");
        limit.on_round_trip(us(90), 1, 2);
        assert_eq!(limit.bytes, 1000, "once a round trip");
    }
}
