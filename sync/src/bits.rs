//! A bitmap that several NIC threads set and a program reads. A bit is set once every thread that works on the bit's range has finished its
//! part. A reader that sees the bit also sees everything those threads wrote before. Next to the bits is one word of 32 bits that arrives
//! in pieces.

use crate::primitives::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// The bitmap; all bits are clear at first.
#[derive(Debug, Default)]
pub struct Bits {
    words: Box<[AtomicU64]>,
    /// For bits shared by several threads: for each bit, the number of threads that have not finished their part.
    parts: Box<[AtomicU8]>,
    /// The value of the word, the pieces of it that have arrived, and whether all pieces have arrived.
    value: AtomicU32,
    pieces: AtomicU32,
    whole: AtomicU32,
}

impl Bits {
    /// Creates a bitmap of `bits` bits, all of which are set by one thread.
    pub fn new(bits: usize) -> Bits {
        Bits { words: (0..bits.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(), ..Bits::default() }
    }

    /// The number of bits that the bitmap has room for.
    pub fn capacity(&self) -> usize {
        self.words.len() * 64
    }

    /// Clears the first `bits` bits and the word. `parts` gives the number of threads that work on each bit; without it, one thread sets
    /// every bit.
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

    /// Returns 64 bits, the first one in the least significant place.
    #[inline]
    pub fn word(&self, index: usize) -> u64 {
        self.words.get(index).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// The words of the bitmap. They are written with release ordering; read them with acquire ordering.
    pub fn as_ptr(&self) -> *const u64 {
        self.words.as_ptr().cast()
    }

    /// Sets a bit when only one thread sets bits at all: no other thread can write between the load and the store.
    #[inline]
    pub fn set_alone(&self, bit: usize) {
        let word = &self.words[bit / 64];
        word.store(word.load(Ordering::Relaxed) | 1 << (bit % 64), Ordering::Release);
    }

    /// Sets a bit that belongs to one thread, while other threads set other bits.
    #[inline]
    pub fn set(&self, bit: usize) {
        self.words[bit / 64].fetch_or(1 << (bit % 64), Ordering::Release);
    }

    /// Finishes one thread's part of a bit; the last thread sets the bit. Each thread acquires what the threads before it wrote, so the bit
    /// covers the writes of all of them.
    #[inline]
    pub fn finish_part(&self, bit: usize) {
        if self.parts[bit].fetch_sub(1, Ordering::AcqRel) == 1 {
            self.set(bit);
        }
    }

    /// Adds a piece of the word: bits that are in no other piece. `all` is the mask of all pieces.
    pub fn add_piece(&self, piece: u32, bits: u32, all: u32) {
        self.value.fetch_or(bits, Ordering::Relaxed);
        // Each thread acquires what the threads before it added.
        if self.pieces.fetch_or(piece, Ordering::AcqRel) | piece == all {
            self.whole.store(1, Ordering::Release);
        }
    }

    /// Sets the whole word at once.
    pub fn set_value(&self, value: u32) {
        self.value.store(value, Ordering::Relaxed);
        self.whole.store(1, Ordering::Release);
    }

    /// The word, once all its pieces have arrived.
    pub fn value(&self) -> Option<u32> {
        (self.whole.load(Ordering::Acquire) == 1).then(|| self.value.load(Ordering::Relaxed))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::UnsafeCell;

    use super::*;

    /// Memory of several chunks; each thread writes its own part of each chunk.
    struct Chunks([[UnsafeCell<usize>; THREADS]; BITS]);

    // SAFETY: each cell is written by one thread, and another thread reads the cell only after it saw the bit; miri reports a violation.
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
                        // Each thread starts at another bit.
                        for i in 0..BITS {
                            let bit = (i + thread * BITS / THREADS) % BITS;
                            #[expect(unsafe_code, reason = "the payload of a packet")]
                            // SAFETY: only this thread writes the cell, and no thread reads the cell before the bit is set.
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
                    // SAFETY: the pointer stays within the words, which cover all bits and are atomic.
                    let word = unsafe { AtomicU64::from_ptr(bits.as_ptr().add(bit / 64).cast_mut()) };
                    while word.load(Ordering::Acquire) >> (bit % 64) & 1 == 0 {
                        std::thread::yield_now();
                    }
                    #[expect(unsafe_code, reason = "the program reads what the bit stands for")]
                    // SAFETY: the bit was seen, so no thread writes the cell any more.
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

    /// Memory of one chunk; each thread writes its own byte.
    struct Chunk([UnsafeCell<u8>; 2]);

    // SAFETY: each cell is written by one thread, and another thread reads the cell only after it saw the bit; loom reports a violation.
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
        // SAFETY: only this thread writes the cell, and no thread reads the cell before the bit is set.
        chunk.0[at].with_mut(|byte| unsafe { *byte = 1 });
    }

    fn read(chunk: &Chunk, at: usize) -> u8 {
        #[expect(unsafe_code, reason = "the program reads what the bit stands for")]
        // SAFETY: the bit was seen, so no thread writes the cell any more.
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
