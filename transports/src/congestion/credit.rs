//! Receiving and sending credit packets, for all transports whose packets wait for credit ([`Credit`]), and the credit that packets need.

use softnic_wire::xp::XpReport;
use softnic_wire::{ExtHeaders, Instant, Opcode, PacketFields, TxFrame};

use super::eqds::{Credit, FRAMING, Refused};
use crate::message::Link;
use crate::qp::PayloadMode;
use crate::{Host, Inbound};

/// Maximum length of the headers after a packet's BTH: those of a WRITE with immediate, and a header of XP or Selective Repeat.
const HEADERS: u32 = 16 + 16 + 4;

/// The longest frame of a connection.
pub(crate) fn longest_frame(link: &Link) -> u32 {
    frame(link, link.mtu.bytes())
}

/// The maximum length of a frame with this payload.
pub(crate) fn frame(link: &Link, payload: u32) -> u32 {
    payload + link.template.headers_len() as u32 + HEADERS
}

/// An estimate of the bytes on the wire of `packets` packets with `payload` bytes in all.
pub(crate) fn on_wire(link: &Link, payload: u64, packets: u64) -> u32 {
    let wire = payload + packets * u64::from(frame(link, 0) + FRAMING);
    wire.min(u32::MAX.into()) as u32
}

impl Credit {
    /// Handles a credit packet.
    pub(crate) fn receive(&mut self, now: Instant, packet: &Inbound<'_>, host: &mut impl Host) {
        let taken = packet.ext.xp_credit().ok_or(Refused::Wrong);
        match taken.and_then(|body| self.on_packet(now, packet.bth.psn, body)) {
            Ok(()) => host.counters().eqds_credit_received += 1,
            Err(Refused::Stale) => host.counters().eqds_credit_stale += 1,
            Err(Refused::Wrong) => host.counters().eqds_credit_rejected += 1,
        }
    }

    /// Handles a timeout: grants the credit that is due, and repeats the request if no answer arrived.
    pub(crate) fn expire(&mut self, now: Instant, host: &mut impl Host) {
        let (granted, again) = self.on_time(now);
        host.counters().eqds_granted_bytes += u64::from(granted);
        host.counters().eqds_asked_again += u64::from(again);
    }

    /// Takes a turn if the peer waits for credit, and writes the packet that reports the credit granted, or requests credit if bytes are
    /// waiting.
    pub(crate) fn transmit(
        &mut self,
        now: Instant,
        tx: &mut TxFrame<'_>,
        link: &Link,
        waiting: u32,
        host: &mut impl Host,
    ) -> bool {
        if let Some(pacer) = host.credit_pacer(self.port) {
            self.take_turn(now, pacer);
        }
        if !self.has_something(waiting) {
            return false;
        }
        let (psn, body) = self.write(now, waiting);
        let ext = ExtHeaders { xp_report: Some(XpReport::Credit(body)), ..ExtHeaders::default() };
        let opcode = Opcode::XP_CREDIT;
        let fields = PacketFields { opcode, psn, ack_req: false, solicited: false, becn: false, payload_len: 0 };
        let built = match link.payload {
            PayloadMode::Real => link.template.build(tx, &fields, &ext, &[]),
            PayloadMode::Elided => link.template.build_elided(tx, &fields, &ext),
        };
        host.counters().eqds_credit_sent += u64::from(built.is_ok());
        built.is_ok()
    }
}
