//! Our NIC in the place of a requester with Selective Repeat.

use std::collections::{BTreeMap, HashMap, VecDeque};

use softnic_wire::Psn;
use softnic_wire::aeth::Syndrome;
use softnic_wire::opcode::Kind;

use super::{Came, GAP, GOES_BACK, NOT_SENT, NOTHING, Outgoing, RECENT, TRANSPORT, UNASKED};
use crate::capture::Packet;
use crate::findings::{Findings, Words};
use crate::flows::{Answer, Flow, Request};
use crate::messages::Segment;
use crate::posting::Posting;
use crate::report::Role;
use crate::requester::compare;
use crate::rig::{Rig, Setup};

const ROLE: Role = Role::Requester;
/// The shortest timeout of Selective Repeat, in nanoseconds.
const SHORTEST_TIMEOUT: u64 = 50_000;
/// A copy of a packet that was doubled on its way comes within this time, in nanoseconds.
const DOUBLED: u64 = 1_000_000;

struct Requester<'a> {
    flow: &'a Flow,
    packets: &'a [Packet],
    found: &'a mut Findings,
    rig: Rig,
    posting: Posting<'a>,
    ours: Outgoing,
    /// When each request was captured last.
    captured: HashMap<i64, usize>,
    /// READ responses and values of atomics that our NIC got; where they are in the capture, by PSN.
    came: Came,
    data_answers: HashMap<i64, Vec<usize>>,
    last_delivered: Option<(i64, usize)>,
    /// Copies of answers behind the first that our NIC has not got: where they are in the capture, and their PSNs.
    spare: BTreeMap<usize, i64>,
    recent: VecDeque<usize>,
}

/// What the requester sent.
enum Event {
    Request(Request),
    Acknowledgement(Answer),
}

pub(super) fn replay(flow: &Flow, segments: &[Segment], packets: &[Packet], found: &mut Findings) {
    let Some(segment) = segments.first() else { return };
    let mut events: Vec<(usize, Event)> = flow.requests.iter().map(|&r| (r.at, Event::Request(r))).collect();
    events.extend(flow.acknowledgements.iter().map(|&a| (a.at, Event::Acknowledgement(a))));
    events.sort_by_key(|e| e.0);
    let Some(mut r) = Requester::new(flow, segment, packets, found) else {
        found.unknown(packets[flow.requests[0].at].number, "the requester's messages are too long to rebuild");
        return;
    };
    for (_, event) in events {
        let goes_on = match event {
            Event::Request(request) if request.psn >= segment.end() => {
                // Behind a gap in the capture: which receives its messages take is not known.
                r.found.unknown(packets[request.at].number, GAP);
                true
            }
            Event::Request(request) => r.explain_request(request),
            Event::Acknowledgement(a) => r.explain_acknowledgement(a),
        };
        if !goes_on {
            break;
        }
    }
    let missing = r.ours.packets.keys().filter(|psn| !r.captured.contains_key(psn)).count();
    r.found.counts.requests_not_captured += missing as u64;
}

