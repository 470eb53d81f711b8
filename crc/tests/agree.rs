//! All ways to a CRC agree with crc32fast, at every length, alignment and state.
#![allow(unsafe_code)]

use proptest::prelude::*;
use softnic_crc::{Mask, copy, masked, update};

fn expected(crc: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(crc);
    hasher.update(bytes);
    hasher.finalize()
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 23) as u8).collect()
}

fn copied(crc: u32, head: &[u8], src: &[u8], room: &mut [u8]) -> u32 {
    // SAFETY: `src` is a slice of as many bytes, and another one.
    unsafe { copy(crc, head, src.as_ptr(), &mut room[..src.len()]) }
}

#[test]
fn every_length() {
    let all = bytes(1200);
    for len in 0..=1200 {
        for crc in [0, !0, 0x1234_5678] {
            assert_eq!(update(crc, &all[..len]), expected(crc, &all[..len]), "{len} bytes behind {crc:#x}");
        }
    }
}

#[test]
fn every_length_of_headers_and_payload() {
    let all = bytes(700);
    for head in 0..=140 {
        for len in (0..=200).chain([256, 320, 512, 511]) {
            let (head, src) = (&all[..head], &all[150..150 + len]);
            let mut room = [0xaa; 600];
            let crc = copied(77, head, src, &mut room);
            assert_eq!(crc, expected(expected(77, head), src), "{} and {len} bytes", head.len());
            assert_eq!(&room[..len], src);
            assert!(room[len..].iter().all(|&b| b == 0xaa), "nothing behind the copy is written");
        }
    }
}

#[test]
fn nothing_in_front_of_the_copy_is_written() {
    let src = bytes(300);
    for len in 0..=300 {
        let mut room = [0xaa; 500];
        copied(0, &[1; 60], &src[..len], &mut room[100..]);
        assert!(room[..100].iter().chain(&room[100 + len..]).all(|&b| b == 0xaa), "{len} bytes");
    }
}

#[test]
fn every_length_behind_a_mask() {
    let all = bytes(500);
    for mask_len in [0, 1, 5, 37, 57, 64] {
        let ones: Vec<u8> = (0..mask_len).map(|i| [0xff, 0x0f, 0][i % 3]).collect();
        let mask = Mask::new(&ones);
        for len in 0..=400 {
            let mut plain = all[..len].to_vec();
            plain.iter_mut().zip(&ones).for_each(|(b, o)| *b |= o);
            for crc in [0, !0] {
                assert_eq!(masked(crc, &mask, &all[..len]), expected(crc, &plain), "{mask_len} over {len}");
            }
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_at_any_address(data in proptest::collection::vec(any::<u8>(), 0..5000), skip in 0usize..80, crc: u32, head in 0usize..140) {
        let from = &data[skip.min(data.len())..];
        let (head, src) = from.split_at(head.min(from.len()));
        let mut room = vec![0; src.len()];
        prop_assert_eq!(copied(crc, head, src, &mut room), expected(crc, from));
        prop_assert_eq!(room, src);
        prop_assert_eq!(update(crc, from), expected(crc, from));
    }
}
