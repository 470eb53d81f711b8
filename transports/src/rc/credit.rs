//! RC with receiver-granted credit ([`Credit`](crate::congestion::Credit)): the outcome of the negotiation, and the packets that wait for
//! credit.
//!
//! Every request packet uses credit, including retransmissions. So the demand is what has been sent plus what is still to be sent. Answers
//! of any kind need no credit.

use softnic_wire::mad::vendor::Extensions;
use softnic_wire::{Instant, Qpn, TxFrame};

use super::requester::Requester;
use super::{FlightLimit, Rc};
use crate::Host;
use crate::congestion::{frame, longest_frame, on_wire};
use crate::message::Link;
use crate::negotiation::{FallbackReason, NegotiationOutcome};
use crate::timers::Timer;

impl Rc {
    /// The queue pair is connected, at this port.
    pub(super) fn connect_credit(&mut self, peer: Qpn, port: usize) {
        if let (Some(credit), Some(link)) = (self.requester.congestion.credit_mut(), &self.link) {
            credit.connect(self.qpn, peer, port, longest_frame(link));
        }
    }

    /// Limits the number of outstanding packets, if that is configured and there is no credit.
    pub(super) fn limit_flight(&mut self) {
        let limited = self.link.as_ref().filter(|_| self.limits_flight && self.requester.congestion.credit().is_none());
        self.requester.flight = limited.map_or(FlightLimit::NONE, |link| FlightLimit::for_mtu(link.mtu));
    }

    /// Handles the outcome of the negotiation of credit. If the peer agrees only after requests were sent without credit, the local end
    /// grants credit to the peer, and needs none itself.
    pub(crate) fn agree_on_credit(&mut self, outcome: Option<&NegotiationOutcome>) {
        let untouched = self.requester.is_untouched();
        let Some(credit) = self.requester.congestion.credit_mut() else { return };
        if credit.is_agreed() || !credit.is_connected() {
            return;
        }
        match outcome {
            Some(NegotiationOutcome::Agreed(agreed)) if agreed.extensions.contains(Extensions::EQDS) && untouched => {
                credit.set_agreed(true);
                self.limit_flight();
            }
            Some(NegotiationOutcome::Agreed(agreed)) if agreed.extensions.contains(Extensions::EQDS) => {
                credit.set_open();
            }
            // The peer may have received the offer, although its answer did not arrive.
            None | Some(NegotiationOutcome::Standard(FallbackReason::Silent | FallbackReason::KnownSilent)) => {
                credit.set_open();
            }
            Some(_) => credit.set_agreed(false),
        }
    }

    /// Stops requesting and granting credit.
    pub(super) fn stop_credit(&mut self) {
        if let Some(credit) = self.requester.congestion.credit_mut() {
            credit.reset();
        }
    }

    /// Grants the credit that is due. Grants are made on time even if the port is busy and the packet leaves later, because delayed grants
    /// would be sent in a burst.
    pub(crate) fn expire_credit(&mut self, now: Instant, host: &mut impl Host) {
        let Requester { congestion, timers, .. } = &mut self.requester;
        if let Some(credit) = congestion.credit_mut() {
            credit.expire(now, host);
            timers.set_or_stop(Timer::Pacing, congestion.wake_at(congestion.pacing(now)));
        }
    }

    /// Writes the credit packet that is due, if there is one. `lost` packets have to be sent again, besides those that Go-Back-N knows of.
    #[inline(never)]
    pub(crate) fn transmit_credit(
        &mut self,
        now: Instant,
        tx: &mut TxFrame<'_>,
        lost: u32,
        host: &mut impl Host,
    ) -> bool {
        let Some(link) = self.link.as_ref().filter(|_| self.state.receives()) else { return false };
        let waiting = if self.state.sends() { self.requester.bytes_waiting(link, lost) } else { 0 };
        let Requester { congestion, timers, .. } = &mut self.requester;
        let Some(credit) = congestion.credit_mut() else { return false };
        credit.expire(now, host);
        let sent = credit.transmit(now, tx, link, waiting, host);
        timers.set_or_stop(Timer::Pacing, congestion.wake_at(congestion.pacing(now)));
        sent
    }
}

impl Requester {
    /// An estimate of the bytes on the wire that are still to be sent, including retransmissions.
    fn bytes_waiting(&mut self, link: &Link, lost: u32) -> u32 {
        let next = self.next_resend().unwrap_or(self.window.next);
        let (bytes, packets) = self.queue.left_from(self.number(next), link.mtu);
        let lost_bytes = u64::from(lost) * u64::from(link.mtu.bytes());
        on_wire(link, bytes + lost_bytes, packets + u64::from(lost))
    }

    /// Whether the next packet waits for credit. If nothing is received from the peer, one packet is sent without credit, so that a dead
    /// peer is detected: the ACK timer runs only while packets are outstanding.
    #[inline]
    pub(crate) fn awaits_credit(&self, now: Instant, nothing_under_way: bool) -> bool {
        let Some(credit) = self.congestion.credit() else { return false };
        !(credit.may_send_any() || nothing_under_way && credit.is_deserted(now))
    }

    /// Whether all unacknowledged packets have to be sent again, with credit. The ACK timer starts when they leave, and does not run while
    /// they wait.
    #[inline]
    pub(super) fn awaits_credit_again(&self) -> bool {
        self.congestion.credit().is_some() && self.next_resend() == Some(self.window.una)
    }

    /// Whether there is credit for a packet after the current one. The current packet belongs to the work request at `position`; `ends`
    /// says whether it is the last one of the message.
    pub(crate) fn credit_goes_on(&self, position: u32, ends: bool, link: &Link) -> bool {
        let Some(credit) = self.congestion.credit() else { return true };
        let (slot, mtu) = (self.queue.at(position), link.mtu.bytes());
        let payload = match slot.awaits_data() {
            true => 0,
            false if ends => slot.len - (slot.len.max(1) - 1) / mtu * mtu,
            false => mtu,
        };
        credit.may_send_behind(frame(link, payload))
    }
}
