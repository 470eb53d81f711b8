//! SDR-RDMA in captures. Nothing in a packet tells it from others: the negotiations of a capture do, or whoever reads it.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;

use softnic_wire::mad::Status;
use softnic_wire::mad::vendor::{Kind, Negotiation};
use softnic_wire::sdr::control::{self, Control};
use softnic_wire::sdr::report::{Report, ReportKind};
use softnic_wire::sdr::{SdrSettings, Split};
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
    /// Further rows of parity that are asked for.
    pub rows: u32,
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
            let (chunks, rows) = match report.kind {
                ReportKind::Rows => (0, report.rows().map(|(_, rows)| u32::from(rows)).sum()),
                _ => (report.chunks().count() as u32, 0),
            };
            let Report { kind, token, sequence, done, message, len, below, .. } = report;
            Some(SdrPacket::Report(ReportSeen { kind, token, sequence, done, message, len, below, chunks, rows }))
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
                    ReportKind::Rows => write!(f, "sdr {name} msg {} {} further rows", r.message, r.rows),
                    ReportKind::RoundTrip => write!(f, "sdr {name} {} ns", r.len),
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
        ReportKind::RoundTrip => "rtt",
        ReportKind::Rows => "nack-rows",
    }
}

/// What a negotiation says of a queue pair that data goes to, as far as packets are counted by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SdrChannel {
    /// The division of immediates.
    pub split: Split,
    /// Slots that messages have in turn.
    pub slots: u32,
    /// Which messages are parity.
    pub parity: Parity,
}

/// Which messages of a connection are parity, as the numbers of messages tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parity {
    /// None of them.
    None,
    /// Those in odd slots: each data message is followed by its parity. A WRITE without bytes has none, which nobody can see here.
    OddSlots,
    /// Some of them; which ones depends on the lengths of WRITEs.
    Unknown,
}

impl Parity {
    /// By what the negotiation says: schemes 3 to 5 have k, m, and how many data messages are interleaved.
    fn of(settings: SdrSettings, slots: u32) -> Parity {
        match (settings.scheme, settings.parameters) {
            (3..=5, [_, 1..=255, interleaved]) if interleaved <= 1 && slots.is_multiple_of(2) => Parity::OddSlots,
            (3..=5, [_, 1..=255, _]) => Parity::Unknown,
            _ => Parity::None,
        }
    }
}

/// The packets of messages that went to one queue pair.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SdrFlow {
    /// Packets of data, those sent again included; with parity where it cannot be told apart.
    pub data: u64,
    /// Packets of parity; `None` where it cannot be told apart.
    pub parity: Option<u64>,
    /// Packets of either that were seen before in the same message.
    pub retransmitted: u64,
    /// The packets that were seen of the last message of each slot: by slot and sixty-fourth part of the number, a bit each.
    seen: BTreeMap<(u32, u32), u64>,
    newest: Option<u32>,
}

impl SdrFlow {
    /// Counts a packet. Slots come round: one that is ahead of all others, by no more than half of them, has a new message.
    pub(crate) fn add(&mut self, channel: &SdrChannel, slot: u32, packet: u32) {
        let is_parity = channel.parity == Parity::OddSlots && slot % 2 == 1;
        self.data += u64::from(!is_parity);
        self.parity = (channel.parity != Parity::Unknown).then(|| self.parity.unwrap_or(0) + u64::from(is_parity));
        let slots = channel.slots.max(1);
        let ahead = self.newest.map_or(1, |newest| (slot % slots + slots - newest % slots) % slots);
        if ahead > 0 && ahead <= (slots / 2).max(1) {
            self.newest = Some(slot);
            while let Some((&part, _)) = self.seen.range((slot, 0)..=(slot, u32::MAX)).next() {
                self.seen.remove(&part);
            }
        }
        let (seen, bit) = (self.seen.entry((slot, packet / 64)).or_default(), 1 << (packet % 64));
        self.retransmitted += u64::from(*seen & bit != 0);
        *seen |= bit;
    }
}

/// Source, destination, and a queue pair of the destination's.
type End = (IpAddr, IpAddr, Qpn);

