//! Two trees (Sanders, Speck and Träff, 2009): each carries half of the bytes, in pieces that follow each other; who passes bytes on in one
//! is a leaf of the other, so that every rank sends and receives about as much as the buffer has.

use std::ops::Range;

use super::builder::Builder;
use crate::call::Operation;

/// Bytes of a piece at least, and pieces of a half at most.
const SEGMENT: u64 = 64 << 10;
const SEGMENTS: u64 = 64;

/// One of two trees over places 0 to `n` - 1.
#[derive(Debug, Clone, Copy)]
struct Tree {
    n: usize,
    second: bool,
}

impl Tree {
    /// A place as a label from 1: odd labels are leaves. The second tree has labels of the other parity; of an odd number one place is a leaf
    /// of both.
    fn label(self, place: usize) -> usize {
        match (self.second, self.n.is_multiple_of(2)) {
            (false, _) => place + 1,
            (true, true) => self.n - place,
            (true, false) => (place + 1) % self.n + 1,
        }
    }

    fn place(self, label: usize) -> usize {
        match (self.second, self.n.is_multiple_of(2)) {
            (false, _) => label - 1,
            (true, true) => self.n - label,
            (true, false) => (label + self.n - 2) % self.n,
        }
    }

    /// The root of the subtree of some labels that follow each other: the one that the most twos divide.
    fn top(low: usize, high: usize) -> usize {
        low - 1 + (1 << (high - (low - 1)).ilog2())
    }

    /// Parent, children and depth of a place.
    fn around(self, place: usize) -> (Option<usize>, [Option<usize>; 2], usize) {
        let label = self.label(place);
        let (mut low, mut high, mut depth, mut parent) = (1, self.n, 0, None);
        loop {
            let top = Tree::top(low, high);
            if label == top {
                let children = [(low, top - 1), (top + 1, high)];
                let children = children.map(|(low, high)| (low <= high).then(|| self.place(Tree::top(low, high))));
                return (parent, children, depth);
            }
            (parent, depth) = (Some(self.place(top)), depth + 1);
            if label < top {
                high = top - 1;
            } else {
                low = top + 1;
            }
        }
    }

    fn depth(self) -> usize {
        (0..self.n).map(|place| self.around(place).2).max().unwrap_or(0)
    }
}

/// A message of a rank, and when its turn is.
struct Turn {
    phase: usize,
    peer: usize,
    range: Range<u64>,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    Send,
    Reduce,
    Place,
}

pub(super) fn build(b: &mut Builder) {
    let elements = b.call.bytes / b.call.element.size();
    let pieces = (b.call.bytes / 2 / SEGMENT).clamp(1, SEGMENTS).min(elements.div_ceil(2).max(1)) as usize;
    let longest = b.call.bytes.div_ceil(2 * pieces as u64);
    let (mut turns, phases) = match b.call.operation {
        Operation::Broadcast { root } => broadcast(b, pieces, root),
        _ => all_reduce(b, pieces),
    };
    for _ in 0..phases {
        b.phase(longest);
    }
    // Everybody's messages in the order of phases, and within one by trees: what a message needs was sent in an earlier phase.
    turns.sort_by_key(|turn| turn.phase);
    for Turn { phase, peer, range, what } in turns {
        match what {
            What::Send => _ = b.send(phase as u32, peer, range),
            What::Reduce => b.reduce(phase as u32, peer, range),
            What::Place => b.place(phase as u32, peer, range),
        }
    }
}

/// The bytes of a piece: those of the two trees lie behind each other, piece by piece.
fn piece(b: &Builder, pieces: usize, tree: usize, s: usize) -> Range<u64> {
    b.call.blocks(2 * pieces, tree * pieces + s..tree * pieces + s + 1)
}

/// Up to the root, where the sum is, and down again. A rank adds its own, then its first child's, then its second's.
fn all_reduce(b: &Builder, pieces: usize) -> (Vec<Turn>, usize) {
    let trees = [false, true].map(|second| Tree { n: b.ranks, second });
    let depth = trees.map(Tree::depth).into_iter().max().unwrap_or(0);
    let mut turns = Vec::new();
    for s in 0..pieces {
        for (t, tree) in trees.into_iter().enumerate() {
            let (parent, children, at) = tree.around(b.rank);
            let range = piece(b, pieces, t, s);
            let mut turn = |phase, peer, what| turns.push(Turn { phase, peer, range: range.clone(), what });
            // From depth d to d - 1 in phase s + depth - d, back in phase s + depth + d - 1.
            for child in children.into_iter().flatten() {
                turn(s + depth - at - 1, child, What::Reduce);
            }
            if let Some(parent) = parent {
                turn(s + depth - at, parent, What::Send);
                turn(s + depth + at - 1, parent, What::Place);
            }
            for child in children.into_iter().flatten() {
                turn(s + depth + at, child, What::Send);
            }
        }
    }
    (turns, pieces - 1 + 2 * depth)
}

/// The root gives each tree its half; the trees are of all others.
fn broadcast(b: &Builder, pieces: usize, root: usize) -> (Vec<Turn>, usize) {
    let others = b.ranks - 1;
    let trees = [false, true].map(|second| Tree { n: others, second });
    let rank_of = |place: usize| (root + 1 + place) % b.ranks;
    let depth = trees.map(Tree::depth).into_iter().max().unwrap_or(0);
    let mut turns = Vec::new();
    for s in 0..pieces {
        for (t, tree) in trees.into_iter().enumerate() {
            let range = piece(b, pieces, t, s);
            let mut turn = |phase, peer, what| turns.push(Turn { phase, peer, range: range.clone(), what });
            if b.rank == root {
                turn(s, rank_of(tree.place(Tree::top(1, others))), What::Send);
                continue;
            }
            let place = (b.rank + b.ranks - root - 1) % b.ranks;
            let (parent, children, at) = tree.around(place);
            turn(s + at, parent.map_or(root, rank_of), What::Place);
            for child in children.into_iter().flatten() {
                turn(s + at + 1, rank_of(child), What::Send);
            }
        }
    }
    (turns, pieces + depth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_trees_reach_everybody_and_nobody_passes_on_in_both() {
        for n in 1..100 {
            let trees = [false, true].map(|second| Tree { n, second });
            for tree in trees {
                let mut seen = 0;
                for place in 0..n {
                    assert_eq!(tree.place(tree.label(place)), place);
                    let (parent, children, depth) = tree.around(place);
                    seen += children.into_iter().flatten().count();
                    assert!(depth <= n.ilog2() as usize);
                    for child in children.into_iter().flatten() {
                        assert_eq!(tree.around(child).0, Some(place));
                    }
                    assert_eq!(parent.is_none(), depth == 0);
                }
                assert_eq!(seen, n - 1);
            }
            for place in 0..n {
                let inner = trees.map(|tree| tree.around(place).1.iter().flatten().count() > 0);
                assert!(n < 3 || inner != [true, true], "{place} of {n}");
            }
        }
    }
}
