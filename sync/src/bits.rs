//! Bits that threads of a NIC set and a program reads: a bit is set when all threads that have a part of it have done theirs, and who sees it
//! sees all that they wrote before. Beside them a word that comes in pieces.

use crate::primitives::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// The bits, none of them set at first.
#[derive(Debug, Default)]
pub struct Bits {
    words: Box<[AtomicU64]>,
    /// For bits of several threads: how many of these are not done with each.
    parts: Box<[AtomicU8]>,
    /// The word, the pieces of it that have come, and whether these are all.
    value: AtomicU32,
    pieces: AtomicU32,
    whole: AtomicU32,
}

impl Bits {
    /// Room for so many bits, all of which are set by one thread.
    pub fn new(bits: usize) -> Bits {
        Bits { words: (0..bits.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(), ..Bits::default() }
    }

    /// How many bits there is room for.
    pub fn capacity(&self) -> usize {
        self.words.len() * 64
    }

    /// Forgets everything, for so many bits. `parts` says how many threads have a part of each; without, one thread has them all.
    #[cfg(not(loom))]
    pub fn reset(&mut self, bits: usize, parts: Option<&dyn Fn(usize) -> u8>) {
        self.words.iter_mut().take(bits.div_ceil(64)).for_each(|word| *word.get_mut() = 0);
        for word in [&mut self.value, &mut self.pieces, &mut self.whole] {
            *word.get_mut() = 0;
        }
        let Some(parts) = parts else { return };
        if self.parts.len() < bits {
            self.parts = (0..bits).map(|_| AtomicU8::new(0)).collect();
        }
        self.parts.iter_mut().take(bits).enumerate().for_each(|(bit, left)| *left.get_mut() = parts(bit));
    }

    /// Sixty-four bits, the first in the lowest place.
    #[inline]
    pub fn word(&self, index: usize) -> u64 {
        self.words.get(index).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// The words themselves: written with release order, to be read with acquire order.
    pub fn as_ptr(&self) -> *const u64 {
        self.words.as_ptr().cast()
    }

    /// Sets a bit, where only one thread sets any: nobody comes between reading the word and writing it.
    #[inline]
    pub fn set_alone(&self, bit: usize) {
        let word = &self.words[bit / 64];
        word.store(word.load(Ordering::Relaxed) | 1 << (bit % 64), Ordering::Release);
    }

    /// Sets a bit of which one thread has all, where other threads set other bits.
    #[inline]
    pub fn set(&self, bit: usize) {
        self.words[bit / 64].fetch_or(1 << (bit % 64), Ordering::Release);
    }

    /// One thread has done its part of a bit: the last one sets it. Each acquires what those before it wrote, so the bit stands for all of it.
    #[inline]
    pub fn finish_part(&self, bit: usize) {
        if self.parts[bit].fetch_sub(1, Ordering::AcqRel) == 1 {
            self.set(bit);
        }
    }

    /// A piece of the word has come: bits of it that are in no other piece. `all` are the pieces that there are.
    pub fn add_piece(&self, piece: u32, bits: u32, all: u32) {
        self.value.fetch_or(bits, Ordering::Relaxed);
        // Each acquires what those before it added.
        if self.pieces.fetch_or(piece, Ordering::AcqRel) | piece == all {
            self.whole.store(1, Ordering::Release);
        }
    }

    /// The word is there, all of it.
    pub fn set_value(&self, value: u32) {
        self.value.store(value, Ordering::Relaxed);
        self.whole.store(1, Ordering::Release);
    }

    /// The word, when all pieces of it have come.
    pub fn value(&self) -> Option<u32> {
        (self.whole.load(Ordering::Acquire) == 1).then(|| self.value.load(Ordering::Relaxed))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::UnsafeCell;

    use super::*;

    /// Memory of chunks, of which each thread writes its own part.
    struct Chunks([[UnsafeCell<usize>; THREADS]; BITS]);

    // SAFETY: each cell is written by one thread, and read by another only after it saw the bit; miri says so where that does not hold.
    #[expect(unsafe_code, reason = "memory that is written while somebody else waits for a bit")]
    unsafe impl Sync for Chunks {}

    const THREADS: usize = 3;
    const BITS: usize = 70;

    #[test]
    fn who_waits_for_bits_of_several_threads_in_memory_finds_what_all_of_them_wrote() {
        let mut bits = Bits::new(BITS);
        for round in 1..=3 {
            bits.reset(BITS, Some(&|_| THREADS as u8));
            let (bits, chunks) = (&bits, &Chunks([const { [const { UnsafeCell::new(0) }; THREADS] }; BITS]));
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    scope.spawn(move || {
                        // Each begins elsewhere.
                        for i in 0..BITS {
                            let bit = (i + thread * BITS / THREADS) % BITS;
                            #[expect(unsafe_code, reason = "the payload of a packet")]
                            // SAFETY: only this thread writes the cell, and nobody reads it before the bit is set.
                            unsafe {
                                *chunks.0[bit][thread].get() = bit * round + thread;
                            }
                            bits.finish_part(bit);
                        }
                        bits.add_piece(1 << thread, 0xff << (8 * thread), (1 << THREADS) - 1);
                    });
                }
                for (bit, chunk) in chunks.0.iter().enumerate() {
                    #[expect(unsafe_code, reason = "programs read the words without a call")]
                    // SAFETY: there are words for all bits, which are atomic.
                    let word = unsafe { AtomicU64::from_ptr(bits.as_ptr().add(bit / 64).cast_mut()) };
                    while word.load(Ordering::Acquire) >> (bit % 64) & 1 == 0 {
                        std::thread::yield_now();
                    }
                    #[expect(unsafe_code, reason = "the program reads what the bit stands for")]
                    // SAFETY: the bit was seen, so nobody writes any more.
                    let found = chunk.each_ref().map(|part| unsafe { *part.get() });
                    assert_eq!(found, [0, 1, 2].map(|thread| bit * round + thread));
                }
            });
            assert_eq!((bits.word(0), bits.word(1), bits.value()), (u64::MAX, 0x3f, Some(0xff_ffff)));
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::primitives::{Arc, UnsafeCell};

    /// Memory of a chunk, of which each thread writes its own byte.
    struct Chunk([UnsafeCell<u8>; 2]);

    // SAFETY: each cell is written by one thread, and read by another only after it saw the bit; loom says so where that does not hold.
    #[expect(
        unsafe_code,
        reason = "loom's cells are not Sync, and that they are used as if they were is what is tried"
    )]
    unsafe impl Sync for Chunk {}
    // SAFETY: as above.
    #[expect(unsafe_code, reason = "as above")]
    unsafe impl Send for Chunk {}

