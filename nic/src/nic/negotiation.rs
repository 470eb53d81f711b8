//! MADs by which queue pairs negotiate extensions, sent from QP1 to the queue pair that they are about; and SDR, which is offered by
//! software.

use std::net::IpAddr;

use softnic_transports::qp::QueuePair;
use softnic_transports::{Event, QKEY_GSI, SdrOutcome};
use softnic_wire::mad::vendor::{self, Negotiation};
use softnic_wire::mad::{self, Class, MAD_LEN, Method, Status};
use softnic_wire::sdr::SdrSettings;
use softnic_wire::{Instant, Layout, Opcode, Qpn, RoceHeaders, ethernet, icrc};

use super::{Nic, ObjectError, mads};
use crate::waiting_mads::ReceivedMad;

impl Nic {
    /// Lets a connected queue pair offer SDR to its peer as soon as it is ready to receive: this scheme on top of it, and `info`, which
    /// describes the local end to the peer. The queue pair itself sends and receives as usual and waits for nothing. The offer stays valid
    /// when the queue pair is reset; a later offer replaces it.
    ///
    /// # Errors
    /// When the queue pair is not a connection, or is connected already, or when `info` is empty or longer than a MAD has room for.
    pub fn offer_sdr(&mut self, qpn: Qpn, settings: SdrSettings, info: &[u8]) -> Result<(), ObjectError> {
        let transaction_id = self.draw_transaction_id(qpn);
        let (_, slot, _) = self.slot(qpn).ok_or(ObjectError::NoSuchQp)?;
        Ok(slot.endpoint.offer_sdr(settings, info, transaction_id)?)
    }

    /// The state of the SDR offer on a queue pair; `None` if there was none.
    pub fn sdr_agreed(&self, qpn: Qpn) -> Option<SdrOutcome<'_>> {
        self.slot_of(qpn)?.endpoint.sdr()
    }

    /// Takes a frame to QP1 if it is about extensions or failover. Returns `false` otherwise; then the frame is for the owner of QP1.
    pub(super) fn receive_negotiation(
        &mut self,
        now: Instant,
        port: usize,
        (src, dst): (IpAddr, IpAddr),
        frame: &mut [u8],
        layout: &Layout,
    ) -> bool {
        let Some(at) = mad_of(frame, layout, vendor::CLASS) else { return false };
        if icrc::verify(frame, layout).is_err() {
            self.shared.counters.rx_icrc_encapsulated += 1;
            return true;
        }
        let mad = frame[at..].first_chunk().copied().filter(|mad| mads::is_failover(mad));
        if let Some(mad) = mad {
            let src_mac = ethernet::Packet::new_unchecked(&*frame).src();
            self.receive_mad(&ReceivedMad { port, src, dst, src_mac, mad });
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

    /// Reports to the program, once, that a queue pair offered an extension and fell back to the standard. A queue pair that must
    /// authenticate its peer, and cannot, does not fall back: it fails.
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

/// The receiver's queue pair that a frame is about, if the frame is a MAD to QP1 that negotiates extensions or failover. Nothing else of
/// the frame is checked: this is for code that serves several NICs with one address.
pub fn negotiated_qp(frame: &[u8], layout: &Layout) -> Option<Qpn> {
    let at = mad_of(frame, layout, vendor::CLASS)?;
    let mad = &frame[at..at + MAD_LEN];
    NegotiationMad::read(mad).map(|mad| mad.qpn).or_else(|| mads::receiver_of(mad))
}

/// A MAD of softnic's vendor class.
struct NegotiationMad<'a> {
    /// The queue pair that the MAD is for.
    qpn: Qpn,
    transaction_id: u64,
    /// An offer or an answer; `None` from a peer that refuses because it does not know the class.
    negotiation: Option<Negotiation<'a>>,
}

impl<'a> NegotiationMad<'a> {
    fn read(mad: &'a [u8]) -> Option<NegotiationMad<'a>> {
        let mad::Repr { method, status, transaction_id, .. } = mad::Repr::parse(mad).ok()?;
        if method == Method::GET_RESP && status != Status::SUCCESS {
            // A transaction id ends with the number of the queue pair that made the offer. The other fields of a refusal are not reliable.
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

/// The offset of the MAD in a frame to QP1, if the MAD is of this class.
pub(super) fn mad_of(frame: &[u8], layout: &Layout, class: Class) -> Option<usize> {
    let at = mad_in(frame, layout)?;
    (mad::Packet::new_unchecked(frame.get(at..at + MAD_LEN)?).mgmt_class() == class).then_some(at)
}

/// The offset of the MAD in a frame to QP1.
pub(crate) fn mad_in(frame: &[u8], layout: &Layout) -> Option<usize> {
    let read = |h: &RoceHeaders<'_>| {
        let right = h.bth.opcode == Opcode::UD_SEND_ONLY && h.ext.deth.is_some_and(|d| d.qkey == QKEY_GSI);
        (right && h.payload.len() >= MAD_LEN).then_some(h.payload.start)
    };
    let at = RoceHeaders::read(frame, layout, read).ok()??;
    frame.get(at..at + MAD_LEN).map(|_| at)
}
