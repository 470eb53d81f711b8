//! Our NIC in the place of the responder: the captured requests come in, its answers are held against the captured ones.
//!
//! Where the capture was taken, and what was lost or came late behind that point, nobody wrote down. So requests are not simply
//! delivered: each captured answer is explained by requests that were captured before it. What cannot be explained is a
//! difference.

mod answers;
mod data;
mod deliver;
mod fates;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use fates::{Fate, Fates};
use softnic_wire::aeth::{NakCode, Syndrome};
use softnic_wire::opcode::Kind;
use softnic_wire::{Aeth, Psn};

use crate::capture::Packet;
use crate::findings::{Findings, Msns};
use crate::flows::{Answer, Flow};
use crate::memory::Regions;
use crate::messages::Segment;
use crate::report::Role;
use crate::rig::{Rig, Sent, Setup};
use crate::side::Side;

const ROLE: Role = Role::Responder;
/// So many answers may overtake another, or come between two copies of it.
const RECENT: usize = 16;

/// An answer of ours that no captured one has matched yet.
#[derive(Debug, Clone, Copy)]
struct Ours {
    psn: i64,
    aeth: Aeth,
}

/// Data that our NIC answered with.
#[derive(Debug)]
struct Data {
    sent: Sent,
    /// The request had come before.
    again: bool,
}

/// Why an answer cannot be explained.
enum Stuck {
    /// Our NIC refused a request.
    Refused(Ours),
    /// The request of this PSN is not in the capture so far.
    Missing(i64),
}

struct Responder<'a> {
    flow: &'a Flow,
    packets: &'a [Packet],
    side: &'a Side,
    found: &'a mut Findings,
    rig: Rig,
    regions: Regions,
    /// Where this NIC began.
    start: i64,
    /// The PSN that our NIC waits for.
    expected: i64,
    begins: bool,
    fates: Fates,
    /// Requests by PSN.
    copies: BTreeMap<i64, Vec<usize>>,
    /// PSNs that a request stands for at most.
    longest: i64,
    /// Data answers of the capture by PSN.
    data_answers: HashMap<i64, Vec<usize>>,
    /// Answers to be explained now may rest on requests before this one.
    limit: usize,
    ours: Vec<Ours>,
    /// Acknowledgements of ours that a later one made superfluous, by PSN.
    past: HashMap<i64, Aeth>,
    /// Data that we answered with and that no captured answer has matched yet, by PSN.
    data: HashMap<i64, Vec<Data>>,
    msns: Msns,
    /// The last SEND or WRITE that was carried out.
    last_message: Option<usize>,
    /// The WRITE that is under way: key, address, bytes so far.
    write: Option<(u32, u64, u64)>,
    /// The PSN that got an RNR NAK, and that of ours.
    not_ready: Option<(i64, Aeth)>,
    /// The PSN of the last acknowledgement that was explained.
    last_ack: Option<i64>,
    receives_taken: usize,
    /// PSNs at which messages were completed, in order: the MSN counts them.
    completed: Vec<i64>,
    /// The highest PSN that a captured answer shows to have been carried out.
    shown: Option<i64>,
    /// The last captured answers, the newest behind.
    recent: VecDeque<Answer>,
    /// Data that was known from nowhere but the answer itself.
    given: HashSet<usize>,
    dead: bool,
}

/// Replays a flow at a responder. `gaps` says that the capture lacks packets in many places.
pub(crate) fn replay(
    flow: &Flow,
    segments: &[Segment],
    packets: &[Packet],
    gaps: bool,
    side: &Side,
    found: &mut Findings,
) {
    if flow.answers.is_empty() {
        return;
    }
    let before = found.clone();
    let rewritten = attempt(flow, segments, packets, gaps, side, &HashSet::new(), found);
    if !rewritten.is_empty() && found.differences.len() > before.differences.len() {
        // What was seen late tells of what came first: whose memory its owner changes.
        *found = before;
        attempt(flow, segments, packets, gaps, side, &rewritten, found);
    }
}

