//! What the packets of a capture say together: which two directions are one connection, which answer ends which request.
//!
//! [`Analysis`] takes one packet after the other and keeps a bounded amount of memory for each connection, so that a
//! capture of any length, or a live one, can be followed. What it found can be asked for at any time.
//!
//! ```
//! use softnic_pcaps::analysis::Analysis;
//! use softnic_pcaps::{Reader, decode::Decoder, summary::Summary};
//!
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/loss_send_middle_nak.pcap");
//! let mut reader = Reader::new(std::fs::File::open(path)?)?;
//! let (mut decoder, mut summary, mut analysis) = (Decoder::default(), Summary::default(), Analysis::default());
//! while let Some(frame) = reader.next_frame()? {
//!     let Ok(packet) = decoder.decode_ethernet(frame.data) else { continue };
//!     let order = summary.add(&packet, frame.time.nanos(), frame.original_len);
//!     analysis.add(frame.number, frame.time, &packet, order);
//! }
//! analysis.finish();
//! let connections = analysis.connections();
//! assert_eq!(connections[0].to_string(), "10.33.0.1 qp 0x00007c <-> 10.33.0.2 qp 0x000075");
//! # Ok::<(), softnic_pcaps::Error>(())
//! ```

mod cm;
mod direction;
mod found;
mod judge;
mod pace;
mod pairing;
mod round_trips;
mod trouble;
mod verdict;

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use softnic_wire::opcode::Service;
use softnic_wire::{Opcode, Qpn};

use crate::Timestamp;
use crate::decode::{Dissection, IcrcVerdict};
use crate::sequence::Order;
use crate::summary::FlowKey;
use cm::{ConnectionManager, Ends, Said};
use direction::At;
pub use direction::Direction;
pub(crate) use direction::{Answer, Says};
pub use found::Packets;
pub use round_trips::RoundTrips;
use trouble::Ended;
pub use verdict::{EndedBy, Finding, MtuMismatch, RefusedRequest, Verdict};

/// No time is further from the first packet's, in nanoseconds: sums and differences of such times do not overflow.
const LONGEST: i128 = 1 << 59;
/// Senders whose ICRCs are counted each by itself.
const SENDERS: usize = 4096;

/// By what two directions are known to be one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PairedBy {
    /// Answers in one direction fit the requests in the other, and in no third.
    Answers,
    /// The two ends negotiated extensions.
    Negotiation,
    /// The connection manager's REQ and REP.
    ConnectionManager,
}

impl PairedBy {
    /// A word for programs.
    pub const fn name(self) -> &'static str {
        match self {
            PairedBy::Answers => "answers",
            PairedBy::Negotiation => "negotiation",
            PairedBy::ConnectionManager => "cm",
        }
    }
}

impl fmt::Display for PairedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PairedBy::Answers => "answers",
            PairedBy::Negotiation => "their negotiation",
            PairedBy::ConnectionManager => "REQ and REP",
        })
    }
}

/// A connection of an [`Analysis`], in the order in which connections were first seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(usize);

/// One end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndPoint {
    /// Its address.
    pub addr: IpAddr,
    /// Its queue pair; `None` where nothing in the capture gives the number away.
    pub qp: Option<Qpn>,
}

impl fmt::Display for EndPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.qp {
            Some(qp) => write!(f, "{} qp {qp}", self.addr),
            None => write!(f, "{} qp unknown", self.addr),
        }
    }
}

/// Two queue pairs that talk to each other.
#[derive(Debug, Clone, Copy)]
pub struct Connection<'a> {
    /// Which one it is.
    pub id: ConnectionId,
    /// Its ends; the first is the one that was seen to send first.
    pub ends: [EndPoint; 2],
    /// By what both directions were found; `None` where only one was.
    pub paired_by: Option<PairedBy>,
    /// What each end sent to the other.
    pub directions: [Option<&'a Direction>; 2],
}

impl fmt::Display for Connection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} <-> {}", self.ends[0], self.ends[1])
    }
}

/// What a packet meant to its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketEvent {
    /// The packet's number in the capture.
    pub number: u64,
    /// The connection, as far as it is known by now; a later packet may show that two are one.
    pub connection: ConnectionId,
    /// Why the packet, a request, was sent again, if it was.
    pub cause: Option<Cause>,
    /// The packet is the first answer to a request that was sent this long ago, and only once.
    pub round_trip: Option<Duration>,
}

