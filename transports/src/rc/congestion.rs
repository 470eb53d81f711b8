//! What a connection does about congestion: marks are told of, notifications are heeded, answers with data wait for their turn.

use softnic_wire::{Instant, Opcode, TxFrame};

use super::Rc;
use crate::congestion::Feedback;
use crate::congestion::notification::NotificationPoint;
use crate::{Host, Inbound};

impl Rc {
    /// Takes note of the mark of congestion on a packet, and of a notification of it; whether it was one.
    #[inline]
    pub(crate) fn note_congestion(&mut self, now: Instant, packet: &Inbound<'_>, host: &mut impl Host) -> bool {
        let opcode = packet.bth.opcode;
        self.notification.on_packet(now, packet.ecn_ce, opcode);
        if opcode != Opcode::CNP {
            return false;
        }
        match self.requester.congestion {
            Some(_) => host.counters().rp_cnp_handled += 1,
            None => host.counters().rp_cnp_ignored += 1,
        }
        self.requester.feed_back(now, Feedback::CongestionNotification);
        true
    }

    /// Whether a notification is due.
    #[inline]
    pub(crate) fn owes_notification(&self) -> bool {
        self.notification.is_due()
    }

    /// Writes the notification that is due. It goes before everything else: the sooner, the shorter the queue.
    pub(crate) fn transmit_notification(&mut self, now: Instant, tx: &mut TxFrame<'_>, host: &mut impl Host) -> bool {
        let receives = self.state.receives();
        let Some(link) = self.link.as_ref().filter(|_| receives) else {
            self.notification = NotificationPoint::default();
            return false;
        };
        self.notification.transmit(now, tx, link, host)
    }

    /// Whether an answer with data must wait: who sends data is who slows down, and of a READ that is its responder.
    #[inline]
    pub(crate) fn must_pace_answer(&mut self, now: Instant) -> bool {
        let until = self.requester.pacing(now);
        self.requester.paced_until = until.or(self.requester.paced_until);
        until.is_some()
    }

    /// An answer with data left, or a packet of a shim: what follows it waits its turn.
    #[inline]
    pub(crate) fn count_for_pacing(&mut self, now: Instant, tx: &TxFrame<'_>) {
        if let Some(cc) = &mut self.requester.congestion {
            cc.on_sent(now, tx.wire_len() as u32);
        }
    }
}
