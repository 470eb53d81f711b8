//! Unreliable datagram: one packet per message, each with the destination in its work request (IBA 9.8.3). QP1 is a queue pair of this
//! kind.

use softnic_wire::ext::Deth;
use softnic_wire::{ExtHeaders, Instant, MacAddr, Opcode, PacketFields, PathMtu, Qpn, TxFrame, grh};

use crate::memory::Access;
use crate::message::{self, Gather};
use crate::posting::{Operations, RecvRules, SendRules, Supported};
use crate::qp::{Config, PathProps, PayloadMode, ReceiveAttr, SendAttr, Update};
use crate::unreliable::Common;
use crate::wr::AhId;
use crate::{
    Completion, Host, Inbound, PostError, QpState, QueuePair, RecvWr, SendOp, SendWr, Status, Vitals, WcOpcode,
};

/// A Q_Key with this bit set in a work request selects the queue pair's own Q_Key (IBA 10.2.5). So only a program that may set such a key
/// on a queue pair can send it, and no ordinary program can send to QP1 of another host with it.
pub(crate) const QKEY_PRIVILEGED: u32 = 0x8000_0000;

/// The Q_Key of QP1 (IBA 13.5.3.2).
pub const QKEY_GSI: u32 = 0x8001_0000;

/// A datagram queue pair.
pub struct Ud {
    common: Common,
    payload: PayloadMode,
    /// The longest message.
    mtu: PathMtu,
    qkey: u32,
}

impl Ud {
    /// The work requests that UD supports.
    const SUPPORTED: Supported = Supported { operations: Operations::Datagrams, deadlines: false };

    /// Creates a queue pair in the reset state. Messages are at most `mtu` bytes, the MTU of the port.
    pub fn new(c: &Config, mtu: PathMtu) -> Ud {
        let rules = SendRules::new(&c.caps, Self::SUPPORTED).of_one_packet(mtu);
        Ud { common: Common::new(c, Self::SUPPORTED, rules), payload: c.payload, mtu, qkey: 0 }
    }

    /// Creates QP1, whose Q_Key is fixed.
    pub fn gsi(c: &Config, mtu: PathMtu) -> Ud {
        Ud { qkey: QKEY_GSI, ..Ud::new(c, mtu) }
    }

    /// Handles a datagram: places it in the next receive, after 40 bytes that identify the sender. Without a receive, or with the wrong
    /// key, the datagram is silently dropped (IBA 9.8.3.2, 9.6.1.4). A receive that is too small completes with an error, and the queue
    /// pair continues, so that no other host can stop it.
    fn receive(&mut self, packet: &Inbound<'_>, host: &mut impl Host) {
        let (Some(deth), Opcode::UD_SEND_ONLY | Opcode::UD_SEND_ONLY_WITH_IMMEDIATE) =
            (packet.ext.deth, packet.bth.opcode)
        else {
            host.counters().rx_malformed += 1;
            return;
        };
        if deth.qkey != self.qkey {
            host.counters().rx_bad_qkey += 1;
            return;
        }
        if packet.payload_len > self.mtu.bytes() {
            host.counters().resp_local_length_error += 1;
            return;
        }
        let receives = &mut self.common.receives;
        let Some(receive) = receives.head(host) else {
            host.counters().out_of_buffer += 1;
            return;
        };
        let byte_len = packet.payload_len + grh::LEN as u32;
        if u64::from(byte_len) > receive.capacity {
            host.counters().resp_local_length_error += 1;
            self.fail_receive(receive.wr_id, host);
            return;
        }
        let (header, src_mac) = packet.grh.unwrap_or((&[0; grh::LEN], MacAddr::default()));
        let placed = receives
            .scatter(&receive, 0, header, &*host)
            .and_then(|()| receives.scatter(&receive, grh::LEN as u64, packet.payload, &*host));
        if placed.is_err() {
            self.common.fail(Some(Status::LocProtErr), host);
            return;
        }
        receives.pop();
        host.counters().rx_send_requests += 1;
        let completion = Completion {
            byte_len,
            imm: packet.ext.imm,
            src_qp: Some(deth.src_qp),
            src_mac,
            over_ipv6: grh::is_ipv6(header),
            solicited: packet.bth.solicited,
            ..Completion::new(receive.wr_id, Status::Success, WcOpcode::Recv, self.common.qpn)
        };
        if host.complete(self.common.receives.cq, completion).is_err() {
            self.common.stop_fatally(host);
        }
    }
}

