//! Congestion control of a connected queue pair: a reaction point, which sends at the pace and within the window of a controller, and a
//! notification point, which notifies the sender of marked packets.

use softnic_wire::opcode::Service;
use softnic_wire::{Instant, Opcode, TxFrame};

use super::notification::{INTERVAL, NotificationPoint};
use super::{CongestionControl, Credit, EqdsConfig, Feedback};
use crate::best_effort::NEVER;
use crate::message::Link;
use crate::qp::earlier;
use crate::timers::{Timer, TimerTable};
use crate::{Host, Inbound};

/// The reaction point and the notification point of a queue pair. Without a controller sending is not limited.
#[derive(Default)]
pub(crate) struct CongestionPoint {
    reaction: Option<Box<ReactionPoint>>,
    notification: NotificationPoint,
}

/// A controller with its measurements, or credit of the peer. Boxed, because most queue pairs have neither.
struct ReactionPoint {
    controller: Option<Box<dyn CongestionControl>>,
    /// The credit, if the receiver decides when requests are sent.
    credit: Option<Box<Credit>>,
    /// Number of acknowledged payload bytes since the first packet.
    bytes_acked: u64,
    /// The packet whose answer gives the round-trip time: its number, and when it was sent. Retransmitted packets are not timed.
    timed: Option<(u64, Instant)>,
    /// Notifications before this time are ignored.
    not_before: Instant,
}

impl ReactionPoint {
    fn new(controller: Option<Box<dyn CongestionControl>>, credit: Option<Box<Credit>>) -> Option<Box<ReactionPoint>> {
        let any = controller.is_some() || credit.is_some();
        let not_before = Instant::ZERO;
        any.then(|| Box::new(ReactionPoint { controller, credit, bytes_acked: 0, timed: None, not_before }))
    }

    /// Whether a notification that arrives now counts. At most as many count as a notification point may send, whatever their source.
    fn heeds_notification(&mut self, now: Instant) -> bool {
        let heeds = now >= self.not_before;
        if heeds {
            self.not_before = now + INTERVAL;
        }
        heeds
    }
}

impl CongestionPoint {
    /// Sets the controller, or removes it.
    pub(crate) fn set_controller(&mut self, controller: Option<Box<dyn CongestionControl>>) {
        self.reaction = match self.reaction.take() {
            Some(old) if controller.is_some() => Some(Box::new(ReactionPoint { controller, ..*old })),
            old => ReactionPoint::new(controller, old.and_then(|old| old.credit)),
        };
    }

    fn controller(&self) -> Option<&dyn CongestionControl> {
        self.reaction.as_ref()?.controller.as_deref()
    }

    // ---- credit ----

    /// Offers credit to the peer, or none.
    pub(crate) fn set_credit(&mut self, config: Option<EqdsConfig>) {
        let controller = self.reaction.take().and_then(|old| old.controller);
        self.reaction = ReactionPoint::new(controller, config.map(|config| Box::new(Credit::new(config))));
    }

    /// Whether credit is offered to the peer.
    #[inline]
    pub(crate) fn has_credit(&self) -> bool {
        self.reaction.as_ref().is_some_and(|r| r.credit.is_some())
    }

    pub(crate) fn credit_mut(&mut self) -> Option<&mut Credit> {
        self.reaction.as_mut()?.credit.as_deref_mut()
    }

    /// The credit that requests wait for, if the peer agreed to it.
    pub(crate) fn credit(&self) -> Option<&Credit> {
        self.reaction.as_ref()?.credit.as_deref().filter(|credit| credit.is_agreed())
    }

    /// The earlier of the given time and the next event of the credit.
    pub(crate) fn wake_at(&self, until: Option<Instant>) -> Option<Instant> {
        let due = self.reaction.as_ref().and_then(|r| r.credit.as_ref()).map(|credit| credit.due());
        earlier(until, due.filter(|&due| due != NEVER))
    }