impl<'a> Requester<'a> {
    fn new(
        flow: &'a Flow,
        segment: &'a Segment,
        packets: &'a [Packet],
        found: &'a mut Findings,
    ) -> Option<Requester<'a>> {
        let start = segment.first();
        let setup = Setup { transport: Some(TRANSPORT), ..Setup::requester(flow, start, segment.messages.len()) };
        let mut rig = Rig::new(&setup)?;
        let template = super::template_to(&rig, flow.responder)?;
        super::agree(&mut rig, &template, flow.responder_qp);
        let posting = Posting::new(&mut rig, &segment.messages, packets)?;
        let mut data_answers: HashMap<i64, Vec<usize>> = HashMap::new();
        for a in flow.answers.iter().filter(|a| packets[a.at].opcode.kind() != Kind::Acknowledge) {
            data_answers.entry(a.psn).or_default().push(a.at);
        }
        let of = |(&n, list): (&i64, &Vec<usize>)| list[1..].iter().map(move |&at| (at, n)).collect::<Vec<_>>();
        let spare = data_answers.iter().flat_map(of).collect();
        Some(Requester {
            flow,
            packets,
            found,
            rig,
            posting,
            ours: Outgoing::new(template, start, false),
            captured: HashMap::new(),
            came: Came::new(start),
            data_answers,
            last_delivered: None,
            spare,
            recent: VecDeque::new(),
        })
    }

    fn differ(&mut self, p: &Packet, ours: String, why: &'static str) {
        self.found.differ(ROLE, p.number, ours, Words::of(p).to_string(), why);
    }

    /// Holds a captured request against ours of the same PSN; `false` when nothing more can be compared.
    fn explain_request(&mut self, r: Request) -> bool {
        let p = &self.packets[r.at];
        self.rig.go_to(p.time);
        if !self.posting.post_until(&mut self.rig, r.psn) {
            self.found.unknown(p.number, "a work request that our NIC does not take");
            return false;
        }
        self.ours.collect(&mut self.rig);
        if !self.ours.packets.contains_key(&r.psn) {
            // Data that came meanwhile makes room for more READs.
            let answers: Vec<(i64, usize)> =
                self.data_answers.iter().filter_map(|(&n, list)| Some((n, *list.first()?))).collect();
            for (n, at) in answers.into_iter().filter(|&(_, at)| at < r.at) {
                self.deliver(n, at);
            }
            self.ours.collect(&mut self.rig);
        }
        let before = self.captured.insert(r.psn, r.at);
        let Some(ours) = self.ours.packets.get(&r.psn) else {
            self.differ(p, NOTHING.into(), "no work request has this packet");
            return self.rig.is_alive();
        };
        if let Some((ours, why)) = compare(ours, p) {
            self.differ(p, ours, why);
        } else if before.is_some_and(|before| !self.has_reason(r, before)) {
            let why = "no answer, and no timer that ran out, makes a requester send this now";
            self.differ(p, NOTHING.into(), why);
        } else {
            self.found.counts.requests_equal += 1;
        }
        true
    }

    /// Whether a requester may send a packet again: time has passed, or an acknowledgement says that it has not come. One that was doubled on its
    /// way was not sent again.
    fn has_reason(&mut self, r: Request, before: usize) -> bool {
        let (p, earlier) = (&self.packets[r.at], &self.packets[before]);
        let since = p.time.saturating_sub(earlier.time);
        if since >= SHORTEST_TIMEOUT {
            return true;
        }
        let from = self.flow.answers.partition_point(|a| a.at < before);
        let to = self.flow.answers.partition_point(|a| a.at < r.at);
        let tells = |a: &Answer| {
            let q = &self.packets[a.at];
            let nak = q.ext.aeth.is_some_and(|x| !matches!(x.syndrome, Syndrome::Ack(_)));
            q.opcode.kind() == Kind::Acknowledge && (nak || !Came::of(q, a.psn).contains(r.psn))
        };
        if self.flow.answers[from..to].iter().any(tells) {
            return true;
        }
        let doubled = earlier.frame == p.frame && since < DOUBLED;
        self.found.counts.duplicated += u64::from(doubled);
        doubled
    }

    fn deliver(&mut self, n: i64, at: usize) {
        let p = &self.packets[at];
        self.rig.go_to(p.time);
        self.rig.feed(&p.frame);
        self.came.take(n);
        self.last_delivered = Some((n, at));
        self.spare.remove(&at);
    }

    /// Holds a captured acknowledgement of answers against ours, when the same answers have come.
    fn explain_acknowledgement(&mut self, a: Answer) -> bool {
        let p = &self.packets[a.at];
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        let said = Came::of(p, a.psn);
        for n in self.came.lacks(&said) {
            let copies = self.data_answers.get(&n);
            let Some(&at) = copies.into_iter().flatten().find(|&&at| at < a.at) else {
                let newest = self.data_answers.keys().max().copied().unwrap_or(n);
                if copies.is_some() || n > newest {
                    self.differ(p, NOTHING.into(), NOT_SENT);
                    return true;
                }
                self.found.unknown(p.number, GAP);
                return false;
            };
            self.deliver(n, at);
        }
        self.ours.collect(&mut self.rig);
        if !said.lacks(&self.came).is_empty() {
            if !self.is_repeated(p) {
                self.differ(p, format!("all before psn {}", Psn::new(self.came.expected as u32)), GOES_BACK);
            }
            return true;
        }
        if self.ours.ack.is_none()
            && let Some((n, at)) = self.find_again(a.at)
        {
            self.deliver(n, at);
            self.ours.collect(&mut self.rig);
        }
        if self.ours.ack.is_none() {
            // Nothing but time explains it: the responder is told once more what is missing.
            self.rig.wait();
            self.ours.collect(&mut self.rig);
            self.found.counts.timeouts += u64::from(self.ours.ack.is_some());
        }
        // Behind the capture somebody may have doubled an answer.
        if self.ours.ack.is_none()
            && let Some((n, at)) = self.last_delivered
        {
            self.deliver(n, at);
            self.ours.collect(&mut self.rig);
            self.found.counts.duplicated += u64::from(self.ours.ack.is_some());
        }
        match self.ours.ack.take() {
            Some(ours) => match super::compare(&ours, p) {
                None => self.found.counts.requests_equal += 1,
                Some((ours, why)) => self.differ(p, ours, why),
            },
            None => self.differ(p, NOTHING.into(), UNASKED),
        }
        self.recent.push_back(a.at);
        true
    }

    /// An answer that has come and was captured once more since.
    fn find_again(&self, limit: usize) -> Option<(i64, usize)> {
        let mut spare = self.spare.range(..limit).map(|(&at, &n)| (n, at));
        spare.find(|&(n, _)| self.came.contains(n))
    }

    fn is_repeated(&mut self, p: &Packet) -> bool {
        let same = self.recent.iter().any(|&at| self.packets[at].frame == p.frame);
        self.found.counts.duplicated += u64::from(same);
        same
    }
}
