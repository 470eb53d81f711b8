//! Two faults at a time: what a fault that did not fail brought about is struck by a second one; then faults of different classes together.

use std::collections::HashSet;

use crate::actor::Cast;
use crate::candidates::of_new;
use crate::fault::{Family, Fault};
use crate::record::File;
use crate::thing::{Kind, Thing, things};

/// Second faults for one first.
const MOST_OF_ONE: usize = 24;

/// Second faults on what came in a run with `first`, and in no run without faults: retransmissions, answers to them, calls that handle errors.
/// One of each kind of thing before the second of any.
pub fn follow_ups(
    cast: &Cast,
    first: Fault,
    files: &[File],
    known: &HashSet<(usize, Thing)>,
    families: &[Family],
) -> Vec<(Fault, Fault)> {
    let mut firsts = Vec::new();
    let mut others = Vec::new();
    let mut kinds: HashSet<(usize, Kind)> = HashSet::new();
    for file in files {
        let is = |actor: &crate::actor::Actor| actor.is(&file.process.label, file.process.ordinal);
        let Some(actor) = cast.actors.iter().position(is) else { continue };
        for learned in things(file) {
            if known.contains(&(actor, learned.thing)) {
                continue;
            }
            let faults = of_new(cast, actor, learned, families).into_iter().map(|second| (first, second));
            match kinds.insert((actor, learned.thing.kind())) {
                true => firsts.extend(faults),
                false => others.extend(faults),
            }
        }
    }
    firsts.extend(others);
    firsts.truncate(MOST_OF_ONE);
    firsts
}

/// All things that the runs without faults had.
pub fn known(cast: &Cast, runs: &[Vec<File>]) -> HashSet<(usize, Thing)> {
    let mut known = HashSet::new();
    for file in runs.iter().flatten() {
        let is = |actor: &crate::actor::Actor| actor.is(&file.process.label, file.process.ordinal);
        if let Some(actor) = cast.actors.iter().position(is) {
            known.extend(things(file).into_iter().map(|learned| (actor, learned.thing)));
        }
    }
    known
}

/// Every two of these, those first that stand near the beginning.
pub fn combinations(faults: &[Fault]) -> impl Iterator<Item = (Fault, Fault)> + '_ {
    (1..faults.len()).flat_map(move |later| (0..later).map(move |earlier| (faults[earlier], faults[later])))
}

/// The name of two faults.
pub fn name(cast: &Cast, first: &Fault, second: &Fault) -> String {
    format!("{} + {}", first.name(cast), second.name(cast))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actor::learn;
    use crate::fault::What;
    use crate::thing::tests::{call, file, packet};
    use softnic_fault_injector::calls::Verb;

    #[test]
    fn what_a_fault_brought_about_is_struck_by_a_second() {
        let before = vec![file("./x", 1, &[call(Verb::PostSend, 1), packet(0x04, 0, 1)])];
        let cast = learn(std::slice::from_ref(&before));
        let known = known(&cast, &[before]);
        assert_eq!(known.len(), 2);
        let first = Fault { actor: 0, at: cast.actors[0].things[1], what: What::Drop };
        let seen = [call(Verb::PostSend, 1), packet(0x04, 0, 1), packet(0x04, 0, 2)];
        let pairs = follow_ups(&cast, first, &[file("./x", 1, &seen)], &known, &Family::ALL);
        assert_eq!(
            name(&cast, &pairs[0].0, &pairs[0].1),
            "./x: loss of RC_SEND_ONLY psn +0 to queue pair #1 + ./x: loss of RC_SEND_ONLY psn +0 to queue pair #1, sent for time 2"
        );
        assert!(pairs.iter().all(|(_, second)| matches!(second.at.thing, Thing::Packet { iteration: 2, .. })));
        let none = follow_ups(&cast, first, &[file("./y", 1, &seen)], &known, &Family::ALL);
        assert_eq!(none, []);
    }

    #[test]
    fn every_two_are_combined_once() {
        let before = vec![file("./x", 1, &[packet(0x04, 0, 1), packet(0x04, 1, 1), packet(0x04, 2, 1)])];
        let cast = learn(&[before]);
        let faults: Vec<Fault> =
            cast.actors[0].things.iter().map(|&at| Fault { actor: 0, at, what: What::Drop }).collect();
        let pairs: Vec<(Fault, Fault)> = combinations(&faults).collect();
        assert_eq!(pairs.len(), 3);
        assert_eq!(pairs[0], (faults[0], faults[1]));
    }
}
