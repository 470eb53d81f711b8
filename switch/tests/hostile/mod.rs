//! A switch with groups, and frames that say anything.
#![allow(dead_code)] // each test uses a part of it

use std::net::IpAddr;

use softnic_fault_injector::Policy;
use softnic_switch::group::{GroupSpec, MergeSpec, Range, Receiver, Target};
use softnic_switch::{GroupReport, NextHop, Prefix, Switch, SwitchConfig};
use softnic_wire::aeth::{Aeth, Syndrome};
use softnic_wire::ext::Reth;
use softnic_wire::{
    Addresses, ExtHeaders, Instant, MacAddr, Node, Opcode, PacketFields, Path, Psn, Qpn, Template, TxFrame, bth,
};

pub(crate) const OWN: MacAddr = MacAddr([2, 1, 0, 0, 0, 0]);
pub(crate) const MC_ID: Qpn = Qpn::new(0x7777);
pub(crate) const SENDER_QP: Qpn = Qpn::new(0x1111);
pub(crate) const KEY: u32 = 0x1234;
/// Where the sender believes that 64 KiB are.
pub(crate) const VIRTUAL: u64 = 0xdead_0000;
/// Ports: the sender's, those of up to four receivers, one of nobody.
pub(crate) const PORTS: usize = 6;
const MAX_FRAME: usize = 2048;

/// The sender is 0, receivers are from 1 on.
pub(crate) fn ip(host: usize) -> IpAddr {
    [10, 0, 0, host as u8 + 1].into()
}

pub(crate) fn mac(host: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, host as u8 + 1])
}

pub(crate) fn receiver_qp(host: usize) -> Qpn {
    Qpn::new(0x2000 + host as u32)
}

/// A group of the first receivers.
pub(crate) fn group(receivers: usize) -> GroupSpec {
    let receiver = |h| Receiver { address: ip(h), qpn: receiver_qp(h), mac: Some(mac(h)), branch: None };
    GroupSpec {
        sender: ip(0),
        mc_id: MC_ID,
        merge: Some(MergeSpec { qpn: SENDER_QP, psn: Psn::new(0) }),
        receivers: (1..=receivers).map(receiver).collect(),
        ranges: vec![Range {
            start: VIRTUAL,
            len: 1 << 16,
            rkey: KEY,
            targets: (1..=receivers).map(|h| Target { start: (h as u64) << 32, rkey: h as u32 }).collect(),
        }],
    }
}

/// A switch with hosts at its ports and routes to them, and no group.
pub(crate) fn switch() -> Switch {
    let config = SwitchConfig { mac: OWN, max_frame: MAX_FRAME, max_frames: 256, elided: false, seed: 1 };
    let mut switch = Switch::new(config);
    for host in 0..PORTS {
        let port = switch.add_port(Policy { limit: 1 << 20, red: None });
        switch.add_mac(mac(host), port);
        let only = Prefix { addr: ip(host), len: 32 };
        switch.add_route(only, vec![NextHop::Fixed { port, mac: mac(host) }]);
    }
    switch
}

/// A packet, by what it says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Says {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) dst_mac: MacAddr,
    pub(crate) dest_qp: Qpn,
    pub(crate) opcode: Opcode,
    pub(crate) psn: Psn,
    pub(crate) reth: Reth,
    pub(crate) aeth: Aeth,
    pub(crate) payload: usize,
}

impl Says {
    /// A packet of the group's sender.
    pub(crate) fn write(psn: u32) -> Says {
        Says {
            src: ip(0),
            dst: ip(1),
            dst_mac: mac(1),
            dest_qp: MC_ID,
            opcode: Opcode::RC_RDMA_WRITE_ONLY,
            psn: Psn::new(psn),
            reth: Reth { va: VIRTUAL, rkey: KEY, len: 64 },
            aeth: Aeth { syndrome: Syndrome::from_byte(31), msn: 0 },
            payload: 64,
        }
    }

    /// An acknowledgement of a member, by its syndrome byte: 31 is an ACK without credits.
    pub(crate) fn answer(from: usize, psn: u32, syndrome: u8) -> Says {
        Says {
            src: ip(from),
            dst: ip(0),
            dst_mac: mac(0),
            dest_qp: SENDER_QP,
            opcode: Opcode::RC_ACKNOWLEDGE,
            aeth: Aeth { syndrome: Syndrome::from_byte(syndrome), msn: psn },
            payload: 0,
            ..Says::write(psn)
        }
    }

    pub(crate) fn frame(&self) -> Vec<u8> {
        let path = Path {
            src_mac: mac(0),
            dst_mac: self.dst_mac,
            tags: [None, None],
            addresses: Addresses::new(self.src, self.dst).expect("one IP version"),
            traffic_class: 2,
            flow_label: 0,
            hop_limit: 64,
            src_port: 0xc001,
        };
        let fields = PacketFields {
            opcode: self.opcode,
            psn: self.psn,
            ack_req: true,
            solicited: false,
            becn: false,
            payload_len: self.payload,
        };
        let set = self.opcode.headers();
        let has = |header| set.contains(header);
        use softnic_wire::opcode::HeaderSet;
        let ext = ExtHeaders {
            reth: has(HeaderSet::RETH).then_some(self.reth),
            aeth: has(HeaderSet::AETH).then_some(self.aeth),
            ieth: has(HeaderSet::IETH).then_some(self.reth.rkey),
            imm: has(HeaderSet::IMM).then_some(7),
            ..ExtHeaders::default()
        };
        let mut room = [0; MAX_FRAME];
        let mut tx = TxFrame::new(&mut room);
        let payload = vec![0x5a; self.payload];
        match Template::new(&path, self.dest_qp, bth::DEFAULT_PKEY).build(&mut tx, &fields, &ext, &payload) {
            Ok(()) => tx.segments().0.to_vec(),
            Err(_) => Vec::new(), // headers that are not drawn here
        }
    }
}

/// What leaves, by port, after a frame came in at a port.
pub(crate) fn pass(switch: &mut Switch, port: usize, frame: &[u8]) -> Vec<(usize, Vec<u8>)> {
    switch.handle_frame(Instant::ZERO, port, &mut frame.to_vec());
    let (mut out, mut room) = (Vec::new(), [0; MAX_FRAME]);
    for port in 0..switch.ports() {
        loop {
            let mut tx = TxFrame::new(&mut room);
            if !switch.poll_transmit(Instant::ZERO, port, &mut tx) {
                break;
            }
            out.push((port, tx.segments().0.to_vec()));
        }
    }
    out
}

pub(crate) fn report(switch: &Switch) -> GroupReport {
    switch.group(Instant::ZERO, ip(0), MC_ID).expect("the group is there")
}
