//! How a message of XP is segmented: the bytes in each packet, plain or strided (OptiNIC §3.2 b).
//!
//! A message consists of blocks, each of the length of a full packet's payload. Without a stride, a packet is a block. With stride S, S
//! blocks form a group, which is sent as S packets: packet j of the group contains the j-th part of each block, so that a lost packet costs
//! each block 1/S of its bytes. If fewer than S blocks remain at the end of a message, they form groups of the powers of two that they sum
//! up to, the largest first. The part that fills no block is sent without a stride.

use std::ops::Range;

use softnic_wire::PathMtu;

use crate::BestEffort;
use crate::memory::Runs;

/// The bytes of one packet: runs of equal length, one block apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fragment {
    /// The offset of the first run in the message.
    pub(crate) offset: u32,
    /// Total length of the runs in bytes.
    pub(crate) len: u32,
    /// Number of runs; 1 means no stride.
    pub(crate) stride: u16,
}

impl Fragment {
    /// Packet `index` of a message of `len` bytes that is segmented with this stride.
    #[inline]
    pub(crate) fn of(index: u32, len: u32, stride: u16, mtu: PathMtu) -> Fragment {
        let block = mtu.bytes();
        if stride <= 1 {
            let offset = index * block;
            return Fragment { offset, len: block.min(len - offset), stride: 1 };
        }
        Fragment::strided(index, len, stride, block)
    }

    fn strided(index: u32, len: u32, stride: u16, block: u32) -> Fragment {
        let blocks = len / block;
        if index >= blocks {
            return Fragment { offset: blocks * block, len: len - blocks * block, stride: 1 };
        }
        // A run has at least one byte.
        let stride = u32::from(stride).min(block);
        let grouped = blocks & !(stride - 1);
        let (first, stride) = match index < grouped {
            true => (index & !(stride - 1), stride),
            false => {
                let (mut first, mut left) = (grouped, blocks - grouped);
                loop {
                    let group = 1 << left.ilog2();
                    if index - first < group {
                        break (first, group);
                    }
                    (first, left) = (first + group, left - group);
                }
            }
        };
        Fragment { offset: first * block + (index - first) * (block / stride), len: block, stride: stride as u16 }
    }

    /// The index of the packet in a message of `message_len` bytes, if the message can contain such a packet.
    #[inline]
    pub(crate) fn index(&self, message_len: u32, mtu: PathMtu) -> Option<u32> {
        let block = mtu.bytes();
        let (first, at) = (self.offset / block, self.offset % block);
        if self.stride == 1 {
            let rest = message_len.checked_sub(self.offset)?;
            let fits = at == 0 && self.len == rest.min(block) && (rest > 0 || message_len == 0);
            return fits.then_some(first);
        }
        let stride = u32::from(self.stride);
        let possible = self.stride.is_power_of_two() && self.stride <= BestEffort::MAX_STRIDE && stride <= block;
        if !possible || self.len != block {
            return None;
        }
        let run = block / stride;
        // All its blocks are full blocks of the message.
        let fits = at % run == 0 && first + stride <= message_len / block;
        fits.then_some(first + at / run)
    }

    /// The position of the runs in memory that contains the message in order.
    #[inline]
    pub(crate) fn runs(&self, mtu: PathMtu) -> Runs {
        Runs { run: self.len / u32::from(self.stride.max(1)), step: mtu.bytes(), count: u32::from(self.stride) }
    }

    /// The end of the last run in the message.
    #[inline]
    pub(crate) fn end(&self, mtu: PathMtu) -> u64 {
        u64::from(self.offset) + self.runs(mtu).span()
    }
}