    /// A packet arrived at a queue pair that offers credit. Returns whether it was a credit packet, or another packet of XP, which is not
    /// accepted.
    fn hear_for_credit(&mut self, now: Instant, packet: &Inbound<'_>, host: &mut impl Host) -> bool {
        let Some(credit) = self.credit_mut() else { return false };
        credit.on_heard(now);
        let opcode = packet.bth.opcode;
        if opcode.service() != Service::Xp {
            return false;
        }
        match (opcode == Opcode::XP_CREDIT, credit.is_connected()) {
            (true, true) if credit.grants() => credit.receive(now, packet, host),
            (true, true) => host.counters().eqds_credit_rejected += 1,
            // The queue pair has stopped, or was reset.
            (true, false) => {}
            (false, _) => host.counters().rx_malformed += 1,
        }
        true
    }

    /// Maximum number of payload bytes in flight.
    #[inline]
    pub(crate) fn window(&self) -> u64 {
        self.controller().map_or(u64::MAX, |c| c.window())
    }

    /// The window in bytes and the rate of the controller; with credit, the credit left in place of the window.
    pub(crate) fn limits(&self) -> (Option<u64>, Option<u64>) {
        let controller = self.controller();
        // A controller that only paces has an unlimited window.
        let window = controller.map(|c| c.window()).filter(|&bytes| bytes != u64::MAX);
        let window = self.credit().map(|credit| credit.room().into()).or(window);
        (window, controller.and_then(|c| c.rate()))
    }

    /// Whether the controller needs feedback about received packets.
    pub(crate) fn wants_feedback(&self) -> bool {
        self.controller().is_some_and(|c| c.wants_feedback())
    }

    /// Number of payload bytes after which the next packet requests an acknowledgement.
    pub(crate) fn ask_every(&self) -> u64 {
        self.controller().map_or(u64::MAX, |c| c.ask_every())
    }

    /// Whether there is a controller, or credit.
    #[inline]
    pub(crate) fn is_controlled(&self) -> bool {
        self.reaction.is_some()
    }

    /// The queue pair is ready to send, and has sent nothing before.
    pub(crate) fn start(&mut self) {
        if let Some(r) = &mut self.reaction {
            (r.bytes_acked, r.timed) = (0, None);
        }
    }

    /// The queue pair was reset: the controller returns to its initial state, and no notification is owed.
    pub(crate) fn reset(&mut self) {
        self.notification = NotificationPoint::default();
        self.start();
        if let Some(r) = &mut self.reaction {
            r.controller.iter_mut().for_each(|c| c.reset());
            r.credit.iter_mut().for_each(|credit| credit.reset());
            r.not_before = Instant::ZERO;
        }
    }

    // ---- marks and notifications ----

    /// Handles the congestion mark of a packet, a congestion notification, and a credit packet. Returns whether the packet was one of the
    /// latter two.
    #[inline]
    pub(crate) fn on_packet(&mut self, now: Instant, packet: &Inbound<'_>, host: &mut impl Host) -> bool {
        let opcode = packet.bth.opcode;
        self.notification.on_packet(now, packet.ecn_ce, opcode);
        if self.reaction.is_some() && self.hear_for_credit(now, packet, host) {
            return true;
        }
        if opcode != Opcode::CNP {
            return false;
        }
        let controlled = self.reaction.as_mut().filter(|r| r.controller.is_some());
        if controlled.is_some_and(|r| r.heeds_notification(now)) {
            host.counters().rp_cnp_handled += 1;
            self.feed_back(now, Feedback::CongestionNotification);
        } else {
            host.counters().rp_cnp_ignored += 1;
        }
        true
    }

    /// A marked packet of a shim below the queue pair arrived.
    pub(crate) fn on_marked_of_shim(&mut self, now: Instant) {
        self.notification.on_packet(now, true, Opcode::LOWAR);
    }

    /// Whether a congestion notification is due.
    #[inline]
    pub(crate) fn owes_notification(&self) -> bool {
        self.notification.is_due()
    }

