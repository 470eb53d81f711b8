//! The single faults that could befall what was learned.

use std::collections::BTreeMap;

use softnic_fault_injector::calls::{AsyncEvent, CmEvent, Verb, WcStatus};

use crate::actor::Cast;
use crate::errnos::errnos;
use crate::fault::{Family, Fault, What};
use crate::thing::{Kind, Learned, Thing, is_poll};

/// Longer than the usual ACK timeout, so that a packet that is so late is sent again.
const PACKET_LATE_MS: u32 = 200;
/// A call that takes long.
const SLOW_MS: u32 = 100;
/// A completion that comes late.
const LATE_MS: u32 = 50;
/// An event of the connection manager that comes late.
const EVENT_LATE_MS: u32 = 200;
/// A process that stands still.
const STOP_MS: u32 = 2000;
/// Links that are down: what RDMA mends, what it hardly does, and 0 for ever.
const DOWN_MS: [u32; 3] = [200, 5000, 0];
/// Moments among the calls that post, beside the first.
const MOMENTS: u32 = 8;

/// All faults of these families, process by process in the order of things.
pub fn candidates(cast: &Cast, families: &[Family]) -> Vec<Fault> {
    let mut all = Vec::new();
    for actor in 0..cast.actors.len() {
        let of_actor = Candidates::of(cast, actor);
        for (place, &at) in cast.actors[actor].things.iter().enumerate() {
            let here = of_actor.of_thing(place, at).into_iter().map(|what| Fault { actor, at, what });
            all.extend(here.filter(|fault| families.contains(&fault.family())));
        }
    }
    all
}

/// What faults could befall a thing that no earlier run had; of what comes by itself none.
pub fn of_new(cast: &Cast, actor: usize, at: Learned, families: &[Family]) -> Vec<Fault> {
    let of_actor = Candidates {
        moments: BTreeMap::new(),
        has_several: cast.actors[actor].queue_pairs > 1,
        ..Candidates::of(cast, actor)
    };
    let all = of_actor.of_thing(usize::MAX, at).into_iter().map(|what| Fault { actor, at, what });
    all.filter(|fault| families.contains(&fault.family())).collect()
}

/// What is known of one process.
struct Candidates {
    /// Calls before which something happens by itself, by their places, and what.
    moments: BTreeMap<usize, Vec<What>>,
    /// Calls before which the process is killed, and stops.
    ends: Vec<usize>,
    has_several: bool,
}