/// Why a request was sent again, or came out of order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// A NAK of the sequence.
    Nak,
    /// The receiver had not been ready.
    NotReady,
    /// An acknowledgement of Selective Repeat showed a gap.
    SelectiveAck,
    /// Data of a READ was missing, or of an atomic.
    ImpliedNak,
    /// Nothing asked for it: the requester waited in vain.
    Timeout,
    /// It came twice at once: the network or the capture doubled it.
    Copy,
    /// It was not seen before: others overtook it.
    Late,
}

/// Follows the connections of a capture.
#[derive(Debug, Default)]
pub struct Analysis {
    directions: Vec<Direction>,
    /// The current direction of each flow; a queue pair number may serve one connection after another.
    index: HashMap<FlowKey, usize>,
    /// Directions without a partner, by sender and receiver.
    open: HashMap<(IpAddr, IpAddr), Vec<usize>>,
    cm: ConnectionManager,
    start: Option<Timestamp>,
    /// Time of the last packet.
    end: i64,
    /// Packets by sender whose ICRC matches, and those whose does not.
    icrc: HashMap<IpAddr, (u64, Packets)>,
    any_icrc_ok: bool,
}

impl Analysis {
    /// Takes the packet with this number in the capture; `order` is what [`crate::summary::Summary::add`] said of it.
    pub fn add(
        &mut self,
        number: u64,
        time: Timestamp,
        d: &Dissection<'_>,
        order: Option<Order>,
    ) -> Option<PacketEvent> {
        let start = *self.start.get_or_insert(time);
        let after = (time.nanos() - start.nanos()).clamp(-LONGEST, LONGEST);
        let at = At { number, time: after as i64 };
        self.end = self.end.max(at.time);
        self.check_icrc(d, number);
        // A damaged packet may name any queue pair; where all ICRCs are wrong, it is the capture and not the packets.
        if d.icrc == IcrcVerdict::Bad && self.any_icrc_ok {
            return None;
        }
        match self.cm.follow(d, at) {
            Some(Said::Connected(ends, mtu)) => {
                let [a, b] = self.connect(ends, PairedBy::ConnectionManager, at.time);
                self.directions[a].agreed_mtu = mtu;
                self.directions[b].agreed_mtu = mtu;
            }
            Some(Said::Negotiated(ends)) => drop(self.connect(ends, PairedBy::Negotiation, at.time)),
            Some(Said::Disconnected(ends)) => {
                for i in keys_of(ends).iter().filter_map(|key| self.index.get(key)) {
                    self.directions[*i].ended.get_or_insert(Ended { at, by: EndedBy::Disconnect });
                }
            }
            None => {}
        }
        let (opcode, dest_qp) = (d.opcode?, d.dest_qp?);
        if matches!(opcode.service(), Service::Ud | Service::Rd) || !opcode.is_known() {
            return None;
        }
        let key = FlowKey { src: d.src, dst: d.dst, dest_qp };
        let i = self.direction(key, at.time);
        self.cm.data_from(d.src, d.dst);
        let cause = self.directions[i].add(d, opcode, at, order);
        if opcode == Opcode::CNP
            && let Some((partner, _)) = self.directions[i].partner
        {
            self.directions[partner].pace.told(number);
        }
        let round_trip = Answer::of(d, opcode).and_then(|answer| self.answer(i, answer, at));
        Some(PacketEvent { number, connection: self.id(i), cause, round_trip: round_trip.map(Duration::from_nanos) })
    }

    /// Decides what could not be decided before the end of the capture.
    pub fn finish(&mut self) {
        while let Some((i, partner)) = pairing::settle(&self.directions) {
            self.pair(i, partner, PairedBy::Answers);
        }
        for (i, partner) in pairing::settle_by_port(&self.directions) {
            if self.directions[i].partner.is_none() && self.directions[partner].partner.is_none() {
                self.pair(i, partner, PairedBy::Answers);
            }
        }
    }

