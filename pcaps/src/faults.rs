//! From a capture to faults: which packets were lost, doubled, late, damaged or marked, named as scripts of faults name them.
//!
//! [`Observer`] takes the packets of a capture one after the other, with what an [`Analysis`] says of each, and keeps a few words of each.
//! [`Observer::finish`] looks at all of them together: what was sent again shows what was lost, and what came later often shows which of
//! several explanations is right. [`Report::write_script`] writes the faults as a script, with the reason for each.
//!
//! Where in a capture a loss shows depends on where the capture was taken. Before the place of the loss, the lost packet is in the capture, and
//! is sent again; behind it, there is a gap. [`At`] says which it is; without it, the losses that leave no choice tell.

mod answers;
mod damage;
mod doubts;
mod half;
mod names;
mod record;
mod requests;
mod script;
mod selective;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use softnic_wire::{Opcode, Psn, Qpn};

use crate::Timestamp;
use crate::analysis::{Analysis, ConnectionId, EndPoint, PacketEvent};
use crate::decode::{Dissection, IcrcVerdict, decode_located};
use crate::summary::FlowKey;
use doubts::{Doubts, Side};
use half::Half;
use record::{Found, Record, What};
pub use script::{Header, Played};

/// Packets that are looked at: what follows them is left out.
pub const MOST_PACKETS: usize = 1 << 21;
/// Events of a script, at most: so many packets a script can tell from their retransmissions.
pub const MOST_EVENTS: usize = 1 << 16;

/// Where a capture was taken, which says where its losses show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// At the requester: requests are lost behind the capture point, answers before it.
    Requester,
    /// At the responder: requests are lost before the capture point, answers behind it.
    Responder,
    /// On the way: before or behind it, as each loss shows.
    Middle,
    /// Packets as they leave each end, before anything happens to them: of `softnic sim`, `softnic wire`, and two files of two ends.
    Senders,
}

/// A direction of the link between two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// From the host that sent the first request.
    Ab,
    /// The way back.
    Ba,
}

impl Way {
    /// The other one.
    pub const fn back(self) -> Way {
        match self {
            Way::Ab => Way::Ba,
            Way::Ba => Way::Ab,
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Ab => "ab",
            Way::Ba => "ba",
        })
    }
}

/// What is looked for.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Where the capture was taken; `None`: as its losses show.
    pub at: Option<At>,
    /// Round trips that are longer become delays.
    pub delay_over: Option<Duration>,
    /// Only connections of these queue pairs; of all, where there are none.
    pub queue_pairs: Vec<Qpn>,
    /// Only one direction.
    pub direction: Option<Way>,
    /// Events, at most; never more than [`MOST_EVENTS`].
    pub most: usize,
}

/// What happened to a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It was lost.
    Drop,
    /// It came twice.
    Duplicate,
    /// A bit of it was flipped, counted from the frame's beginning; `None` where it was more than one.
    Corrupt(Option<u32>),
    /// It came behind so many later ones.
    Reorder(u32),
    /// It was marked as having met congestion.
    Mark,
    /// It took so much longer.
    Delay(Duration),
}

/// A fault, and the packet that it befell, as the matcher of scripts counts packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub action: Action,
    /// The packet's direction.
    pub way: Way,
    /// Its opcode, where the capture says it.
    pub opcode: Option<Opcode>,
    /// Its destination.
    pub dest_qp: Qpn,
    /// The how-manieth destination of this direction that is.
    pub destination: Option<u32>,
    /// Its PSN.
    pub psn: Psn,
    /// How far the PSN is from the first one of this destination; `None` where `nth` names the packet.
    pub after_first: Option<u32>,
    /// The how-manieth time that the packet passes.
    pub iteration: Option<u32>,
    /// The how-manieth packet of this opcode to this destination.
    pub nth: Option<u32>,
    /// Its number in the capture; `None` where it was lost before the capture point.
    pub packet: Option<u64>,
    /// When it was seen, or when the packet behind it was, in nanoseconds after the capture's first packet.
    pub time: i64,
    /// What shows it.
    pub why: String,
}

/// What was found.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// RoCE packets that were looked at.
    pub packets: u64,
    /// RoCE packets beyond [`MOST_PACKETS`].
    pub unseen: u64,
    /// The two hosts: the one that sent the first request, and the other.
    pub hosts: Option<[IpAddr; 2]>,
    /// Connections between them.
    pub connections: usize,
    /// The faults, in the order of the capture.
    pub events: Vec<Event>,
    /// Faults that were found beyond the most that were asked for.
    pub left_out: usize,
    /// What the losses show of where the capture was taken: for what goes from the first host, and for what comes back.
    pub taken: [Option<bool>; 2],
    /// Receivers that were not ready: no fault of a link.
    pub not_ready: u64,
    /// Faults between other hosts, which are left out.
    pub elsewhere: usize,
    /// Round trips over the limit that could not become a delay.
    pub undelayed: usize,
}

