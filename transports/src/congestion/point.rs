//! Congestion control of a connected queue pair: a reaction point, which sends at the pace and inside the window of a controller, and
//! a notification point, which notifies the sender of marked packets.

use softnic_wire::{Instant, Opcode, TxFrame};

use super::notification::{INTERVAL, NotificationPoint};
use super::{CongestionControl, Feedback};
use crate::message::Link;
use crate::timers::{Timer, TimerTable};
use crate::{Host, Inbound};

/// Reaction point and notification point of a queue pair. Without a controller nothing limits what is sent.
#[derive(Default)]
pub(crate) struct CongestionPoint {
    reaction: Option<Box<ReactionPoint>>,
    notification: NotificationPoint,
}

/// A controller, and what is measured for it. Boxed: most queue pairs have none.
struct ReactionPoint {
    controller: Box<dyn CongestionControl>,
    /// Bytes of payload that are acknowledged, of all that were ever sent.
    bytes_acked: u64,
    /// A packet whose answer tells the round-trip time: its number, and when it left. None that is sent again is timed.
    timed: Option<(u64, Instant)>,
    /// The time before which no notification counts.
    not_before: Instant,
}

impl ReactionPoint {
    /// Whether a notification that comes now counts: as many as a notification point sends, and no more, whoever sends them.
    fn heeds_notification(&mut self, now: Instant) -> bool {
        let heeds = now >= self.not_before;
        if heeds {
            self.not_before = now + INTERVAL;
        }
        heeds
    }
}

impl CongestionPoint {
    /// Puts a controller in charge, or none.
    pub(crate) fn set_controller(&mut self, controller: Option<Box<dyn CongestionControl>>) {
        self.reaction = controller.map(|controller| match self.reaction.take() {
            Some(old) => Box::new(ReactionPoint { controller, ..*old }),
            None => Box::new(ReactionPoint { controller, bytes_acked: 0, timed: None, not_before: Instant::ZERO }),
        });
    }

    /// Bytes of payload that may be in flight.
    #[inline]
    pub(crate) fn window(&self) -> u64 {
        self.reaction.as_ref().map_or(u64::MAX, |r| r.controller.window())
    }

    /// The window in bytes and the rate of the controller that is in charge.
    pub(crate) fn limits(&self) -> (Option<u64>, Option<u64>) {
        let controller = self.reaction.as_ref().map(|r| &r.controller);
        // A controller that only paces has a window without end.
        let window = controller.map(|c| c.window()).filter(|&bytes| bytes != u64::MAX);
        (window, controller.and_then(|c| c.rate()))
    }

    /// Whether the controller wants to hear of packets that came.
    pub(crate) fn wants_feedback(&self) -> bool {
        self.reaction.as_ref().is_some_and(|r| r.controller.wants_feedback())
    }

    /// Payload bytes after which the next packet asks for an answer.
    pub(crate) fn ask_every(&self) -> u64 {
        self.reaction.as_ref().map_or(u64::MAX, |r| r.controller.ask_every())
    }

    /// Whether a controller is in charge.
    #[inline]
    pub(crate) fn is_controlled(&self) -> bool {
        self.reaction.is_some()
    }

    /// The queue pair is ready to send: nothing was sent before.
    pub(crate) fn start(&mut self) {
        if let Some(r) = &mut self.reaction {
            (r.bytes_acked, r.timed) = (0, None);
        }
    }

    /// The queue pair was reset: the controller begins anew, and no notification is owed.
    pub(crate) fn reset(&mut self) {
        self.notification = NotificationPoint::default();
        self.start();
        if let Some(r) = &mut self.reaction {
            r.controller.reset();
            r.not_before = Instant::ZERO;
        }
    }

    // ---- marks and notifications ----

    /// Takes note of the mark of congestion on a packet, and of a notification of congestion; whether the packet was one.
    #[inline]
    pub(crate) fn on_packet(&mut self, now: Instant, packet: &Inbound<'_>, host: &mut impl Host) -> bool {
        let opcode = packet.bth.opcode;
        self.notification.on_packet(now, packet.ecn_ce, opcode);
        if opcode != Opcode::CNP {
            return false;
        }
        if self.reaction.as_mut().is_some_and(|r| r.heeds_notification(now)) {
            host.counters().rp_cnp_handled += 1;
            self.feed_back(now, Feedback::CongestionNotification);
        } else {
            host.counters().rp_cnp_ignored += 1;
        }
        true
    }