    fn shared(parts: [u8; 2]) -> Arc<(Bits, Chunk)> {
        let parts = parts.into_iter().map(AtomicU8::new).collect();
        let bits = Bits { words: Box::new([AtomicU64::new(0)]), parts, ..Bits::default() };
        Arc::new((bits, Chunk([UnsafeCell::new(0), UnsafeCell::new(0)])))
    }

    fn write(chunk: &Chunk, at: usize) {
        #[expect(unsafe_code, reason = "the payload of a packet")]
        // SAFETY: only this thread writes the cell, and nobody reads it before the bit is set.
        chunk.0[at].with_mut(|byte| unsafe { *byte = 1 });
    }

    fn read(chunk: &Chunk, at: usize) -> u8 {
        #[expect(unsafe_code, reason = "the program reads what the bit stands for")]
        // SAFETY: the bit was seen, so nobody writes any more.
        chunk.0[at].with(|byte| unsafe { *byte })
    }

    #[test]
    fn who_sees_the_bit_of_two_threads_sees_what_both_wrote() {
        loom::model(|| {
            let all = shared([2, 0]);
            let threads = [0, 1].map(|at| {
                let all = Arc::clone(&all);
                loom::thread::spawn(move || {
                    write(&all.1, at);
                    all.0.finish_part(0);
                })
            });
            if all.0.word(0) == 1 {
                assert_eq!((read(&all.1, 0), read(&all.1, 1)), (1, 1));
            }
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(all.0.word(0), 1, "the last one sets it");
        });
    }

    #[test]
    fn no_bit_of_a_word_is_lost_when_two_threads_set_theirs() {
        loom::model(|| {
            let all = shared([0, 0]);
            let other = Arc::clone(&all);
            let thread = loom::thread::spawn(move || {
                write(&other.1, 1);
                other.0.set(1);
            });
            write(&all.1, 0);
            all.0.set(0);
            if all.0.word(0) & 2 != 0 {
                assert_eq!(read(&all.1, 1), 1);
            }
            thread.join().unwrap();
            assert_eq!(all.0.word(0), 3);
        });
    }

    #[test]
    fn a_word_is_whole_when_both_pieces_are_there_and_not_before() {
        loom::model(|| {
            let all = shared([0, 0]);
            let threads = [(1, 0x0f), (2, 0xf0)].map(|(piece, bits)| {
                let all = Arc::clone(&all);
                loom::thread::spawn(move || all.0.add_piece(piece, bits, 3))
            });
            assert!(all.0.value().is_none_or(|value| value == 0xff));
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(all.0.value(), Some(0xff));
        });
    }
}
