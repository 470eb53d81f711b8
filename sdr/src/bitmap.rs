//! What a program sees of a receive: a bit for each chunk that has come, and the immediate when all of it is there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Set by the NIC's thread, read by the program's.
#[derive(Debug, Default)]
struct Shared {
    words: Box<[AtomicU64]>,
    /// The user's immediate, and that it is whole.
    imm: AtomicU32,
    imm_whole: AtomicU32,
}

/// The chunks of a receive that have come. A bit is set after all bytes of its chunk are in place, and who sees it sees them.
#[derive(Debug, Clone)]
pub struct Bitmap {
    shared: Arc<Shared>,
    chunks: u32,
}

impl Bitmap {
    /// How many chunks the receive has.
    pub fn chunks(&self) -> u32 {
        self.chunks
    }

    /// Whether a chunk has come.
    #[inline]
    pub fn is_set(&self, chunk: u32) -> bool {
        chunk < self.chunks && self.word(chunk as usize / 64) >> (chunk % 64) & 1 == 1
    }

    /// Sixty-four chunks at a time, the first in the lowest bit; those that the receive does not have are never set.
    #[inline]
    pub fn word(&self, index: usize) -> u64 {
        self.shared.words[..self.words()].get(index).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// How many words there are.
    #[inline]
    pub fn words(&self) -> usize {
        (self.chunks as usize).div_ceil(64)
    }

    /// The words themselves, for programs that read memory and call nobody: as many as [`Bitmap::words`], each as [`Bitmap::word`] has it.
    /// The NIC's thread sets them, with release order, so they are read with acquire order, and never written. They are there as long as
    /// this value is.
    pub fn as_ptr(&self) -> *const u64 {
        self.shared.words.as_ptr().cast()
    }

    /// How many chunks have come.
    pub fn count(&self) -> u32 {
        (0..self.words()).map(|i| self.word(i).count_ones()).sum()
    }

    /// Whether all chunks have come.
    pub fn is_full(&self) -> bool {
        let (whole, rest) = (self.chunks / 64, self.chunks % 64);
        (0..whole as usize).all(|i| self.word(i) == u64::MAX)
            && (rest == 0 || self.word(whole as usize) == (1 << rest) - 1)
    }

    /// The chunks that are missing.
    pub fn missing(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.chunks).filter(|&chunk| !self.is_set(chunk))
    }

    /// The sender's immediate, as soon as all pieces of it are there.
    pub fn imm(&self) -> Option<u32> {
        (self.shared.imm_whole.load(Ordering::Acquire) == 1).then(|| self.shared.imm.load(Ordering::Relaxed))
    }

    /// All bytes of a chunk are in place. Only the NIC's thread sets bits: nobody comes between reading the word and writing it.
    #[inline]
    pub(crate) fn set(&self, chunk: u32) {
        let word = &self.shared.words[chunk as usize / 64];
        word.store(word.load(Ordering::Relaxed) | 1 << (chunk % 64), Ordering::Release);
    }

    pub(crate) fn set_imm(&self, imm: u32) {
        self.shared.imm.store(imm, Ordering::Relaxed);
        self.shared.imm_whole.store(1, Ordering::Release);
    }
}

/// Bitmaps that are used again: as many as were in use at a time, each as long as the longest that it was.
#[derive(Debug, Default)]
pub struct Pool {
    free: Vec<Arc<Shared>>,
}

impl Pool {
    /// An empty bitmap for so many chunks.
    pub fn take(&mut self, chunks: u32) -> Bitmap {
        let words = (chunks as usize).div_ceil(64);
        let fits = |shared: &Arc<Shared>| shared.words.len() >= words;
        let mut shared = match self.free.iter().rposition(fits) {
            Some(at) => self.free.swap_remove(at),
            // A short one goes for the new one, lest there be ever more of them.
            None => {
                self.free.pop();
                Arc::new(Shared { words: (0..words).map(|_| AtomicU64::new(0)).collect(), ..Shared::default() })
            }
        };
        if let Some(shared) = Arc::get_mut(&mut shared) {
            shared.words[..words].iter_mut().for_each(|word| *word.get_mut() = 0);
            (*shared.imm.get_mut(), *shared.imm_whole.get_mut()) = (0, 0);
        }
        Bitmap { shared, chunks }
    }

    /// The receive is over. What the program still looks at is left to it.
    pub fn give_back(&mut self, bitmap: Bitmap) {
        let mut shared = bitmap.shared;
        if Arc::get_mut(&mut shared).is_some() {
            self.free.push(shared);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_counted_and_what_is_missing_is_told() {
        let mut pool = Pool::default();
        let bitmap = pool.take(70);
        assert_eq!((bitmap.chunks(), bitmap.count(), bitmap.is_full(), bitmap.words()), (70, 0, false, 2));
        (0..70).filter(|c| ![3, 64].contains(c)).for_each(|c| bitmap.set(c));
        assert_eq!((bitmap.count(), bitmap.missing().collect::<Vec<_>>()), (68, vec![3, 64]));
        [3, 64].into_iter().for_each(|c| bitmap.set(c));
        assert!(bitmap.is_full() && bitmap.is_set(69) && !bitmap.is_set(70));
        assert_eq!((bitmap.word(1), bitmap.word(2)), (0x3f, 0));
        assert_eq!(bitmap.imm(), None);
        bitmap.set_imm(5);
        assert_eq!(bitmap.imm(), Some(5));
    }

    #[test]
    fn a_bitmap_is_used_again_unless_somebody_still_looks_at_it() {
        let mut pool = Pool::default();
        let first = pool.take(100);
        first.set(99);
        first.set_imm(1);
        let at = Arc::as_ptr(&first.shared);
        pool.give_back(first);
        let second = pool.take(65);
        assert_eq!((Arc::as_ptr(&second.shared), second.count(), second.imm()), (at, 0, None));
        let held = second.clone();
        second.set(1);
        pool.give_back(second);
        let third = pool.take(65);
        assert_eq!((third.count(), held.count()), (0, 1), "what is held stays as it was");
    }
}