impl Ud {
    /// The receive at the head is too short for a datagram. The receives of QP1 have one length, and its owner gets no error for a longer
    /// datagram.
    fn fail_receive(&mut self, wr_id: u64, host: &mut impl Host) {
        if self.common.qpn == Qpn::GSI {
            return;
        }
        self.common.receives.pop();
        host.counters().resp_cqe_error += 1;
        let completion = Completion::new(wr_id, Status::LocLenErr, WcOpcode::Recv, self.common.qpn);
        if host.complete(self.common.receives.cq, completion).is_err() {
            self.common.stop_fatally(host);
        }
    }
}

impl QueuePair for Ud {
    fn send_rules(&self) -> &SendRules {
        self.common.send_rules()
    }

    fn recv_rules(&self) -> &RecvRules {
        self.common.receives.rules()
    }

    fn qpn(&self) -> Qpn {
        self.common.qpn
    }

    fn state(&self) -> QpState {
        self.common.state
    }

    fn reset(&mut self) {
        self.common.reset();
    }

    fn init(&mut self) {
        self.common.state = QpState::Init;
    }

    fn ready_to_receive(&mut self, _: Option<&ReceiveAttr>, _: &PathProps) {
        self.common.state = QpState::ReadyToReceive;
    }

    fn ready_to_send(&mut self, a: &SendAttr) {
        self.common.ready_to_send(a.sq_psn);
    }

    fn drain(&mut self, notify: bool, host: &mut impl Host) {
        self.common.drain(notify, host);
    }

    fn resume(&mut self) {
        self.common.state = QpState::ReadyToSend;
    }

    fn is_drained(&mut self) -> bool {
        self.common.is_drained()
    }

    fn update(&mut self, u: &Update) {
        self.qkey = u.qkey.unwrap_or(self.qkey);
    }

    fn write_send(&mut self, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.common.write_send(wr)
    }

    fn ring_doorbell(&mut self, _now: Instant, host: &mut impl Host) {
        self.common.ring_doorbell(self.mtu, host);
    }

    fn post_recv(&mut self, wr: &RecvWr<'_>, host: &mut impl Host) -> Result<(), PostError> {
        self.common.post_recv(wr, host)
    }

    fn handle_packet(&mut self, _now: Instant, packet: &Inbound<'_>, host: &mut impl Host) -> bool {
        if packet.bth.opcode == Opcode::CNP {
            host.counters().rp_cnp_ignored += 1; // there is no congestion control
        } else if self.common.state.receives() {
            self.receive(packet, host);
        }
        self.common.check_invariants();
        false // datagrams are not answered
    }

    fn poll_transmit(&mut self, _now: Instant, tx: &mut TxFrame<'_>, host: &mut impl Host) -> bool {
        let (src_qp, pd, own, payload) = (self.common.qpn, self.common.pd, self.qkey, self.payload);
        self.common.send_next(tx, host, |tx, due, host| {
            let slot = due.slot;
            // The address handle was destroyed, or never existed.
            let Some(to) = slot.to else { return Err(Status::LocQpOpErr) };
            let template = host.address(to.ah, pd).ok_or(Status::LocQpOpErr)?.with_dest_qp(to.dest_qp);
            let qkey = if to.qkey & QKEY_PRIVILEGED != 0 { own } else { to.qkey };
            let (opcode, imm) = match slot.op {
                SendOp::SendImm { imm } => (Opcode::UD_SEND_ONLY_WITH_IMMEDIATE, Some(imm)),
                _ => (Opcode::UD_SEND_ONLY, None),
            };
            let fields = PacketFields {
                opcode,
                psn: due.psn,
                ack_req: false,
                solicited: slot.solicited,
                becn: false,
                payload_len: slot.len as usize,
            };
            let ext = ExtHeaders { deth: Some(Deth { qkey, src_qp }), imm, ..ExtHeaders::default() };
            let from = Gather { qpn: src_qp, pd, payload, source: due.source, access: Access::NONE, offset: 0 };
            message::write(tx, &template, &fields, &ext, &from, host).map_err(|_| Status::LocProtErr)
        })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _now: Instant, _host: &mut impl Host) {}

    fn fail(&mut self, host: &mut impl Host) {
        self.common.fail(None, host);
    }

    fn fail_sends(&mut self, host: &mut impl Host) -> bool {
        self.common.fail_sends(host)
    }

    fn vitals(&self) -> Vitals {
        Vitals { requested: self.common.next, ..self.common.vitals() }
    }

    #[inline]
    fn next_address(&self) -> Option<AhId> {
        self.common.next_datagram().map(|to| to.ah)
    }
}
