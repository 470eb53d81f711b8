//! XP where the receiver decides when packets leave ([`Credit`]): packets of credit in and out, and what waits for it.

use softnic_wire::xp::XpReport;
use softnic_wire::{ExtHeaders, Instant, Opcode, PacketFields, TxFrame};

use super::{Way, Xp};
use crate::congestion::{FRAMING, Refused};
use crate::{Host, Inbound};

/// The headers of XP that a packet has at most behind its BTH: of a WRITE with immediate.
const HEADERS: u32 = 16 + 16 + 4;

impl Xp {
    /// A packet of the peer came, of any kind.
    #[inline]
    pub(super) fn note_heard(&mut self, now: Instant) {
        if let Some(credit) = &mut self.rest.credit {
            credit.on_heard(now);
        }
    }

    pub(super) fn on_credit(&mut self, now: Instant, packet: &Inbound<'_>, host: &mut impl Host) {
        let (Some(credit), Some(body)) = (&mut self.rest.credit, packet.ext.xp_credit()) else {
            host.counters().eqds_credit_rejected += 1;
            return;
        };
        match credit.on_packet(now, packet.bth.psn, body) {
            Ok(()) => host.counters().eqds_credit_received += 1,
            Err(Refused::Stale) => host.counters().eqds_credit_stale += 1,
            Err(Refused::Wrong) => host.counters().eqds_credit_rejected += 1,
        }
        // The wait for more of it may begin now, where nothing else is due.
        self.refresh();
    }

    /// The longest frame of the connection.
    fn longest_frame(&self) -> u32 {
        self.link.as_ref().map_or(0, |link| link.mtu.bytes() + link.template.headers_len() as u32 + HEADERS)
    }

    /// Whether a packet may leave as far as the peer has granted it.
    pub(super) fn has_credit(&self) -> bool {
        self.rest.credit.as_ref().is_none_or(|credit| credit.may_send(self.longest_frame()))
    }

    /// Bytes on the wire that are still to be sent, about.
    fn waiting(&self) -> u32 {
        let Some(link) = &self.link else { return 0 };
        let mtu = u64::from(link.mtu.bytes());
        let payload = self.sender.bytes_left(link.mtu) + self.rest.jobs.bytes_left(link.mtu);
        let packets = payload.div_ceil(mtu);
        let wire = payload + packets * u64::from(self.longest_frame() - link.mtu.bytes() + FRAMING);
        wire.min(u32::MAX.into()) as u32
    }

    /// Takes a turn where the peer waits for credit, and writes the packet that says what was granted, or what is wanted.
    pub(super) fn transmit_credit(&mut self, now: Instant, tx: &mut TxFrame<'_>, host: &mut impl Host) -> bool {
        let waiting = if self.state.sends() { self.waiting() } else { 0 };
        let receives = self.state.receives();
        let (Some(credit), Some(link)) = (&mut self.rest.credit, &self.link) else { return false };
        if let (true, Some(pacer)) = (receives, host.credit_pacer(credit.port)) {
            credit.take_turn(now, pacer);
        }
        if !receives || !credit.has_something(waiting) {
            return false;
        }
        let (psn, body) = credit.write(now, waiting);
        let ext = ExtHeaders { xp_report: Some(XpReport::Credit(body)), ..ExtHeaders::default() };
        let opcode = Opcode::XP_CREDIT;
        let fields = PacketFields { opcode, psn, ack_req: false, solicited: false, becn: false, payload_len: 0 };
        let sent = Way::new(link, psn, 1).build(tx, &fields, &ext).is_some();
        host.counters().eqds_credit_sent += u64::from(sent);
        sent
    }
}
