//! Follows the packets of a source in the order of time: PSNs that do not wrap, bytes in flight, completions, losses.

use std::collections::VecDeque;

use softnic_wire::aeth::{NakCode, Syndrome};
use softnic_wire::opcode::{Kind, Service};
use softnic_wire::{Opcode, PathMtu, Psn, Qpn};

use super::model::{Connection, Counts, EventKind, Source};
use super::packet::{Class, Packet, cause, flag};

/// Gaps of more PSNs are no loss: a PSN that leaps belongs to a connection that the queue pair has now.
const WIDEST_GAP: i64 = 1024;

/// Answers that are remembered for each numbering.
const ANSWERS: usize = 4096;

/// Fills in what a packet's place among the others says of it, and counts. `losses_known` says that the source itself
/// tells which packets did not arrive, as a trace of both ends does.
pub(super) fn follow(source: &mut Source, losses_known: impl Fn(u32) -> bool) {
    let packets = std::mem::take(&mut source.packets);
    let mut order: Vec<u32> = (0..packets.len() as u32).collect();
    order.sort_by_key(|&i| heard(&packets[i as usize]));
    let mut flows: Vec<Flow> = source.connections.iter().map(Flow::new).collect();
    for packet in packets.iter().filter(|p| p.class() == Class::Repair) {
        flows[packet.connection as usize].has_repairs = true;
    }
    for (i, flow) in flows.iter_mut().enumerate() {
        flow.losses_known = losses_known(i as u32);
    }
    let mut all = Followed { packets, missing: Vec::new() };
    for i in order {
        let connection = all.packets[i as usize].connection as usize;
        flows[connection].take(&mut all, i as usize);
    }
    source.packets = all.packets;
    source.packets.append(&mut all.missing);
    source.packets.retain(|p| !(p.has(flag::MISSING) && p.flags & (flag::LOST | flag::REPAIRED) == 0));
    source.packets.sort_by_key(|p| (p.time, !p.has(flag::MISSING)));
    for (connection, flow) in source.connections.iter_mut().zip(&flows) {
        connection.bases = flow.spaces.each_ref().map(|space| space.base.unwrap_or(0));
    }
    count(source);
}

/// When the end whose requests a packet is about knows of it.
fn heard(p: &Packet) -> i64 {
    match Opcode(p.opcode).is_response() {
        true => p.arrival(),
        false => p.time,
    }
}

/// Packets, and those that are known by the gaps that they left.
struct Followed {
    packets: Vec<Packet>,
    missing: Vec<Packet>,
}

/// Where a packet stands.
#[derive(Debug, Clone, Copy)]
enum Place {
    Seen(usize),
    Missing(usize),
}

impl Followed {
    fn at(&mut self, place: Place) -> &mut Packet {
        match place {
            Place::Seen(i) => &mut self.packets[i],
            Place::Missing(i) => &mut self.missing[i],
        }
    }
}

/// A request without an answer.
struct Outstanding {
    first: i64,
    /// PSNs that it takes.
    span: i64,
    bytes: u64,
    /// When it was last sent.
    time: i64,
    again: bool,
    ends_message: bool,
    place: Place,
}

/// One numbering of PSNs.
#[derive(Default)]
struct Space {
    base: Option<u32>,
    last: i64,
    /// Behind the last PSN that was sent.
    next: Option<i64>,
    outstanding: VecDeque<Outstanding>,
    bytes: u64,
    /// Behind the last PSN of an answer with data.
    next_answer: Option<i64>,
    /// The request that found no receive last, and when that was said.
    not_ready: Option<(i64, i64)>,
    /// The last data that answered requests: PSNs, and where each was sent last.
    answers: VecDeque<(i64, Place)>,
}

impl Space {
    /// A PSN as a number that does not wrap.
    fn unwrapped(&mut self, psn: Psn) -> i64 {
        let base = *self.base.get_or_insert(psn.value());
        let last = Psn::new((i64::from(base) + self.last).rem_euclid(i64::from(Psn::SPACE)) as u32);
        self.last += i64::from(psn.distance(last));
        self.last
    }

    /// Remembers an answer with data.
    fn push_answer(&mut self, sequence: i64, place: Place) {
        if self.answers.len() == ANSWERS {
            self.answers.pop_front();
        }
        self.answers.push_back((sequence, place));
    }

