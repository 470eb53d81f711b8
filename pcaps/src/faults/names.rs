//! Names of packets, as the matcher of scripts counts them: destinations and first PSNs of each direction, and how often each packet passed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use softnic_wire::opcode::Kind;
use softnic_wire::{Opcode, Psn, Qpn};

use super::record::{Found, Record, What};
use super::{Action, Event, Way};
use crate::summary::FlowKey;

/// Destinations that a script can count, in each direction.
const COUNTED: usize = 1 << 16;
/// Packets before one that is missing among which the damaged one is looked for that it is.
const NEAR: usize = 256;

/// The direction of a flow; `None` where it is between others.
pub(super) fn way(key: &FlowKey, [a, b]: [IpAddr; 2]) -> Option<Way> {
    match () {
        () if (key.src, key.dst) == (a, b) => Some(Way::Ab),
        () if (key.src, key.dst) == (b, a) => Some(Way::Ba),
        () => None,
    }
}

/// A packet on its way to the place where faults happen.
#[derive(Debug, Clone, Copy)]
struct Passing {
    flow: u32,
    psn: Psn,
    opcode: Option<Opcode>,
    /// In the capture.
    at: Option<usize>,
    time: i64,
    /// The fault, by its place in the list.
    fault: Option<usize>,
}

/// Names what was found, in the order of the packets.
pub(super) fn name(records: &[Record], keys: &[FlowKey], hosts: [IpAddr; 2], found: Vec<Found>) -> Vec<Event> {
    let found = without_damaged(records, found);
    // Which fault each packet has; the first that was found counts.
    let mut faults: HashMap<usize, usize> = HashMap::new();
    let mut inserted: BTreeMap<usize, Vec<Passing>> = BTreeMap::new();
    let mut gone: HashSet<usize> = HashSet::new();
    for (n, f) in found.iter().enumerate() {
        match f.what {
            What::Seen(at, _) => drop(faults.entry(at).or_insert(n)),
            What::Copy { at, of } => {
                gone.insert(at);
                faults.entry(of).or_insert(n);
            }
            What::Missing { before, flow, psn, opcode } => {
                let time = records[before].time;
                let passing = Passing { flow, psn, opcode, at: None, time, fault: Some(n) };
                inserted.entry(before).or_default().push(passing);
            }
            What::Late { at, before, .. } => {
                gone.insert(at);
                let Record { flow, psn, opcode, time, .. } = records[at];
                let fault = Some(*faults.entry(at).or_insert(n));
                let passing = Passing { flow, psn, opcode: Some(opcode), at: Some(at), time, fault };
                inserted.entry(before).or_default().push(passing);
            }
        }
    }
    let mut matchers = [Matcher::default(), Matcher::default()];
    let mut events = Vec::new();
    for (at, r) in records.iter().enumerate() {
        let own = Passing {
            flow: r.flow,
            psn: r.psn,
            opcode: Some(r.opcode),
            at: Some(at),
            time: r.time,
            fault: faults.get(&at).copied(),
        };
        let before = inserted.remove(&at).unwrap_or_default();
        for p in before.into_iter().chain((!gone.contains(&at)).then_some(own)) {
            let key = keys[p.flow as usize];
            let Some(way) = way(&key, hosts) else { continue };
            let named = matchers[way as usize].pass(key.dest_qp, &p);
            let Some(f) = p.fault.map(|n| &found[n]) else { continue };
            let action = match f.what {
                What::Seen(_, action) => action,
                What::Missing { .. } => Action::Drop,
                What::Late { behind, .. } => Action::Reorder(behind),
                What::Copy { .. } => Action::Duplicate,
            };
            events.push(Event {
                action,
                way,
                opcode: p.opcode,
                dest_qp: key.dest_qp,
                destination: named.destination,
                psn: p.psn,
                after_first: named.after_first,
                iteration: named.iteration,
                nth: named.nth,
                packet: p.at.map(|at| records[at].number),
                time: p.time,
                why: f.why.clone(),
            });
        }
    }
    events
}

/// A packet that is missing because it was damaged is in the capture all the same.
fn without_damaged(records: &[Record], mut found: Vec<Found>) -> Vec<Found> {
    let mut stands_for: HashSet<usize> = HashSet::new();
    found.retain(|f| {
        let What::Missing { before, flow, psn, .. } = f.what else { return true };
        let near = before.saturating_sub(NEAR)..before;
        let mut damaged = near.rev().filter(|&at| records[at].damage.is_some());
        match damaged.find(|&at| records[at].flow == flow && records[at].psn == psn) {
            Some(at) => !stands_for.insert(at),
            None => true,
        }
    });
    found
}

/// How the script would name a packet.
struct Named {
    destination: Option<u32>,
    after_first: Option<u32>,
    iteration: Option<u32>,
    nth: Option<u32>,
}

/// What the matcher of one direction has counted: as that of the fault injector does.
#[derive(Debug, Default)]
struct Matcher {
    /// Destinations: their place from 1, and their first PSNs of requests, of answers, and of all else.
    seen: HashMap<Qpn, (u32, [Option<Psn>; 3])>,
    passes: HashMap<(Qpn, Psn, Option<Opcode>), u32>,
    kinds: HashMap<(Qpn, Opcode), u32>,
}

impl Matcher {
    fn pass(&mut self, dest_qp: Qpn, p: &Passing) -> Named {
        // Management comes before a connection, or not at all, and is not counted.
        let is_counted = p.opcode != Some(Opcode::LOWAR) && self.seen.len() < COUNTED;
        if is_counted && !self.seen.contains_key(&dest_qp) {
            let managed = self.seen.contains_key(&Qpn::GSI);
            let place = self.seen.len() as u32 + 1 - u32::from(managed);
            self.seen.insert(dest_qp, (if dest_qp == Qpn::GSI { 0 } else { place }, [None; 3]));
        }
        let known = self.seen.get_mut(&dest_qp).and_then(|(place, firsts)| {
            let first = match p.opcode {
                Some(opcode) if opcode.is_request() => Some(*firsts[0].get_or_insert(p.psn)),
                Some(opcode) if opcode.is_response() => Some(*firsts[1].get_or_insert(p.psn)),
                None | Some(Opcode::LOWAR) => firsts[0].or(firsts[1]),
                Some(_) => Some(*firsts[2].get_or_insert(p.psn)),
            };
            first.map(|first| (*place, first))
        });
        let iteration = self.passes.entry((dest_qp, p.psn, p.opcode)).or_default();
        *iteration += 1;
        let iteration = *iteration;
        let nth = p.opcode.map(|opcode| {
            let nth = self.kinds.entry((dest_qp, opcode)).or_default();
            *nth += 1;
            *nth
        });
        // Where the count of answers begins depends on which packets were acknowledged; the first of them, and so on, is plainer.
        let by_count = p.opcode.is_some_and(|o| matches!(o.kind(), Kind::Acknowledge | Kind::CongestionNotification))
            || dest_qp == Qpn::GSI
            || known.is_none();
        Named {
            destination: known.map(|k| k.0).filter(|n| *n > 0),
            after_first: known.filter(|_| !by_count).map(|k| p.psn.forward_from(k.1)),
            iteration: (!by_count).then_some(iteration),
            nth: nth.filter(|_| by_count),
        }
    }
}
