//! Captures of mirror ports: the two directions of a link recorded some time apart, so that answers stand before their requests.
//!
//! The time between them is inferred, for each pair of addresses: the smallest by which one direction must have been recorded late for its
//! requests to stand before their answers. It must hold for all of that direction, and be confirmed by a second answer: one that is alone in
//! needing more than 2 µs is wrong.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use softnic_wire::aeth::{NakCode, Syndrome};
use softnic_wire::opcode::Service;

use crate::capture::{Capture, Packet};
use crate::flows::{Answer, Flow};
use crate::selective;

/// No mirror port records one direction later than this, in nanoseconds.
pub(crate) const MOST: u64 = 100_000;
/// Copies of a request that are nearer to each other were doubled on their way, not sent again.
const DOUBLED: u64 = 1_000;
/// A second answer confirms a skew if it needs this much less at most, or a quarter less.
const SPREAD: u64 = 2_000;

/// One direction of a link was recorded late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skew {
    /// The sender of the packets that were recorded late.
    pub from: IpAddr,
    /// Their receiver.
    pub to: IpAddr,
    /// By how much at least, in nanoseconds.
    pub nanos: u64,
    /// The most that was allowed for: 100 µs, or half of the shortest time after which a request was sent again.
    pub bound: u64,
    /// Packets of the other direction that were moved behind packets of this one.
    pub moved: u64,
}

/// What the answers to the requests of one direction say about its recording.
#[derive(Debug, Default)]
struct Direction {
    /// How much later than an answer its request was recorded, by flow and PSN of the answer.
    late: BTreeMap<(usize, i64), u64>,
    /// Answers to requests of the capture.
    answers: u64,
    /// The shortest time from a request to an answer behind it.
    shortest_answer: Option<u64>,
    /// The shortest time after which a request was sent again.
    shortest_retry: Option<u64>,
}

impl Direction {
    /// The most that this direction may have been late.
    fn bound(&self) -> u64 {
        self.shortest_retry.map_or(MOST, |retry| MOST.min(retry / 2))
    }

    /// By how much the direction was recorded late, if that explains its answers.
    fn lateness(&self) -> Option<u64> {
        let mut late: Vec<u64> = self.late.values().copied().filter(|&late| late <= self.bound()).collect();
        // The answers behind their requests need none.
        if !late.is_empty() && late.len() < self.answers as usize {
            late.push(0);
        }
        late.sort_unstable_by(|a, b| b.cmp(a));
        let confirmed = late.windows(2).find(|w| w[0] <= w[1] + SPREAD.max(w[1] / 4)).map(|w| w[0]);
        let only = (self.answers == 1).then(|| late.first().copied()).flatten();
        confirmed.or(only)
    }

    fn note(&mut self, n: usize, flow: &Flow, packets: &[Packet]) {
        let mut firsts: BTreeMap<i64, (usize, i64)> = BTreeMap::new();
        let mut last_copy: HashMap<i64, u64> = HashMap::new();
        for r in &flow.requests {
            firsts.entry(r.psn).or_insert((r.at, r.span));
            let time = packets[r.at].time;
            let since = last_copy.insert(r.psn, time).map(|before| time - before).filter(|&since| since >= DOUBLED);
            self.shortest_retry = [self.shortest_retry, since].into_iter().flatten().min();
        }
        let longest = flow.requests.iter().map(|r| r.span).max().unwrap_or(1);
        // The first request behind each that was recorded: one of them is why a sequence NAK was sent.
        let mut first_behind: BTreeMap<i64, usize> = BTreeMap::new();
        let mut first = usize::MAX;
        for (&psn, &(at, _)) in firsts.iter().rev() {
            first = first.min(at);
            first_behind.insert(psn, first);
        }
        for a in &flow.answers {
            let request = if flow.service == Service::Sr {
                firsts.get(&selective::newest_asked(flow, a, packets)).map(|&(at, _)| at)
            } else if asks_again(a, packets) {
                first_behind.range(a.psn + 1..).next().map(|(_, &at)| at)
            } else {
                // An answer begins where its READ does, also where that asks for the rest of another.
                let begins = packets[a.at].opcode.begins_message();
                let own = firsts.get(&a.psn).filter(|_| begins).map(|&(at, _)| at);
                let covers = |&(&psn, &(_, span)): &(&i64, &(usize, i64))| a.psn < psn + span;
                let any = || firsts.range(a.psn - longest + 1..=a.psn).filter(covers).map(|(_, &(at, _))| at).min();
                own.or_else(any)
            };
            let Some(request) = request else { continue };
            let (asked, answered) = (packets[request].time, packets[a.at].time);
            self.answers += 1;
            if request > a.at {
                let late = self.late.entry((n, a.psn)).or_default();
                *late = (*late).max(asked.saturating_sub(answered));
            } else {
                self.shortest_answer = Some(self.shortest_answer.unwrap_or(u64::MAX).min(answered - asked));
            }
        }
    }
}

fn asks_again(a: &Answer, packets: &[Packet]) -> bool {
    packets[a.at].ext.aeth.is_some_and(|x| x.syndrome == Syndrome::Nak(NakCode::PSN_SEQUENCE_ERROR))
}

/// Finds directions that were recorded late, and moves the packets of the other direction behind them.
pub(crate) fn correct(capture: &mut Capture, flows: &[Flow]) -> Vec<Skew> {
    let mut directions: BTreeMap<(IpAddr, IpAddr), Direction> = BTreeMap::new();
    for (n, flow) in flows.iter().enumerate().filter(|(_, f)| matches!(f.service, Service::Rc | Service::Sr)) {
        directions.entry((flow.requester, flow.responder)).or_default().note(n, flow, &capture.packets);
    }
    let mut skews = Vec::new();
    for (&(from, to), direction) in &directions {
        let Some(nanos) = direction.lateness() else { continue };
        let back = directions.get(&(to, from));
        // What moves the answers of one direction behind its requests must leave those of the other where they are.
        let contradicted = |d: &Direction| d.lateness().is_some() || d.shortest_answer.is_some_and(|t| t <= nanos);
        if !back.is_some_and(contradicted) {
            skews.push(Skew { from, to, nanos, bound: direction.bound(), moved: 0 });
        }
    }
    for skew in &mut skews {
        skew.moved = shift(&mut capture.packets, skew);
        shift(&mut capture.management, skew);
    }
    skews
}

/// Moves what goes against a direction that was recorded late; how many packets changed places.
fn shift(packets: &mut [Packet], skew: &Skew) -> u64 {
    let places = |packets: &[Packet]| {
        let (mut late, mut places) = (0u64, HashSet::new());
        for p in packets {
            match (p.src, p.dst) {
                ends if ends == (skew.from, skew.to) => late += 1,
                ends if ends == (skew.to, skew.from) => drop(places.insert((p.number, late))),
                _ => {}
            }
        }
        places
    };
    let before = places(packets);
    // Behind the request, not beside it.
    let back = packets.iter_mut().filter(|p| (p.src, p.dst) == (skew.to, skew.from));
    back.for_each(|p| p.time += skew.nanos + 1);
    packets.sort_by_key(|p| p.time);
    places(packets).difference(&before).count() as u64
}
