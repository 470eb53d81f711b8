//! What can be wrong with a code or with what is to be decoded.

use thiserror::Error;

/// A code that there is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CodeError {
    /// There must be data.
    #[error("a code has at least one data chunk")]
    NoData,
    /// More chunks than a code can tell apart.
    #[error("{k} data and {m} parity chunks are more than 256")]
    TooMany {
        /// Data chunks.
        k: usize,
        /// Parity chunks.
        m: usize,
    },
}

/// Why nothing was decoded. The data is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// More chunks are lost than the parities that are there can give back.
    #[error("{lost} data chunks are lost, and the {parities} parity chunks cannot give them back")]
    TooManyLost {
        /// Data chunks that are missing.
        lost: usize,
        /// Parity rows that are there.
        parities: usize,
    },
    /// A chunk has no bytes, or the data has more chunks than the code.
    #[error("{bytes} bytes of data in chunks of {chunk_len} are none of this code")]
    Geometry {
        /// Bytes of data.
        bytes: usize,
        /// Bytes of a chunk.
        chunk_len: usize,
    },
    /// The code has no such parity row.
    #[error("the code has no parity row {0}")]
    NoSuchRow(usize),
    /// A parity row was given twice.
    #[error("parity row {0} is there twice")]
    RowTwice(usize),
    /// A parity chunk has another length than chunks have.
    #[error("parity row {row} has {bytes} bytes")]
    ParityLength {
        /// The row.
        row: usize,
        /// Its bytes.
        bytes: usize,
    },
}
