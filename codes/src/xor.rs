//! A code by exclusive or: parity row i is the sum of the data chunks j with j mod m = i, and gives back one of them.

use crate::chunks::{Chunks, Part, Rows};
use crate::kernel::{Kernel, SUMMANDS};
use crate::set::ChunkSet;

/// Bytes of each chunk that are worked on at a time.
const BLOCK: usize = 16 << 10;

/// Data chunks of a step in place: the destination is among the chunks that are taken apart.
const IN_PLACE: usize = SUMMANDS - 1;

/// Writes parity rows, or adds to them.
pub(crate) fn encode(kernel: Kernel, m: usize, part: Part, data: &[u8], chunks: Chunks, rows: &mut impl Rows) {
    for block in chunks.blocks(BLOCK) {
        for r in 0..rows.count() {
            let [row, ..] = rows.slices(r, block.within.clone());
            // The first chunk of the row's group that there is.
            let first = (part.first_row + r + m - part.first_chunk % m) % m;
            let mut group = (first..block.chunks).step_by(m);
            let mut add = part.add;
            loop {
                let mut sources: [&[u8]; SUMMANDS] = [&[]; SUMMANDS];
                let n = fill(&mut sources, group.by_ref().map(|j| &data[block.of(j)]));
                if n == 0 {
                    break;
                }
                kernel.sum(&sources[..n], row, add);
                add = true;
            }
            if !add {
                row.fill(0);
            }
        }
    }
}

/// Whether each group lost at most one chunk, and has its parity if so.
pub(crate) fn can_recover(m: usize, lost: &ChunkSet, parities: &ChunkSet) -> bool {
    let mut left = *parities;
    // At most m + 1 turns, however many are lost.
    lost.iter().all(|j| {
        let row = j.checked_rem(m);
        let is_there = row.is_some_and(|row| left.contains(row));
        row.into_iter().for_each(|row| left.remove(row));
        is_there
    })
}

/// Computes the lost chunks in place: the sum of their groups, with the parity.
pub(crate) fn decode<'p>(
    kernel: Kernel,
    m: usize,
    data: &mut [u8],
    chunks: Chunks,
    lost: &ChunkSet,
    parity: impl Fn(usize) -> &'p [u8],
) {
    for block in chunks.blocks(BLOCK) {
        for j in lost.iter().take_while(|&j| j < block.chunks) {
            let row = j % m;
            data[block.of(j)].copy_from_slice(&parity(row)[block.within.clone()]);
            let mut others = (row..block.chunks).step_by(m).filter(|&other| other != j);
            loop {
                let mut numbers = [0; IN_PLACE];
                let n = fill(&mut numbers, &mut others);
                if n == 0 {
                    break;
                }
                let ranges = std::array::from_fn::<_, SUMMANDS, _>(|i| match i {
                    0 => block.of(j),
                    _ if i <= n => block.of(numbers[i - 1]),
                    _ => 0..0,
                });
                let [lost, sources @ ..] = data.get_disjoint_mut(ranges).expect("chunks do not overlap");
                kernel.sum(&sources.map(|source| &*source)[..n], lost, true);
            }
        }
    }
}

/// Takes as many as there is room for; says how many.
fn fill<T>(to: &mut [T], from: impl Iterator<Item = T>) -> usize {
    to.iter_mut().zip(from).map(|(to, from)| *to = from).count()
}
