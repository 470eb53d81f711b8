//! A half of a connection: the requests of one end, and the answers that the other one gives.

use std::collections::{HashMap, HashSet};

use softnic_wire::aeth::NakCode;
use softnic_wire::opcode::{Kind, Service};
use softnic_wire::{Opcode, PathMtu, Psn};

use super::record::Record;
use crate::analysis::{Analysis, ConnectionId, EndPoint, Says};
use crate::sequence::read_span;
use crate::summary::FlowKey;

/// How losses are made good, which decides what a retransmission says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recovery {
    /// All is sent again from what was lost on.
    GoBackN,
    /// What was lost alone.
    Selective,
    /// Nothing is.
    None,
}

/// The requests of one end of a connection and their answers, by their places among the records.
#[derive(Debug, Clone)]
pub(super) struct Half {
    pub(super) connection: ConnectionId,
    pub(super) ends: [EndPoint; 2],
    pub(super) service: Recovery,
    pub(super) requests: Vec<usize>,
    pub(super) answers: Vec<usize>,
    pub(super) requests_flow: Option<u32>,
    pub(super) answers_flow: Option<u32>,
    /// Whether all answers in the capture that may be to these requests are known to be, or not to be.
    pub(super) answers_are_known: bool,
    /// The path MTU, where a full packet was seen either way.
    pub(super) mtu: Option<PathMtu>,
    /// The typical time from a request to its answer at the capture point.
    pub(super) round_trip: Option<i64>,
}

impl Half {
    pub(super) fn not_ready(&self, records: &[Record]) -> u64 {
        let says = |at: &&usize| records[**at].answer.is_some_and(|a| a.says == Says::NotReady);
        self.answers.iter().filter(says).count() as u64
    }
}

fn recovery(opcode: Opcode) -> Option<Recovery> {
    match opcode.service() {
        Service::Rc | Service::Xrc => Some(Recovery::GoBackN),
        Service::Sr => Some(Recovery::Selective),
        Service::Uc | Service::Xp => Some(Recovery::None),
        Service::Ud | Service::Rd | Service::Cnp => None,
    }
}

/// The halves of all connections, in the order in which their first packets came.
pub(super) fn all(records: &[Record], keys: &[FlowKey], analysis: &Analysis) -> Vec<Half> {
    let mut halves: Vec<Half> = Vec::new();
    let mut known: HashMap<(ConnectionId, usize), usize> = HashMap::new();
    // A damaged answer tells what the responder knew all the same, where it can be read; it belongs where the others of its flow do.
    let of_flow: HashMap<u32, ConnectionId> = records.iter().filter_map(|r| Some((r.flow, r.connection?))).collect();
    for (at, r) in records.iter().enumerate() {
        let request = r.opcode.is_request();
        let id = match r.damage {
            None => r.connection,
            Some(Some(_)) if !request => of_flow.get(&r.flow).copied(),
            Some(_) => None,
        };
        let (Some(id), Some(service)) = (id, recovery(r.opcode)) else { continue };
        if !request && r.answer.is_none() {
            continue;
        }
        let connection = analysis.connection_by_id(id);
        let key = keys[r.flow as usize];
        let side = usize::from(connection.directions[0].is_none_or(|d| d.key != key));
        // A half goes by the direction of its requests.
        let of = if request { side } else { 1 - side };
        let place = *known.entry((connection.id, of)).or_insert_with(|| {
            let there = connection.directions[of];
            halves.push(Half {
                connection: connection.id,
                ends: connection.ends,
                service,
                requests: Vec::new(),
                answers: Vec::new(),
                requests_flow: None,
                answers_flow: None,
                answers_are_known: true,
                mtu: connection.directions.iter().flatten().find_map(|d| d.mtu),
                round_trip: there
                    .and_then(|d| d.round_trips.quantile(0.5))
                    .and_then(|t| i64::try_from(t.as_nanos()).ok()),
            });
            halves.len() - 1
        });
        let half = &mut halves[place];
        if request {
            half.requests.push(at);
            half.requests_flow = Some(r.flow);
        } else {
            half.answers.push(at);
            half.answers_flow = Some(r.flow);
        }
    }
    let hosts = |flow: u32| (keys[flow as usize].src, keys[flow as usize].dst);
    let orphans: HashSet<_> =
        halves.iter().filter(|h| h.requests_flow.is_none()).filter_map(|h| h.answers_flow).map(hosts).collect();
    for half in halves.iter_mut().filter(|h| h.answers_flow.is_none()) {
        let back = half.requests_flow.map(hosts).map(|(src, dst)| (dst, src));
        half.answers_are_known = back.is_none_or(|back| !orphans.contains(&back));
    }
    // Answers to requests that are not in the capture say nothing of losses.
    halves.retain(|h| h.requests_flow.is_some());
    halves
}

