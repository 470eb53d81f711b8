//! How a WRITE is divided into messages of the SDK and groups with parity: both ends reckon it alike from its length (SDR-RDMA §4.1.2).
//!
//! A WRITE is chunks. k of them are a data message; the parity of a group of k chunks is a message, too. Without interleaving a group is the
//! chunks of a data message. With it, `interleave` data messages are a block, of whose G groups group g has the chunks g, g + G, g + 2 G and
//! so on, so that a burst of losses falls on many groups. The messages of a block follow each other, first those of data, then those of
//! parity. Without parity a WRITE is one data message.

use softnic_codes::{Code, Family};

use super::{ReliableAttr, Scheme};

/// How WRITEs of a connection are divided.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    pub(super) chunk: u32,
    pub(super) mtu: u32,
    /// Chunks of a data message; as many as there are, where there is no parity.
    k: u32,
    m: u32,
    /// Further rows that may be asked for of a group, at most.
    spare: u32,
    family: Family,
    interleave: u32,
}

/// A part of a WRITE that is complete by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Block {
    /// Its first chunk, and how many there are.
    pub(super) first: u32,
    pub(super) chunks: u32,
    /// Bytes.
    pub(super) len: u64,
    /// Its data messages, and its groups.
    pub(super) groups: u32,
    /// Messages of parity: one for each group, or none.
    parities: u32,
}

/// Chunks that have parity together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) chunks: u32,
    /// Rows of parity that are sent with it, and further ones that may be asked for.
    pub(super) rows: u32,
    pub(super) spare: u32,
    /// Bytes of a row: those of a chunk, or of the packets of the only one that there is.
    pub(super) row_len: u32,
}

impl Group {
    /// Bytes of its parity.
    pub(super) fn parity_len(&self) -> u64 {
        u64::from(self.rows) * u64::from(self.row_len)
    }

    /// Bytes of the message that its parity is sent in, which has room for the further rows.
    pub(super) fn message_len(&self) -> u64 {
        u64::from(self.rows + self.spare) * u64::from(self.row_len)
    }
}

impl Layout {
    pub(super) fn new(attr: &ReliableAttr) -> Layout {
        let (chunk, mtu) = (attr.qp.chunk, attr.qp.mtu.bytes());
        match attr.scheme {
            Scheme::Sr | Scheme::Nack => {
                Layout { chunk, mtu, k: u32::MAX, m: 0, spare: 0, family: Family::Xor, interleave: 1 }
            }
            Scheme::Ec(p) => Layout {
                chunk,
                mtu,
                k: p.k.into(),
                m: p.m.into(),
                spare: attr.spare(),
                family: p.family,
                interleave: p.interleave.max(1).into(),
            },
        }
    }

    /// Chunks of a data message.
    pub(super) fn k(&self) -> u32 {
        self.k
    }

    /// Whether there are submessages, and what is lost may be computed.
    pub(super) fn is_coded(&self) -> bool {
        self.k != u32::MAX
    }

    /// Bytes of the longest WRITE, where the peer's longest message has so many: chunks have numbers of 32 bits.
    pub(super) fn longest(&self, message: u64) -> u64 {
        match self.is_coded() {
            true => u64::from(self.chunk) * (1 << 26),
            false => message,
        }
    }

    /// Chunks of a WRITE: one without bytes has one, too.
    pub(super) fn chunks(&self, len: u64) -> u32 {
        len.div_ceil(self.chunk.into()).clamp(1, u32::MAX.into()) as u32
    }

    fn block_chunks(&self) -> u32 {
        self.k.saturating_mul(self.interleave)
    }

    /// Blocks of a WRITE.
    pub(super) fn blocks(&self, len: u64) -> u32 {
        self.chunks(len).div_ceil(self.block_chunks())
    }

    /// The block that a chunk is in.
    pub(super) fn block_of(&self, chunk: u32) -> u32 {
        chunk / self.block_chunks()
    }

    /// A block of a WRITE.
    pub(super) fn block(&self, len: u64, index: u32) -> Block {
        let first = index * self.block_chunks();
        let chunks = (self.chunks(len) - first).min(self.block_chunks());
        let offset = u64::from(first) * u64::from(self.chunk);
        let bytes = (len - offset).min(u64::from(chunks) * u64::from(self.chunk));
        let groups = chunks.div_ceil(self.k);
        Block { first, chunks, len: bytes, groups, parities: if self.m > 0 && len > 0 { groups } else { 0 } }
    }

    /// Where the bytes of a chunk of a block begin in the block, and how many there are.
    pub(super) fn bytes_of(&self, block: &Block, chunk: u32) -> (u64, u32) {
        let offset = u64::from(chunk) * u64::from(self.chunk);
        (offset, (block.len - offset.min(block.len)).min(self.chunk.into()) as u32)
    }

    /// The data message of a block that has a chunk of it.
    pub(super) fn message_of(&self, chunk: u32) -> u32 {
        chunk / self.k
    }