/// What a queue pair of SDR takes.
#[derive(Debug, Clone, Copy)]
enum Takes {
    Data(SdrChannel),
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
            Takes::Data(channel) => SdrPacket::data(opcode, ext, channel.split),
            Takes::Control => SdrPacket::control(opcode, payload),
        }
    }

    /// What the negotiation said of a queue pair that data goes to.
    pub(crate) fn channel(&self, end: End) -> Option<SdrChannel> {
        match *self.ends.get(&end)? {
            Takes::Data(channel) => Some(channel),
            Takes::Control => None,
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
        let parity = Parity::of(answer.settings.get(), info.slots);
        let channel = SdrChannel { split: info.split, slots: info.slots, parity };
        self.ends.extend(data.iter().map(|&qpn| (to_sender(qpn), Takes::Data(channel))));
        self.ends.insert(to_sender(info.control.qpn), Takes::Control);
        self.named.insert(negotiating, [&data[..], &[info.control.qpn]].concat());
    }
}

#[cfg(test)]
mod tests {
    use softnic_wire::sdr::report::HEAD;

    use super::*;

    fn count(slots: u32, settings: SdrSettings, packets: &[(u32, u32)]) -> (u64, Option<u64>, u64) {
        let channel = SdrChannel { split: Split::PAPER, slots, parity: Parity::of(settings, slots) };
        let mut flow = SdrFlow::default();
        packets.iter().for_each(|&(slot, packet)| flow.add(&channel, slot, packet));
        (flow.data, flow.parity, flow.retransmitted)
    }

    #[test]
    fn a_packet_that_was_seen_in_its_message_is_sent_again_and_slots_come_round() {
        let sdk = SdrSettings::SDK;
        assert_eq!(count(4, sdk, &[(0, 0), (0, 1), (0, 200), (1, 0), (0, 1), (0, 1)]), (6, Some(0), 2));
        // Four messages after the first its slot has another one, of which nothing was seen.
        let round = [(0, 0), (1, 0), (2, 0), (3, 0), (0, 0), (3, 0), (1, 0), (1, 0)];
        assert_eq!(count(4, sdk, &round), (8, Some(0), 2));
        assert_eq!(count(2, sdk, &[(0, 0), (1, 0), (0, 0), (1, 0)]).2, 0);
        // However large a number is, it costs no more memory.
        assert_eq!(count(4, sdk, &[(0, u32::MAX), (0, u32::MAX)]).2, 1);
    }

    #[test]
    fn a_report_that_asks_for_rows_says_how_many() {
        let (kind, rows) = (ReportKind::Rows, [3, 0, 0, 5]);
        let (token, sequence, done, done_ahead, below, first) = (7, 8, 2, 0, 0, 96);
        let report =
            Report { kind, token, sequence, done, done_ahead, message: 3, len: 999, below, first, bitmap: &rows };
        let mut head = [0; HEAD];
        report.emit_head(&mut head);
        let shown = SdrPacket::control(CONTROL, &[&head[..], &rows].concat()).unwrap();
        assert_eq!(shown.to_string(), "sdr nack-rows msg 3 8 further rows");
    }

    #[test]
    fn every_second_message_is_parity_where_the_scheme_says_so() {
        let packets = [(0, 0), (0, 1), (1, 0), (2, 0), (3, 0), (2, 0)];
        let coded = |scheme, parameters| SdrSettings { scheme, parameters };
        assert_eq!(count(8, coded(3, [2, 1, 0]), &packets), (4, Some(2), 1));
        assert_eq!(count(8, coded(4, [2, 1, 1]), &packets), (4, Some(2), 1));
        assert_eq!(count(8, coded(5, [2, 1, 1]), &packets), (4, Some(2), 1));
        assert_eq!(
            count(8, coded(3, [2, 0, 0]), &packets),
            (6, Some(0), 1),
            "without parity chunks there are no such messages"
        );
        assert_eq!(count(8, coded(3, [2, 1, 4]), &packets), (6, None, 1), "interleaved");
        assert_eq!(count(7, coded(3, [2, 1, 0]), &packets), (6, None, 1), "slots of an odd number");
        assert_eq!(count(8, coded(2, [0; 3]), &packets), (6, Some(0), 1));
    }
}
