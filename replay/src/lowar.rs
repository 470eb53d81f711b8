//! LoWAR: repair packets are held against the packets that they repair, and what was lost before the capture is recovered by them.
//!
//! The data packets of LoWAR are those of RC. With the repair packets taken out, and what they recover put in, the rest is replayed as RC.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use softnic_pcaps::decode;
use softnic_wire::lowar::{RepairHeader, Type, digest};
use softnic_wire::opcode::Kind;
use softnic_wire::{Opcode, Qpn, bth, icrc};

use crate::capture::{self, Capture, Packet, Skip};
use crate::findings::Findings;
use crate::flows::Flow;
use crate::report::Role;

/// Packets of a stream that are looked at for the block of a repair packet: more than the longest block.
const RECENT: usize = 512;

/// What a repair packet says about its block.
#[derive(Debug)]
enum Verdict {
    /// The sum of the captured packets.
    Equal,
    /// One packet of the sum was not captured, and is what remains.
    Recovers,
    /// Two or more packets of the sum were not captured.
    TooFew,
    Undetermined(&'static str),
    Differs {
        ours: String,
        why: &'static str,
    },
}

/// A repair packet of the capture.
#[derive(Debug)]
pub(crate) struct Repair {
    number: u64,
    src: IpAddr,
    dst: IpAddr,
    qp: Qpn,
    header: RepairHeader,
    verdict: Verdict,
}

/// Packets that one address sends to a queue pair of another: requests, or READ responses and values of atomics.
type Stream = (IpAddr, IpAddr, Qpn, bool);

/// Takes packets of LoWAR out of a capture, and puts in what they recover.
pub(crate) fn take_out(capture: &mut Capture) -> Vec<Repair> {
    if !capture.packets.iter().any(|p| p.opcode == Opcode::LOWAR) {
        return Vec::new();
    }
    let mut repairs = Vec::new();
    let mut kept: Vec<Packet> = Vec::with_capacity(capture.packets.len());
    let mut recent: HashMap<Stream, VecDeque<usize>> = HashMap::new();
    for p in std::mem::take(&mut capture.packets) {
        if p.opcode != Opcode::LOWAR {
            if let Some(responses) = stream_of(p.opcode) {
                note(&mut recent, (p.src, p.dst, p.dest_qp, responses), kept.len());
            }
            kept.push(p);
            continue;
        }
        let header = p.payload().first_chunk().and_then(RepairHeader::parse);
        let Some(header) = header.filter(|h| h.kind == Type::Repair) else {
            // Notices and requests say R and C, which every repair packet says too.
            capture.skip(Skip::Lowar);
            continue;
        };
        let stream = (p.src, p.dst, p.dest_qp, header.responses);
        let (verdict, recovered) = judge(&p, &header, recent.get(&stream), &kept);
        repairs.push(Repair { number: p.number, src: p.src, dst: p.dst, qp: p.dest_qp, header, verdict });
        if let Some(recovered) = recovered {
            note(&mut recent, stream, kept.len());
            kept.push(recovered);
        }
    }
    capture.packets = kept;
    repairs
}

/// Whether a packet is protected, and of which stream: `true` for answers with data.
fn stream_of(opcode: Opcode) -> Option<bool> {
    match opcode.kind() {
        Kind::ReadResponse | Kind::AtomicAcknowledge => Some(true),
        _ => opcode.is_request().then_some(false),
    }
}

fn note(recent: &mut HashMap<Stream, VecDeque<usize>>, stream: Stream, at: usize) {
    let list = recent.entry(stream).or_default();
    if list.len() == RECENT {
        list.pop_front();
    }
    list.push_back(at);
}

/// Holds a repair packet against the captured packets of its block; with the packet that it recovers.
fn judge(p: &Packet, h: &RepairHeader, recent: Option<&VecDeque<usize>>, kept: &[Packet]) -> (Verdict, Option<Packet>) {
    let differs = |ours: String, why| (Verdict::Differs { ours, why }, None);
    let fits = (1..=h.r).contains(&h.n) && (1..=h.r).contains(&h.c) && h.isn < h.c.min(h.n);
    if !fits || h.n < h.r && !h.has_last {
        return differs("a block that can be".into(), "the numbers of the Repair Header contradict each other");
    }
    // The packets of the block as they were sent last: those of an earlier time stand before others of the block.
    let mut members: Vec<Option<&Packet>> = vec![None; usize::from(h.n)];
    let mut next = usize::from(h.n);
    for &at in recent.into_iter().flatten().rev() {
        let offset = kept[at].psn.distance(p.psn);
        match usize::try_from(offset) {
            Ok(offset) if offset < next => {
                members[offset] = Some(&kept[at]);
                next = offset;
            }
            _ => break,
        }
    }
    for (i, q) in members.iter().enumerate().filter_map(|(i, q)| q.map(|q| (i, q))) {
        let (first, last) = (i == 0 && h.has_first, i + 1 == members.len() && h.has_last);
        if q.opcode.begins_message() != first || q.opcode.ends_message() != last {
            return differs("blocks that begin and end with a message".into(), "a block is of one message");
        }
        if i + 1 == members.len() && body(q).len() != usize::from(h.last_len) {
            return differs(format!("last_length {}", body(q).len()), "it is the length of the block's last packet");
        }
    }
    let of_sum: Vec<(usize, Option<&Packet>)> =
        members.into_iter().enumerate().filter(|(i, _)| i % usize::from(h.c) == usize::from(h.isn)).collect();
    let there: Vec<&Packet> = of_sum.iter().filter_map(|&(_, q)| q).collect();
    if !p.whole || there.iter().any(|q| !q.whole) {
        return (Verdict::Undetermined("the sum of packets that the capture cut off"), None);
    }
    let sum = &p.payload()[RepairHeader::LEN..];
    let mut rest = sum.to_vec();
    let mut rest_digest = h.digest;
    for q in &there {
        let bytes = body(q);
        if bytes.len() > rest.len() {
            return differs(format!("a sum of {} bytes", bytes.len()), "the sum is as long as the longest packet");
        }
        rest.iter_mut().zip(&bytes).for_each(|(sum, byte)| *sum ^= byte);
        let tail = bytes.last_chunk().copied().unwrap_or_default();
        rest_digest = rest_digest.wrapping_sub(digest(u32::from_le_bytes(tail)));
    }
    match of_sum.len() - there.len() {
        0 if rest.iter().any(|&b| b != 0) => {
            let at = rest.iter().position(|&b| b != 0).unwrap_or(0);
            differs(format!("a sum with byte {at} = {:#04x}", sum[at] ^ rest[at]), "it is the sum of its packets")
        }
        0 if rest_digest != 0 => {
            let ours = format!("digest {:#010x}", h.digest.wrapping_sub(rest_digest));
            differs(ours, "the digest follows from the ICRCs of its packets")
        }
        0 => (Verdict::Equal, None),
        1 => {
            let missing = of_sum.iter().find(|(_, q)| q.is_none()).map_or(0, |&(i, _)| i);
            match recover(p, h, missing, rest, rest_digest) {
                Some(recovered) => (Verdict::Recovers, Some(recovered)),
                None => differs("another sum".into(), "what remains of it, without the captured packets, is no packet"),
            }
        }
        _ => (Verdict::TooFew, None),
    }
}

/// Whether a flow has repair packets, of its requests or its answers.
pub(crate) fn protects(repairs: &[Repair], flow: &Flow) -> bool {
    repairs.iter().any(|r| role_in(r, flow).is_some())
}

/// A packet as it is added up: from BTH to ICRC, without the marks that routers may set.
fn body(p: &Packet) -> Vec<u8> {
    let mut bytes = p.frame.get(p.layout.bth..p.layout.end).unwrap_or_default().to_vec();
    if bytes.len() >= bth::LEN {
        bth::Packet::new_unchecked(&mut bytes[..]).set_congestion(false, false);
    }
    bytes
}

/// The packet that is missing of a sum, if the rest is one that was sent.
fn recover(p: &Packet, h: &RepairHeader, offset: usize, rest: Vec<u8>, rest_digest: u32) -> Option<Packet> {
    // Its own end is known by its length, or by what the ICRC fits.
    let last = offset + 1 == usize::from(h.n);
    let mut lengths =
        if last { usize::from(h.last_len)..=usize::from(h.last_len) } else { bth::LEN + icrc::LEN..=rest.len() };
    let is_end = |&len: &usize| {
        let tail = rest.get(..len).and_then(|b| b.last_chunk().copied());
        tail.is_some_and(|tail| digest(u32::from_le_bytes(tail)) == rest_digest) && rest[len..].iter().all(|&b| b == 0)
    };
    let len = lengths.rfind(is_end)?;
    let mut frame = p.frame[..p.layout.bth].to_vec();
    frame.extend(&rest[..len]);
    p.layout.set_end(&mut frame, p.layout.bth + len);
    let decoded = decode::decode_ethernet(&frame).ok()?;
    let recovered = capture::packet(p.number, p.time, &frame, &decoded).ok()?;
    let wanted = p.psn.add(offset as u32);
    (recovered.whole && recovered.psn == wanted && recovered.dest_qp == p.dest_qp).then_some(recovered)
}

/// Whether a repair packet is of a flow, and whose place our NIC takes for it.
fn role_in(r: &Repair, flow: &Flow) -> Option<Role> {
    let of_responses = flow.responder == r.src && flow.requester == r.dst && flow.requester_qp == Some(r.qp);
    let of_requests = flow.requester == r.src && flow.responder == r.dst && flow.responder_qp == r.qp;
    match r.header.responses {
        true if of_responses => Some(Role::Responder),
        false if of_requests => Some(Role::Requester),
        _ => None,
    }
}

/// Reports the repair packets of a flow, and gives back those of others.
pub(crate) fn report(repairs: Vec<Repair>, flow: &Flow, found: &mut Findings) -> Vec<Repair> {
    let (of_flow, others): (Vec<Repair>, Vec<Repair>) = repairs.into_iter().partition(|r| role_in(r, flow).is_some());
    for r in of_flow {
        let Some(role) = role_in(&r, flow) else { continue };
        match r.verdict {
            Verdict::Equal => found.counts.repairs_equal += 1,
            Verdict::Recovers => found.counts.recovered += 1,
            Verdict::TooFew => found.counts.repairs_too_few += 1,
            Verdict::Undetermined(why) => found.unknown(r.number, why),
            Verdict::Differs { ours, why } => found.differ(role, r.number, ours, r.header.to_string(), why),
        }
    }
    others
}