impl Candidates {
    fn of(cast: &Cast, actor: usize) -> Candidates {
        let actor = &cast.actors[actor];
        let mut calls: BTreeMap<Verb, Vec<usize>> = BTreeMap::new();
        for (place, learned) in actor.things.iter().enumerate() {
            if let Thing::Call { verb, .. } = learned.thing {
                calls.entry(verb).or_default().push(place);
            }
        }
        let first = |verb: Verb| calls.get(&verb).and_then(|places| places.first()).copied();
        let mut moments: BTreeMap<usize, Vec<What>> = BTreeMap::new();
        let mut at = |place: Option<usize>, what: &[What]| {
            let Some(place) = place else { return };
            let here = moments.entry(place).or_default();
            for what in what {
                if !here.contains(what) {
                    here.push(*what);
                }
            }
        };
        let event = |event, object| What::Async { event, lasts: 0, object };
        let down = DOWN_MS.map(|lasts| What::Async { event: AsyncEvent::PortErr, lasts, object: 0 });
        let sends = calls.get(&Verb::PostSend).cloned().unwrap_or_default();
        for verb in [
            Verb::PostSend,
            Verb::PostRecv,
            Verb::PostSrqRecv,
            Verb::PollCq,
            Verb::GetCqEvent,
            Verb::CmResolveAddr,
            Verb::CmConnect,
            Verb::CmAccept,
            Verb::CmGetCmEvent,
        ] {
            at(first(verb), &down);
        }
        spread(&sends, MOMENTS).for_each(|place| at(Some(place), &down));
        let posts = [Verb::PostSend, Verb::PostRecv, Verb::PostSrqRecv].map(first);
        let middle = sends.get(sends.len() / 2).copied();
        for place in posts.into_iter().chain([middle]) {
            (1..=actor.queue_pairs).for_each(|qp| at(place, &[event(AsyncEvent::QpFatal, qp)]));
            (1..=actor.calls(Verb::CreateCq)).for_each(|cq| at(place, &[event(AsyncEvent::CqErr, cq)]));
            for srq in 1..=actor.calls(Verb::CreateSrq) {
                at(place, &[event(AsyncEvent::SrqErr, srq), event(AsyncEvent::SrqLimitReached, srq)]);
            }
            at(place, &[event(AsyncEvent::DeviceFatal, 0)]);
        }
        for place in [first(Verb::CmConnect), first(Verb::CmAccept), first(Verb::PostSend), middle] {
            if calls.keys().any(|verb| verb.is_cm()) {
                at(place, &[What::CmHappens(CmEvent::DeviceRemoval), What::CmHappens(CmEvent::AddrChange)]);
            }
        }
        let mut ends: Vec<usize> = Vec::new();
        for (verb, places) in &calls {
            ends.extend(places.first());
            ends.extend(places.last());
            let between = if verb.has_work_request() { MOMENTS } else { 1 };
            ends.extend(spread(places, between));
        }
        ends.sort_unstable();
        ends.dedup();
        Candidates { moments, ends, has_several: actor.queue_pairs > 1 }
    }

    fn of_thing(&self, place: usize, at: Learned) -> Vec<What> {
        let mut out = Vec::new();
        match at.thing {
            Thing::Packet { .. } => {
                out.extend([What::Drop, What::Duplicate, What::Corrupt, What::Reorder(1), What::Reorder(3)]);
                out.push(What::Delay(PACKET_LATE_MS));
            }
            Thing::Completion { is_send, .. } => {
                match is_send {
                    true => out.push(What::Status(WcStatus::RetryExcErr)),
                    false => out.push(What::Status(WcStatus::LocLenErr)),
                }
                out.extend([What::Status(WcStatus::WrFlushErr), What::Late(LATE_MS), What::Overrun]);
                if self.has_several {
                    out.push(What::Behind(1));
                }
            }
            Thing::CmEvent { .. } => out.push(What::EventLate(EVENT_LATE_MS)),
            Thing::Call { verb, .. } => {
                out.extend(errnos(verb).iter().map(|errno| What::Errno(errno)));
                if !is_poll(verb) {
                    out.push(What::Slow(SLOW_MS));
                }
                out.extend(match verb {
                    Verb::CmConnect => {
                        let refused = [28, 8].map(|reason| What::Instead(CmEvent::Rejected, reason));
                        let others = [CmEvent::Unreachable, CmEvent::ConnectError].map(|event| What::Instead(event, 0));
                        [refused, others].concat()
                    }
                    Verb::CmResolveAddr => vec![What::Instead(CmEvent::AddrError, 0)],
                    Verb::CmResolveRoute => vec![What::Instead(CmEvent::RouteError, 0)],
                    _ => Vec::new(),
                });
                out.extend(self.moments.get(&place).into_iter().flatten());
                if self.ends.binary_search(&place).is_ok() {
                    out.extend([What::Kill, What::Stop(STOP_MS), What::Restart]);
                }
            }
        }
        out
    }
}

/// So many of them, evenly, without the first and the last.
fn spread(places: &[usize], count: u32) -> impl Iterator<Item = usize> + '_ {
    let gaps = count as usize + 1;
    let inner = (1..gaps).map(move |i| i * places.len() / gaps).filter(|&i| i > 0 && i + 1 < places.len());
    inner.map(|i| places[i])
}

