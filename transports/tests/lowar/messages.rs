//! Messages of every kind, as the packets of a reliable connection.

use proptest::prelude::*;
use softnic_wire::aeth::{Aeth, Credits, Syndrome};
use softnic_wire::ext::{AtomicEth, Reth};
use softnic_wire::{Addresses, ExtHeaders, MacAddr, Opcode, PacketFields, Path, Psn, Qpn, Template, TxFrame, bth};

/// Path MTU of these connections.
pub(crate) const MTU: usize = 256;

/// What a message is, and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Send,
    SendImm,
    SendInv,
    Write,
    WriteImm,
    ReadRequest,
    CompareSwap,
    FetchAdd,
    ReadResponse,
    AtomicAck,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) kind: Kind,
    pub(crate) len: usize,
}

/// A packet of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) psn: Psn,
    /// Of the sequence of READ responses and answers of atomics.
    pub(crate) responses: bool,
    pub(crate) frame: Vec<u8>,
    /// PSNs until the next packet of its sequence.
    pub(crate) uses: u32,
}

impl Packet {
    /// What LoWAR protects: from the BTH on.
    pub(crate) fn body(&self) -> &[u8] {
        &self.frame[headers(&self.frame)..]
    }
}

/// Bytes before the BTH.
pub(crate) fn headers(frame: &[u8]) -> usize {
    softnic_wire::Layout::locate(frame).unwrap().bth
}

pub(crate) fn template(ipv6: bool) -> Template {
    let addresses = match ipv6 {
        false => Addresses::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into() },
        true => Addresses::V6 { src: [0xfd; 16].into(), dst: [0xfe; 16].into() },
    };
    let [src_mac, dst_mac] = [1, 2].map(|n| MacAddr([2, 0, 0, 0, 0, n]));
    let path = Path {
        src_mac,
        dst_mac,
        tags: [None; 2],
        addresses,
        traffic_class: 0,
        flow_label: 7,
        hop_limit: 64,
        src_port: 0xc000,
    };
    Template::new(&path, Qpn::new(0x123), bth::DEFAULT_PKEY)
}

/// A frame with these headers and this payload.
pub(crate) fn build(template: &Template, opcode: Opcode, psn: Psn, ext: &ExtHeaders, payload: &[u8]) -> Vec<u8> {
    let mut buffer = [0; 5000];
    let mut tx = TxFrame::new(&mut buffer);
    let (ack_req, payload_len) = (psn.value().is_multiple_of(3), payload.len());
    let fields = PacketFields { opcode, psn, ack_req, solicited: false, becn: false, payload_len };
    template.build(&mut tx, &fields, ext, payload).unwrap();
    let (a, b) = tx.segments();
    [a, b].concat()
}

impl Message {
    pub(crate) fn is_response(self) -> bool {
        matches!(self.kind, Kind::ReadResponse | Kind::AtomicAck)
    }

    /// Its packets, the first of which has the PSN `first`; what is in them is by `seed`.
    pub(crate) fn packets(self, template: &Template, first: Psn, seed: u32) -> Vec<Packet> {
        self.packets_of(template, first, seed, seed)
    }

    /// The same, where what they carry is by another number.
    pub(crate) fn packets_of(self, template: &Template, first: Psn, seed: u32, memory: u32) -> Vec<Packet> {
        use Kind::*;
        let carries = matches!(self.kind, Send | SendImm | SendInv | Write | WriteImm | ReadResponse);
        let n = if carries { self.len.div_ceil(MTU).max(1) } else { 1 };
        let byte = |i: usize| (i as u32 ^ memory << 16).wrapping_mul(0x9e37_79b1).to_le_bytes()[3];
        (0..n)
            .map(|i| {
                let (begins, ends, psn) = (i == 0, i + 1 == n, first.add(i as u32));
                let opcode = self.opcode(begins, ends);
                let (imm, ieth, aeth) = self.trailing(begins, ends, seed);
                let reth = Reth { va: u64::from(seed) << 20, rkey: !seed, len: self.len as u32 };
                let atomic = AtomicEth { va: 8, rkey: seed, swap_add: 5, compare: u64::from(seed) << 9 };
                let ext = ExtHeaders {
                    reth: (matches!(self.kind, Write | WriteImm | ReadRequest) && begins).then_some(reth),
                    atomic: matches!(self.kind, CompareSwap | FetchAdd).then_some(atomic),
                    aeth,
                    atomic_ack: (self.kind == AtomicAck).then_some(u64::from(seed) * 77),
                    imm,
                    ieth,
                    ..ExtHeaders::default()
                };
                let at = i * MTU..self.len.min((i + 1) * MTU);
                let payload: Vec<u8> = if carries { at.map(byte).collect() } else { Vec::new() };
                let frame = build(template, opcode, psn, &ext, &payload);
                // Its answer's PSNs are the request's.
                let uses = if self.kind == ReadRequest { self.len.div_ceil(MTU).max(1) as u32 } else { 1 };
                Packet { psn, responses: self.is_response(), frame, uses }
            })
            .collect()
    }