/// Takes the packets of a capture.
#[derive(Debug)]
pub struct Observer {
    options: Options,
    records: Vec<Record>,
    flows: HashMap<FlowKey, u32>,
    keys: Vec<FlowKey>,
    start: Option<Timestamp>,
    unseen: u64,
    /// Answers, by their place among the records, and how long their requests had waited.
    slow: Vec<(usize, Duration)>,
    /// Senders of which an ICRC was right.
    right: Vec<IpAddr>,
}

impl Observer {
    /// Nothing seen yet.
    pub fn new(options: Options) -> Observer {
        Observer {
            options,
            records: Vec::new(),
            flows: HashMap::new(),
            keys: Vec::new(),
            start: None,
            unseen: 0,
            slow: Vec::new(),
            right: Vec::new(),
        }
    }

    /// Takes the packet with this number; `frame` is what it was decoded from, and `event` what [`Analysis::add`] said of it.
    pub fn add(&mut self, number: u64, time: Timestamp, frame: &[u8], d: &Dissection<'_>, event: Option<PacketEvent>) {
        let start = *self.start.get_or_insert(time);
        if self.records.len() >= MOST_PACKETS {
            self.unseen += 1;
            return;
        }
        let time = i64::try_from(time.nanos() - start.nanos()).unwrap_or(i64::MAX);
        let repaired = (d.icrc == IcrcVerdict::Bad).then(|| damage::repair(frame, &d.layout)).flatten();
        let record = match &repaired {
            Some((whole, bit)) => decode_located(whole, d.layout)
                .ok()
                .and_then(|whole| Some((FlowKey { src: whole.src, dst: whole.dst, dest_qp: whole.dest_qp? }, whole)))
                .and_then(|(key, whole)| Record::of(number, time, &whole, self.flow(key), Some(Some(*bit)))),
            None => d.dest_qp.and_then(|dest_qp| {
                let flow = self.flow(FlowKey { src: d.src, dst: d.dst, dest_qp });
                Record::of(number, time, d, flow, (d.icrc == IcrcVerdict::Bad).then_some(None))
            }),
        };
        let Some(mut record) = record else { return };
        if d.icrc == IcrcVerdict::Ok && !self.right.contains(&d.src) && self.right.len() < 1024 {
            self.right.push(d.src);
        }
        record.connection = event.map(|e| e.connection);
        if let (Some(limit), Some(took)) = (self.options.delay_over, event.and_then(|e| e.round_trip))
            && took > limit
        {
            self.slow.push((self.records.len(), took));
        }
        self.records.push(record);
    }

    fn flow(&mut self, key: FlowKey) -> u32 {
        let next = self.keys.len() as u32;
        let keys = &mut self.keys;
        *self.flows.entry(key).or_insert_with(|| {
            keys.push(key);
            next
        })
    }

    /// What was found; `analysis` has seen the same packets, and has been finished.
    pub fn finish(mut self, analysis: &Analysis) -> Report {
        self.undamage();
        let mut report = Report { packets: self.records.len() as u64, unseen: self.unseen, ..Report::default() };
        let Some(hosts) = self.hosts() else { return report };
        report.hosts = Some(hosts);
        let halves = half::all(&self.records, &self.keys, analysis);
        let wanted = |ends: &[EndPoint; 2]| {
            let asked = &self.options.queue_pairs;
            asked.is_empty() || ends.iter().any(|end| end.qp.is_some_and(|qp| asked.contains(&qp)))
        };
        let (here, there): (Vec<_>, Vec<_>) =
            halves.into_iter().filter(|h| wanted(&h.ends)).partition(|h| self.way_of(h, hosts).is_some());
        report.connections = here.iter().map(|h| h.connection).collect::<HashSet<_>>().len();
        report.not_ready = here.iter().map(|h| h.not_ready(&self.records)).sum();
        // What leaves no choice tells where the capture was taken; then that decides where there is one.
        let mut doubts = Doubts::new(self.options.at);
        for half in &here {
            let way = self.way_of(half, hosts).unwrap_or(Way::Ab);
            let found = self.follow(half, &doubts.unknown());
            doubts.learn(way, &found, &self.records);
        }
        let mut found = Vec::new();
        for half in &here {
            let way = self.way_of(half, hosts).unwrap_or(Way::Ab);
            found.extend(self.follow(half, &doubts.of(way)).found);
        }
        report.elsewhere = there.iter().map(|h| self.follow(h, &doubts.unknown()).found.len()).sum();
        report.taken = [Way::Ab, Way::Ba].map(|way| match doubts.side(way) {
            Side::Unknown | Side::Both => None,
            Side::Before => Some(true),
            Side::Behind => Some(false),
        });
        self.marks_and_damage(hosts, &here, &mut found);
        report.undelayed = self.delays(&here, analysis, &mut found);
        let mut events = names::name(&self.records, &self.keys, hosts, found);
        events.retain(|e| self.options.direction.is_none_or(|way| way == e.way));
        let most = self.options.most.min(MOST_EVENTS);
        report.left_out = events.len().saturating_sub(most);
        events.truncate(most);
        report.events = events;
        report
    }

