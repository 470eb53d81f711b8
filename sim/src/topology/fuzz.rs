//! The fuzz body of this module: any text as a topology; what is understood is sound, and runs to its end if it is small.

use softnic_nic::transports::qp::PayloadMode;

use super::{Hooks, Place, Topology, run};

/// What a network may have that is run: a simulation of any size would take any time.
const MAX_PLACES: usize = 12;
const MAX_MESSAGES: u64 = 8;
const MAX_BYTES: u64 = 16 << 10;

/// Reads any text as a topology; panics where it contradicts itself. Names of scripts are not: that would read files.
#[doc(hidden)]
pub fn fuzz_topology(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // A backslash could write the sign in another way.
    if text.contains(['@', '\\']) {
        return;
    }
    let topology = match text.parse::<Topology>() {
        Ok(topology) => topology,
        Err(e) => {
            let said = e.to_string();
            assert_eq!(said.lines().count(), 1, "{said}");
            return;
        }
    };
    check(&topology);
    if is_small(&topology) {
        let report = run(&topology, 1, Hooks::default()).unwrap_or_else(|e| panic!("{e} in\n{text}"));
        let done = report.flows.iter().chain(report.groups.iter().map(|group| &group.work));
        for ((flow, _), done) in topology.work().zip(done) {
            let ended = done.sent + done.failed == flow.count || flow.stop.is_some();
            assert!(report.stalled || ended, "not all work ended:\n{text}");
            assert!(done.completed <= done.sent, "more arrived than was sent:\n{text}");
        }
    }
}

fn check(t: &Topology) {
    assert_eq!((t.hosts.len(), t.switches.len()), (t.kind.hosts(), t.kind.switches().len()));
    let known = |place| match place {
        Place::Host(h) => h < t.hosts.len(),
        Place::Switch(s) => s < t.switches.len(),
    };
    for l in &t.links {
        assert!(known(l.a) && known(l.b) && l.rate > 0 && l.faults.check_link().is_ok(), "{l:?}");
        assert!(t.name(l.a) != t.name(l.b));
    }
    for (f, to) in t.work() {
        assert!(!to.is_empty() && to.iter().all(|host| *host != f.from && *host < t.hosts.len()), "{to:?}");
        assert!(f.from != f.to && f.from.max(f.to) < t.hosts.len() && f.count > 0 && f.depth > 0, "{f:?}");
    }
    for b in &t.background {
        assert!(b.pairs().all(|(from, to)| from != to && from.max(to) < t.hosts.len()), "{b:?}");
        assert!(b.share > 0.0 && b.share <= 1.0 && b.stop.is_none_or(|stop| stop > b.start), "{b:?}");
        assert!(b.from.iter().all(|host| b.pairs().any(|(from, _)| from == *host)), "{b:?}");
    }
    assert!(t.policy.limit > 0 && (t.work().next().is_some() || t.background_end().is_some()));
}

fn is_small(t: &Topology) -> bool {
    let messages: u64 = t.work().map(|(f, to)| f.count.min(1 << 20) * to.len() as u64).sum();
    let bytes: u64 = t.work().map(|(f, to)| f.count.min(1 << 20) * u64::from(f.size) * to.len() as u64).sum();
    let outstanding: u64 =
        t.work().map(|(f, to)| u64::from(f.depth) * u64::from(f.size).max(64) * to.len() as u64).sum();
    // What is in the background lasts as long as flows do, and these may take all their retries.
    if !t.background.is_empty() {
        return false;
    }
    let few = t.hosts.len() + t.switches.len() <= MAX_PLACES && messages <= MAX_MESSAGES && bytes <= MAX_BYTES;
    few && (t.payload == PayloadMode::Elided || outstanding <= 4 * MAX_BYTES)
}
