//! The work requests behind the request packets of a flow.

use std::collections::BTreeMap;

use softnic_nic::transports::SendOp;
use softnic_wire::PathMtu;
use softnic_wire::aeth::{NakCode, Syndrome};
use softnic_wire::opcode::{Kind, Position, Service};

use crate::capture::Packet;
use crate::flows::{Flow, Request};

/// PSNs that a request stands for: more than one for a READ.
pub(crate) fn span(p: &Packet, mtu: PathMtu) -> i64 {
    match (p.opcode.kind(), p.ext.reth) {
        // With Selective Repeat, responses have PSNs of their own.
        (Kind::ReadRequest, Some(reth)) if p.opcode.service() == Service::Rc => i64::from(mtu.packets(reth.len)),
        _ => 1,
    }
}

/// The key of the responder's memory that a request names.
pub(crate) fn remote_key(p: &Packet) -> Option<u32> {
    p.ext.reth.map(|r| r.rkey).or(p.ext.atomic.map(|a| a.rkey))
}

/// Whether a packet takes a receive of the responder: a SEND with its first, a WRITE with its immediate.
pub(crate) fn takes_receive(p: &Packet) -> bool {
    match p.opcode.kind() {
        Kind::Send => p.opcode.begins_message(),
        Kind::Write => p.ext.imm.is_some(),
        _ => false,
    }
}

/// A work request.
#[derive(Debug)]
pub(crate) struct Message {
    /// Its first PSN.
    pub(crate) first: i64,
    /// PSNs that it takes.
    pub(crate) packets: i64,
    pub(crate) op: SendOp,
    /// Its length; for READs, what it asks for.
    pub(crate) len: u32,
    /// What it sends, with zeros for what was not captured.
    pub(crate) data: Vec<u8>,
    pub(crate) solicited: bool,
    /// Its first packet, by index in the capture.
    pub(crate) at: usize,
}

impl Message {
    /// Whether it is answered by data.
    pub(crate) fn awaits_data(&self) -> bool {
        matches!(self.op, SendOp::Read { .. } | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. })
    }
}

/// Work requests without a gap between them.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) messages: Vec<Message>,
}

impl Segment {
    pub(crate) fn first(&self) -> i64 {
        self.messages.first().map_or(0, |m| m.first)
    }

    pub(crate) fn end(&self) -> i64 {
        self.messages.last().map_or(0, |m| m.first + m.packets)
    }
}

/// A request that jumps away from those around it, and back: a number that was damaged, not a gap.
pub(crate) fn is_outlier(requests: &[Request], i: usize) -> bool {
    const FAR: i64 = 1 << 16;
    let far = |j: Option<usize>| j.and_then(|j| requests.get(j)).is_some_and(|o| (o.psn - requests[i].psn).abs() > FAR);
    far(i.checked_sub(1)) && far(Some(i + 1)) || requests.len() > 2 && i + 1 == requests.len() && far(i.checked_sub(1))
}

/// So many packets may overtake another before they are captured.
pub(crate) const OVERTAKEN: i64 = 64;

/// The first copy of each request, by PSN.
fn first_copies(flow: &Flow, packets: &[Packet]) -> BTreeMap<i64, usize> {
    let mut copies = BTreeMap::new();
    // What is asked for again from before the first request does not tell where the connection began, unless it was missed.
    let first = flow.requests.iter().find(|r| packets[r.at].opcode.begins_message()).map_or(0, |r| r.psn);
    // Messages that began together may have overtaken each other on their way to the capture.
    let answered = flow.answers.first().map_or(usize::MAX, |a| a.at);
    let together =
        flow.requests.iter().take_while(|r| r.at < answered).filter(|r| packets[r.at].opcode.begins_message());
    let near = together.map(|r| r.psn).filter(|psn| (first - OVERTAKEN..first).contains(psn));
    let first = near.min().unwrap_or(first);
    let missed = |a: &crate::flows::Answer| {
        let aeth = packets[a.at].ext.aeth;
        a.psn < first && aeth.is_some_and(|x| x.syndrome == Syndrome::Nak(NakCode::PSN_SEQUENCE_ERROR))
    };
    let first = flow.answers.iter().filter(|a| missed(a)).map(|a| a.psn).min().unwrap_or(first);
    for (i, r) in flow.requests.iter().enumerate() {
        if r.psn >= first && !is_outlier(&flow.requests, i) {
            copies.entry(r.psn).or_insert(i);
        }
    }
    copies
}

