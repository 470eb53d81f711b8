//! What a program sees of a receive: a bit for each chunk that has come, and the immediate when all of it is there.

use std::sync::Arc;

use softnic_sync::bits::Bits;

use crate::attr::{QpAttr, packets};
use crate::turns::Turns;

/// The chunks of a receive that have come. A bit is set after all bytes of its chunk are in place, and who sees it sees them.
#[derive(Debug, Clone)]
pub struct Bitmap {
    bits: Arc<Bits>,
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
        if index < self.words() { self.bits.word(index) } else { 0 }
    }

    /// How many words there are.
    #[inline]
    pub fn words(&self) -> usize {
        (self.chunks as usize).div_ceil(64)
    }

    /// The words themselves, for programs that read memory and call nobody: as many as [`Bitmap::words`], each as [`Bitmap::word`] has it.
    /// The NIC's threads set them, with release order, so they are read with acquire order, and never written. They are there as long as
    /// this value is.
    pub fn as_ptr(&self) -> *const u64 {
        self.bits.as_ptr()
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
        self.bits.value()
    }

    /// What the NIC's threads set.
    #[inline]
    pub(crate) fn bits(&self) -> &Bits {
        &self.bits
    }
}

/// Bitmaps that are used again: as many as were in use at a time, each as long as the longest that it was.
#[derive(Debug, Default)]
pub struct Pool {
    free: Vec<Arc<Bits>>,
}

impl Pool {
    /// An empty bitmap for so many chunks, all of one engine.
    pub fn take(&mut self, chunks: u32) -> Bitmap {
        self.take_for(chunks, None)
    }

    /// An empty bitmap for a receive of so many bytes, whose packets come to so many engines.
    pub fn take_among(&mut self, attr: &QpAttr, engines: u8, len: u64) -> Bitmap {
        let turns = Turns::new(attr.channels, engines, 0);
        self.take_shared(&turns, packets(len, attr.mtu) as u32, attr.chunk / attr.mtu.bytes())
    }

    /// The same; where several engines have packets of a chunk, how many do.
    pub(crate) fn take_shared(&mut self, turns: &Turns, packets: u32, chunk_packets: u32) -> Bitmap {
        let chunks = packets.div_ceil(chunk_packets);
        match turns.is_alone() {
            true => self.take_for(chunks, None),
            false => self.take_for(chunks, Some(&|chunk| turns.parts(packets, chunk_packets, chunk as u32))),
        }
    }

    fn take_for(&mut self, chunks: u32, parts: Option<&dyn Fn(usize) -> u8>) -> Bitmap {
        let fits = |bits: &Arc<Bits>| bits.capacity() >= chunks as usize;
        let mut bits = match self.free.iter().rposition(fits) {
            Some(at) => self.free.swap_remove(at),
            // A short one goes for the new one, lest there be ever more of them.
            None => {
                self.free.pop();
                Arc::new(Bits::new(chunks as usize))
            }
        };
        if let Some(bits) = Arc::get_mut(&mut bits) {
            bits.reset(chunks as usize, parts);
        }
        Bitmap { bits, chunks }
    }

    /// The receive is over. What the program still looks at is left to it.
    pub fn give_back(&mut self, bitmap: Bitmap) {
        let mut bits = bitmap.bits;
        if Arc::get_mut(&mut bits).is_some() {
            self.free.push(bits);
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
        (0..70).filter(|c| ![3, 64].contains(c)).for_each(|c| bitmap.bits().set_alone(c as usize));
        assert_eq!((bitmap.count(), bitmap.missing().collect::<Vec<_>>()), (68, vec![3, 64]));
        [3u32, 64].into_iter().for_each(|c| bitmap.bits().set_alone(c as usize));
        assert!(bitmap.is_full() && bitmap.is_set(69) && !bitmap.is_set(70));
        assert_eq!((bitmap.word(1), bitmap.word(2)), (0x3f, 0));
        assert_eq!(bitmap.imm(), None);
        bitmap.bits().set_value(5);
        assert_eq!(bitmap.imm(), Some(5));
    }

    #[test]
    fn a_bitmap_is_used_again_unless_somebody_still_looks_at_it() {
        let mut pool = Pool::default();
        let first = pool.take(100);
        first.bits().set_alone(99);
        first.bits().set_value(1);
        let at = Arc::as_ptr(&first.bits);
        pool.give_back(first);
        let second = pool.take(65);
        assert_eq!((Arc::as_ptr(&second.bits), second.count(), second.imm()), (at, 0, None));
        let held = second.clone();
        second.bits().set_alone(1);
        pool.give_back(second);
        let third = pool.take(65);
        assert_eq!((third.count(), held.count()), (0, 1), "what is held stays as it was");
    }
}
