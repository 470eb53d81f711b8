//! Where the packets of a group part: Algorithm 1 of MC-RDMA (§IV-B) with the sets of next hops of §VI-A, over switches of which
//! some cannot copy.

use std::collections::{BTreeMap, BTreeSet};

use super::{Place, Topology};

/// Switches without copies in a row that are looked through.
const MAX_DEPTH: usize = 8;

/// A group in a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tree {
    /// The switch that merges acknowledgements: the first on the sender's way that can.
    pub(super) merge_at: usize,
    /// For each switch that copies the branches, each of the receivers that it leads to, by their places in the group.
    pub(super) branches: BTreeMap<usize, Vec<Vec<usize>>>,
}

/// Who goes where.
struct Ways<'t> {
    topology: &'t Topology,
    receivers: &'t [usize],
}

/// Finds the switches that copy: packets part as late as they can.
///
/// # Errors
/// When they would part before the first switch that can copy them, or when acknowledgements may miss it.
pub(super) fn bifurcate(topology: &Topology, sender: usize, receivers: &[usize]) -> Result<Tree, String> {
    let ways = Ways { topology, receivers };
    let all: Vec<usize> = (0..receivers.len()).collect();
    let merge_at = ways.first_programmable(topology.kind.attached(sender).0, &all)?;
    let mut tree = Tree { merge_at, branches: BTreeMap::new() };
    let mut seen: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut to_do = vec![(merge_at, all)];
    while let Some((switch, members)) = to_do.pop() {
        match seen.get(&switch) {
            Some(before) if *before == members => continue,
            // A switch knows a group by its sender and MC_ID: it could not tell one copy from the other.
            Some(_) => return Err(format!("two copies of a packet would meet at {}", topology.switches[switch])),
            None => seen.insert(switch, members.clone()),
        };
        let branches = ways.branches(switch, &members, 0);
        for branch in branches.iter().filter(|branch| branch.len() > 1) {
            ways.programmable_behind(switch, branch, 0, &mut |next| to_do.push((next, branch.clone())));
        }
        if branches.len() > 1 || switch == merge_at {
            tree.branches.insert(switch, branches);
        }
    }
    Ok(tree)
}

impl Ways<'_> {
    /// The places next to a switch on the way to a receiver, before and after every change of a route: a group is right all the time.
    fn next(&self, switch: usize, member: usize) -> Vec<Vec<Place>> {
        let at = |changes| self.topology.next_places(switch, self.receivers[member], changes);
        let mut next: Vec<_> = (0..=self.topology.changes.len()).map(at).collect();
        next.dedup();
        next
    }

    /// The switches next to a switch on the way of a branch.
    fn next_switches(&self, switch: usize, branch: &[usize]) -> impl Iterator<Item = usize> {
        let places: BTreeSet<Place> = self.next(switch, branch[0]).into_iter().flatten().collect();
        places.into_iter().filter_map(|place| match place {
            Place::Switch(next) => Some(next),
            Place::Host(_) => None,
        })
    }

    /// From the sender's own switch on to the first that can copy, which all acknowledgements must pass as well.
    fn first_programmable(&self, own: usize, all: &[usize]) -> Result<usize, String> {
        let mut switch = own;
        for _ in 0..self.topology.switches.len() {
            if self.topology.programmable[switch] {
                return Ok(switch);
            }
            let together = self.branches(switch, all, 0).len() == 1;
            let mut next = self.next_switches(switch, all);
            switch = match (next.next(), next.next()) {
                (Some(next), None) if together => next,
                _ => break,
            };
        }
        let name = &self.topology.switches[switch];
        Err(format!("packets part at {name}, which is not programmable, before any switch that is"))
    }

    /// The receivers that need a copy each when packets leave a switch: their next hops differ, or they part at a switch further on that
    /// cannot copy.
    fn branches(&self, switch: usize, members: &[usize], depth: usize) -> Vec<Vec<usize>> {
        let mut by_next: Vec<(Vec<Vec<Place>>, Vec<usize>)> = Vec::new();
        for &member in members {
            let next = self.next(switch, member);
            match by_next.iter_mut().find(|(of, _)| *of == next) {
                Some((_, branch)) => branch.push(member),
                None => by_next.push((next, vec![member])),
            }
        }
        let mut branches = Vec::new();
        for (_, together) in by_next {
            let mut parts = vec![together.clone()];
            for next in self.next_switches(switch, &together).filter(|next| !self.topology.programmable[*next]) {
                if depth < MAX_DEPTH {
                    parts = parts.iter().flat_map(|part| self.branches(next, part, depth + 1)).collect();
                }
            }
            branches.extend(parts);
        }
        branches
    }

    /// The next switches that can copy on the way of a branch.
    fn programmable_behind(&self, switch: usize, branch: &[usize], depth: usize, found: &mut dyn FnMut(usize)) {
        for next in self.next_switches(switch, branch) {
            if self.topology.programmable[next] {
                found(next);
            } else if depth < MAX_DEPTH {
                self.programmable_behind(next, branch, depth + 1, found);
            }
        }
    }
}
