//! BCube: ranks are the corners of a grid, with a dimension for each prime factor of their number. In each dimension all that differ in it
//! alone exchange at once. For k^l ranks that is the BCube of Guo et al. (SIGCOMM 2009); a prime number of ranks has one dimension.

use std::ops::Range;

use super::builder::Builder;
use crate::call::Operation;

/// A dimension: how many corners it has, and how far apart they are as ranks.
#[derive(Debug, Clone, Copy)]
struct Dimension {
    corners: usize,
    apart: usize,
}

/// The dimensions of so many ranks, the widest steps first.
fn dimensions(ranks: usize) -> Vec<Dimension> {
    let (mut factors, mut left) = (Vec::new(), ranks);
    for factor in 2..=ranks {
        while left.is_multiple_of(factor) {
            factors.push(factor);
            left /= factor;
        }
    }
    let mut apart = ranks;
    let dimension = |corners: usize| {
        apart /= corners;
        Dimension { corners, apart }
    };
    factors.into_iter().rev().map(dimension).collect()
}

impl Dimension {
    fn corner(self, rank: usize) -> usize {
        rank / self.apart % self.corners
    }

    /// The rank at another corner of this dimension.
    fn at(self, rank: usize, corner: usize) -> usize {
        rank - self.corner(rank) * self.apart + corner * self.apart
    }

    /// Blocks that belong to the ranks at a corner, among those that differ from `rank` in this and later dimensions.
    fn blocks(self, rank: usize, corner: usize) -> Range<usize> {
        let base = rank / (self.apart * self.corners) * (self.apart * self.corners);
        base + corner * self.apart..base + (corner + 1) * self.apart
    }

    /// Of so many blocks, by the ranks that they are for, those at a corner: rows of blocks that follow each other.
    fn rows(self, ranks: usize, corner: usize) -> impl Iterator<Item = Range<usize>> {
        let row = move |base: usize| base + corner * self.apart..base + (corner + 1) * self.apart;
        (0..ranks).step_by(self.apart * self.corners).map(row)
    }

    fn others(self, rank: usize) -> impl Iterator<Item = (usize, usize)> {
        let own = self.corner(rank);
        (0..self.corners).filter(move |corner| *corner != own).map(move |corner| (corner, self.at(rank, corner)))
    }
}

pub(super) fn build(b: &mut Builder) {
    let dimensions = dimensions(b.ranks);
    match b.call.operation {
        Operation::AllReduce => {
            reduce_scatter(b, &dimensions);
            all_gather(b, &dimensions);
        }
        Operation::ReduceScatter => reduce_scatter(b, &dimensions),
        Operation::AllGather => all_gather(b, &dimensions),
        Operation::Broadcast { root } => broadcast(b, &dimensions, root),
        Operation::AllToAll => all_to_all(b, &dimensions),
        Operation::Barrier => {}
    }
}

/// Bytes that a rank sends in a dimension at most.
fn weight(b: &Builder, d: Dimension) -> u64 {
    (b.call.bytes * d.apart as u64).div_ceil(b.ranks as u64) * (d.corners as u64 - 1)
}

/// Each rank keeps the blocks of its corner: its own, with those of the other corners added in their order.
fn reduce_scatter(b: &mut Builder, dimensions: &[Dimension]) {
    for d in dimensions {
        let phase = b.phase(weight(b, *d));
        for (corner, peer) in d.others(b.rank) {
            let out = b.call.blocks(b.ranks, d.blocks(b.rank, corner));
            b.send(phase, peer, out);
        }
        let own = b.call.blocks(b.ranks, d.blocks(b.rank, d.corner(b.rank)));
        for (_, peer) in d.others(b.rank) {
            b.reduce(phase, peer, own.clone());
        }
    }
}

fn all_gather(b: &mut Builder, dimensions: &[Dimension]) {
    for d in dimensions.iter().rev() {
        let phase = b.phase(weight(b, *d));
        let own = b.call.blocks(b.ranks, d.blocks(b.rank, d.corner(b.rank)));
        for (_, peer) in d.others(b.rank) {
            b.send(phase, peer, own.clone());
        }
        for (corner, peer) in d.others(b.rank) {
            let into = b.call.blocks(b.ranks, d.blocks(b.rank, corner));
            b.place(phase, peer, into);
        }
    }
}

/// In each dimension a rank gives every other corner the blocks for the ranks there, whoever they are from, and gets those for its own corner
/// in their place: block and rank change their corners of this dimension with each other, in the end all of them.
///
/// Bytes travel once for each dimension, and a rank has connections to those alone that differ from it in one: 6 of 64 ranks, not 63.
fn all_to_all(b: &mut Builder, dimensions: &[Dimension]) {
    for d in dimensions {
        let phase = b.phase(weight(b, *d) * (b.ranks / d.apart / d.corners) as u64);
        let blocks = |b: &Builder, row: Range<usize>| {
            b.call.equal_block(b.ranks, row.start).start..b.call.equal_block(b.ranks, row.end).start
        };
        for (corner, peer) in d.others(b.rank) {
            for row in d.rows(b.ranks, corner) {
                let there = blocks(b, row);
                b.send(phase, peer, there);
            }
        }
        for (corner, peer) in d.others(b.rank) {
            for row in d.rows(b.ranks, corner) {
                let there = blocks(b, row);
                b.swap(phase, peer, there);
            }
        }
    }
}

/// In each dimension those that have the buffer send it to the other corners. Corners are counted from the root.
fn broadcast(b: &mut Builder, dimensions: &[Dimension], root: usize) {
    let (n, place) = (b.ranks, (b.rank + b.ranks - root) % b.ranks);
    for d in dimensions {
        let phase = b.phase(b.call.bytes * (d.corners as u64 - 1));
        // Whether it has the buffer before this dimension: it differs from the root in earlier ones alone.
        let has = place.is_multiple_of(d.apart * d.corners);
        if has {
            for (_, peer) in d.others(place) {
                b.send(phase, (peer + root) % n, 0..b.call.bytes);
            }
        } else if place.is_multiple_of(d.apart) {
            b.place(phase, (d.at(place, 0) + root) % n, 0..b.call.bytes);
        }
    }
}