/// A request, with its PSN counted on beyond the wrap.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    /// Its place among the records.
    pub(super) at: usize,
    pub(super) time: i64,
    pub(super) psn: i64,
    /// PSNs that it takes, at least and at most.
    pub(super) least: i64,
    pub(super) most: i64,
    pub(super) by_data: bool,
    pub(super) asks: bool,
}

impl Sent {
    /// What the answer with a PSN is, to a request that data answers; `None` where the path MTU is not known.
    pub(super) fn answered_by(&self, records: &[Record], psn: i64) -> Option<Opcode> {
        match records[self.at].opcode.kind() {
            Kind::CompareSwap | Kind::FetchAdd => Some(Opcode::RC_ATOMIC_ACKNOWLEDGE),
            Kind::ReadRequest if self.least == self.most => Some(match psn - self.psn {
                0 if self.most == 1 => READ_RESPONSE_ONLY,
                0 => READ_RESPONSE_FIRST,
                n if n == self.most - 1 => READ_RESPONSE_LAST,
                _ => READ_RESPONSE_MIDDLE,
            }),
            _ => None,
        }
    }
}

const READ_RESPONSE_FIRST: Opcode = Opcode(0x0d);
const READ_RESPONSE_MIDDLE: Opcode = Opcode(0x0e);
const READ_RESPONSE_LAST: Opcode = Opcode(0x0f);
const READ_RESPONSE_ONLY: Opcode = Opcode(0x10);

/// An answer, with its PSN counted as those of the requests.
#[derive(Debug, Clone, Copy)]
pub(super) struct Said {
    /// Its place among the records.
    pub(super) at: usize,
    pub(super) time: i64,
    pub(super) psn: i64,
    pub(super) says: Says,
}

impl Said {
    /// Whether it is data that a READ or an atomic asked for.
    pub(super) fn is_data(&self) -> bool {
        matches!(self.says, Says::Data { .. })
    }

    /// Whether it is a NAK of the sequence, for this PSN.
    pub(super) fn asks_for(&self, psn: i64) -> bool {
        self.says == Says::Nak(NakCode::PSN_SEQUENCE_ERROR) && self.psn == psn
    }

    /// The last PSN that the requester need not send again once it has this.
    pub(super) fn covers(&self) -> i64 {
        match self.says {
            Says::Ack | Says::Data { .. } => self.psn,
            Says::Expects { .. } | Says::Nak(_) | Says::NotReady => self.psn - 1,
        }
    }
}

/// The requests and answers of a half, in the order of the capture, with PSNs that do not wrap.
pub(super) fn unwrap(records: &[Record], half: &Half) -> (Vec<Sent>, Vec<Said>) {
    let (mut sent, mut said) = (Vec::with_capacity(half.requests.len()), Vec::with_capacity(half.answers.len()));
    let mut newest: Option<(Psn, i64)> = None;
    let near = |(psn, count): (Psn, i64), other: Psn| count + i64::from(other.distance(psn));
    let mut answers = half.answers.iter().peekable();
    let first = half.requests.first().map(|&at| (records[at].psn, 0));
    let mut take_answers = |upto: usize, newest: Option<(Psn, i64)>, said: &mut Vec<Said>| {
        while let Some(&at) = answers.next_if(|at| **at < upto) {
            let (r, Some(base)) = (&records[at], newest.or(first)) else { continue };
            let Some(answer) = r.answer else { continue };
            said.push(Said { at, time: r.time, psn: near(base, r.psn), says: answer.says });
        }
    };
    for &at in &half.requests {
        take_answers(at, newest, &mut said);
        let r = &records[at];
        let psn = newest.map_or(0, |base| near(base, r.psn));
        let (least, most) = match (half.service, r.opcode.kind()) {
            (Recovery::GoBackN, Kind::ReadRequest) => read_span(r.len, half.mtu),
            _ => (1, 1),
        };
        let (least, most) = (i64::from(least), i64::from(most));
        if newest.is_none_or(|(_, count)| psn > count) {
            newest = Some((r.psn, psn));
        }
        let by_data = r.opcode.kind().is_answered_by_data();
        sent.push(Sent { at, time: r.time, psn, least, most, by_data, asks: r.asks });
    }
    take_answers(usize::MAX, newest, &mut said);
    (sent, said)
}

/// The PSN on the wire of a count.
pub(super) fn wrapped(records: &[Record], half: &Half, count: i64) -> Psn {
    let first = half.requests.first().map_or(Psn::new(0), |&at| records[at].psn);
    Psn::new(first.value().wrapping_add(count as u32))
}