/// Rebuilds the work requests of a flow, and says where the capture has gaps that nothing is known of.
pub(crate) fn segments(flow: &Flow, packets: &[Packet]) -> Vec<Segment> {
    let copies = first_copies(flow, packets);
    let packet = |psn: i64| copies.get(&psn).map(|&i| &packets[flow.requests[i].at]);
    let mut segments: Vec<Segment> = Vec::new();
    let mut messages: Vec<Message> = Vec::new();
    let mut next = copies.keys().next().copied();
    while let Some(psn) = next {
        let found = packet(psn).filter(|p| p.opcode.begins_message());
        if let Some(p) = found {
            let message = rebuild(flow, &copies, packets, psn, p);
            next = Some(psn + message.packets);
            messages.push(message);
        } else {
            // A gap, or the rest of a message whose beginning is not there.
            if !messages.is_empty() {
                segments.push(Segment { messages: std::mem::take(&mut messages) });
            }
            next = copies
                .range(psn + 1..)
                .find(|&(&n, _)| packet(n).is_some_and(|p| p.opcode.begins_message()))
                .map(|(&n, _)| n);
        }
    }
    if !messages.is_empty() {
        segments.push(Segment { messages });
    }
    segments
}

fn rebuild(flow: &Flow, copies: &BTreeMap<i64, usize>, packets: &[Packet], first: i64, p: &Packet) -> Message {
    let at = flow.requests[copies[&first]].at;
    let mtu = i64::from(flow.mtu.bytes());
    let kind = p.opcode.kind();
    let reth = p.ext.reth.unwrap_or_default();
    let atomic = p.ext.atomic.unwrap_or_default();
    let (remote_addr, rkey) = (reth.va, reth.rkey);
    let single = |op, len: u32, data: Vec<u8>, packets: i64| Message {
        first,
        packets,
        op,
        len,
        data,
        solicited: p.solicited,
        at,
    };
    match kind {
        Kind::ReadRequest => {
            return single(SendOp::Read { remote_addr, rkey }, reth.len, Vec::new(), span(p, flow.mtu));
        }
        Kind::CompareSwap => {
            let (compare, swap) = (atomic.compare, atomic.swap_add);
            let op = SendOp::CompareSwap { remote_addr: atomic.va, rkey: atomic.rkey, compare, swap };
            return single(op, 8, Vec::new(), 1);
        }
        Kind::FetchAdd => {
            let op = SendOp::FetchAdd { remote_addr: atomic.va, rkey: atomic.rkey, add: atomic.swap_add };
            return single(op, 8, Vec::new(), 1);
        }
        _ => {}
    }
    let is_write = kind == Kind::Write;
    // The end: a LAST, what the RETH says, or what comes before the next message.
    let mut count = 1;
    let mut last = Some(p).filter(|p| p.opcode.ends_message());
    let mut closed = last.is_some();
    if !closed {
        for (&psn, &i) in copies.range(first + 1..) {
            let q = &packets[flow.requests[i].at];
            let same = q.opcode.kind() == kind && matches!(q.opcode.position(), Position::Middle | Position::Last);
            if !same {
                count = psn - first;
                closed = true;
                break;
            }
            count = psn - first + 1;
            if q.opcode.ends_message() {
                (last, closed) = (Some(q), true);
                break;
            }
        }
        if last.is_none() {
            count = if is_write { i64::from(flow.mtu.packets(reth.len)) } else { count + i64::from(!closed) };
        }
    }
    let tail = last.map_or(1, |q| q.payload.len() as i64);
    let len = if is_write { i64::from(reth.len) } else { (count - 1) * mtu + tail };
    let len = len.clamp(0, i64::from(softnic_wire::segment::MAX_MESSAGE)) as u32;
    // Only as far as there is anything to put in.
    let mut data = Vec::new();
    for (&psn, &i) in copies.range(first..first + count) {
        let payload = packets[flow.requests[i].at].payload();
        let offset = ((psn - first) * mtu) as usize;
        let end = (offset + payload.len()).min(len as usize);
        if offset < end {
            data.resize(data.len().max(end), 0);
            data[offset..end].copy_from_slice(&payload[..end - offset]);
        }
    }
    let imm = last.and_then(|q| q.ext.imm);
    let op = match (is_write, imm, last.and_then(|q| q.ext.ieth)) {
        (true, Some(imm), _) => SendOp::WriteImm { remote_addr, rkey, imm },
        (true, None, _) => SendOp::Write { remote_addr, rkey },
        (false, Some(imm), _) => SendOp::SendImm { imm },
        (false, None, Some(rkey)) => SendOp::SendInv { rkey },
        (false, None, None) => SendOp::Send,
    };
    Message { first, packets: count, op, len, data, solicited: last.is_some_and(|q| q.solicited), at }
}
