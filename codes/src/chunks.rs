//! Where chunks lie: data in one piece of memory, parity chunks in one piece or each apart, and the blocks that they are worked on by.

use std::ops::Range;

use crate::kernel::DESTINATIONS;

/// Data in chunks of one length, of which the last may be shorter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chunks {
    bytes: usize,
    len: usize,
}

/// The same stretch of the first so many chunks; others have no bytes there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) within: Range<usize>,
    pub(crate) chunks: usize,
    len: usize,
}

impl Chunks {
    /// `None` where a chunk would have no bytes.
    pub(crate) fn new(bytes: usize, len: usize) -> Option<Chunks> {
        (len > 0).then_some(Chunks { bytes, len })
    }

    pub(crate) fn count(self) -> usize {
        self.bytes.div_ceil(self.len)
    }

    /// All of a chunk, in blocks of at most `size` bytes: destinations of that size stay in the first-level cache while all sources go by.
    pub(crate) fn blocks(self, size: usize) -> impl Iterator<Item = Block> {
        let count = self.count();
        // What the last chunk has, and what all others have beyond it.
        let short = self.bytes - count.saturating_sub(1) * self.len;
        let stretches = [(0..short, count), (short..self.len, count.saturating_sub(1))];
        stretches.into_iter().flat_map(move |(stretch, chunks)| {
            let starts = stretch.clone().step_by(size);
            starts.map(move |start| Block { within: start..stretch.end.min(start + size), chunks, len: self.len })
        })
    }
}

impl Block {
    /// Where the block's bytes of a chunk lie in the data.
    pub(crate) fn of(&self, chunk: usize) -> Range<usize> {
        let start = chunk * self.len;
        start + self.within.start..start + self.within.end
    }
}

/// What is written to which parity rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    /// The number of the first row.
    pub(crate) first_row: usize,
    /// The number of the first data chunk.
    pub(crate) first_chunk: usize,
    /// The rows keep what they have, and the data is added.
    pub(crate) add: bool,
}

/// Parity chunks that are written, by rows.
pub(crate) trait Rows {
    fn count(&self) -> usize;

    /// The same bytes of some rows from `first` on, as many as a step has; behind the last row they are empty.
    fn slices(&mut self, first: usize, within: Range<usize>) -> [&mut [u8]; DESTINATIONS];
}

/// Rows that are each a buffer.
pub(crate) struct Apart<'a, P>(pub(crate) &'a mut [P]);

impl<P: AsMut<[u8]>> Rows for Apart<'_, P> {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn slices(&mut self, first: usize, within: Range<usize>) -> [&mut [u8]; DESTINATIONS] {
        let mut rows = self.0[first..].iter_mut();
        std::array::from_fn(|_| rows.next().map_or(Default::default(), |row| &mut row.as_mut()[within.clone()]))
    }
}

/// Rows one behind the other, all of one length.
pub(crate) struct InOnePiece<'a> {
    pub(crate) bytes: &'a mut [u8],
    pub(crate) len: usize,
}

impl Rows for InOnePiece<'_> {
    fn count(&self) -> usize {
        self.bytes.len() / self.len
    }

    fn slices(&mut self, first: usize, within: Range<usize>) -> [&mut [u8]; DESTINATIONS] {
        let mut rows = self.bytes[first * self.len..].chunks_exact_mut(self.len);
        std::array::from_fn(|_| rows.next().map_or(Default::default(), |row| &mut row[within.clone()]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_each_byte_of_each_chunk_once() {
        for len in (1..20).step_by(if cfg!(miri) { 9 } else { 1 }) {
            for bytes in 0..5 * len {
                for size in [1, 3, 64] {
                    let chunks = Chunks::new(bytes, len).unwrap();
                    let (mut seen, mut next) = (vec![0; bytes], 0);
                    for block in chunks.blocks(size) {
                        assert_eq!(block.within.start, next);
                        assert!(!block.within.is_empty() && block.within.len() <= size);
                        next = block.within.end;
                        (0..block.chunks).for_each(|j| seen[block.of(j)].iter_mut().for_each(|n| *n += 1));
                    }
                    assert_eq!(next, len, "a chunk is whole");
                    assert!(seen.iter().all(|&n| n == 1), "{bytes} bytes by {len}");
                }
            }
        }
        assert!(Chunks::new(5, 0).is_none());
    }
}
