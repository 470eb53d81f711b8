//! What a capture holds, added up: packets by opcode and by queue pair, retransmissions, NAKs, ICRC failures, rates.

use std::collections::BTreeMap;
use std::net::IpAddr;

use softnic_wire::aeth::Syndrome;
use softnic_wire::lowar::Type;
use softnic_wire::opcode::{Kind, Position, Service};
use softnic_wire::{Error, Opcode, PathMtu, Qpn};

use crate::best_effort::BestEffort;
use crate::decode::{Dissection, IcrcVerdict};
use crate::sdr::{SdrFlow, SdrPacket};
use crate::sequence::{Order, Sequence, read_span};

/// One direction of a connection, or one sender to a UD queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey {
    /// Sender.
    pub src: IpAddr,
    /// Receiver.
    pub dst: IpAddr,
    /// The receiver's queue pair.
    pub dest_qp: Qpn,
}

/// What was seen on its way to one queue pair.
#[derive(Debug, Clone, Default)]
pub struct Flow {
    /// Packets.
    pub packets: u64,
    /// Bytes of payload.
    pub payload_bytes: u64,
    /// Requests and READ responses whose PSN was passed before; of Selective Repeat atomics' answers too.
    pub retransmissions: u64,
    /// Requests, and answers of Selective Repeat, with a gap before them.
    pub out_of_sequence: u64,
    /// NAKs by code.
    pub naks: BTreeMap<u8, u64>,
    /// Receiver-not-ready NAKs.
    pub rnr_naks: u64,
    /// Repair packets of LoWAR, which are no payload.
    pub repairs: u64,
    /// Congestion notifications.
    pub cnps: u64,
    /// Packets marked congestion experienced.
    pub ecn_ce: u64,
    /// Packets whose ICRC does not match.
    pub icrc_bad: u64,
    /// Of a flow of XP.
    pub xp: Option<Box<BestEffort>>,
    /// Of a flow of SDR's messages, which the negotiation in the capture tells.
    pub sdr: Option<Box<SdrFlow>>,
    requests: Sequence,
    read_responses: Sequence,
    /// Known as soon as a FIRST or MIDDLE packet was seen.
    mtu: Option<PathMtu>,
    /// UD: each sending queue pair counts its own PSNs.
    datagrams: BTreeMap<Qpn, Sequence>,
}

/// Everything that was added up over a capture.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Frames in the capture.
    pub frames: u64,
    /// RoCE packets among them that were added.
    pub packets: u64,
    /// Frames of other protocols.
    pub other_frames: u64,
    /// IP fragments that could have been RoCE.
    pub fragments: u64,
    /// Frames cut off or damaged before the BTH begins, so that nobody knows what they are.
    pub undecodable: u64,
    /// RoCE packets that break a rule of their own headers.
    pub malformed: u64,
    /// ICRC right.
    pub icrc_ok: u64,
    /// ICRC wrong.
    pub icrc_bad: u64,
    /// ICRC not captured.
    pub icrc_truncated: u64,
    /// Packets by opcode; those whose opcode was cut off are not in it.
    pub opcodes: BTreeMap<u8, u64>,
    /// By direction and queue pair.
    pub flows: BTreeMap<FlowKey, Flow>,
    /// Bytes of RoCE packets on the wire, link headers included.
    pub bytes: u64,
    /// Time of the first and of the last RoCE packet, in nanoseconds.
    pub span: Option<(i128, i128)>,
}

impl Summary {
    /// Counts a frame that is no RoCE packet, by the reason for which it is none.
    pub fn add_other(&mut self, why: &Error) {
        self.frames += 1;
        match why {
            Error::NotRoce(_) => self.other_frames += 1,
            Error::Fragment => self.fragments += 1,
            Error::Truncated { .. } | Error::Malformed { .. } | Error::Icrc { .. } => self.undecodable += 1,
        }
    }

    /// Counts a frame that is not looked at further.
    pub fn skip(&mut self) {
        self.frames += 1;
    }

    /// Counts a RoCE packet of `wire_len` bytes and says how its PSN stands to those before.
    pub fn add(&mut self, d: &Dissection<'_>, time_ns: i128, wire_len: u32) -> Option<Order> {
        self.frames += 1;
        self.packets += 1;
        self.bytes += u64::from(wire_len);
        self.malformed += u64::from(d.problem.is_some());
        match d.icrc {
            IcrcVerdict::Ok => self.icrc_ok += 1,
            IcrcVerdict::Bad => self.icrc_bad += 1,
            IcrcVerdict::Truncated => self.icrc_truncated += 1,
        }
        self.span = Some(match self.span {
            None => (time_ns, time_ns),
            Some((a, b)) => (a.min(time_ns), b.max(time_ns)),
        });
        let opcode = d.opcode?;
        *self.opcodes.entry(opcode.0).or_default() += 1;
        let dest_qp = d.dest_qp?;
        let mtu = self.learn_mtu(d, opcode, dest_qp);
        let flow = self.flows.entry(FlowKey { src: d.src, dst: d.dst, dest_qp }).or_default();
        flow.add(d, opcode, mtu)
    }

