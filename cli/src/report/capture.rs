//! A capture, read into a report: its packets, the connections that `softnic inspect` finds in it, and its verdicts.

use std::collections::HashMap;
use std::hash::Hash;
use std::io::Read;
use std::net::IpAddr;

use softnic_pcaps::analysis::{Analysis, Connection as Paired, ConnectionId};
use softnic_pcaps::decode::{Decoder, Dissection, IcrcVerdict};
use softnic_pcaps::sequence::Order;
use softnic_pcaps::summary::{FlowKey, Summary};
use softnic_pcaps::{Frame, Payload, Reader, payload};
use softnic_wire::opcode::Kind;
use softnic_wire::sr::SrEth;
use softnic_wire::{Error, Opcode, Qpn};

use super::follow::{self, follow};
use super::model::{Connection, FileSummary, Source, Verdict};
use super::packet::{Packet, Target, cause_code, flag};

/// Reads a capture to its end, or as far as it goes; the error is for one of which nothing can be read.
///
/// Reads no further than `limit` packets.
pub(super) fn read(name: &str, from: impl Read, limit: usize) -> Result<Source, String> {
    let mut reader = Reader::new(from).map_err(|e| e.to_string())?;
    let mut taken = Taken::default();
    let mut cut;
    let fault = loop {
        cut = taken.packets.len() >= limit;
        if cut {
            break None;
        }
        match reader.next_frame() {
            Ok(Some(frame)) => taken.frame(&frame),
            Ok(None) => break None,
            Err(e) => break Some(e.to_string()),
        }
    };
    match fault {
        Some(fault) if taken.summary.frames == 0 => Err(fault),
        fault => {
            let mut source = taken.finish(name, fault);
            source.summary.cut = cut;
            Ok(source)
        }
    }
}

/// What a packet is of, as far as it is known when the packet comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Group {
    Connection(ConnectionId),
    /// Datagrams between two queue pairs, the lower end first.
    Datagrams([(IpAddr, Qpn); 2]),
    /// Packets that the analysis leaves out: damaged ones.
    Unclear,
}

/// Values and their places.
#[derive(Debug)]
struct Interned<T> {
    places: HashMap<T, u32>,
    values: Vec<T>,
}

impl<T> Default for Interned<T> {
    fn default() -> Interned<T> {
        Interned { places: HashMap::new(), values: Vec::new() }
    }
}

impl<T: Copy + Eq + Hash> Interned<T> {
    fn place(&mut self, value: T) -> u32 {
        *self.places.entry(value).or_insert_with(|| {
            self.values.push(value);
            self.values.len() as u32 - 1
        })
    }
}

#[derive(Default)]
struct Taken {
    decoder: Decoder,
    summary: Summary,
    analysis: Analysis,
    packets: Vec<Packet>,
    /// The group and the flow of each packet; `Packet::connection` is a place here until all packets are read.
    flows: Interned<(Group, FlowKey, Option<Qpn>)>,
    paths: Interned<(IpAddr, IpAddr, Option<u16>)>,
    first: Option<i128>,
}

impl Taken {
    fn frame(&mut self, frame: &Frame<'_>) {
        let decoded = match payload(frame.link, frame.data) {
            Ok(Payload::Ethernet(data)) => self.decoder.decode_ethernet(data),
            Ok(Payload::Network { ethertype, offset }) => self.decoder.decode_network(frame.data, ethertype, offset),
            Ok(Payload::Unsupported(_)) => {
                Err(Error::Malformed { what: "frame", why: "its link type is not understood" })
            }
            Err(e) => Err(e),
        };
        match decoded {
            Ok(packet) => self.packet(frame, &packet),
            Err(why) => self.summary.add_other(&why),
        }
    }

