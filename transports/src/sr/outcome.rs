//! The effects of the negotiation's outcome: how requests are sent, and how many packets may be in flight.

use softnic_wire::PathMtu;
use softnic_wire::ext::Reth;
use softnic_wire::mad::vendor::Extensions;
use softnic_wire::sr::SrSettings;

use super::requester::Requester;
use super::{ACK_EVERY, Sr, most_in_flight};
use crate::negotiation::{Choice, FallbackReason, NegotiationOutcome};
use crate::rc::FlightLimit;
use crate::send_queue::Numbering;

/// The minimum that a bandwidth-delay product is assumed to be, in packets: more than one acknowledgement is in flight.
const LEAST_IN_FLIGHT: u32 = 2 * ACK_EVERY;
/// Bytes of Ethernet around a frame: preamble, FCS, gap.
const AROUND: u64 = 24;
/// The minimum window that a peer may offer.
const LEAST_WINDOW: u32 = 64;

impl Sr {
    /// Applies the outcome of the negotiation, once there is one and requests can be sent.
    pub(super) fn decide(&mut self) {
        let Some(outcome) = self.outcome else { return };
        if self.requester.is_some() || !self.rc.state.sends() {
            return;
        }
        let Some(mtu) = self.rc.link.as_ref().map(|link| link.mtu) else { return };
        match outcome {
            NegotiationOutcome::Agreed(agreed) if agreed.extensions.contains(Extensions::SR) => {
                // An answer that arrives after standard requests were sent is too late.
                if matches!(self.choice, Choice::Standard(_)) && !self.rc.requester.is_untouched() {
                    return;
                }
                self.choice = Choice::Agreed;
                self.rc.requester.queue.unpublish();
                let (span, limit) = self.reach();
                let requester = Requester::new(self.sq_psn, span, limit, self.window, ACK_EVERY);
                self.requester = Some(Box::new(requester));
                // Selective Repeat has its own limit, of one bandwidth-delay product.
                self.rc.requester.flight = FlightLimit::NONE;
                self.rc.requester.queue.publish(mtu, Numbering::Apart);
            }
            NegotiationOutcome::Agreed(_) => self.fall_back(FallbackReason::NothingInCommon, mtu),
            NegotiationOutcome::Standard(reason) => self.fall_back(reason, mtu),
        }
    }

    fn fall_back(&mut self, reason: FallbackReason, mtu: PathMtu) {
        if self.choice == Choice::Waiting {
            self.rc.requester.queue.publish(mtu, Numbering::Standard);
        }
        self.choice = Choice::Standard(reason);
    }

    /// How far ahead the peer permits packets: the size of its bitmap, once known.
    fn peer_window(&self) -> u32 {
        match self.outcome {
            Some(NegotiationOutcome::Agreed(agreed)) => agreed.settings.get::<SrSettings>().window,
            _ => 0,
        }
    }

    /// How far ahead packets may be sent, and how many may be in flight.
    pub(super) fn reach(&self) -> (u32, u32) {
        let span = self.window.min(self.peer_window().max(LEAST_WINDOW));
        (span, self.bandwidth_delay().clamp(LEAST_IN_FLIGHT, most_in_flight(span).max(LEAST_IN_FLIGHT)))
    }

    /// One bandwidth-delay product in packets, plus the packets sent during the wait for an acknowledgement, which is sent once per several
    /// packets.
    fn bandwidth_delay(&self) -> u32 {
        let (Some(rtt), Some(link)) = (self.rtt.shortest(), &self.rc.link) else { return u32::MAX };
        let frame = link.template.frame_len(Reth::LEN, link.mtu.bytes() as usize);
        let bits = (frame as u64 + AROUND) * 8;
        let packets = u128::from(self.rate) * rtt.as_nanos() / 1_000_000_000 / u128::from(bits);
        u32::try_from(packets).unwrap_or(u32::MAX).saturating_add(ACK_EVERY + 2)
    }

    /// The shortest round-trip time has changed.
    pub(super) fn follow_round_trip(&mut self) {
        let (_, limit) = self.reach();
        if let Some(requester) = &mut self.requester {
            requester.flight.set_limit(limit);
        }
        if let Some(responder) = &mut self.responder {
            responder.flight.set_limit(limit);
        }
    }
}
