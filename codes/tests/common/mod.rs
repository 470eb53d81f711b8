//! What the tests of codes share: drawn numbers, and one round of encoding, losing and decoding.
#![allow(dead_code)] // each test file uses its part of this

use softnic_codes::{ChunkSet, Code};

/// Numbers that a seed fixes (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    /// So many numbers of those below `of`.
    pub(crate) fn some(&mut self, many: usize, of: usize) -> ChunkSet {
        let mut numbers: Vec<usize> = (0..of).collect();
        (0..many).map(|_| numbers.swap_remove(self.below(numbers.len()))).collect()
    }
}

/// A message in chunks, with parities of the first rows.
pub(crate) struct Message {
    pub(crate) code: Code,
    pub(crate) data: Vec<u8>,
    pub(crate) chunk_len: usize,
    pub(crate) parities: Vec<Vec<u8>>,
}

impl Message {
    pub(crate) fn new(code: Code, data: Vec<u8>, chunk_len: usize, rows: usize) -> Message {
        // Whatever was there before does not matter.
        let mut parities = vec![vec![0x55; chunk_len]; rows];
        code.encode(&data, chunk_len, &mut parities);
        Message { code, data, chunk_len, parities }
    }

    pub(crate) fn chunks(&self) -> usize {
        self.data.len().div_ceil(self.chunk_len)
    }

    /// Decodes without the lost chunks, by these rows, in both forms. All must come back, or nothing may have changed.
    pub(crate) fn lose(&self, lost: &ChunkSet, rows: &ChunkSet) -> bool {
        let present = ChunkSet::below(self.chunks()).without(lost);
        let mut damaged = self.data.clone();
        for j in lost.iter() {
            damaged.iter_mut().skip(j * self.chunk_len).take(self.chunk_len).for_each(|byte| *byte ^= 0xa5);
        }
        let parities: Vec<(usize, &[u8])> = rows.iter().map(|row| (row, &self.parities[row][..])).collect();
        let (mut apart, mut in_one_piece) = (damaged.clone(), damaged.clone());
        let result = self.code.decode(&mut apart, self.chunk_len, &present, &parities);
        let all = self.parities.concat();
        assert_eq!(self.code.decode_in_one_piece(&mut in_one_piece, self.chunk_len, &present, rows, &all), result);
        let expected = if result.is_ok() { &self.data } else { &damaged };
        assert_eq!((&apart, &in_one_piece), (expected, expected), "{:?}: {lost:?} by {rows:?}", self.code);
        assert_eq!(self.code.can_recover(self.chunks(), &present, rows), result.is_ok());
        result.is_ok_and(|computed| computed == self.chunks() - present.len())
    }
}