    /// Where no ICRC of a sender is right, it is the capture that has them wrong, and not the packets that are damaged.
    fn undamage(&mut self) {
        for r in &mut self.records {
            if !self.right.contains(&self.keys[r.flow as usize].src) {
                r.damage = None;
            }
        }
    }

    /// The two hosts: those of the first request, or of the first packet.
    fn hosts(&self) -> Option<[IpAddr; 2]> {
        let of = |r: &Record| {
            let key = self.keys[r.flow as usize];
            [key.src, key.dst]
        };
        let asked = |r: &&Record| {
            let key = self.keys[r.flow as usize];
            self.options.queue_pairs.is_empty() || self.options.queue_pairs.contains(&key.dest_qp)
        };
        let requests = || self.records.iter().filter(|r| r.opcode.is_request() && r.connection.is_some());
        let first = requests().find(asked).or_else(|| requests().next()).or(self.records.first());
        first.map(of)
    }

    /// The direction of the requests of a half; `None` where it is between other hosts.
    fn way_of(&self, half: &Half, hosts: [IpAddr; 2]) -> Option<Way> {
        names::way(&self.keys[half.requests_flow? as usize], hosts)
    }

    fn follow(&self, half: &Half, doubts: &doubts::Of) -> Followed {
        match half.service {
            half::Recovery::GoBackN => {
                let mut walk = requests::Walk::new(&self.records, half, *doubts);
                walk.run();
                let (mut found, delays) = (walk.found, walk.delays);
                // A request that is sent again and the answers themselves may tell of the same loss.
                let mut told: HashSet<_> = found.iter().filter_map(|f| f.what.missing()).collect();
                let more = answers::follow(&self.records, half, doubts);
                found.extend(more.into_iter().filter(|f| f.what.missing().is_none_or(|m| told.insert(m))));
                Followed { found, delays, round_trip: half.round_trip }
            }
            half::Recovery::None => {
                let mut walk = requests::Walk::new(&self.records, half, *doubts);
                walk.run();
                Followed { found: walk.found, delays: Vec::new(), round_trip: None }
            }
            half::Recovery::Selective => {
                let found = selective::follow(&self.records, half, doubts);
                Followed { found, delays: Vec::new(), round_trip: half.round_trip }
            }
        }
    }

    /// What packets show by themselves.
    fn marks_and_damage(&self, hosts: [IpAddr; 2], here: &[Half], found: &mut Vec<Found>) {
        let chosen: Option<Vec<ConnectionId>> =
            (!self.options.queue_pairs.is_empty()).then(|| here.iter().map(|h| h.connection).collect());
        for (at, r) in self.records.iter().enumerate() {
            if names::way(&self.keys[r.flow as usize], hosts).is_none() || !self.is_chosen(r, chosen.as_deref()) {
                continue;
            }
            if let Some(bit) = r.damage {
                let why = match bit {
                    Some(bit) => format!("its ICRC is wrong; with bit {bit} turned over it is right"),
                    None => "its ICRC is wrong, and no single bit makes it right: headers may be wrong, too".to_owned(),
                };
                found.push(Found { what: What::Seen(at, Action::Corrupt(bit)), why });
            } else if r.marked {
                found.push(Found {
                    what: What::Seen(at, Action::Mark),
                    why: "it is marked: congestion experienced".into(),
                });
            }
        }
    }

    fn is_chosen(&self, r: &Record, chosen: Option<&[ConnectionId]>) -> bool {
        let dest_qp = self.keys[r.flow as usize].dest_qp;
        chosen.is_none_or(|ids| {
            self.options.queue_pairs.contains(&dest_qp) || r.connection.is_some_and(|id| ids.contains(&id))
        })
    }

    /// Round trips that took too long. What is delayed is overtaken, so it must be a packet behind which none follows at once: an
    /// acknowledgement, an answer of one packet, or the READ itself.
    fn delays(&self, here: &[Half], analysis: &Analysis, found: &mut Vec<Found>) -> usize {
        let mut left = 0;
        for &(at, took) in &self.slow {
            let r = &self.records[at];
            let half = here.iter().find(|h| h.answers.binary_search(&at).is_ok());
            let Some(half) = half else { continue };
            let connection = analysis.connection_by_id(half.connection);
            let least = connection.directions.iter().flatten().filter_map(|d| d.round_trips.min()).min();
            let by = took.saturating_sub(least.unwrap_or_default());
            let by = Duration::from_micros(by.as_micros() as u64);
            let begins_more = r.opcode.begins_message() && !r.opcode.ends_message();
            if by.is_zero() || begins_more {
                left += 1;
                continue;
            }
            let why = format!(
                "its request had waited {took:?}, the shortest round trip is {:?}; which way took longer, a capture does not show",
                least.unwrap_or_default()
            );
            found.push(Found { what: What::Seen(at, Action::Delay(by)), why });
        }
        left
    }
}

/// What following a half came to.
pub(crate) struct Followed {
    found: Vec<Found>,
    /// From each NAK to what was sent again for it.
    delays: Vec<i64>,
    round_trip: Option<i64>,
}
