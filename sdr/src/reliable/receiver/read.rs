//! One receive of a reliable connection: its blocks, what of it the peer was told, and what it was asked for.

use std::collections::VecDeque;
use std::time::Duration;

use softnic_wire::Instant;

use super::super::layout::Layout;
use super::posted::Posted;
use crate::Local;
use crate::bitmap::Bitmap;

/// A receive that is posted.
#[derive(Default)]
pub(super) struct Read {
    pub(super) id: u64,
    pub(super) memory: Local,
    pub(super) chunks: u32,
    /// Blocks from the first that is not whole on; those that are whole are `None`. Others are not posted yet.
    pub(super) posted: VecDeque<Option<Posted>>,
    pub(super) first_block: u32,
    pub(super) blocks: u32,
    /// Words of the bitmap that are full, from the beginning.
    pub(super) full_words: usize,
    /// What had come when the peer was told last, and the word from which it is to be told the rest.
    pub(super) told: u32,
    pub(super) told_to: usize,
    /// The first chunk of which nobody has looked yet whether it is missing, and those that were asked for, each with the time.
    looked: u32,
    pub(super) asked: VecDeque<(Instant, u32)>,
    /// Since something of it came, and when something came last; how often that was.
    pub(super) first_seen: Option<Instant>,
    pub(super) moved_at: Instant,
    pub(super) moves: u32,
    /// Since parity did not repair all, and when the peer was asked last for what is missing.
    pub(super) asked_at: Option<Instant>,
}

impl Read {
    /// Begins as a new one, with the room of one that is over.
    pub(super) fn begin(&mut self, id: u64, memory: Local, layout: &Layout) {
        (self.id, self.memory) = (id, memory);
        (self.chunks, self.blocks, self.first_block) = (layout.chunks(memory.len), layout.blocks(memory.len), 0);
        self.posted.clear();
        self.asked.clear();
        (self.full_words, self.told, self.told_to, self.looked) = (0, 0, 0, 0);
        (self.first_seen, self.moved_at, self.moves, self.asked_at) = (None, Instant::ZERO, 0, None);
    }

    /// The next block to be posted, if there is one.
    pub(super) fn next_block(&self) -> Option<u32> {
        let next = self.first_block + self.posted.len() as u32;
        (next < self.blocks).then_some(next)
    }

    /// The memory of a block.
    pub(super) fn block_memory(&self, layout: &Layout, first: u32, len: u64) -> Local {
        let offset = u64::from(first) * u64::from(layout.chunk);
        Local { addr: self.memory.addr.wrapping_add(offset), len, ..self.memory }
    }

    /// Whether something of it came, or of a later one.
    pub(super) fn is_seen(&self, newest: u64) -> bool {
        self.first_seen.is_some() || self.posted.iter().flatten().next().is_some_and(|block| block.base() < newest)
    }

    /// The bitmap, where there is one for all of it.
    pub(super) fn plain(&self) -> Option<&Bitmap> {
        self.posted.front()?.as_ref()?.plain()
    }

    /// Whether all chunks of one without parity have come.
    pub(super) fn is_plain_whole(&mut self) -> bool {
        let Some(Some(Some(bitmap))) = self.posted.front().map(|b| b.as_ref().map(Posted::plain)) else { return false };
        let words = bitmap.words();
        while self.full_words + 1 < words && bitmap.word(self.full_words) == u64::MAX {
            self.full_words += 1;
        }
        self.full_words + 1 >= words && bitmap.is_full()
    }

    /// Blocks at the front that are whole are done.
    pub(super) fn drop_whole(&mut self, layout: &Layout) {
        while let Some(None) = self.posted.front() {
            self.posted.pop_front();
            self.first_block += 1;
        }
        self.full_words = self.below(layout) as usize / 64;
    }

    /// Further rows of a group were asked for.
    pub(super) fn has_asked_rows(&mut self, layout: &Layout, number: u32) {
        let (block, group) = layout.place_of(number);
        let at = block.checked_sub(self.first_block).map(|at| at as usize);
        if let Some(Some(posted)) = at.and_then(|at| self.posted.get_mut(at)) {
            posted.has_asked_rows(group);
        }
    }

    /// All chunks before this one are there.
    pub(super) fn below(&self, layout: &Layout) -> u32 {
        match layout.is_coded() && self.first_block < self.blocks {
            true => layout.block(self.memory.len, self.first_block).first,
            false if layout.is_coded() => self.chunks,
            false => (self.full_words as u32 * 64).min(self.chunks),
        }
    }

    fn has(&self, layout: &Layout, chunk: u32) -> bool {
        let block = layout.block_of(chunk);
        let Some(at) = block.checked_sub(self.first_block) else { return true };
        match self.posted.get(at as usize) {
            None => false,
            Some(None) => true,
            Some(Some(posted)) => posted.has(layout, chunk - posted.shape.first),
        }
    }

    /// Words of the bitmap of all of it.
    pub(super) fn words(&self) -> usize {
        (self.chunks as usize).div_ceil(64)
    }

    /// Sixty-four chunks of it, the first in the lowest bit.
    pub(super) fn word(&self, layout: &Layout, index: usize) -> u64 {
        if !layout.is_coded() {
            return self.plain().map_or(0, |bitmap| bitmap.word(index));
        }
        let first = index as u32 * 64;
        let has = |bit: &u32| first + bit < self.chunks && self.has(layout, first + bit);
        (0..64).filter(has).fold(0, |word, bit| word | 1 << bit)
    }

    /// What has come so far: grows with each chunk.
    pub(super) fn news(&self, layout: &Layout) -> u32 {
        match layout.is_coded() {
            true => self.moves,
            false => self.plain().map_or(0, Bitmap::count),
        }
    }

    /// Chunks of one without parity to ask for now, in ascending order: those that later ones tell to be lost, and those that have not come
    /// although they were asked for.
    pub(super) fn gaps(&mut self, now: Instant, reordering: u32, again_after: Duration, missing: &mut Vec<u32>) {
        missing.clear();
        let Some(Some(block)) = self.posted.front() else { return };
        let Some(bitmap) = block.plain() else { return };
        while let Some(&(at, chunk)) = self.asked.front()
            && (at + again_after <= now || bitmap.is_set(chunk))
        {
            self.asked.pop_front();
            if !bitmap.is_set(chunk) {
                missing.push(chunk);
            }
        }
        // Chunks that came tell of those before them, however many are missing in between.
        let words = (self.looked as usize / 64..bitmap.words()).rev();
        let newest = words.map(|word| (word, bitmap.word(word))).find(|&(_, bits)| bits != 0);
        let newest = newest.map(|(word, bits)| word as u32 * 64 + 63 - bits.leading_zeros());
        if let Some(end) = newest.map(|newest| (newest + 1).saturating_sub(reordering)).filter(|&end| end > self.looked)
        {
            missing.extend((self.looked..end).filter(|&chunk| !bitmap.is_set(chunk)));
            self.looked = end;
        }
        self.asked.extend(missing.iter().map(|&chunk| (now, chunk)));
        missing.sort_unstable();
    }
}
