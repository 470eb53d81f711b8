//! Bits of the chunks of one message, by one thread.

/// A bit for each chunk.
#[derive(Debug, Default)]
pub(super) struct ChunkBits {
    words: Vec<u64>,
}

impl ChunkBits {
    /// So many, none of them set; the memory is used again.
    pub(super) fn reset(&mut self, chunks: u32) {
        self.words.clear();
        self.words.resize((chunks as usize).div_ceil(64), 0);
    }

    pub(super) fn get(&self, chunk: u32) -> bool {
        self.words.get(chunk as usize / 64).is_some_and(|word| word >> (chunk % 64) & 1 == 1)
    }

    /// Sets a bit; whether it was not set before.
    pub(super) fn set(&mut self, chunk: u32) -> bool {
        let Some(word) = self.words.get_mut(chunk as usize / 64) else { return false };
        let new = *word >> (chunk % 64) & 1 == 0;
        *word |= 1 << (chunk % 64);
        new
    }

    pub(super) fn clear(&mut self, chunk: u32) {
        if let Some(word) = self.words.get_mut(chunk as usize / 64) {
            *word &= !(1 << (chunk % 64));
        }
    }
}