    /// Where the answer with this PSN was sent last.
    fn last_answer(&self, sequence: i64) -> Option<Place> {
        self.answers.iter().rev().find(|(s, _)| *s == sequence).map(|&(_, place)| place)
    }

    fn find(&mut self, sequence: i64) -> Option<(usize, &mut Outstanding)> {
        let i = self.outstanding.partition_point(|o| o.first + o.span <= sequence);
        self.outstanding.get_mut(i).filter(|o| o.first <= sequence).map(|o| (i, o))
    }
}

/// A connection as its packets go by.
struct Flow {
    spaces: [Space; 4],
    mtu: Option<PathMtu>,
    has_repairs: bool,
    losses_known: bool,
}

impl Flow {
    fn new(connection: &Connection) -> Flow {
        Flow {
            spaces: Default::default(),
            mtu: connection.mtu.and_then(PathMtu::from_bytes),
            has_repairs: false,
            losses_known: false,
        }
    }

    fn take(&mut self, all: &mut Followed, i: usize) {
        let p = all.packets[i];
        let opcode = Opcode(p.opcode);
        let space = self.space_of(&p, opcode);
        let sequence = match p.class() {
            Class::Cnp | Class::Other => 0,
            _ => self.spaces[usize::from(space)].unwrapped(p.psn()),
        };
        (all.packets[i].space, all.packets[i].sequence) = (space, sequence);
        if p.has(flag::DAMAGED) {
            return;
        }
        match opcode.service() {
            Service::Ud => all.packets[i].completes = u32::from(opcode.ends_message()),
            _ if opcode.is_request() => self.request(all, i),
            _ if opcode.is_response() && !p.has(flag::LOST) => self.answer(all, i),
            _ => {}
        }
        let owner = &self.spaces[usize::from(space & 1)];
        all.packets[i].in_flight = u32::try_from(owner.bytes).unwrap_or(u32::MAX);
    }

    fn space_of(&self, p: &Packet, opcode: Opcode) -> u8 {
        let is_sr = opcode.service() == Service::Sr;
        match opcode.kind() {
            Kind::ReadResponse | Kind::AtomicAcknowledge if is_sr => 2 + (1 - p.end),
            // A trace does not say what an acknowledgement is about: an end that sends no requests gets those of its answers.
            Kind::Acknowledge if is_sr => {
                match p.has(flag::OF_RESPONSES) || self.spaces[usize::from(1 - p.end)].next.is_none() {
                    true => 2 + p.end,
                    false => 1 - p.end,
                }
            }
            _ if opcode.is_response() => 1 - p.end,
            _ => p.end,
        }
    }

