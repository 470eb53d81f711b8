//! Places the payload of a packet with the guarantees that hardware gives to programs which poll memory: bytes appear in ascending order,
//! an aligned word of eight bytes appears whole, and the end appears last.
//!
//! memcpy guarantees none of this: it stores the last bytes of a copy early, and some variants store in no order at all. Here every store
//! is atomic or volatile, so that the compiler keeps the order, and x86 makes stores visible in the order in which they were made. Other
//! processors do not use the cache line stores: each of their stores is a release store.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Size of a word that is stored whole.
const WORD: usize = 8;

/// Size of a cache line, the unit in which the body is stored.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const LINE: usize = 64;

/// Copies `bytes` to `to`, in ascending order, with aligned words whole, and the last word by itself.
///
/// # Safety
/// `to` is valid for writes of `bytes.len()` bytes, which do not overlap `bytes`. Other threads may access them at the same time.
#[inline]
pub(super) unsafe fn place(to: *mut u8, bytes: &[u8]) {
    let (mut to, mut bytes) = (to, bytes);
    let head = to.align_offset(WORD).min(bytes.len());
    if head > 0 {
        // SAFETY: a part of the caller's range; the bytes before the first aligned word are inside one word.
        unsafe { store_within_word(to, &bytes[..head]) };
        (to, bytes) = (to.wrapping_add(head), &bytes[head..]);
    }
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if bytes.len() > 2 * LINE {
        let head = to.align_offset(LINE);
        // The last word is not part of the lines, even if the length is a multiple of the line size.
        let lines = (bytes.len() - head - 1) / LINE * LINE;
        // SAFETY: parts of the caller's range; `to` is aligned to a word, and then to a line.
        unsafe {
            store_words(to, &bytes[..head]);
            store_lines(to.wrapping_add(head), &bytes[head..head + lines]);
        }
        (to, bytes) = (to.wrapping_add(head + lines), &bytes[head + lines..]);
    }
    let tail = bytes.len() % WORD;
    let (words, end) = bytes.split_at(bytes.len() - tail);
    // SAFETY: the rest of the caller's range; `to` is aligned to a word, and the bytes after the last whole word are inside one word.
    unsafe {
        store_words(to, words);
        if tail > 0 {
            store_within_word(to.wrapping_add(words.len()), end);
        }
    }
}

/// Stores fewer than eight bytes inside one aligned word, in as few steps as the alignment permits.
///
/// # Safety
/// As for [`place`].
#[inline]
unsafe fn store_within_word(to: *mut u8, bytes: &[u8]) {
    let (mut to, mut bytes) = (to, bytes);
    while !bytes.is_empty() {
        // The largest power of two that `to` is aligned to and that does not exceed the remaining length.
        let room = 1 << bytes.len().ilog2();
        let len = room.min(1 << to.addr().trailing_zeros().min(2));
        let (part, rest) = bytes.split_at(len);
        // SAFETY: `len` bytes remain, and `to` is aligned to `len`.
        unsafe {
            match *part {
                [a, b, c, d] => {
                    AtomicU32::from_ptr(to.cast()).store(u32::from_ne_bytes([a, b, c, d]), Ordering::Release);
                }
                [a, b] => AtomicU16::from_ptr(to.cast()).store(u16::from_ne_bytes([a, b]), Ordering::Release),
                _ => AtomicU8::from_ptr(to).store(part[0], Ordering::Release),
            }
        }
        (to, bytes) = (to.wrapping_add(len), rest);
    }
}

/// Stores whole words.
///
/// # Safety
/// As for [`place`]; `to` is aligned to a word.
#[inline]
unsafe fn store_words(to: *mut u8, bytes: &[u8]) {
    let mut to = to.cast::<u64>();
    for word in bytes.as_chunks::<WORD>().0 {
        // SAFETY: guaranteed by the caller.
        unsafe { AtomicU64::from_ptr(to) }.store(u64::from_ne_bytes(*word), Ordering::Release);
        to = to.wrapping_add(1);
    }
}

/// Stores whole cache lines.
///
/// # Safety
/// As for [`place`]; `to` is aligned to a line.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
unsafe fn store_lines(to: *mut u8, bytes: &[u8]) {
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: guaranteed by the caller, and the processor has the instructions.
        unsafe { store_lines_whole(to, bytes) }
    } else {
        // SAFETY: guaranteed by the caller.
        unsafe { store_lines_by_quarters(to, bytes) }
    }
}

/// # Safety
/// As for [`store_lines`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx512f")]
unsafe fn store_lines_whole(to: *mut u8, bytes: &[u8]) {
    use std::arch::x86_64::{__m512i, _mm512_loadu_si512};
    let to = to.cast::<__m512i>();
    for (i, line) in bytes.as_chunks::<LINE>().0.iter().enumerate() {
        // SAFETY: guaranteed by the caller. Volatile, so that the loop does not become a call of memcpy.
        unsafe { to.wrapping_add(i).write_volatile(_mm512_loadu_si512(line.as_ptr().cast())) }
    }
}

