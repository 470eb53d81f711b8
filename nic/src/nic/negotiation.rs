//! MADs by which queue pairs agree on extensions: from QP1 to the queue pair that they are about, and refusals of those that take none.

use std::net::IpAddr;

use softnic_transports::negotiation;
use softnic_transports::qp::PayloadMode;
use softnic_transports::ud::QKEY_GSI;
use softnic_transports::{Event, QueuePair};
use softnic_wire::mad::vendor::{self, Extensions, Kind, Negotiation};
use softnic_wire::mad::{self, MAD_LEN, Method, Status};
use softnic_wire::{Instant, Layout, Opcode, Qpn, RoceHeaders, Template, TxFrame, icrc};

use super::Nic;
use crate::qp::{AnyQp, each};

impl Nic {
    /// Takes a frame to QP1 if it is about extensions; else it is for whoever has QP1 (`false`).
    pub(super) fn receive_negotiation(
        &mut self,
        now: Instant,
        port: usize,
        src: IpAddr,
        frame: &mut [u8],
        layout: &Layout,
    ) -> bool {
        let Some(at) = mad_of(frame, layout) else { return false };
        if self.payload == PayloadMode::Real && icrc::verify(frame, layout).is_err() {
            self.shared.counters.rx_icrc_encapsulated += 1;
            return true;
        }
        let Some(Said { qpn, transaction_id, offer: parsed }) = Said::read(&frame[at..at + MAD_LEN]) else {
            self.shared.counters.rx_malformed += 1;
            return true;
        };
        self.silent_peers.note_heard(src);
        let Some((index, slot, shared)) = self.slot(qpn) else {
            self.shared.counters.rx_bad_qp += 1;
            return true;
        };
        if slot.peer.is_some_and(|peer| peer != src || slot.port != port) {
            shared.counters.rx_wrong_source += 1;
            return true;
        }
        match (&mut slot.qp, parsed) {
            (AnyQp::Rc(_), said) if slot.agreement.is_some() => {
                let Some(agreement) = &mut slot.agreement else { return true };
                match said {
                    None => agreement.handle_refusal(now, transaction_id),
                    Some(said) => agreement.handle_mad(now, src, &said),
                }
                slot.follow_agreement();
            }
            (AnyQp::Sr(qp), None) => qp.handle_refusal(now, transaction_id),
            (AnyQp::Sr(qp), Some(said)) => qp.handle_mad(now, src, &said),
            (AnyQp::Rc(_), Some(said)) if said.kind == Kind::Offer => {
                slot.offer = Some(Box::new((src, said)));
                if slot.peer.is_some() {
                    self.refusals.push_back(index);
                }
            }
            _ => {}
        }
        self.tell_of_fallback(index);
        self.activate(index);
        true
    }

    /// Tells the program, once, that a queue pair offered an extension and speaks the standard.
    pub(super) fn tell_of_fallback(&mut self, index: u32) {
        let Some(Some(slot)) = self.slots.get_mut(index as usize) else { return };
        if let (Some(peer), false) = (slot.peer, slot.fell_back)
            && let Some(why) = slot.fell_back_because()
        {
            slot.fell_back = true;
            let qpn = each!(&slot.qp, qp => qp.qpn());
            self.shared.events.push_back(Event::FellBack(qpn, peer, why));
        }
    }

    /// Writes the refusal of an offer to a queue pair of the standard kind: its peer need not wait.
    pub(super) fn transmit_refusal(&mut self, port: usize, tx: &mut TxFrame<'_>) -> bool {
        let of_port = |&i: &u32| matches!(self.slots.get(i as usize), Some(Some(slot)) if slot.port == port);
        let Some(place) = self.refusals.iter().position(of_port) else { return false };
        let Some(Some(Some(slot))) = self.refusals.remove(place).map(|i| self.slots.get_mut(i as usize)) else {
            return false;
        };
        let (Some(offer), Some(path)) = (slot.offer.take(), slot.attr.path) else { return false };
        let (src, said) = *offer;
        if path.addresses.dst() != src || slot.attr.dest_qp != Some(Qpn::new(said.sender_qpn)) {
            return false;
        }
        let answer = Negotiation {
            kind: Kind::Answer(Status::SUCCESS),
            version: vendor::VERSION,
            sender_qpn: said.receiver_qpn,
            receiver_qpn: said.sender_qpn,
            extensions: Extensions::NONE,
            lowar_r: 0,
            lowar_c: 0,
            sr_window: 0,
            ..said
        };
        negotiation::write(tx, &Template::new(&path, Qpn::GSI, slot.pkey), &answer)
    }
}

/// The queue pair of the receiver's that a frame is about, if it is one to QP1 by which extensions are negotiated. Nothing else of
/// the frame is looked at: this is for whoever has several NICs behind one address.
pub fn negotiated_qp(frame: &[u8], layout: &Layout) -> Option<Qpn> {
    let at = mad_of(frame, layout)?;
    Said::read(&frame[at..at + MAD_LEN]).map(|said| said.qpn)
}

/// What a MAD of our class says.
struct Said {
    /// Whom it is for.
    qpn: Qpn,
    transaction_id: u64,
    /// An offer or an answer; `None` from one who refuses, because he knows nothing of it.
    offer: Option<Negotiation>,
}

impl Said {
    fn read(mad: &[u8]) -> Option<Said> {
        let mad::Repr { method, status, transaction_id, .. } = mad::Repr::parse(mad).ok()?;
        if method == Method::GET_RESP && status != Status::SUCCESS {
            // A transaction id ends with the number of the queue pair that offered. One who refuses may send back anything else.
            return Some(Said { qpn: Qpn::new((transaction_id & 0x00ff_ffff) as u32), transaction_id, offer: None });
        }
        let said = Negotiation::parse(mad).ok()?;
        Some(Said { qpn: Qpn::new(said.receiver_qpn), transaction_id, offer: Some(said) })
    }
}

/// Where the MAD of a frame to QP1 begins, if it is one of the class that softnic negotiates in.
fn mad_of(frame: &[u8], layout: &Layout) -> Option<usize> {
    let read = |h: &RoceHeaders<'_>| {
        let right = h.bth.opcode == Opcode::UD_SEND_ONLY && h.ext.deth.is_some_and(|d| d.qkey == QKEY_GSI);
        (right && h.payload.len() >= MAD_LEN).then_some(h.payload.start)
    };
    let at = RoceHeaders::read(frame, layout, read).ok()??;
    (mad::Packet::new_unchecked(frame.get(at..at + MAD_LEN)?).mgmt_class() == vendor::CLASS).then_some(at)
}