    fn request(&mut self, all: &mut Followed, i: usize) {
        let p = all.packets[i];
        let opcode = Opcode(p.opcode);
        let is_read = opcode.kind() == Kind::ReadRequest;
        let is_reliable = matches!(opcode.service(), Service::Rc | Service::Xrc | Service::Sr);
        let span = match (p.target, self.mtu) {
            (Some(target), Some(mtu)) if is_read && opcode.service() != Service::Sr => {
                i64::from(mtu.packets(target.length)).max(1)
            }
            _ => 1,
        };
        let losses_known = self.losses_known;
        let space = &mut self.spaces[usize::from(p.space)];
        if space.next.is_some_and(|next| p.sequence < next) {
            all.packets[i].flags |= if p.cause == cause::LATE { 0 } else { flag::AGAIN };
            // A READ that is asked for again from a PSN on: the answer with this PSN did not come.
            if is_read
                && !losses_known
                && let Some(answer) = space.last_answer(p.sequence)
            {
                all.at(answer).flags |= flag::LOST;
            }
            if let Some((at, before)) = space.find(p.sequence) {
                let lost = match p.cause {
                    cause::SELECTIVE_ACK => true,
                    cause::TIMEOUT => at == 0,
                    _ => false,
                };
                let sent = all.at(before.place);
                if p.cause == cause::LATE {
                    sent.flags &= !(if sent.has(flag::MISSING) { flag::LOST } else { 0 });
                } else if lost && !losses_known {
                    sent.flags |= flag::LOST;
                }
                (before.again, before.time, before.place) = (true, p.time, Place::Seen(i));
            }
            return;
        }
        if let Some(next) = space.next
            && p.has(flag::EARLY)
            && p.sequence - next <= WIDEST_GAP
        {
            for sequence in next..p.sequence {
                let missing = Packet {
                    psn: psn_of(space.base, sequence),
                    sequence,
                    flags: flag::MISSING | flag::LOST,
                    transit: None,
                    length: 0,
                    target: None,
                    syndrome: None,
                    cause: 0,
                    round_trip: 0,
                    in_flight: u32::try_from(space.bytes).unwrap_or(u32::MAX),
                    ..p
                };
                all.missing.push(missing);
                let place = Place::Missing(all.missing.len() - 1);
                if is_reliable {
                    let (bytes, time) = (0, p.time);
                    space.outstanding.push_back(Outstanding {
                        first: sequence,
                        span: 1,
                        bytes,
                        time,
                        again: false,
                        ends_message: false,
                        place,
                    });
                }
            }
        }
        space.next = Some(p.sequence + span);
        if !is_reliable {
            all.packets[i].completes = u32::from(opcode.ends_message());
            return;
        }
        let bytes = u64::from(match p.target {
            Some(target) if is_read => target.length,
            _ => p.length,
        });
        space.bytes += bytes;
        space.outstanding.push_back(Outstanding {
            first: p.sequence,
            span,
            bytes,
            time: p.time,
            again: false,
            // READs and atomics are messages of one packet.
            ends_message: opcode.ends_message(),
            place: Place::Seen(i),
        });
    }

    /// Data that answers a request.
    fn data(&mut self, all: &mut Followed, i: usize) {
        let p = all.packets[i];
        let space = &mut self.spaces[usize::from(p.space)];
        if space.next_answer.is_some_and(|next| p.sequence < next) {
            all.packets[i].flags |= flag::AGAIN;
            // Of answers of Selective Repeat, only those that are missing are sent again.
            if p.space >= 2
                && !self.losses_known
                && let Some(before) = space.last_answer(p.sequence)
            {
                all.at(before).flags |= flag::LOST;
            }
        } else {
            space.next_answer = Some(p.sequence + 1);
        }
        space.push_answer(p.sequence, Place::Seen(i));
    }

    fn answer(&mut self, all: &mut Followed, i: usize) {
        let p = all.packets[i];
        let opcode = Opcode(p.opcode);
        let is_sr = opcode.service() == Service::Sr;
        let requester = usize::from(1 - p.end);
        if p.class() == Class::Data {
            self.data(all, i);
        }
        let nak = match p.syndrome.map(Syndrome::from_byte) {
            Some(Syndrome::Nak(code)) => Some(code),
            _ => None,
        };
        let upto = match (p.class(), p.answers) {
            (Class::Data, Some(request)) if is_sr => {
                let space = &self.spaces[requester];
                let Some(base) = space.base else { return };
                let last = psn_of(Some(base), space.last);
                space.last + i64::from(Psn::new(request).distance(Psn::new(last)))
            }
            // Answers of Selective Repeat have PSNs of their own.
            _ if p.space >= 2 => return,
            (Class::Nak | Class::NotReady, _) => p.sequence - 1,
            (Class::Ack, _) if is_sr => p.sequence - 1,
            _ => p.sequence,
        };
        let (has_repairs, losses_known) = (self.has_repairs, self.losses_known);
        let space = &mut self.spaces[requester];
        if p.class() == Class::NotReady {
            space.not_ready = Some((p.sequence, p.time));
        }
        let not_ready = space.not_ready.filter(|&(sequence, _)| sequence == p.sequence);
        if nak == Some(NakCode::PSN_SEQUENCE_ERROR)
            && !losses_known
            && let Some((_, sent)) = space.find(p.sequence)
            && sent.time < p.time
            // Those behind one that found no receive draw NAKs, too.
            && not_ready.is_none_or(|(_, time)| sent.time > time)
        {
            all.at(sent.place).flags |= flag::LOST;
        }
        let data_of_read = p.class() == Class::Data;
        while let Some(oldest) = space.outstanding.front_mut().filter(|o| o.first <= upto) {
            let end = oldest.first + oldest.span - 1;
            if end > upto {
                // A part of a READ has come.
                let (done, left) = ((upto - oldest.first + 1) as u64, oldest.span as u64);
                let bytes = if data_of_read { oldest.bytes * done / left } else { 0 };
                (oldest.first, oldest.span, oldest.bytes) = (upto + 1, end - upto, oldest.bytes - bytes);
                space.bytes -= bytes;
                break;
            }
            space.bytes -= oldest.bytes;
            let sent = all.at(oldest.place);
            if has_repairs && !oldest.again && sent.has(flag::LOST) {
                sent.flags = sent.flags & !flag::LOST | flag::REPAIRED;
            }
            let (time, is_clear) = (oldest.time, end == upto && !oldest.again);
            let answer = &mut all.packets[i];
            answer.completes += u32::from(oldest.ends_message);
            if is_clear && losses_known && p.class() != Class::Nak {
                answer.round_trip = u32::try_from(p.arrival() - time).unwrap_or(0);
            }
            space.outstanding.pop_front();
        }
    }
}