/// # Safety
/// As for [`store_lines`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn store_lines_by_quarters(to: *mut u8, bytes: &[u8]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128};
    let to = to.cast::<__m128i>();
    for (i, quarter) in bytes.as_chunks::<{ LINE / 4 }>().0.iter().enumerate() {
        // SAFETY: guaranteed by the caller. Volatile, so that the loop does not become a call of memcpy.
        unsafe { to.wrapping_add(i).write_volatile(_mm_loadu_si128(quarter.as_ptr().cast())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every length and alignment up to a few lines: exactly the intended bytes are written.
    #[test]
    fn what_is_placed_is_what_came_and_nothing_beside_it() {
        const ROOM: usize = 512;
        let bytes: Vec<u8> = (0..ROOM).map(|i| i as u8 | 1).collect();
        for len in (0..=80).chain([127, 128, 129, 191, 192, 200, 255, 256, 300]) {
            for offset in 0..72 {
                let mut words = [0u64; ROOM / 8];
                let start = words.as_mut_ptr().cast::<u8>();
                // SAFETY: `offset + len` bytes are inside `words`.
                unsafe { place(start.wrapping_add(offset), &bytes[..len]) };
                let found: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
                assert_eq!(found[offset..offset + len], bytes[..len], "{len} bytes at {offset}");
                assert!(found[..offset].iter().all(|&b| b == 0), "{len} bytes at {offset}");
                assert!(found[offset + len..].iter().all(|&b| b == 0), "{len} bytes at {offset}");
            }
        }
    }

    /// The two ways to store lines have the same result.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[test]
    fn lines_are_stored_alike_with_and_without_wide_registers() {
        #[repr(align(64))]
        struct Lines([u8; 4 * LINE]);
        let bytes: Vec<u8> = (0..4 * LINE).map(|i| i as u8).collect();
        let mut lines = Lines([0; 4 * LINE]);
        // SAFETY: `lines` has as many bytes, and is aligned.
        unsafe { store_lines_by_quarters(lines.0.as_mut_ptr(), &bytes) };
        assert_eq!(lines.0[..], bytes[..]);
        if is_x86_feature_detected!("avx512f") {
            let mut lines = Lines([0; 4 * LINE]);
            // SAFETY: as above, and the processor has the instructions.
            unsafe { store_lines_whole(lines.0.as_mut_ptr(), &bytes) };
            assert_eq!(lines.0[..], bytes[..]);
        }
    }

    /// WRITEs of 8 bytes to 4 KiB, at every alignment of their end, by one thread into memory that another thread polls. A reader that
    /// finds the last word in place, a number, finds every byte before it, too.
    #[cfg(not(miri))]
    #[test]
    fn a_program_that_polls_the_last_word_finds_every_byte_in_front_of_it() {
        use std::sync::atomic::{AtomicUsize, fence};

        const SIZES: [usize; 10] = [8, 16, 24, 64, 100, 256, 512, 1024, 2048, 4096];
        const WRITES: usize = 200_000;
        /// Number of writes made without waiting for the reader, each in memory of its own.
        const SLOTS: usize = 64;
        const PATIENCE: u32 = 1 << 10;
        const SLOT: usize = 4096 + 64;
        let mut memory = vec![0u64; SLOTS * SLOT / WORD];
        let start = memory.as_mut_ptr().expose_provenance();
        // Length, address and number of each write. The bytes before the number are its lowest byte, which is not 0.
        let shape = |n: usize| {
            let (len, offset) = (SIZES[n % SIZES.len()], n / SIZES.len() % 64);
            (len, start + n % SLOTS * SLOT + offset, (n as u64) << 8 | (n as u64 % 255 + 1))
        };
        // Number of writes that the reader has seen: the reader polls for the next one.
        let seen = AtomicUsize::new(0);
        let torn = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut frame = [0u8; 4096];
                for n in 0..WRITES {
                    let (len, at, number) = shape(n);
                    frame[..len].fill(number as u8);
                    frame[len - WORD..len].copy_from_slice(&number.to_le_bytes());
                    // Waits for the reader, so that it looks while the bytes are stored; not for long while there is room.
                    let mut spins = 0;
                    while seen.load(Ordering::Acquire) < n {
                        spins += 1;
                        match (spins < PATIENCE, seen.load(Ordering::Acquire) + SLOTS > n) {
                            (true, _) => std::hint::spin_loop(),
                            (false, true) => break,
                            (false, false) => std::thread::yield_now(),
                        }
                    }
                    // SAFETY: `len` bytes are inside `memory`, which is used only by raw access until this scope ends.
                    unsafe { place(std::ptr::with_exposed_provenance_mut(at), &frame[..len]) };
                }
            });
            let mut found = [0u8; 4096];
            let torn = |&n: &usize| {
                let (len, at, number) = shape(n);
                let at = std::ptr::with_exposed_provenance::<u8>(at);
                let last = at.wrapping_add(len - WORD).cast::<[u8; WORD]>();
                let mut spins = 0u32;
                // SAFETY: the word is inside `memory`.
                while u64::from_le_bytes(unsafe { last.read_volatile() }) != number {
                    spins += 1;
                    if spins.is_multiple_of(1024) {
                        std::thread::yield_now();
                    }
                }
                fence(Ordering::Acquire);
                // SAFETY: `len` bytes are inside `memory`.
                unsafe { std::ptr::copy_nonoverlapping(at, found.as_mut_ptr(), len) };
                seen.store(n + 1, Ordering::Release);
                found[..len - WORD].iter().any(|&b| b != number as u8)
            };
            (0..WRITES).filter(torn).count()
        });
        assert_eq!(torn, 0, "of {WRITES} writes");
    }
}
