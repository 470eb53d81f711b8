//! What a receiver of reliable messages tells its sender: what is there (ACK), or what it asks for (NACK) (SDR-RDMA §4.1).
//!
//! Reports go where the other control messages go. Each has what is known of its message, as far as it fits, and which messages are
//! complete, so a lost one costs time and nothing else, and an old one says nothing that is wrong.

/// Bytes before the bitmap.
pub const HEAD: usize = 56;
/// The version of these bytes.
const VERSION: u8 = 1;

/// What the bitmap of a report means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportKind {
    /// Chunks that are there.
    Ack,
    /// Chunks that are asked for.
    Nack,
    /// Messages that are complete, from `message` on: more than fit behind `done`.
    Done,
    /// Of a sender: the round trip in nanoseconds, as `len`.
    RoundTrip,
    /// Further rows of parity that are asked for: a byte for each submessage, how many of them in all.
    Rows,
}

/// A report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report<'a> {
    /// What the bitmap means.
    pub kind: ReportKind,
    /// The token of the end that it is for.
    pub token: u32,
    /// Counts the reports of its sender.
    pub sequence: u32,
    /// Messages that are complete: all below this number.
    pub done: u64,
    /// Those of the next 64 that are complete, the first in the lowest bit.
    pub done_ahead: u64,
    /// The message that the rest is about.
    pub message: u64,
    /// Bytes that its receive has; 0 where the rest is about none.
    pub len: u64,
    /// All chunks of it before this one are there.
    pub below: u32,
    /// The first chunk of the bitmap, or the first submessage.
    pub first: u32,
    /// Chunks from there on, the first in the lowest bit of the first byte; of rows a byte for each submessage.
    pub bitmap: &'a [u8],
}

impl<'a> Report<'a> {
    /// Bytes of a bitmap that a packet of so many has room for.
    pub const fn room(packet: usize) -> usize {
        packet.saturating_sub(HEAD)
    }

    /// Writes all but the bitmap, which the caller has behind it.
    pub fn emit_head(&self, b: &mut [u8; HEAD]) {
        b.fill(0);
        b[0] = VERSION;
        b[1] = match self.kind {
            ReportKind::Ack => 3,
            ReportKind::Nack => 4,
            ReportKind::Done => 5,
            ReportKind::RoundTrip => 6,
            ReportKind::Rows => 7,
        };
        b[4..8].copy_from_slice(&self.token.to_be_bytes());
        b[8..12].copy_from_slice(&self.sequence.to_be_bytes());
        b[12..16].copy_from_slice(&self.below.to_be_bytes());
        b[16..24].copy_from_slice(&self.done.to_be_bytes());
        b[24..32].copy_from_slice(&self.done_ahead.to_be_bytes());
        b[32..40].copy_from_slice(&self.message.to_be_bytes());
        b[40..48].copy_from_slice(&self.len.to_be_bytes());
        b[48..52].copy_from_slice(&self.first.to_be_bytes());
    }

    /// Reads the bytes; `None` where they are no report of this version.
    pub fn parse(b: &'a [u8]) -> Option<Report<'a>> {
        let (head, bitmap) = b.split_first_chunk::<HEAD>()?;
        let kind = match (head[0], head[1]) {
            (VERSION, 3) => ReportKind::Ack,
            (VERSION, 4) => ReportKind::Nack,
            (VERSION, 5) => ReportKind::Done,
            (VERSION, 6) => ReportKind::RoundTrip,
            (VERSION, 7) => ReportKind::Rows,
            _ => return None,
        };
        let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let long = |at: usize| u64::from(word(at)) << 32 | u64::from(word(at + 4));
        Some(Report {
            kind,
            token: word(4),
            sequence: word(8),
            below: word(12),
            done: long(16),
            done_ahead: long(24),
            message: long(32),
            len: long(40),
            first: word(48),
            bitmap,
        })
    }

    /// Whether a bit of the bitmap is set.
    pub fn has(&self, bit: u64) -> bool {
        let byte = usize::try_from(bit / 8).ok().and_then(|at| self.bitmap.get(at));
        byte.is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
    }

    /// The chunks, or messages from the first on, whose bits are set.
    pub fn chunks(&self) -> impl Iterator<Item = u32> + use<'a> {
        let (first, bitmap) = (self.first, self.bitmap);
        let bits = bitmap.iter().enumerate().filter(|(_, byte)| **byte != 0);
        bits.flat_map(move |(at, byte)| {
            (0..8).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| first.saturating_add(at as u32 * 8 + bit))
        })
    }

    /// The submessages of which further rows are asked for, by their numbers in the message, and how many of each.
    pub fn rows(&self) -> impl Iterator<Item = (u32, u8)> + use<'a> {
        let first = self.first;
        let asked = self.bitmap.iter().enumerate().filter(|(_, rows)| **rows != 0);
        asked.map(move |(at, rows)| (first.saturating_add(at as u32), *rows))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_written_is_read_byte_for_byte() {
        let bitmap = [0b101, 0, 0x80];
        let report = Report {
            kind: ReportKind::Nack,
            token: 0x0102_0304,
            sequence: 7,
            done: 0x1_0000_0002,
            done_ahead: 5,
            message: 9,
            len: 70_000,
            below: 3,
            first: 64,
            bitmap: &bitmap,
        };
        let mut head = [0xff; HEAD];
        report.emit_head(&mut head);
        assert_eq!(head[..16], [1, 4, 0, 0, 1, 2, 3, 4, 0, 0, 0, 7, 0, 0, 0, 3]);
        assert_eq!(head[16..32], [0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 5]);
        assert_eq!(head[32..48], [0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 1, 0x11, 0x70]);
        assert_eq!(head[48..], [0, 0, 0, 64, 0, 0, 0, 0]);
        let bytes = [&head[..], &bitmap].concat();
        assert_eq!(Report::parse(&bytes), Some(report));
        assert_eq!(report.chunks().collect::<Vec<_>>(), [64, 66, 87]);
        let rows = Report { kind: ReportKind::Rows, bitmap: &[0, 3, 0, 255], ..report };
        rows.emit_head(&mut head);
        assert_eq!((head[1], Report::parse(&[&head[..], rows.bitmap].concat())), (7, Some(rows)));
        assert_eq!(rows.rows().collect::<Vec<_>>(), [(65, 3), (67, 255)]);
        for (at, byte) in [(0, 2), (1, 1), (1, 8)] {
            let mut wrong = bytes.clone();
            wrong[at] = byte;
            assert_eq!(Report::parse(&wrong), None);
        }
        assert_eq!(Report::parse(&bytes[..HEAD - 1]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(report) = Report::parse(&bytes) {
                prop_assert!(report.chunks().count() <= 8 * report.bitmap.len());
                prop_assert!(report.rows().count() <= report.bitmap.len());
            }
        }
    }
}