    fn opcode(self, begins: bool, ends: bool) -> Opcode {
        use Kind::*;
        let (first, middle, last, only) = match self.kind {
            Send => (0x00, 0x01, 0x02, 0x04),
            SendImm => (0x00, 0x01, 0x03, 0x05),
            SendInv => (0x00, 0x01, 0x16, 0x17),
            Write => (0x06, 0x07, 0x08, 0x0a),
            WriteImm => (0x06, 0x07, 0x09, 0x0b),
            ReadRequest => (0x0c, 0x0c, 0x0c, 0x0c),
            CompareSwap => (0x13, 0x13, 0x13, 0x13),
            FetchAdd => (0x14, 0x14, 0x14, 0x14),
            ReadResponse => (0x0d, 0x0e, 0x0f, 0x10),
            AtomicAck => (0x12, 0x12, 0x12, 0x12),
        };
        Opcode(match (begins, ends) {
            (true, true) => only,
            (true, false) => first,
            (false, false) => middle,
            (false, true) => last,
        })
    }

    fn trailing(self, begins: bool, ends: bool, seed: u32) -> (Option<u32>, Option<u32>, Option<Aeth>) {
        use Kind::*;
        let imm = matches!(self.kind, SendImm | WriteImm) && ends;
        let aeth = self.kind == ReadResponse && (begins || ends) || self.kind == AtomicAck;
        let ack = Aeth { syndrome: Syndrome::Ack(Credits::UNLIMITED), msn: seed & 0xff_ffff };
        (imm.then_some(seed), (self.kind == SendInv && ends).then_some(!seed), aeth.then_some(ack))
    }
}

/// Any message, of 0 bytes up to several packets, often one that ends with a packet's end.
pub(crate) fn any_message() -> impl Strategy<Value = Message> {
    use Kind::*;
    let kinds = [Send, SendImm, SendInv, Write, WriteImm, ReadRequest, CompareSwap, FetchAdd, ReadResponse, AtomicAck];
    let len = prop_oneof![0..3 * MTU, 0..40 * MTU, (1..20usize).prop_map(|n| n * MTU)];
    (proptest::sample::select(kinds.to_vec()), len).prop_map(|(kind, len)| Message { kind, len })
}

/// Packets of both sequences, in the order in which one sender sends them; those of one message are in order.
pub(crate) fn lay_out(
    messages: &[Message],
    template: &Template,
    first: [Psn; 2],
    mut random: impl FnMut() -> u32,
) -> Vec<Packet> {
    let mut next = first;
    let mut streams = [Vec::new(), Vec::new()];
    for m in messages {
        let stream = usize::from(m.is_response());
        // Between READs there are requests of other kinds.
        if m.is_response() {
            next[stream] = next[stream].add(random() % 3);
        }
        let packets = m.packets(template, next[stream], random());
        next[stream] = next[stream].add(packets.iter().map(|p| p.uses).sum());
        streams[stream].extend(packets);
    }
    let [requests, responses] = streams.map(std::collections::VecDeque::from);
    let (mut requests, mut responses) = (requests, responses);
    let mut all = Vec::new();
    while !requests.is_empty() || !responses.is_empty() {
        let from = if random().is_multiple_of(2) { &mut requests } else { &mut responses };
        all.extend(from.pop_front());
    }
    all
}