    /// Writes the congestion notification that is due; without a link none is owed any more. It is sent before everything else, because an
    /// earlier notification keeps the queue shorter.
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

    /// The earliest time for the next packet, if that is not now.
    #[inline]
    pub(crate) fn pacing(&self, now: Instant) -> Option<Instant> {
        self.controller().map(|c| c.next_send()).filter(|&t| now < t)
    }

    /// Whether an answer with data must wait: the sender of data slows down, and for a READ that is the responder.
    #[inline]
    pub(crate) fn must_pace_answer(&self, now: Instant, timers: &mut TimerTable) -> bool {
        let until = self.pacing(now).filter(|_| self.paces_answers());
        if until.is_some() {
            timers.set_or_stop(Timer::Pacing, self.wake_at(until));
        }
        until.is_some()
    }

    fn paces_answers(&self) -> bool {
        self.controller().is_some_and(|c| c.paces_answers())
    }

    /// An answer with data was sent.
    #[inline]
    pub(crate) fn on_answer_sent(&mut self, now: Instant, tx: &TxFrame<'_>) {
        if self.paces_answers()
            && let Some(controller) = self.reaction.as_mut().and_then(|r| r.controller.as_mut())
        {
            controller.on_sent(now, tx.wire_len() as u32);
        }
    }

    /// A packet was sent: later packets are paced, and the credit is reduced.
    #[inline]
    pub(crate) fn on_sent(&mut self, now: Instant, tx: &TxFrame<'_>) {
        let Some(r) = &mut self.reaction else { return };
        let bytes = tx.wire_len() as u32;
        if let Some(controller) = &mut r.controller {
            controller.on_sent(now, bytes);
        }
        if let Some(credit) = r.credit.as_mut().filter(|credit| credit.is_agreed()) {
            credit.on_sent(bytes);
        }
    }

    // ---- window and round-trip time: for queue pairs whose packets are acknowledged ----

    /// Whether the window permits this number of payload bytes in flight.
    #[inline]
    pub(crate) fn fits_window(&self, in_flight: u64) -> bool {
        in_flight <= self.window()
    }

    /// The unacknowledged bytes out of `sent` bytes sent in all; only counted if there is a controller.
    pub(crate) fn unacknowledged(&self, sent: u64) -> u64 {
        sent - self.reaction.as_ref().map_or(0, |r| r.bytes_acked)
    }

    /// Packet `n` was sent; if it requests an acknowledgement, its answer may give the round-trip time.
    #[inline]
    pub(crate) fn time(&mut self, now: Instant, n: u64, resent: bool, ack_req: bool) {
        let Some(r) = &mut self.reaction else { return };
        match (resent, r.timed) {
            (true, _) => r.timed = None,
            (false, None) if ack_req => r.timed = Some((n, now)),
            _ => {}
        }
    }

    /// All packets before number `una` are acknowledged, with `bytes` payload bytes in all since the first packet.
    pub(crate) fn on_acknowledged(&mut self, now: Instant, una: u64, bytes: u64) {
        let Some(r) = &mut self.reaction else { return };
        let new = bytes - r.bytes_acked;
        r.bytes_acked = bytes;
        let rtt = r.timed.filter(|&(n, _)| n < una).map(|(_, left)| now.saturating_since(left));
        r.timed = r.timed.filter(|_| rtt.is_none());
        if let Some(controller) = &mut r.controller {
            controller.on_feedback(now, Feedback::Acknowledged { bytes: new, rtt });
        }
    }

    /// Passes a signal to the controller.
    pub(crate) fn feed_back(&mut self, now: Instant, feedback: Feedback) {
        if let Some(controller) = self.reaction.as_mut().and_then(|r| r.controller.as_mut()) {
            controller.on_feedback(now, feedback);
        }
    }
}

/// Number of bytes of this state that every packet of XP reads, if nothing limits the data in flight: whether a notification is due.
#[cfg(test)]
pub(crate) fn looked_at() -> usize {
    crate::footprint::of_fields!(CongestionPoint: notification)
}
