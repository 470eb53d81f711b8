//! Ring: each rank sends to the next one. Blocks go round while they are added up, and round again when they are.

use super::builder::Builder;
use crate::call::Operation;

/// Bytes of a message of a broadcast at least, and messages at most: each of them is passed on as soon as it is there.
const SEGMENT: u64 = 64 << 10;
const SEGMENTS: u64 = 128;
/// Messages of an AllToAll that a rank has on their way.
const EXCHANGES: usize = 2;

pub(super) fn build(b: &mut Builder) {
    match b.call.operation {
        Operation::AllReduce => {
            reduce_scatter(b);
            all_gather(b);
        }
        Operation::ReduceScatter => reduce_scatter(b),
        Operation::AllGather => all_gather(b),
        Operation::AllToAll => all_to_all(b),
        Operation::Broadcast { root } => broadcast(b, root),
        Operation::Barrier => {}
    }
}

/// The rank so many places further on.
fn rank_at(b: &Builder, places: usize) -> usize {
    (b.rank + places) % b.ranks
}

/// In step k rank r sends block r - 1 - k, and reduces block r - 2 - k into its own: block c is x(c) + (x(c-1) + (… + x(c+1))) in the end,
/// at rank c.
fn reduce_scatter(b: &mut Builder) {
    let n = b.ranks;
    for k in 0..n - 1 {
        let phase = b.phase(longest(b));
        let [out, into] = [rank_at(b, 2 * n - 1 - k), rank_at(b, 2 * n - 2 - k)].map(|c| b.call.blocks(n, c..c + 1));
        b.send(phase, rank_at(b, 1), out);
        b.reduce(phase, rank_at(b, n - 1), into);
    }
}

/// In step k rank r sends block r - k.
fn all_gather(b: &mut Builder) {
    let n = b.ranks;
    for k in 0..n - 1 {
        let phase = b.phase(longest(b));
        let [out, into] = [rank_at(b, 2 * n - k), rank_at(b, 2 * n - 1 - k)].map(|c| b.call.blocks(n, c..c + 1));
        b.send(phase, rank_at(b, 1), out);
        b.place(phase, rank_at(b, n - 1), into);
    }
}

/// Bytes of the longest block.
fn longest(b: &Builder) -> u64 {
    let blocks = (0..b.ranks).map(|c| b.call.blocks(b.ranks, c..c + 1));
    blocks.map(|block| block.end - block.start).max().unwrap_or(0)
}

/// In step k rank r sends to the k-th rank behind it, and receives from the k-th before it.
fn all_to_all(b: &mut Builder) {
    let n = b.ranks;
    let mut sends = Vec::new();
    for k in 1..n {
        let block = b.call.equal_block(n, 0);
        let phase = b.phase(block.end);
        let to = rank_at(b, k);
        let out = b.call.equal_block(n, to);
        let send = b.send(phase, to, out);
        if let Some(before) = sends.len().checked_sub(EXCHANGES) {
            b.wait(send, sends[before]);
        }
        sends.push(send);
    }
    for k in 1..n {
        let from = rank_at(b, n - k);
        let into = b.call.equal_block(n, from);
        b.swap(k as u32 - 1, from, into);
    }
}

/// A chain from the root, in pieces: piece s passes the rank d places behind the root in phase s + d.
fn broadcast(b: &mut Builder, root: usize) {
    let n = b.ranks;
    let place = (b.rank + n - root) % n;
    let elements = b.call.bytes / b.call.element.size();
    let pieces = (b.call.bytes / SEGMENT).clamp(1, SEGMENTS).min(elements.max(1)) as usize;
    let longest = b.call.bytes.div_ceil(pieces as u64);
    for _ in 0..pieces + n - 2 {
        b.phase(longest);
    }
    for s in 0..pieces {
        let range = b.call.blocks(pieces, s..s + 1);
        if place > 0 {
            b.place((s + place - 1) as u32, rank_at(b, n - 1), range.clone());
        }
        if place < n - 1 {
            b.send((s + place) as u32, rank_at(b, 1), range);
        }
    }
}