fn psn_of(base: Option<u32>, sequence: i64) -> u32 {
    (i64::from(base.unwrap_or(0)) + sequence).rem_euclid(i64::from(Psn::SPACE)) as u32
}

fn count(source: &mut Source) {
    let mut round_trips: Vec<Vec<u32>> = vec![Vec::new(); source.connections.len()];
    let mut spans: Vec<Option<(i64, i64)>> = vec![None; source.connections.len()];
    for p in &source.packets {
        let i = p.connection as usize;
        let c: &mut Counts = &mut source.connections[i].counts;
        let class = p.class();
        c.packets += u64::from(!p.has(flag::MISSING));
        c.again += u64::from(p.has(flag::AGAIN));
        c.lost += u64::from(p.has(flag::LOST));
        c.repaired += u64::from(p.has(flag::REPAIRED));
        c.payload += if class == Class::Data && !p.has(flag::AGAIN) { u64::from(p.length) } else { 0 };
        c.naks += u64::from(class == Class::Nak);
        c.not_ready += u64::from(class == Class::NotReady);
        c.cnps += u64::from(class == Class::Cnp);
        c.repairs += u64::from(class == Class::Repair);
        c.completions += u64::from(p.completes);
        if p.round_trip > 0 {
            round_trips[i].push(p.round_trip);
        }
        let (from, _) = *spans[i].get_or_insert((p.time, p.time));
        spans[i] = Some((from, p.time));
    }
    // Where the NIC says what is done, nothing needs to be inferred.
    let mut done: Vec<Option<u64>> = vec![None; source.connections.len()];
    for e in source.events.iter().filter(|e| e.kind == EventKind::Completed) {
        *done[e.connection as usize].get_or_insert(0) += e.value as u64;
    }
    for (connection, done) in source.connections.iter_mut().zip(done) {
        connection.counts.completions = done.unwrap_or(connection.counts.completions);
    }
    for ((connection, mut trips), span) in source.connections.iter_mut().zip(round_trips).zip(spans) {
        trips.sort_unstable();
        let quantile = |percent: usize| trips.get((trips.len() * percent / 100).min(trips.len().saturating_sub(1)));
        connection.counts.median_round_trip = quantile(50).copied();
        connection.counts.p99_round_trip = quantile(99).copied();
        connection.counts.duration = span.map_or(0, |(from, to)| to - from);
    }
}

/// The transport by its opcodes, and whether repair packets go with it.
pub(super) fn transport(opcodes: impl Iterator<Item = Opcode>, qps: [Option<Qpn>; 2]) -> &'static str {
    let mut name = "";
    for opcode in opcodes {
        match (opcode.kind(), opcode.service()) {
            (Kind::Repair, _) => return "lowar",
            (_, Service::Sr) => name = "sr",
            (_, Service::Rc) if name.is_empty() => name = "rc",
            (_, Service::Uc) => name = "uc",
            (_, Service::Ud) if qps.contains(&Some(Qpn::GSI)) => name = "qp1",
            (_, Service::Ud) => name = "ud",
            (_, Service::Xrc) => name = "xrc",
            _ => {}
        }
    }
    name
}
