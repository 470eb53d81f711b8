//! MADs by which queue pairs agree on extensions: from QP1 to the queue pair that they are about.

use std::net::IpAddr;

use softnic_transports::qp::{PayloadMode, QueuePair};
use softnic_transports::{Event, QKEY_GSI};
use softnic_wire::mad::vendor::{self, Negotiation};
use softnic_wire::mad::{self, MAD_LEN, Method, Status};
use softnic_wire::{Instant, Layout, Opcode, Qpn, RoceHeaders, icrc};

use super::Nic;

impl Nic {
    /// Takes a frame to QP1 if it is about extensions; else it is for whoever has QP1 (`false`).
    pub(super) fn receive_negotiation(
        &mut self,
        now: Instant,
        port: usize,
        (src, dst): (IpAddr, IpAddr),
        frame: &mut [u8],
        layout: &Layout,
    ) -> bool {
        let Some(at) = mad_of(frame, layout) else { return false };
        if self.payload == PayloadMode::Real && icrc::verify(frame, layout).is_err() {
            self.shared.counters.rx_icrc_encapsulated += 1;
            return true;
        }
        let Some(NegotiationMad { qpn, transaction_id, negotiation: parsed }) =
            NegotiationMad::read(&frame[at..at + MAD_LEN])
        else {
            self.shared.counters.rx_malformed += 1;
            return true;
        };
        let Some((index, slot, shared)) = self.slot(qpn) else {
            self.shared.counters.rx_bad_qp += 1;
            return true;
        };
        if slot.peer.is_some() && !slot.is_between(src, dst, port) {
            shared.counters.rx_wrong_source += 1;
            return true;
        }
        let authentic = frame[at..].first_chunk().is_some_and(|mad| slot.endpoint.is_authentic(mad, src, dst));
        if !authentic {
            shared.counters.rx_auth_failed += 1;
            return true;
        }
        let fits = match parsed {
            None => slot.endpoint.handle_refusal(now, transaction_id),
            Some(mad) => slot.endpoint.handle_mad(now, src, &mad),
        };
        if !fits {
            shared.counters.rx_unasked_answers += 1;
            return true;
        }
        self.silent_peers.note_heard(src);
        self.tell_of_fallback(index);
        self.activate(index);
        true
    }

    /// Tells the program, once, that a queue pair offered an extension and speaks the standard. One that must authenticate its peer and
    /// cannot does not: it ends.
    pub(super) fn tell_of_fallback(&mut self, index: u32) {
        let Some(Some(slot)) = self.slots.get_mut(index as usize) else { return };
        if let (Some(peer), false) = (slot.peer, slot.told_fallback)
            && let Some(reason) = slot.endpoint.fallback_reason()
        {
            slot.told_fallback = true;
            let qpn = slot.endpoint.qp.qpn();
            match slot.endpoint.refusal() {
                None => self.shared.events.push_back(Event::FellBack(qpn, peer, reason)),
                Some(reason) => {
                    self.shared.events.push_back(Event::Unauthenticated(qpn, peer, reason));
                    slot.endpoint.qp.fail(&mut self.shared);
                }
            }
        }
    }
}

/// The queue pair of the receiver's that a frame is about, if it is one to QP1 by which extensions are negotiated. Nothing else of
/// the frame is looked at: this is for whoever has several NICs behind one address.
pub fn negotiated_qp(frame: &[u8], layout: &Layout) -> Option<Qpn> {
    let at = mad_of(frame, layout)?;
    NegotiationMad::read(&frame[at..at + MAD_LEN]).map(|mad| mad.qpn)
}

/// A MAD of softnic's vendor class.
struct NegotiationMad {
    /// The queue pair that it is for.
    qpn: Qpn,
    transaction_id: u64,
    /// An offer or an answer; `None` from a peer that refuses, because it knows nothing of the class.
    negotiation: Option<Negotiation>,
}

impl NegotiationMad {
    fn read(mad: &[u8]) -> Option<NegotiationMad> {
        let mad::Repr { method, status, transaction_id, .. } = mad::Repr::parse(mad).ok()?;
        if method == Method::GET_RESP && status != Status::SUCCESS {
            // A transaction id ends with the number of the queue pair that offered. One who refuses may send back anything else.
            return Some(NegotiationMad {
                qpn: Qpn::new((transaction_id & 0x00ff_ffff) as u32),
                transaction_id,
                negotiation: None,
            });
        }
        let negotiation = Negotiation::parse(mad).ok()?;
        Some(NegotiationMad { qpn: Qpn::new(negotiation.receiver_qpn), transaction_id, negotiation: Some(negotiation) })
    }
}

/// Where the MAD of a frame to QP1 begins, if it is one of the class that softnic negotiates in.
fn mad_of(frame: &[u8], layout: &Layout) -> Option<usize> {
    let at = mad_in(frame, layout)?;
    (mad::Packet::new_unchecked(frame.get(at..at + MAD_LEN)?).mgmt_class() == vendor::CLASS).then_some(at)
}

/// Where the MAD of a frame to QP1 begins.
pub(crate) fn mad_in(frame: &[u8], layout: &Layout) -> Option<usize> {
    let read = |h: &RoceHeaders<'_>| {
        let right = h.bth.opcode == Opcode::UD_SEND_ONLY && h.ext.deth.is_some_and(|d| d.qkey == QKEY_GSI);
        (right && h.payload.len() >= MAD_LEN).then_some(h.payload.start)
    };
    let at = RoceHeaders::read(frame, layout, read).ok()??;
    frame.get(at..at + MAD_LEN).map(|_| at)
}