/// Replays a flow once. Takes, and gives back, the keys of memory that its owner changed.
fn attempt(
    flow: &Flow,
    segments: &[Segment],
    packets: &[Packet],
    gaps: bool,
    side: &Side,
    rewritten: &HashSet<u32>,
    found: &mut Findings,
) -> HashSet<u32> {
    let mut changed = HashSet::new();
    let Some(first) = segments.first() else {
        flow.answers.iter().for_each(|a| found.unknown(packets[a.at].number, BEFORE));
        return changed;
    };
    let told = flow.start.map(|psn| first.first() + i64::from(psn.distance(Psn::new(first.first() as u32))));
    // Where the connection began is only of use if the capture was there.
    let told = told.filter(|&psn| psn <= first.first() && first.first() - psn < 4096);
    let (mut start, mut begins) = (told.unwrap_or(first.first()), told.is_some());
    let mut next = 0;
    loop {
        let Some(mut r) = Responder::new(flow, packets, side, rewritten, found, (start, begins)) else {
            let why = "the responder's memory is too large to rebuild";
            flow.answers[next..].iter().for_each(|a| found.unknown(packets[a.at].number, why));
            return changed;
        };
        let mut gap = false;
        while !r.dead && !gap && next < flow.answers.len() {
            gap = !r.explain(flow.answers[next], gaps || segments.len() > 1);
            next += usize::from(!gap);
        }
        let expected = r.expected;
        r.finish();
        changed.extend(r.regions.rewritten);
        if !gap {
            return changed;
        }
        // It goes on at the next message behind the gap.
        let behind = segments.iter().map(Segment::first).find(|&first| first > expected);
        while let Some(a) = flow.answers.get(next)
            && behind.is_none_or(|first| a.psn < first)
        {
            found.unknown(packets[a.at].number, GAP);
            next += 1;
        }
        let Some(first) = behind else { return changed };
        found.counts.requests_not_captured += (first - expected) as u64;
        (start, begins) = (first, false);
    }
}

const BEFORE: &str = "it answers a request from before the capture";
const GAP: &str = "the capture lacks requests that were sent before it";

impl<'a> Responder<'a> {
    fn new(
        flow: &'a Flow,
        packets: &'a [Packet],
        side: &'a Side,
        rewritten: &HashSet<u32>,
        found: &'a mut Findings,
        (start, begins): (i64, bool),
    ) -> Option<Responder<'a>> {
        let aeth = |a: &Answer| packets[a.at].ext.aeth.map(|x| x.syndrome);
        let fatal = flow.answers.iter().filter(|a| is_fatal(aeth(a))).map(|a| a.psn).min();
        let mut rig = Rig::new(&Setup::responder(flow, start, packets, side))?;
        let refused = |psn: i64| fatal.is_some_and(|f| psn >= f) && !went_on(flow, packets, fatal.unwrap_or(0));
        let regions = Regions::build(&mut rig, flow, packets, refused, side, rewritten.clone())?;
        let mut copies: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
        for (i, r) in flow.requests.iter().enumerate() {
            copies.entry(r.psn).or_default().push(i);
        }
        let mut data_answers: HashMap<i64, Vec<usize>> = HashMap::new();
        for a in &flow.answers {
            if packets[a.at].opcode.kind() != Kind::Acknowledge {
                data_answers.entry(a.psn).or_default().push(a.at);
            }
        }
        Some(Responder {
            fates: Fates::new(flow.requests.len()),
            longest: flow.requests.iter().map(|r| r.span).max().unwrap_or(1),
            flow,
            packets,
            side,
            found,
            rig,
            regions,
            start,
            expected: start,
            begins,
            copies,
            data_answers,
            limit: 0,
            ours: Vec::new(),
            past: HashMap::new(),
            data: HashMap::new(),
            msns: Msns::default(),
            last_message: None,
            write: None,
            not_ready: None,
            last_ack: None,
            receives_taken: 0,
            completed: Vec::new(),
            shown: None,
            recent: VecDeque::new(),
            given: HashSet::new(),
            dead: false,
        })
    }

    fn packet(&self, request: usize) -> &'a Packet {
        &self.packets[self.flow.requests[request].at]
    }

    fn finish(&mut self) {
        self.found.counts.answers_not_captured += (self.ours.len() + self.past.len()) as u64;
        self.ours.clear();
        self.past.clear();
        self.found.counts.lost_requests += self.fates.lost();
        self.msns.judge(ROLE, self.begins, self.found);
    }
}

/// Whether a responder stops with it.
fn is_fatal(syndrome: Option<Syndrome>) -> bool {
    matches!(syndrome, Some(Syndrome::Nak(code)) if code != NakCode::PSN_SEQUENCE_ERROR)
}

/// Whether a responder answered requests from `psn` on, as one that refused that request for good does not.
fn went_on(flow: &Flow, packets: &[Packet], psn: i64) -> bool {
    let fatal = |a: &&Answer| a.psn == psn && is_fatal(packets[a.at].ext.aeth.map(|x| x.syndrome));
    let Some(refusal) = flow.answers.iter().find(fatal) else { return false };
    flow.answers
        .iter()
        .any(|a| a.at > refusal.at && a.psn >= psn && !is_fatal(packets[a.at].ext.aeth.map(|x| x.syndrome)))
}