    /// The first chunk of a data message of a block, where its bytes begin in the block, and how many there are.
    pub(super) fn data(&self, block: &Block, message: u32) -> (u32, u64, u64) {
        let first = message * self.k.min(block.chunks);
        let offset = u64::from(first) * u64::from(self.chunk);
        let len = u64::from(self.k) * u64::from(self.chunk);
        (first, offset, (block.len - offset).min(len))
    }

    /// A group of a block.
    pub(super) fn group(&self, block: &Block, group: u32) -> Group {
        let chunks = (block.chunks - group).div_ceil(block.groups);
        // One that is shorter than k has its share of parity, or as many rows as chunks where that is more; but no more than the code has.
        let share = (chunks * self.m).div_ceil(self.k).max(chunks).min(self.m);
        let rows = match self.family {
            // The others would be zeros.
            Family::Xor => share.min(chunks),
            Family::Mds if chunks == self.k => self.m,
            Family::Mds => share,
        };
        let first = if chunks == 1 { self.bytes_of(block, group).1 } else { self.chunk };
        let row_len = first.div_ceil(self.mtu) * self.mtu;
        // Of rows that are shorter than a chunk several have one bit: one that is never sent would hide the others.
        let spare = if row_len == self.chunk { self.spare.min(rows) } else { 0 };
        Group { chunks, rows, spare, row_len }
    }

    /// The number of a group of a block among those of its WRITE.
    pub(super) fn group_number(&self, block: &Block, group: u32) -> u32 {
        self.block_of(block.first) * self.interleave + group
    }

    /// The block of a WRITE that has the group of this number, and which of its groups it is.
    pub(super) fn place_of(&self, number: u32) -> (u32, u32) {
        (number / self.interleave, number % self.interleave)
    }

    /// The code of a group.
    pub(super) fn code(&self, group: &Group) -> Option<Code> {
        Code::new(self.family, group.chunks as usize, group.rows as usize).ok()
    }

    /// Bytes of a submessage.
    pub(super) fn submessage(&self) -> u64 {
        u64::from(self.k) * u64::from(self.chunk)
    }

    /// Parity for each byte of data.
    pub(super) fn parity_share(&self) -> f64 {
        f64::from(self.m) / f64::from(self.k)
    }

    /// Bytes of the longest parity of a group, which is also the longest of further rows.
    pub(super) fn longest_parity(&self) -> u64 {
        u64::from(self.m) * u64::from(self.chunk)
    }

    /// Bytes of the longest message that parity is sent in.
    pub(super) fn longest_parity_message(&self) -> u64 {
        u64::from(self.m + self.spare) * u64::from(self.chunk)
    }
}

impl Block {
    /// Messages of the SDK.
    pub(super) fn messages(&self) -> u32 {
        self.groups + self.parities
    }

    pub(super) fn is_protected(&self) -> bool {
        self.parities > 0
    }

    /// The group of a chunk, and which of its chunks it is.
    pub(super) fn group_of(&self, chunk: u32) -> (u32, u32) {
        (chunk % self.groups, chunk / self.groups)
    }