    fn packet(&mut self, frame: &Frame<'_>, d: &Dissection<'_>) {
        let order = self.summary.add(d, frame.time.nanos(), frame.original_len);
        let event = self.analysis.add(frame.number, frame.time, d, order);
        let (Some(opcode), Some(dest_qp), Some(psn)) = (d.opcode, d.dest_qp, d.psn) else { return };
        let first = *self.first.get_or_insert(frame.time.nanos());
        let key = FlowKey { src: d.src, dst: d.dst, dest_qp };
        let src_qp = d.ext.deth.map(|deth| deth.src_qp);
        let group = match (event, src_qp) {
            (Some(event), _) => Group::Connection(event.connection),
            (None, Some(src_qp)) if d.icrc != IcrcVerdict::Bad => {
                let mut ends = [(d.src, src_qp), (d.dst, dest_qp)];
                ends.sort_unstable();
                Group::Datagrams(ends)
            }
            (None, _) => Group::Unclear,
        };
        let (cause, round_trip) = event.map_or((None, None), |e| (e.cause, e.round_trip));
        let target = match (d.ext.reth, d.ext.atomic) {
            (Some(reth), _) => Some(Target { va: reth.va, rkey: reth.rkey, length: reth.len }),
            (None, Some(atomic)) => Some(Target { va: atomic.va, rkey: atomic.rkey, length: 8 }),
            (None, None) => None,
        };
        self.packets.push(Packet {
            number: frame.number,
            time: i64::try_from(frame.time.nanos() - first).unwrap_or(i64::MAX),
            connection: self.flows.place((group, key, src_qp)),
            opcode: opcode.0,
            psn: psn.value(),
            length: d.payload_len.unwrap_or(0) as u32,
            syndrome: d.ext.aeth.map(|aeth| aeth.syndrome.to_byte()),
            msn: d.ext.aeth.map_or(0, |aeth| aeth.msn),
            target,
            answers: d.ext.sr.filter(|_| answers_with_data(opcode)).map(|sr| sr.number),
            path: self.paths.place((d.src, d.dst, d.src_port)),
            flags: flags(d, order),
            cause: cause_code(cause),
            round_trip: round_trip.map_or(0, |t| u32::try_from(t.as_nanos()).unwrap_or(u32::MAX)),
            ..Packet::default()
        });
    }

    fn finish(mut self, name: &str, fault: Option<String>) -> Source {
        self.analysis.finish();
        let mut found = Found::default();
        let places: Vec<(u32, u8)> = self
            .flows
            .values
            .iter()
            .map(|&(group, key, src_qp)| found.place(&self.analysis, group, key, src_qp))
            .collect();
        for packet in &mut self.packets {
            (packet.connection, packet.end) = places[packet.connection as usize];
        }
        let verdicts = self.analysis.verdicts();
        let verdicts = verdicts.iter().map(|v| Verdict {
            file: 0,
            name: v.finding.name(),
            found: v.finding.to_string(),
            advice: v.finding.advice(),
            packets: v.packets.first().to_vec(),
            count: v.packets.count(),
            connection: v.connection.and_then(|(id, _)| found.connections.get(&id)).map(|&i| i as usize),
        });
        let verdicts = verdicts.collect();
        let mut opcodes = vec![[false; 256]; found.all.len()];
        for packet in self.packets.iter().filter(|p| !p.has(flag::DAMAGED)) {
            opcodes[packet.connection as usize][usize::from(packet.opcode)] = true;
        }
        for ((connection, seen), qps) in found.all.iter_mut().zip(&opcodes).zip(&found.queue_pairs) {
            let seen = (0..=255).map(Opcode).filter(|opcode| seen[usize::from(opcode.0)]);
            connection.transport = follow::transport(seen, *qps).into();
        }
        let paths = self.paths.values.iter().map(|(src, dst, port)| match port {
            Some(port) => format!("{src} > {dst}, UDP port {port}"),
            None => format!("{src} > {dst}, RoCEv1"),
        });
        let mut source = Source {
            summary: FileSummary {
                name: name.into(),
                kind: "capture",
                records: self.summary.frames,
                packets: self.summary.packets,
                bytes: self.summary.bytes,
                connections: found.all.len(),
                duration: self.summary.span.map_or(0, |(a, b)| i64::try_from(b - a).unwrap_or(i64::MAX)),
                start: softnic_pcaps::Timestamp::from_nanos(self.first.unwrap_or(0)).to_string(),
                icrc_bad: self.summary.icrc_bad,
                fault: fault.clone(),
                cut: false,
            },
            connections: found.all,
            packets: self.packets,
            verdicts,
            paths: paths.collect(),
            fault,
            ..Source::default()
        };
        follow(&mut source, |_| false);
        source
    }
}