    /// The connections, in the order in which they were first seen.
    pub fn connections(&self) -> Vec<Connection<'_>> {
        let first_of_each = |&(i, _): &(usize, &Direction)| self.id(i).0 == i;
        self.directions.iter().enumerate().filter(first_of_each).map(|(i, _)| self.connection(i)).collect()
    }

    /// The connection of a flow; `None` where the flow is of none, as datagrams are.
    pub fn connection_of(&self, key: &FlowKey) -> Option<Connection<'_>> {
        self.index.get(key).map(|&i| self.connection(self.id(i).0))
    }

    /// The connection that an event spoke of, by what is known of it now.
    pub fn connection_by_id(&self, id: ConnectionId) -> Connection<'_> {
        self.connection(self.id(id.0).0)
    }

    /// What is wrong, the capture's own faults first; empty where nothing is.
    ///
    /// Call [`Analysis::finish`] before.
    pub fn verdicts(&self) -> Vec<Verdict> {
        judge::verdicts(self)
    }

    fn check_icrc(&mut self, d: &Dissection<'_>, number: u64) {
        self.any_icrc_ok |= d.icrc == IcrcVerdict::Ok;
        if self.icrc.len() >= SENDERS && !self.icrc.contains_key(&d.src) {
            return;
        }
        let (ok, bad) = self.icrc.entry(d.src).or_default();
        match d.icrc {
            IcrcVerdict::Ok => *ok += 1,
            IcrcVerdict::Bad => bad.push(number),
            IcrcVerdict::Truncated => {}
        }
    }

    /// A connection goes by the first of its directions.
    fn id(&self, i: usize) -> ConnectionId {
        ConnectionId(self.directions[i].partner.map_or(i, |(p, _)| i.min(p)))
    }

    fn connection(&self, i: usize) -> Connection<'_> {
        let there = &self.directions[i];
        let partner = there.partner.map(|(p, by)| (&self.directions[p], by));
        Connection {
            id: ConnectionId(i),
            ends: [
                EndPoint { addr: there.key.src, qp: partner.map(|(back, _)| back.key.dest_qp) },
                EndPoint { addr: there.key.dst, qp: Some(there.key.dest_qp) },
            ],
            paired_by: partner.map(|(_, by)| by),
            directions: [Some(there), partner.map(|(back, _)| back)],
        }
    }

    /// The current direction of a flow.
    fn direction(&mut self, key: FlowKey, now: i64) -> usize {
        match self.index.get(&key) {
            Some(&i) => i,
            None => self.begin(key, now),
        }
    }

    fn begin(&mut self, key: FlowKey, now: i64) -> usize {
        let i = self.directions.len();
        self.directions.push(Direction::new(key, now));
        self.index.insert(key, i);
        self.open.entry((key.src, key.dst)).or_default().push(i);
        i
    }

    /// An answer in direction `i`: what it says of the requests of the other direction.
    fn answer(&mut self, i: usize, answer: Answer, at: At) -> Option<u64> {
        if self.directions[i].partner.is_none() && self.directions[i].packets <= pairing::ATTEMPTS {
            let key = self.directions[i].key;
            let open = self.open.get(&(key.dst, key.src)).map_or(&[][..], Vec::as_slice);
            if let Some(partner) = pairing::narrow(&mut self.directions, open, i, answer) {
                self.pair(i, partner, PairedBy::Answers);
            }
        }
        let (partner, _) = self.directions[i].partner?;
        self.directions[partner].answered(answer, at)
    }

    /// The two ends said themselves that they are one connection.
    fn connect(&mut self, ends: Ends, by: PairedBy, now: i64) -> [usize; 2] {
        let keys = keys_of(ends);
        let known = keys.map(|key| self.index.get(&key).copied());
        // A REQ and a REP begin a connection, also between queue pairs that had one before.
        let anew = by == PairedBy::ConnectionManager;
        if let [Some(a), Some(b)] = known
            && !anew
            && self.directions[a].partner.is_some_and(|(p, _)| p == b)
        {
            return [a, b];
        }
        let [a, b] = keys.map(|key| {
            let known = self.index.get(&key).copied();
            match known {
                Some(i) if self.directions[i].partner.is_none() && !(anew && self.directions[i].packets > 0) => i,
                _ => self.begin(key, now),
            }
        });
        self.pair(a, b, by);
        [a, b]
    }

    fn pair(&mut self, a: usize, b: usize, by: PairedBy) {
        for (i, other) in [(a, b), (b, a)] {
            let d = &mut self.directions[i];
            d.partner = Some((other, by));
            d.candidates = None;
            let key = (d.key.src, d.key.dst);
            if let Some(open) = self.open.get_mut(&key) {
                open.retain(|&o| o != i);
            }
        }
    }
}

/// The flows between two ends.
fn keys_of([(src, src_qp), (dst, dst_qp)]: Ends) -> [FlowKey; 2] {
    [FlowKey { src, dst, dest_qp: dst_qp }, FlowKey { src: dst, dst: src, dest_qp: src_qp }]
}