    /// A chunk of a group.
    pub(super) fn chunk_of(&self, group: u32, index: u32) -> u32 {
        index * self.groups + group
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use softnic_wire::PathMtu;

    use super::super::{Fallback, Protection};
    use super::*;
    use crate::attr::QpAttr;

    fn layout(scheme: &str, chunk: u32, interleave: u8) -> Layout {
        let scheme = match scheme.parse().unwrap() {
            Scheme::Ec(p) => Scheme::Ec(Protection { interleave, ..p }),
            other => other,
        };
        let qp = QpAttr { chunk, mtu: PathMtu::B1024, ..QpAttr::default() };
        Layout::new(&ReliableAttr { scheme, qp, ..ReliableAttr::default() })
    }

    #[test]
    fn edges_are_defined() {
        let plain = layout("sdr-sr", 1024, 1);
        assert_eq!((plain.chunks(0), plain.blocks(0), plain.blocks(1 << 40)), (1, 1, 1));
        let block = plain.block(5000, 0);
        assert_eq!((block.chunks, block.groups, block.messages()), (5, 1, 1));
        assert_eq!(plain.data(&block, 0), (0, 0, 5000));
        // Whole submessages, one that is shorter, a chunk that is shorter.
        let ec = layout("sdr-ec:4,2", 2048, 1);
        assert_eq!((ec.blocks(4 * 2048), ec.blocks(4 * 2048 + 1)), (1, 2));
        let last = ec.block(4 * 2048 + 1, 1);
        assert_eq!((last.first, last.chunks, last.len, last.messages()), (4, 1, 1, 2));
        assert_eq!(ec.group(&last, 0), Group { chunks: 1, rows: 1, spare: 0, row_len: 1024 });
        assert_eq!(ec.group(&ec.block(4 * 2048, 0), 0), Group { chunks: 4, rows: 2, spare: 0, row_len: 2048 });
        // Nothing is protected where there is nothing, or no parity.
        assert_eq!(ec.block(0, 0).messages(), 1);
        assert_eq!(layout("sdr-ec:4,0", 2048, 1).block(4 * 2048, 0).messages(), 1);
        // m more than k: as many rows of a code that has them, as many as chunks of one whose other rows were zeros.
        let group = |scheme: &str, len: u64| {
            let layout = layout(scheme, 1024, 1);
            layout.group(&layout.block(len, 0), 0)
        };
        assert_eq!(group("sdr-ec:2,5", 2048).rows, 5);
        assert_eq!(group("sdr-ec:2,5", 1000).rows, 3);
        assert_eq!(group("sdr-xor:2,5", 2048).rows, 2);
        assert_eq!(group("sdr-ec:1,3", 1000), Group { chunks: 1, rows: 3, spare: 0, row_len: 1024 });
        assert_eq!(group("sdr-ec:32,8", 20 * 1024).rows, 8);
        assert_eq!(group("sdr-ec:32,8", 3 * 1024).rows, 3);
    }

    #[test]
    fn there_are_as_many_further_rows_as_rows_where_the_code_has_them() {
        let group = |scheme: &str, chunk: u32, len: u64| {
            let qp = QpAttr { chunk, mtu: PathMtu::B1024, ..QpAttr::default() };
            let scheme = scheme.parse().unwrap();
            let attr = ReliableAttr { scheme, qp, fallback: Fallback::Rows, ..ReliableAttr::default() };
            let layout = Layout::new(&attr);
            let group = layout.group(&layout.block(len, 0), 0);
            assert!(group.message_len() <= layout.longest_parity_message());
            assert!(layout.longest_parity_message() <= attr.data().max_message);
            (group.rows, group.spare)
        };
        assert_eq!(group("sdr-ec:32,8", 1024, 1 << 20), (8, 8));
        assert_eq!(group("sdr-ec:32,8", 1024, 3000), (3, 3));
        assert_eq!([group("sdr-ec:250,4", 1024, 1 << 20), group("sdr-ec:240,16", 1024, 1 << 20)], [(4, 2), (16, 0)]);
        assert_eq!(group("sdr-ec:4,0", 1024, 1 << 20), (0, 0));
        // The rows of a message of one packet share bits of chunks of three.
        assert_eq!([group("sdr-ec:4,2", 3072, 1000), group("sdr-ec:4,2", 3072, 3000)], [(1, 0), (1, 1)]);
    }

    #[test]
    fn interleaved_groups_have_every_so_manieth_chunk() {
        let layout = layout("sdr-ec:4,2", 1024, 3);
        let block = layout.block(10 * 1024, 0);
        assert_eq!((block.chunks, block.groups, block.messages()), (10, 3, 6));
        let of = |g| (0..layout.group(&block, g).chunks).map(|i| block.chunk_of(g, i)).collect::<Vec<_>>();
        assert_eq!([of(0), of(1), of(2)], [vec![0, 3, 6, 9], vec![1, 4, 7], vec![2, 5, 8]]);
        assert_eq!([0, 1, 2].map(|m| layout.data(&block, m)), [(0, 0, 4096), (4, 4096, 4096), (8, 8192, 2048)]);
    }

    proptest! {
        /// Each byte is in one chunk, one data message and one group.
        #[test]
        fn all_of_it_is_covered_once(k in 1usize..9, m in 0usize..6, interleave in 1u8..5, packets in 1u32..4, len in 0u64..200_000) {
            let layout = layout(&format!("sdr-ec:{k},{m}"), packets * 1024, interleave);
            let mut chunk = 0;
            let mut offset = 0;
            for index in 0..layout.blocks(len) {
                let block = layout.block(len, index);
                prop_assert_eq!(block.first, chunk);
                prop_assert_eq!(layout.block_of(chunk), index);
                let mut data = 0;
                for message in 0..block.groups {
                    let (first, at, bytes) = layout.data(&block, message);
                    prop_assert_eq!(at, data);
                    prop_assert_eq!(layout.message_of(first), message);
                    prop_assert!(bytes > 0 || len == 0);
                    data += bytes;
                }
                prop_assert_eq!(data, block.len);
                let mut in_groups = vec![0; block.chunks as usize];
                for g in 0..block.groups {
                    let group = layout.group(&block, g);
                    prop_assert!(group.chunks >= 1 && group.chunks <= k as u32);
                    prop_assert!(group.rows <= m as u32 && (group.rows > 0 || m == 0));
                    prop_assert!(group.parity_len() <= layout.longest_parity());
                    prop_assert_eq!(layout.place_of(layout.group_number(&block, g)), (index, g));
                    for i in 0..group.chunks {
                        let at = block.chunk_of(g, i);
                        prop_assert_eq!(block.group_of(at), (g, i));
                        prop_assert!(layout.bytes_of(&block, at).1 <= group.row_len);
                        in_groups[at as usize] += 1;
                    }
                }
                prop_assert!(in_groups.iter().all(|&n| n == 1));
                chunk += block.chunks;
                offset += block.len;
            }
            prop_assert_eq!((chunk, offset), (layout.chunks(len), len));
        }
    }
}
