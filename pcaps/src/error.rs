//! Why a capture file cannot be read, or cannot be read further.

use std::io;

/// Why a capture could not be read. What stood before the fault has been handed out already.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is not a single byte.
    #[error("the capture is empty: not even a file header was written")]
    EmptyFile,
    /// The first bytes are of no capture format.
    #[error("not a pcap or pcapng capture: it begins with the bytes {:02x} {:02x} {:02x} {:02x}", .magic[0], .magic[1], .magic[2], .magic[3])]
    NotACapture {
        /// The first four bytes, in the order of the file.
        magic: [u8; 4],
    },
    /// A compressed file; reading it is for the tool that compressed it.
    #[error("the file is compressed with {with}: decompress it first, e.g. `{with} -dc FILE`")]
    Compressed {
        /// The program that decompresses it.
        with: &'static str,
    },
    /// A capture format in a version whose layout is not known here.
    #[error("{format} version {major}.{minor} is not supported")]
    UnsupportedVersion {
        /// `pcap` or `pcapng`.
        format: &'static str,
        /// Major version in the file.
        major: u16,
        /// Minor version in the file.
        minor: u16,
    },
    /// The file ends within a header, a record or a block.
    #[error("the capture is cut off after {packets} packets: what begins at byte {offset} is not complete")]
    TruncatedFile {
        /// Packets read before.
        packets: u64,
        /// Where the incomplete part begins; cut off here, the file would be a whole one (or, at 0, an empty one).
        offset: u64,
    },
    /// A field holds a value that breaks the format; what follows cannot be trusted.
    #[error("the capture is damaged at byte {offset}, after {packets} packets: {why}")]
    Damaged {
        /// Packets read before.
        packets: u64,
        /// Where the damaged header, record or block begins.
        offset: u64,
        /// The rule it breaks.
        why: &'static str,
    },
    /// A record claims more bytes than any packet has ([`crate::MAX_CAPTURED`]).
    #[error("the capture is damaged at byte {offset}, after {packets} packets: a record claims {length} bytes")]
    UnreasonableLength {
        /// Packets read before.
        packets: u64,
        /// Where the record or block begins.
        offset: u64,
        /// The claimed length.
        length: u64,
    },
    /// The source of the bytes failed.
    #[error("the capture cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// How far reading has come: where an error is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// Packets read before.
    pub(crate) packets: u64,
    /// Where the current header, record or block begins.
    pub(crate) offset: u64,
}

impl Place {
    pub(crate) fn truncated(self) -> Error {
        Error::TruncatedFile { packets: self.packets, offset: self.offset }
    }

    pub(crate) fn damaged(self, why: &'static str) -> Error {
        Error::Damaged { packets: self.packets, offset: self.offset, why }
    }

    pub(crate) fn unreasonable(self, length: usize) -> Error {
        Error::UnreasonableLength { packets: self.packets, offset: self.offset, length: length as u64 }
    }
}
