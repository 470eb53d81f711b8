//! Connections with Selective Repeat: our NIC takes the place of each end, as with RC.
//!
//! Each packet says by itself where it belongs, and an acknowledgement says exactly what has come. So what our NIC must hear of is no
//! riddle: before an acknowledgement, all that it says has come, and nothing else. When a packet is sent again depends on round trips that a capture does
//! not show: what is sent again is compared, when is not.

mod requester;
mod responder;

use std::collections::{BTreeMap, BTreeSet};

use softnic_nic::transports::sr::DEFAULT_WINDOW;
use softnic_nic::transports::{Transport, negotiation};
use softnic_wire::aeth::{Aeth, Credits, Syndrome};
use softnic_wire::mad::Status;
use softnic_wire::mad::vendor::{Extensions, Kind as NegotiationKind, Negotiation, Settings, VERSION};
use softnic_wire::opcode::{Kind, Service};
use softnic_wire::sr::{SrEth, SrSettings};
use softnic_wire::{ExtHeaders, Opcode, PacketFields, Psn, Qpn, Template, TxFrame};

use crate::capture::Packet;
use crate::findings::{Findings, Words};
use crate::flows::{Answer, Flow};
use crate::messages::Segment;
use crate::rig::{Rig, Sent};
use crate::side::Side;

/// Another answer may come between two copies of one that was doubled on its way.
const RECENT: usize = 16;

const NOTHING: &str = "nothing";
const GAP: &str = "the capture lacks packets that were sent before it";
const NOT_SENT: &str = "it acknowledges a packet that was not sent";
const GOES_BACK: &str = "an acknowledgement before it said that more had come";
const UNASKED: &str = "nothing asked for it";

/// The transport of our NIC. The window counts only where one end has a shorter one than the other sends.
const TRANSPORT: Transport = Transport::Sr { window: DEFAULT_WINDOW };

/// Replays a flow at both ends.
pub(crate) fn replay(flow: &Flow, segments: &[Segment], packets: &[Packet], side: &Side, found: &mut Findings) {
    requester::replay(flow, segments, packets, found);
    responder::replay(flow, segments, packets, side, found);
}

/// Packets of one direction, by number: which came to our NIC.
#[derive(Debug)]
struct Came {
    /// Everything before this has come.
    expected: i64,
    early: BTreeSet<i64>,
}

impl Came {
    fn new(first: i64) -> Came {
        Came { expected: first, early: BTreeSet::new() }
    }

    fn contains(&self, n: i64) -> bool {
        n < self.expected || self.early.contains(&n)
    }

    fn take(&mut self, n: i64) {
        if !self.contains(n) {
            self.early.insert(n);
        }
        while self.early.remove(&self.expected) {
            self.expected += 1;
        }
    }

    /// What an acknowledgement says, whose own number is `expected`.
    fn of(p: &Packet, expected: i64) -> Came {
        let mut came = Came::new(expected);
        let Some(sr) = p.ext.sr else { return came };
        let first = expected + i64::from(Psn::new(sr.number).distance(p.psn));
        let bits = p.payload().iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1));
        let numbers = bits.take(sr.offset as usize).zip(first..).filter(|&(bit, n)| bit && n >= expected);
        came.early.extend(numbers.map(|(_, n)| n));
        came
    }

    /// What has come by `other` and not by this, in order.
    fn lacks(&self, other: &Came) -> Vec<i64> {
        let missing = (self.expected..other.expected).chain(other.early.iter().copied());
        missing.filter(|&n| !self.contains(n)).collect()
    }
}

/// Whether an acknowledgement is about READ responses and values of atomics.
pub(crate) fn is_of_responses(p: &Packet) -> bool {
    p.opcode == Opcode::SR_ACKNOWLEDGE && p.ext.sr.is_some_and(|sr| sr.flags & SrEth::RESPONSES != 0)
}

/// The newest request that an answer shows to have come.
pub(crate) fn newest_asked(flow: &Flow, a: &Answer, packets: &[Packet]) -> i64 {
    let p = &packets[a.at];
    match (p.opcode.kind(), p.ext.aeth.map(|x| x.syndrome)) {
        (Kind::Acknowledge, Some(Syndrome::Ack(_))) => {
            let came = Came::of(p, a.psn);
            came.early.last().copied().unwrap_or(a.psn - 1)
        }
        (Kind::Acknowledge, _) => a.psn,
        _ => request_of(flow, p, a.at),
    }
}

/// The request that data answers.
fn request_of(flow: &Flow, p: &Packet, at: usize) -> i64 {
    let before = flow.requests.partition_point(|r| r.at < at).saturating_sub(1);
    let near = flow.requests[before].psn;
    let number = p.ext.sr.map_or(0, |sr| sr.number);
    near + i64::from(Psn::new(number).distance(Psn::new(near as u32)))
}

