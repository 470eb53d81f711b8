//! What the two sides agree on: the negotiation of a queue pair, and what follows from its verdict.

use std::net::IpAddr;

use softnic_wire::ext::Reth;
use softnic_wire::mad::vendor::{self, Extensions};
use softnic_wire::{Instant, PathMtu, TxFrame};

use super::requester::Requester;
use super::{ACK_EVERY, Sr, most_in_flight};
use crate::negotiation::{Choice, Verdict, Why};
use crate::send_queue::Numbering;

/// The least that a bandwidth-delay product is taken for, in packets: more than one acknowledgement is under way.
const LEAST_IN_FLIGHT: u32 = 2 * ACK_EVERY;
/// What Ethernet adds around a frame: preamble, FCS, gap.
const AROUND: u64 = 24;
/// The shortest window that a peer may offer.
const LEAST_WINDOW: u32 = 64;

impl Sr {
    /// Why the peer is spoken to by the standard, as soon as that is known: also where no requests can be sent yet, or ever.
    pub fn fell_back(&self) -> Option<Why> {
        self.agreement.fell_back(Extensions::SR)
    }

    /// A MAD of the negotiation came, from this address; for this queue pair, as it says.
    pub fn handle_mad(&mut self, now: Instant, from: IpAddr, mad: &vendor::Negotiation) {
        self.agreement.handle_mad(now, from, mad);
        if let Some(rtt) = self.agreement.negotiator().and_then(|n| n.rtt()) {
            self.rtt.on_first_sample(rtt);
            self.follow_round_trip();
        }
        self.decide();
    }

    /// The peer does not know what was offered by this transaction id.
    pub fn handle_refusal(&mut self, now: Instant, transaction_id: u64) {
        self.agreement.handle_refusal(now, transaction_id);
        self.decide();
    }

    /// Follows the verdict of the negotiation, as soon as there is one and requests can be sent.
    pub(super) fn decide(&mut self) {
        let Some(verdict) = self.agreement.verdict() else { return };
        if self.requester.is_some() || !self.rc.state.sends() {
            return;
        }
        let Some(mtu) = self.rc.link.as_ref().map(|link| link.mtu) else { return };
        match verdict {
            Verdict::Agreed(agreed) if agreed.extensions.contains(Extensions::SR) => {
                // An answer that came late, after standard requests were sent, comes too late.
                if matches!(self.choice, Choice::Standard(_)) && !self.rc.requester.is_untouched() {
                    return;
                }
                self.choice = Choice::Agreed;
                self.rc.requester.queue.unpublish();
                let (span, limit) = self.reach();
                let window = self.config.window;
                let requester = Requester::new(self.sq_psn, span, limit, window, ACK_EVERY);
                self.requester = Some(Box::new(requester));
                self.rc.requester.queue.publish(mtu, Numbering::Apart);
            }
            Verdict::Agreed(_) => self.fall_back(Why::NothingInCommon, mtu),
            Verdict::Standard(why) => self.fall_back(why, mtu),
        }
    }

    fn fall_back(&mut self, why: Why, mtu: PathMtu) {
        if self.choice == Choice::Waiting {
            self.rc.requester.queue.publish(mtu, Numbering::Standard);
        }
        self.choice = Choice::Standard(why);
    }

    /// How far ahead the peer lets us send: what its bitmap holds, as soon as it said so.
    fn peer_window(&self) -> u32 {
        self.agreement.agreed(Extensions::SR).map_or(0, |agreed| agreed.sr_window)
    }

    /// How far ahead may be sent, and how much may be under way.
    pub(super) fn reach(&self) -> (u32, u32) {
        let span = self.config.window.min(self.peer_window().max(LEAST_WINDOW));
        (span, self.bandwidth_delay().clamp(LEAST_IN_FLIGHT, most_in_flight(span).max(LEAST_IN_FLIGHT)))
    }

    /// One bandwidth-delay product in packets; and those that leave while an acknowledgement is awaited that comes every few packets.
    fn bandwidth_delay(&self) -> u32 {
        let (Some(rtt), Some(link)) = (self.rtt.shortest(), &self.rc.link) else { return u32::MAX };
        let frame = link.template.frame_len(Reth::LEN, link.mtu.bytes() as usize);
        let bits = (frame as u64 + AROUND) * 8;
        let packets = u128::from(self.config.rate) * rtt.as_nanos() / 1_000_000_000 / u128::from(bits);
        u32::try_from(packets).unwrap_or(u32::MAX).saturating_add(ACK_EVERY + 2)
    }

    /// The shortest round-trip time is another one.
    pub(super) fn follow_round_trip(&mut self) {
        let (_, limit) = self.reach();
        if let Some(requester) = &mut self.requester {
            requester.flight.set_limit(limit);
        }
        if let Some(responder) = &mut self.responder {
            responder.flight.set_limit(limit);
        }
    }

    /// Writes the MAD of the negotiation that is due.
    pub(super) fn transmit_mad(&mut self, now: Instant, tx: &mut TxFrame<'_>) -> bool {
        let Some(link) = &self.rc.link else { return false };
        self.agreement.poll_transmit(now, tx, &link.template)
    }
}
