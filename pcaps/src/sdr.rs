//! SDR-RDMA in captures. Nothing in a packet tells it from others: the negotiations of a capture do, or whoever reads it.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

use softnic_wire::mad::Status;
use softnic_wire::mad::vendor::{Kind, Negotiation};
use softnic_wire::sdr::Split;
use softnic_wire::sdr::control::{self, Control};
use softnic_wire::sdr::report::{Report, ReportKind};
use softnic_wire::{ExtHeaders, Opcode, Qpn};

use crate::decode::Dissection;

/// UC RDMA WRITE Only with Immediate, which data is.
const DATA: Opcode = Opcode(0x2b);
/// UC SEND Only, which control messages are.
const CONTROL: Opcode = Opcode(0x24);

/// What a packet is to SDR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SdrPacket {
    /// A packet of a message, or a piece of its immediate behind its end.
    Data {
        /// Slot of the message.
        msg: u32,
        /// Number of the packet in the message.
        packet: u32,
        /// A piece of the user's immediate.
        user: u32,
    },
    /// A control message.
    Control(Control),
    /// What a receiver of reliable messages tells.
    Report(ReportSeen),
}

/// What a report says, but for the bits of its bitmap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportSeen {
    /// Whether it tells of chunks that are there, or asks for some.
    pub kind: ReportKind,
    /// The token of the end that it is for.
    pub token: u32,
    /// Counts the reports of its sender.
    pub sequence: u32,
    /// Messages that are complete: all below this number.
    pub done: u64,
    /// The message that the rest is about.
    pub message: u64,
    /// Bytes of its receive; 0 where the rest is about none.
    pub len: u64,
    /// All chunks of it before this one are there.
    pub below: u32,
    /// Chunks whose bits are set.
    pub chunks: u32,
}

impl SdrPacket {
    /// Of a packet that is one of SDR whose immediates are divided like that, as far as its kind does not say otherwise.
    pub fn of(p: &Dissection<'_>, split: Split) -> Option<SdrPacket> {
        SdrPacket::data(p.opcode?, &p.ext, split).or_else(|| SdrPacket::control(p.opcode?, p.payload))
    }

    fn data(opcode: Opcode, ext: &ExtHeaders, split: Split) -> Option<SdrPacket> {
        let (msg, packet, user) = split.unpack(ext.imm.filter(|_| opcode == DATA)?);
        Some(SdrPacket::Data { msg, packet, user })
    }

    fn control(opcode: Opcode, payload: &[u8]) -> Option<SdrPacket> {
        let control = (opcode == CONTROL).then_some(payload)?;
        Control::decode(control).map(SdrPacket::Control).or_else(|| {
            let report = Report::parse(control)?;
            let chunks = report.chunks().count() as u32;
            let Report { kind, token, sequence, done, message, len, below, .. } = report;
            Some(SdrPacket::Report(ReportSeen { kind, token, sequence, done, message, len, below, chunks }))
        })
    }
}

impl fmt::Display for SdrPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SdrPacket::Data { msg, packet, user } => write!(f, "sdr msg {msg} packet {packet} user {user:#x}"),
            SdrPacket::Control(c) => write!(f, "sdr {} {}", control_name(c.kind), c.count),
            SdrPacket::Report(r) if r.len == 0 => write!(f, "sdr {} done {}", report_name(r.kind), r.done),
            SdrPacket::Report(r) => {
                let (name, chunks) = (report_name(r.kind), r.chunks);
                match r.kind {
                    ReportKind::Ack => write!(f, "sdr {name} msg {} {}|+{chunks} done {}", r.message, r.below, r.done),
                    ReportKind::Nack => write!(f, "sdr {name} msg {} {chunks} chunks", r.message),
                    ReportKind::Done => write!(f, "sdr {name} {} and {chunks} from {} on", r.done, r.message),
                }
            }
        }
    }
}

/// What a control message is, in a word.
pub fn control_name(kind: control::Kind) -> &'static str {
    match kind {
        control::Kind::Cts => "cts",
        control::Kind::Ask => "ask",
    }
}

/// What a report is, in a word.
pub fn report_name(kind: ReportKind) -> &'static str {
    match kind {
        ReportKind::Ack => "ack",
        ReportKind::Nack => "nack",
        ReportKind::Done => "done",
    }
}

/// Source, destination, and a queue pair of the destination's.
type End = (IpAddr, IpAddr, Qpn);

/// What a queue pair of SDR takes.
#[derive(Debug, Clone, Copy)]
enum Takes {
    Data(Split),
    Control,
}

/// The queue pairs of SDR that the negotiations of a capture name.
#[derive(Debug, Default)]
pub(crate) struct Negotiated {
    ends: HashMap<End, Takes>,
    /// Those that the last answer of each negotiating queue pair named.
    named: HashMap<End, Vec<Qpn>>,
}

impl Negotiated {
    /// What a packet is to SDR, if a negotiation before it says that it is anything.
    pub(crate) fn packet(&self, end: End, opcode: Opcode, ext: &ExtHeaders, payload: &[u8]) -> Option<SdrPacket> {
        if !matches!(opcode, DATA | CONTROL) {
            return None;
        }
        match *self.ends.get(&end)? {
            Takes::Data(split) => SdrPacket::data(opcode, ext, split),
            Takes::Control => SdrPacket::control(opcode, payload),
        }
    }

    /// An answer decides, and tells of the queue pairs of its sender: what goes to them is sent by one who has seen it. The same queue
    /// pair may negotiate again, and then its last answer counts.
    pub(crate) fn follow(&mut self, d: &Dissection<'_>) {
        if d.dest_qp != Some(Qpn::GSI) || d.opcode != Some(Opcode::UD_SEND_ONLY) {
            return;
        }
        let Ok(answer) = Negotiation::parse(d.payload) else { return };
        let Kind::Answer(status) = answer.kind else { return };
        let to_sender = |qpn| (d.dst, d.src, qpn);
        let negotiating = to_sender(Qpn::new(answer.sender_qpn));
        for qpn in self.named.remove(&negotiating).into_iter().flatten() {
            self.ends.remove(&to_sender(qpn));
        }
        let Some(info) = answer.sdr.filter(|_| status == Status::SUCCESS) else { return };
        let data: Vec<Qpn> = info.generations().flat_map(|g| g.channels()).map(|channel| channel.qpn).collect();
        self.ends.extend(data.iter().map(|&qpn| (to_sender(qpn), Takes::Data(info.split))));
        self.ends.insert(to_sender(info.control.qpn), Takes::Control);
        self.named.insert(negotiating, [&data[..], &[info.control.qpn]].concat());
    }
}