fn answers_with_data(opcode: Opcode) -> bool {
    matches!(opcode.kind(), Kind::ReadResponse | Kind::AtomicAcknowledge)
}

fn flags(d: &Dissection<'_>, order: Option<Order>) -> u16 {
    let of_responses =
        d.opcode == Some(Opcode::SR_ACKNOWLEDGE) && d.ext.sr.is_some_and(|sr| sr.flags & SrEth::RESPONSES != 0);
    let all = [
        (order == Some(Order::Again), flag::AGAIN),
        (order == Some(Order::Early), flag::EARLY),
        (d.icrc == IcrcVerdict::Bad, flag::DAMAGED),
        (d.traffic_class & 3 == 3, flag::MARKED),
        (d.ack_req == Some(true), flag::ACK_REQ),
        (of_responses, flag::OF_RESPONSES),
    ];
    all.iter().filter(|(is, _)| *is).map(|(_, flag)| flag).sum()
}

/// Connections as the whole capture has them.
#[derive(Default)]
struct Found {
    all: Vec<Connection>,
    queue_pairs: Vec<[Option<Qpn>; 2]>,
    connections: HashMap<ConnectionId, u32>,
    datagrams: HashMap<[(IpAddr, Qpn); 2], u32>,
    unclear: HashMap<[IpAddr; 2], u32>,
}

impl Found {
    /// The connection of a flow, and the end that sends.
    fn place(&mut self, analysis: &Analysis, group: Group, key: FlowKey, src_qp: Option<Qpn>) -> (u32, u8) {
        match group {
            Group::Connection(id) => self.connection(&analysis.connection_by_id(id), key),
            Group::Datagrams(ends) => {
                let place = *self.datagrams.entry(ends).or_insert_with(|| {
                    let ends = ends.map(|(addr, qp)| format!("{addr} qp {qp}"));
                    push(&mut self.all, ends, None)
                });
                self.queue_pairs.resize(self.all.len(), [None; 2]);
                self.queue_pairs[place as usize] = [Some(ends[0].1), Some(ends[1].1)];
                (place, u8::from(Some((key.src, src_qp)) != Some((ends[0].0, Some(ends[0].1)))))
            }
            Group::Unclear => match analysis.connection_of(&key) {
                Some(paired) => self.connection(&paired, key),
                None => {
                    let mut ends = [key.src, key.dst];
                    ends.sort_unstable();
                    let place = *self.unclear.entry(ends).or_insert_with(|| {
                        push(&mut self.all, ends.map(|addr| format!("{addr} damaged packets")), None)
                    });
                    self.queue_pairs.resize(self.all.len(), [None; 2]);
                    (place, u8::from(key.src != ends[0]))
                }
            },
        }
    }

    fn connection(&mut self, paired: &Paired<'_>, key: FlowKey) -> (u32, u8) {
        let place = *self.connections.entry(paired.id).or_insert_with(|| {
            let mtu = paired.directions.iter().flatten().find_map(|d| d.mtu).map(|mtu| mtu.bytes());
            push(&mut self.all, paired.ends.map(|end| end.to_string()), mtu)
        });
        self.queue_pairs.resize(self.all.len(), [None; 2]);
        self.queue_pairs[place as usize] = paired.ends.map(|end| end.qp);
        let to = &paired.ends[1];
        (place, u8::from((key.dst, Some(key.dest_qp)) != (to.addr, to.qp)))
    }
}

fn push(all: &mut Vec<Connection>, ends: [String; 2], mtu: Option<u32>) -> u32 {
    all.push(Connection { ends, mtu, ..Connection::default() });
    all.len() as u32 - 1
}