/// Faults that are much alike, of which one is tried before the others are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Class {
    /// The family.
    pub family: Family,
    /// What happens; of events of an object, whichever.
    pub what: What,
    /// The process.
    pub actor: usize,
    /// To what kind of thing.
    pub kind: Kind,
    /// The first, the last, one between, or the second of its kind.
    pub position: Position,
    /// Whether it is about the first queue pair.
    pub is_first_queue: bool,
}

/// Where a thing stands among those of its kind, in the order in which they are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Position {
    /// The first.
    First,
    /// The last.
    Last,
    /// Neither the first two nor the last.
    Middle,
    /// The second.
    Second,
}

/// The class of each fault.
pub fn classes(faults: &[Fault]) -> Vec<Class> {
    type Key = (usize, What, Kind, bool);
    let key = |fault: &Fault| -> Key {
        let what = match fault.what {
            What::Async { event, lasts, object } => What::Async { event, lasts, object: object.min(1) },
            what => what,
        };
        (fault.actor, what, fault.at.thing.kind(), fault.at.thing.queue_pair() <= 1)
    };
    let mut totals: std::collections::HashMap<Key, usize> = Default::default();
    faults.iter().for_each(|fault| *totals.entry(key(fault)).or_default() += 1);
    let mut counts: std::collections::HashMap<Key, usize> = Default::default();
    let class = |fault: &Fault| {
        let key = key(fault);
        let count = counts.entry(key).or_default();
        *count += 1;
        let position = match (*count, totals[&key]) {
            (1, _) => Position::First,
            (n, total) if n == total => Position::Last,
            (2, _) => Position::Second,
            _ => Position::Middle,
        };
        let (actor, what, kind, is_first_queue) = key;
        Class { family: fault.family(), what, actor, kind, position, is_first_queue }
    };
    faults.iter().map(class).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actor::learn;
    use crate::thing::tests::{call, done, file, packet};
    use softnic_fault_injector::Script;
    use softnic_fault_injector::calls::Side;

    fn cast() -> Cast {
        let mut seen = vec![call(Verb::CreateCq, 0), call(Verb::CmResolveAddr, 0), call(Verb::CmConnect, 0)];
        seen.push(crate::record::Seen::CmEvent(9));
        for psn in 0..40 {
            seen.extend([call(Verb::PostSend, 1), packet(0x04, psn, 1), call(Verb::PollCq, 0)]);
            seen.push(done(if psn % 2 == 0 { Side::Send } else { Side::Recv }, 1, 0));
        }
        seen.push(call(Verb::DestroyQp, 1));
        learn(&[vec![file("./x", 1, &seen)]])
    }

    #[test]
    fn every_fault_has_a_name_of_its_own_and_a_script_that_is_one() {
        let cast = cast();
        let all = candidates(&cast, &Family::ALL);
        let names: std::collections::HashSet<String> = all.iter().map(|fault| fault.name(&cast)).collect();
        assert_eq!(names.len(), all.len());
        for fault in &all {
            let text = fault.script(&cast);
            Script::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        }
        for family in Family::ALL {
            assert!(all.iter().any(|fault| fault.family() == family), "{}", family.name());
            assert_eq!(Family::named(family.name()), Some(family));
        }
    }

    #[test]
    fn only_the_families_that_are_asked_for_are_there() {
        let cast = cast();
        let losses = candidates(&cast, &[Family::Loss]);
        assert_eq!(losses.len(), 40);
        let downs = candidates(&cast, &[Family::Down]);
        // The first post, poll, resolve and connect, and eight among the posts; each as short, long and for ever.
        assert_eq!(downs.len(), 3 * (4 + 8));
    }

    #[test]
    fn classes_tell_the_first_the_second_the_last_and_others() {
        let cast = cast();
        let losses = candidates(&cast, &[Family::Loss]);
        let positions: Vec<Position> = classes(&losses).iter().map(|class| class.position).collect();
        assert_eq!(positions[..3], [Position::First, Position::Second, Position::Middle]);
        assert_eq!(positions[39], Position::Last);
    }
}
