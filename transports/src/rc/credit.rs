//! RC where the receiver decides when requests leave ([`Credit`](crate::congestion::Credit)): what the peer agreed to, and what waits for
//! credit.
//!
//! Every request packet spends credit, also one that is sent again: what is asked for is what left and what is still to leave. Answers
//! of any kind leave without.

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
    /// The queue pair is connected, by this port.
    pub(super) fn connect_credit(&mut self, peer: Qpn, port: usize) {
        if let (Some(credit), Some(link)) = (self.requester.congestion.credit_mut(), &self.link) {
            credit.connect(self.qpn, peer, port, longest_frame(link));
        }
    }

    /// Limits what is outstanding, where that is wanted and no credit does.
    pub(super) fn limit_flight(&mut self) {
        let limited = self.link.as_ref().filter(|_| self.limits_flight && self.requester.congestion.credit().is_none());
        self.requester.flight = limited.map_or(FlightLimit::NONE, |link| FlightLimit::for_mtu(link.mtu));
    }

    /// Follows what the peer says of credit. An agreement that comes late, after requests were sent without credit, is one to grant the
    /// peer what it asks for, and no more.
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
            // It may have heard our offer although we did not hear its answer.
            None | Some(NegotiationOutcome::Standard(FallbackReason::Silent | FallbackReason::KnownSilent)) => {
                credit.set_open();
            }
            Some(_) => credit.set_agreed(false),
        }
    }

    /// Nothing is asked for or granted any more.
    pub(super) fn stop_credit(&mut self) {
        if let Some(credit) = self.requester.congestion.credit_mut() {
            credit.reset();
        }
    }

    /// Grants what it is the turn for. That is at its time, also where the port is busy and the packet leaves later: turns that are put off
    /// would come several at once.
    pub(crate) fn expire_credit(&mut self, now: Instant, host: &mut impl Host) {
        let Requester { congestion, timers, .. } = &mut self.requester;
        if let Some(credit) = congestion.credit_mut() {
            credit.expire(now, host);
            timers.set_or_stop(Timer::Pacing, congestion.wake_at(congestion.pacing(now)));
        }
    }

    /// Writes the packet of credit that is due, if one is. So many packets have to be sent again, beside those that Go-Back-N knows of.
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
    /// Bytes on the wire that are still to be sent, first and again, about.
    fn bytes_waiting(&mut self, link: &Link, lost: u32) -> u32 {
        let next = self.next_resend().unwrap_or(self.window.next);
        let (bytes, packets) = self.queue.left_from(self.number(next), link.mtu);
        let lost_bytes = u64::from(lost) * u64::from(link.mtu.bytes());
        on_wire(link, bytes + lost_bytes, packets + u64::from(lost))
    }

    /// Whether what goes next waits for credit. Where nothing is heard of the peer, one packet goes without, so that somebody notices:
    /// the ACK timeout, which only runs when something is under way.
    #[inline]
    pub(crate) fn awaits_credit(&self, now: Instant, nothing_under_way: bool) -> bool {
        let Some(credit) = self.congestion.credit() else { return false };
        !(credit.may_send_any() || nothing_under_way && credit.is_deserted(now))
    }

    /// Whether all that is unanswered has to be sent again, by credit: the clock runs when it leaves, and never while it waits.
    #[inline]
    pub(super) fn awaits_credit_again(&self) -> bool {
        self.congestion.credit().is_some() && self.next_resend() == Some(self.window.una)
    }

    /// Whether credit lets another packet follow the one of the work request at `position` that leaves now, the last one or another.
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