/// An acknowledgement of ours that says other than the captured one.
fn compare(ours: &Sent, p: &Packet) -> Option<(String, &'static str)> {
    let (own, captured) = (&ours.packet.ext, &p.ext);
    let words = || Words::of_ours(ours).to_string();
    if ours.packet.bth.psn != p.psn {
        return Some((words(), "its PSN is the first that has not come"));
    }
    if own.sr != captured.sr {
        return Some((words(), "the bitmap begins and ends with what has come"));
    }
    let code = |aeth: Option<Aeth>| {
        aeth.map(|a| if let Syndrome::Ack(_) = a.syndrome { Syndrome::Ack(Credits::UNLIMITED) } else { a.syndrome })
    };
    if code(own.aeth) != code(captured.aeth) {
        return Some((words(), "the code says what becomes of the request"));
    }
    if own.aeth.map(|a| a.msn) != captured.aeth.map(|a| a.msn) {
        return Some((words(), "the MSN counts the messages that were completed"));
    }
    if p.whole && ours.payload() != p.payload() {
        return Some((format!("bitmap {:02x?}", ours.payload()), "the bitmap says which packets have come"));
    }
    None
}

/// What our NIC sends: its requests, or its READ responses and values of atomics; and its acknowledgements of the other half.
struct Outgoing {
    /// Frames of the peer to our queue pair.
    template: Template,
    /// Whether the packets are answers.
    responses: bool,
    /// Packets by PSN; and the next.
    packets: BTreeMap<i64, Sent>,
    next: i64,
    /// The last acknowledgement that no captured one has matched.
    ack: Option<Sent>,
}

impl Outgoing {
    fn new(template: Template, first: i64, responses: bool) -> Outgoing {
        Outgoing { template, responses, packets: BTreeMap::new(), next: first, ack: None }
    }

    /// Takes what our NIC sends, all of it: everything counts as arrived.
    fn collect(&mut self, rig: &mut Rig) {
        loop {
            let mut any = false;
            for sent in rig.drain() {
                let opcode = sent.packet.bth.opcode;
                let counts = match self.responses {
                    true => matches!(opcode.kind(), Kind::ReadResponse | Kind::AtomicAcknowledge),
                    // Requests of negotiations have no numbers.
                    false => opcode.is_request() && opcode.service() == Service::Sr,
                };
                if opcode == Opcode::SR_ACKNOWLEDGE {
                    self.ack = Some(sent);
                } else if counts {
                    let psn = self.next + i64::from(sent.packet.bth.psn.distance(Psn::new(self.next as u32)));
                    self.next = self.next.max(psn + 1);
                    self.packets.entry(psn).or_insert(sent);
                    any = true;
                }
            }
            if !any {
                return;
            }
            acknowledge_all(rig, &self.template, self.next, self.responses);
        }
    }
}

/// Tells our NIC that everything has come that it sent: nothing is kept back, and nothing sent again.
fn acknowledge_all(rig: &mut Rig, template: &Template, next: i64, responses: bool) {
    let psn = Psn::new(next as u32);
    let flags = SrEth::FURTHEST | if responses { SrEth::RESPONSES } else { 0 };
    let ext = ExtHeaders {
        sr: Some(SrEth { flags, number: psn.value(), offset: 0 }),
        aeth: Some(Aeth { syndrome: Syndrome::Ack(Credits::UNLIMITED), msn: 0 }),
        ..ExtHeaders::default()
    };
    let fields = PacketFields {
        opcode: Opcode::SR_ACKNOWLEDGE,
        psn,
        ack_req: false,
        solicited: false,
        becn: false,
        payload_len: 0,
    };
    let mut buffer = [0; 256];
    let mut tx = TxFrame::new(&mut buffer);
    if template.build(&mut tx, &fields, &ext, &[]).is_ok() {
        rig.feed(tx.segments().0);
    }
}

/// Frames of the peer to our queue pair.
fn template_to(rig: &Rig, from: std::net::IpAddr) -> Option<Template> {
    Some(Template::new(&rig.path_from(from)?, rig.qpn, softnic_wire::bth::DEFAULT_PKEY))
}

/// The peer answers the offer of our queue pair: both agree on Selective Repeat.
fn agree(rig: &mut Rig, template: &Template, peer: Qpn) {
    let Some(asked) =
        rig.drain().iter().find_map(|sent| Negotiation::parse(sent.payload()).ok().map(|mad| mad.without_info()))
    else {
        return;
    };
    let answer = Negotiation {
        transaction_id: asked.transaction_id,
        kind: NegotiationKind::Answer(Status::SUCCESS),
        version: VERSION,
        sender_qpn: peer.value(),
        receiver_qpn: rig.qpn.value(),
        extensions: Extensions::SR,
        settings: Settings::NONE.with(SrSettings { window: DEFAULT_WINDOW }),
        sdr: None,
    };
    let mut buffer = [0; 512];
    let mut tx = TxFrame::new(&mut buffer);
    if negotiation::write(&mut tx, template, &answer) {
        rig.feed(tx.segments().0);
    }
}
