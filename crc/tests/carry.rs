//! The change of a CRC agrees with computing it anew, for every length behind the change.

use proptest::prelude::*;
use softnic_crc::{Change, carry, update};

/// Bytes that look random, and others for each seed.
fn noise(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    let mut draw = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 11) as u8
    };
    (0..len).map(|_| draw()).collect()
}

/// Each length from 0 to 10,000 behind some first bytes that are changed: the whole message is summed twice.
#[test]
fn every_length_behind_the_change() {
    let rest = noise(10_000, 1);
    for n in 0..=rest.len() {
        let head = 4 + n % 70;
        let crcs = [2, 3].map(|seed| update(0, &noise(head, seed * 0x1000 + n as u32)));
        assert_ne!(crcs[0], crcs[1], "a change");
        let anew = crcs.map(|crc| update(crc, &rest[..n]));
        assert_eq!(anew[0] ^ carry(crcs[0] ^ crcs[1], n), anew[1], "{n} bytes");
    }
}

/// Further than the table of powers goes, with bits of every place set.
#[test]
fn long_messages() {
    let rest = noise((1 << 20) + 7, 4);
    for n in (0..20).map(|bit| 1 << bit).flat_map(|n| [n - 1, n, n + 1, n + n / 2]).chain([65_535, rest.len()]) {
        let crcs = [0x1234_5678, n as u32];
        assert_eq!(update(crcs[0], &rest[..n]) ^ carry(crcs[0] ^ crcs[1], n), update(crcs[1], &rest[..n]), "{n} bytes");
    }
}

#[test]
fn what_did_not_change_changes_nothing() {
    assert_eq!(Change::default().finish(), 0);
    for n in 0..100 {
        assert_eq!((carry(0, n), carry(0xdead_beef, 0)), (0, 0xdead_beef));
    }
}

proptest! {
    /// Words anywhere in a message, also twice the same and across each other.
    #[test]
    fn words_anywhere(
        data in prop::collection::vec(any::<u8>(), 4..5000),
        words in prop::collection::vec((any::<prop::sample::Index>(), any::<u32>()), 0..20), crc: u32,
    ) {
        let (mut changed, mut change) = (data.clone(), Change::default());
        for (at, difference) in words {
            let at = at.index(data.len() - 3);
            changed[at..at + 4].iter_mut().zip(difference.to_le_bytes()).for_each(|(b, d)| *b ^= d);
            change.add(difference, data.len() - at);
        }
        prop_assert_eq!(update(crc, &data) ^ change.finish(), update(crc, &changed));
    }
}