/// The byte ranges of a message that did not arrive, according to the bitmap of its packets: the message has `message_len` bytes and is
/// segmented with `stride`. A bit outside the bitmap counts as missing. The ranges of one packet are in order; those of the next packet may
/// be before them.
pub fn missing_ranges(
    bitmap: &[u8],
    message_len: u32,
    stride: u16,
    mtu: PathMtu,
) -> impl Iterator<Item = Range<u32>> + '_ {
    let is_missing = |i: &u32| bitmap.get(*i as usize / 8).is_none_or(|byte| byte >> (i % 8) & 1 == 0);
    (0..mtu.packets(message_len)).filter(is_missing).flat_map(move |i| {
        let fragment = Fragment::of(i, message_len, stride, mtu);
        let Runs { run, step, count } = fragment.runs(mtu);
        (0..count).map(move |k| fragment.offset + k * step..fragment.offset + k * step + run)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MTUS: [PathMtu; 5] = [PathMtu::B256, PathMtu::B512, PathMtu::B1024, PathMtu::B2048, PathMtu::B4096];

    /// The positions of a fragment's bytes, one by one.
    fn bytes(f: &Fragment, mtu: PathMtu) -> Vec<u32> {
        let Runs { run, step, count } = f.runs(mtu);
        (0..count).flat_map(|k| (0..run).map(move |b| f.offset + k * step + b)).collect()
    }

    #[test]
    fn a_group_of_blocks_goes_as_as_many_packets_each_with_a_part_of_every_block() {
        let mtu = PathMtu::B256;
        // Seven blocks and ten bytes, with stride four: a group of four, one of two, one of one, and the rest.
        let cut: Vec<_> = (0..8).map(|i| Fragment::of(i, 7 * 256 + 10, 4, mtu)).collect();
        let expected = [(0, 4), (64, 4), (128, 4), (192, 4), (1024, 2), (1152, 2), (1536, 1), (1792, 1)];
        assert_eq!(cut.iter().map(|f| (f.offset, f.stride)).collect::<Vec<_>>(), expected);
        assert_eq!(bytes(&cut[1], mtu)[62..67], [126, 127, 320, 321, 322]);
        assert_eq!((cut[7].len, cut[6].len), (10, 256));
        assert_eq!(Fragment::of(0, 0, 4, mtu), Fragment { offset: 0, len: 0, stride: 1 });
    }

    #[test]
    fn a_fragment_that_cannot_be_one_of_its_message_has_no_number() {
        let mtu = PathMtu::B256;
        let index = |offset, len, stride| Fragment { offset, len, stride }.index(1100, mtu);
        assert_eq!((index(0, 256, 1), index(1024, 76, 1), index(64, 256, 4)), (Some(0), Some(4), Some(1)));
        let liars = [
            (1, 256, 1),
            (0, 255, 1),
            (1024, 77, 1),
            (1280, 0, 1),
            (2048, 256, 1),
            (0, 256, 0),
            (0, 256, 3),
            (0, 256, 4096),
            (0, 128, 2),
            (1, 256, 2),
            (1024, 256, 2),
            (u32::MAX, 256, 2),
            (256, 256, 4),
        ];
        for (offset, len, stride) in liars {
            assert_eq!(index(offset, len, stride), None, "{offset} {len} {stride}");
        }
        assert_eq!(Fragment { offset: 0, len: 0, stride: 1 }.index(0, mtu), Some(0));
    }

    proptest! {
        /// Every byte of a message is in one packet, and the index of each packet is recovered from its fields.
        #[test]
        fn packets_have_every_byte_of_the_message_once(len in 0u32..70_000, log in 0u32..=11, mtu in 0usize..5) {
            let (mtu, stride) = (MTUS[mtu], 1u16 << log);
            let mut seen = vec![0u8; len as usize];
            for i in 0..mtu.packets(len) {
                let f = Fragment::of(i, len, stride, mtu);
                prop_assert_eq!(f.index(len, mtu), Some(i));
                prop_assert!(f.end(mtu) <= u64::from(len));
                bytes(&f, mtu).into_iter().for_each(|at| seen[at as usize] += 1);
            }
            prop_assert!(seen.iter().all(|&n| n == 1));
        }

        /// The ranges that the bitmap shows as missing are those that did not arrive.
        #[test]
        fn missing_ranges_are_those_of_the_packets_that_are_missing(
            len in 0u32..20_000, log in 0u32..=8, came in prop::collection::vec(any::<u8>(), 0..12),
        ) {
            let (mtu, stride) = (PathMtu::B256, 1u16 << log);
            let mut missing = vec![true; len as usize];
            let has = |i: u32| came.get(i as usize / 8).is_some_and(|b| b >> (i % 8) & 1 == 1);
            for i in (0..mtu.packets(len)).filter(|&i| has(i)) {
                bytes(&Fragment::of(i, len, stride, mtu), mtu).into_iter().for_each(|at| missing[at as usize] = false);
            }
            let mut told = vec![false; len as usize];
            missing_ranges(&came, len, stride, mtu).flatten().for_each(|at| told[at as usize] = true);
            prop_assert_eq!(told, missing);
        }
    }
}