    /// A packet of a shim below the queue pair came, with a mark of congestion.
    pub(crate) fn on_marked_of_shim(&mut self, now: Instant) {
        self.notification.on_packet(now, true, Opcode::LOWAR);
    }

    /// Whether a notification is due.
    #[inline]
    pub(crate) fn owes_notification(&self) -> bool {
        self.notification.is_due()
    }

    /// Writes the notification that is due; without a link none is owed any more. It goes before everything else: the sooner, the
    /// shorter the queue.
    pub(crate) fn transmit_notification(
        &mut self,
        now: Instant,
        tx: &mut TxFrame<'_>,
        link: Option<&Link>,
        host: &mut impl Host,
    ) -> bool {
        let Some(link) = link else {
            self.notification = NotificationPoint::default();
            return false;
        };
        self.notification.transmit(now, tx, link, host)
    }

    // ---- pace ----

    /// When the next packet may go, if that is not now.
    #[inline]
    pub(crate) fn pacing(&self, now: Instant) -> Option<Instant> {
        self.reaction.as_ref().map(|r| r.controller.next_send()).filter(|&t| now < t)
    }

    /// Whether an answer with data must wait: the sender of data slows down, and of a READ that is its responder.
    #[inline]
    pub(crate) fn must_pace_answer(&self, now: Instant, timers: &mut TimerTable) -> bool {
        let until = self.pacing(now).filter(|_| self.paces_answers());
        if let Some(until) = until {
            timers.set(Timer::Pacing, until);
        }
        until.is_some()
    }

    fn paces_answers(&self) -> bool {
        self.reaction.as_ref().is_some_and(|r| r.controller.paces_answers())
    }

    /// An answer with data left.
    #[inline]
    pub(crate) fn on_answer_sent(&mut self, now: Instant, tx: &TxFrame<'_>) {
        if self.paces_answers() {
            self.on_sent(now, tx);
        }
    }

    /// A packet left: those behind it wait for their turn.
    #[inline]
    pub(crate) fn on_sent(&mut self, now: Instant, tx: &TxFrame<'_>) {
        if let Some(r) = &mut self.reaction {
            r.controller.on_sent(now, tx.wire_len() as u32);
        }
    }

    // ---- window and round-trip time: for queue pairs whose packets are acknowledged ----

    /// Whether the window allows so many bytes of payload in flight.
    #[inline]
    pub(crate) fn fits_window(&self, in_flight: u64) -> bool {
        in_flight <= self.window()
    }

    /// Of so many bytes that were ever sent, those that are not acknowledged; counted where there is a controller.
    pub(crate) fn unacknowledged(&self, sent: u64) -> u64 {
        sent - self.reaction.as_ref().map_or(0, |r| r.bytes_acked)
    }

    /// Packet `n` left, and asks for an answer or does not: the answer may tell the round-trip time.
    #[inline]
    pub(crate) fn time(&mut self, now: Instant, n: u64, resent: bool, ack_req: bool) {
        let Some(r) = &mut self.reaction else { return };
        match (resent, r.timed) {
            (true, _) => r.timed = None,
            (false, None) if ack_req => r.timed = Some((n, now)),
            _ => {}
        }
    }

    /// All packets before number `una` are acknowledged, with `bytes` of payload in all since the first.
    pub(crate) fn on_acknowledged(&mut self, now: Instant, una: u64, bytes: u64) {
        let Some(r) = &mut self.reaction else { return };
        let new = bytes - r.bytes_acked;
        r.bytes_acked = bytes;
        let rtt = r.timed.filter(|&(n, _)| n < una).map(|(_, left)| now.saturating_since(left));
        r.timed = r.timed.filter(|_| rtt.is_none());
        r.controller.on_feedback(now, Feedback::Acknowledged { bytes: new, rtt });
    }

    /// Tells the controller how sending went.
    pub(crate) fn feed_back(&mut self, now: Instant, feedback: Feedback) {
        if let Some(r) = &mut self.reaction {
            r.controller.on_feedback(now, feedback);
        }
    }
}

/// Bytes that every packet of XP reads here, where nothing limits what is in flight: whether a notification is due.
#[cfg(test)]
pub(crate) fn looked_at() -> usize {
    crate::footprint::of_fields!(CongestionPoint: notification)
}
