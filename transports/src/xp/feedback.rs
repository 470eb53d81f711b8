//! Congestion control apart from reliability (OptiNIC §3.1.3): what is in flight is what was sent after the newest packet that
//! feedback named, so a lost packet needs no state and no timer.

use std::time::Duration;

use softnic_wire::xp::XpFeedback;
use softnic_wire::{Instant, Psn};

use crate::congestion::{CongestionPoint, Feedback};

/// Packets that asked and whose feedback may still count.
const ASKED: usize = 16;
/// A packet in so many asks.
const ASK_EVERY: u32 = 16;
/// A window that nothing opened for so long lets one packet pass, which asks: all that asked before may have been lost.
const PROBE: Duration = Duration::from_millis(4);

/// A packet that asked for feedback.
#[derive(Debug, Clone, Copy)]
struct Ask {
    psn: Psn,
    /// Bytes of payload that had been sent, this packet's too.
    sent: u64,
    at: Instant,
}

/// What a sender knows of its packets in flight: kept only where its congestion control wants to know.
#[derive(Debug)]
pub(super) struct Flight {
    asked: [Option<Ask>; ASKED],
    next: usize,
    since_ask: u32,
    /// Bytes that had been sent when the last packet that asked had left.
    last_ask: u64,
    /// Bytes that were sent, and how many of them had been when the newest packet left that feedback named.
    sent: u64,
    passed: u64,
    /// When the window may be passed by.
    probe_at: Instant,
}

impl Flight {
    pub(super) fn new() -> Flight {
        Flight { asked: [None; ASKED], next: 0, since_ask: 0, last_ask: 0, sent: 0, passed: 0, probe_at: Instant::ZERO }
    }

    /// Whether the next packet asks: one in so many, one at a time at least, and the one that closes the window.
    pub(super) fn asks(&self, payload: u32, congestion: &CongestionPoint) -> bool {
        let after_next = self.sent - self.passed + 2 * u64::from(payload);
        self.since_ask + 1 >= ASK_EVERY || self.last_ask <= self.passed || !congestion.fits_window(after_next)
    }

    /// When the window that is closed now may be passed by; `None` while it is open.
    pub(super) fn closed_until(&self, now: Instant, payload: u32, congestion: &CongestionPoint) -> Option<Instant> {
        let in_flight = self.sent - self.passed;
        let open = in_flight == 0 || congestion.fits_window(in_flight + u64::from(payload));
        (!open && now < self.probe_at).then_some(self.probe_at)
    }

    /// A packet left.
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

    /// Feedback came; `false` when no packet of this PSN asked, or a newer one was named before.
    pub(super) fn on_feedback(
        &mut self,
        now: Instant,
        psn: Psn,
        feedback: &XpFeedback,
        congestion: &mut CongestionPoint,
    ) -> bool {
        let named = self.asked.iter().flatten().find(|ask| ask.psn == psn && ask.sent > self.passed).copied();
        let Some(ask) = named else { return false };
        let bytes = ask.sent - self.passed;
        self.passed = ask.sent;
        let held = Duration::from_nanos(feedback.held.into());
        let rtt = now.saturating_since(ask.at).checked_sub(held);
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
        let (mut flight, at) = (Flight::new(), |us: u64| Instant::from_nanos(us * 1000));
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
}