    /// A full packet tells the path MTU of its flow. A READ's responses go the other way, to a queue pair whose number the
    /// requests do not carry; so a READ response tells it for all flows between the two addresses that do not know better.
    fn learn_mtu(&mut self, d: &Dissection<'_>, opcode: Opcode, dest_qp: Qpn) -> Option<PathMtu> {
        let full = matches!(opcode.position(), Position::First | Position::Middle)
            .then(|| d.payload_len.and_then(|n| PathMtu::from_bytes(n as u32)))
            .flatten();
        if let Some(mtu) = full {
            if opcode.kind() == Kind::ReadResponse {
                for (key, flow) in &mut self.flows {
                    if key.src == d.dst && key.dst == d.src && flow.mtu.is_none() {
                        flow.mtu = Some(mtu);
                    }
                }
            } else {
                let key = FlowKey { src: d.src, dst: d.dst, dest_qp };
                self.flows.entry(key).or_default().mtu = Some(mtu);
            }
        }
        full
    }

    /// Seconds between the first and the last RoCE packet.
    pub fn seconds(&self) -> f64 {
        self.span.map_or(0.0, |(a, b)| (b - a) as f64 / 1e9)
    }

    /// Bits a second on the wire over that time; 0 where there is only one instant.
    pub fn bits_per_second(&self) -> f64 {
        if self.seconds() > 0.0 { self.bytes as f64 * 8.0 / self.seconds() } else { 0.0 }
    }

    /// Adds a count up over all flows.
    pub fn total(&self, count: impl Fn(&Flow) -> u64) -> u64 {
        self.flows.values().map(count).sum()
    }
}

impl Flow {
    /// NAKs of all codes, without RNR NAKs.
    pub fn nak_total(&self) -> u64 {
        self.naks.values().sum()
    }

    fn add(&mut self, d: &Dissection<'_>, opcode: Opcode, mtu: Option<PathMtu>) -> Option<Order> {
        self.packets += 1;
        match opcode {
            Opcode::LOWAR => self.repairs += u64::from(d.repair_header().is_some_and(|h| h.kind == Type::Repair)),
            _ => self.payload_bytes += d.payload_len.unwrap_or(0) as u64,
        }
        self.icrc_bad += u64::from(d.icrc == IcrcVerdict::Bad);
        self.ecn_ce += u64::from(d.traffic_class & 3 == 3);
        self.cnps += u64::from(opcode == Opcode::CNP);
        self.mtu = self.mtu.or(mtu);
        match d.ext.aeth.map(|a| a.syndrome) {
            Some(Syndrome::Nak(code)) => *self.naks.entry(code.0).or_default() += 1,
            Some(Syndrome::RnrNak(_)) => self.rnr_naks += 1,
            Some(Syndrome::Ack(_) | Syndrome::Reserved(_)) | None => {}
        }
        let psn = d.psn?;
        // A damaged PSN must not lead the count astray; but where every ICRC is wrong (a mirror port that rewrites headers)
        // the packets are whole, and worth following.
        if d.icrc == IcrcVerdict::Bad && self.icrc_bad < self.packets {
            return None;
        }
        if let (Some(channel), Some(SdrPacket::Data { msg, packet, .. })) = (&d.sdr_channel, d.sdr) {
            self.sdr.get_or_insert_default().add(channel, msg, packet);
        }
        let order = match (opcode.service(), opcode.kind()) {
            // Datagrams are never sent again; those of QP1 carry PSNs that mean nothing to their receiver.
            (Service::Ud, _) => {
                let sequence = self.datagrams.entry(d.ext.deth?.src_qp).or_default();
                let order = sequence.follow(psn, 1, 1);
                return (order == Order::Early && d.dest_qp != Some(Qpn::GSI)).then(|| {
                    self.out_of_sequence += 1;
                    Order::Early
                });
            }
            // Nothing is sent again there: what is behind others came late.
            (Service::Xp, kind) => {
                let flow = self.xp.get_or_insert_default();
                let missing = flow.missing_packets;
                flow.add(psn, kind, d.ext.xp.as_ref());
                if flow.missing_packets <= missing {
                    return None;
                }
                Order::Early
            }
            // Answers have PSNs of their own there, one after the other, and a READ request takes one as any other.
            (Service::Sr, Kind::ReadResponse | Kind::AtomicAcknowledge) => self.read_responses.follow(psn, 1, 1),
            (Service::Sr, Kind::ReadRequest) => self.requests.follow(psn, 1, 1),
            (_, Kind::ReadRequest) => {
                let (least, most) = read_span(d.ext.reth?.len, self.mtu);
                self.requests.follow(psn, least, most)
            }
            // Between READ responses lie the PSNs of other requests: only going back means something.
            (_, Kind::ReadResponse) => match self.read_responses.follow(psn, 1, 1) {
                Order::Again => Order::Again,
                Order::Next | Order::Early => Order::Next,
            },
            _ if opcode.is_request() => self.requests.follow(psn, 1, 1),
            _ => return None,
        };
        match order {
            Order::Next => {}
            Order::Again => self.retransmissions += 1,
            Order::Early => self.out_of_sequence += 1,
        }
        Some(order)
    }
}
