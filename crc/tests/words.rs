//! Memory that a program writes to while it is copied.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use softnic_crc::{copy, update};

/// A thread writes words of equal bytes while they are copied with every alignment of begin and end.
#[test]
fn an_aligned_word_that_a_program_writes_meanwhile_is_copied_whole() {
    const WORDS: usize = 40;
    let memory: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    let torn = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut value = 0u8;
            while !stop.load(Ordering::Relaxed) {
                value = value.wrapping_add(1);
                for word in &memory {
                    word.store(u64::from_ne_bytes([value; 8]), Ordering::Relaxed);
                }
            }
        });
        let mut torn = 0;
        for round in 0..2_000_000 {
            let (begin, len) = (round % 8, 100 + round / 8 % 150);
            let mut found = [0u8; 8 * WORDS];
            // SAFETY: the bytes are those of `memory`, which may change meanwhile.
            let crc = unsafe { copy(0, &[7; 20], memory.as_ptr().cast::<u8>().add(begin), &mut found[begin..][..len]) };
            assert_eq!(crc, update(update(0, &[7; 20]), &found[begin..][..len]), "the CRC of what was copied");
            let whole = begin.div_ceil(8)..(begin + len) / 8;
            torn += whole.filter(|&w| found[8 * w..8 * w + 8].iter().any(|&b| b != found[8 * w])).count();
        }
        stop.store(true, Ordering::Relaxed);
        torn
    });
    assert_eq!(torn, 0);
}
