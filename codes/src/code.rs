//! A code of either family: what users call, and the checks of what they give.

use std::fmt;

use crate::chunks::{Apart, Chunks, InOnePiece, Part, Rows};
use crate::error::{CodeError, DecodeError};
use crate::kernel::Kernel;
use crate::set::ChunkSet;
use crate::{mds, xor};

/// What kind of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// Parity row i is the sum of the data chunks j with j mod m = i.
    Xor,
    /// Any e parity rows give back any e lost chunks.
    Mds,
}

/// A code with k data and m parity chunks.
///
/// Data is one slice, in chunks of `chunk_len` bytes; the last may be shorter, and there may be fewer than k: bytes that are missing count as
/// zeros. Parity chunks have `chunk_len` bytes. Data that is shorter than one chunk needs no more parity than it has bytes: its length can be
/// given as `chunk_len`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code {
    family: Family,
    k: usize,
    m: usize,
    kernel: Kernel,
}

impl Code {
    /// XOR(k, m). Without parities nothing that is lost comes back; where m is more than k, the last m - k parities are zeros.
    pub fn xor(k: usize, m: usize) -> Result<Code, CodeError> {
        Code::new(Family::Xor, k, m)
    }

    /// MDS(k, m).
    pub fn mds(k: usize, m: usize) -> Result<Code, CodeError> {
        Code::new(Family::Mds, k, m)
    }

    /// A code of either family; k is at least one, and k + m at most 256.
    pub fn new(family: Family, k: usize, m: usize) -> Result<Code, CodeError> {
        if k == 0 {
            return Err(CodeError::NoData);
        }
        if k.saturating_add(m) > ChunkSet::CAPACITY {
            return Err(CodeError::TooMany { k, m });
        }
        Ok(Code { family, k, m, kernel: Kernel::best() })
    }

    /// The same code by other instructions, with the same parities.
    pub fn with_kernel(self, kernel: Kernel) -> Code {
        Code { kernel, ..self }
    }

    /// The family.
    pub fn family(&self) -> Family {
        self.family
    }

    /// The most data chunks.
    pub fn k(&self) -> usize {
        self.k
    }

    /// The parity chunks.
    pub fn m(&self) -> usize {
        self.m
    }

    /// The parity rows that there are: m of XOR; of MDS 256 - k, which is m and further ones for when those were not enough.
    pub fn rows(&self) -> usize {
        match self.family {
            Family::Xor => self.m,
            Family::Mds => ChunkSet::CAPACITY - self.k,
        }
    }

    /// The instructions.
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// Writes parity rows 0, 1 and so on, one to each buffer of `chunk_len` bytes.
    ///
    /// # Panics
    /// When the data has more than k chunks, `chunk_len` is zero, there are more buffers than rows, or one has another length.
    pub fn encode<P: AsMut<[u8]>>(&self, data: &[u8], chunk_len: usize, parities: &mut [P]) {
        self.encode_rows(0, data, chunk_len, parities);
    }

    /// [`Code::encode`] from row `first` on.
    ///
    /// # Panics
    /// As [`Code::encode`].
    pub fn encode_rows<P: AsMut<[u8]>>(&self, first: usize, data: &[u8], chunk_len: usize, parities: &mut [P]) {
        let part = Part { first_row: first, first_chunk: 0, add: false };
        self.encode_part(part, data, chunk_len, &mut apart(chunk_len, parities));
    }

    /// [`Code::encode`] from row `first` on, the rows one behind the other: as many as `parity` has chunks.
    ///
    /// # Panics
    /// As [`Code::encode`].
    pub fn encode_in_one_piece(&self, first: usize, data: &[u8], chunk_len: usize, parity: &mut [u8]) {
        let part = Part { first_row: first, first_chunk: 0, add: false };
        self.encode_part(part, data, chunk_len, &mut in_one_piece(chunk_len, parity));
    }

    /// Adds data chunks, from number `j` on, to parity rows 0, 1 and so on, in buffers that were zeros at first. When all chunks were added,
    /// in any order, the rows are what [`Code::encode`] writes. Several at a time cost less than one by one.
    ///
    /// # Panics
    /// As [`Code::encode`].
    pub fn add<P: AsMut<[u8]>>(&self, j: usize, data: &[u8], chunk_len: usize, parities: &mut [P]) {
        let part = Part { first_row: 0, first_chunk: j, add: true };
        self.encode_part(part, data, chunk_len, &mut apart(chunk_len, parities));
    }

    /// [`Code::add`] to rows that lie one behind the other.
    ///
    /// # Panics
    /// As [`Code::encode`].
    pub fn add_in_one_piece(&self, j: usize, data: &[u8], chunk_len: usize, parity: &mut [u8]) {
        let part = Part { first_row: 0, first_chunk: j, add: true };
        self.encode_part(part, data, chunk_len, &mut in_one_piece(chunk_len, parity));
    }

    fn encode_part(&self, part: Part, data: &[u8], chunk_len: usize, rows: &mut impl Rows) {
        let chunks = Chunks::new(data.len(), chunk_len).expect("chunks have bytes");
        let end = part.first_chunk.saturating_add(chunks.count());
        assert!(end <= self.k, "data chunks up to {end}, where the code has {}", self.k);
        let end = part.first_row.saturating_add(rows.count());
        assert!(end <= self.rows(), "parity rows up to {end}, where the code has {}", self.rows());
        match self.family {
            Family::Xor => xor::encode(self.kernel, self.m, part, data, chunks, rows),
            Family::Mds => mds::encode(self.kernel, self.k, part, data, chunks, rows),
        }
    }

    /// Whether all of the first `chunks` data chunks are there or can be computed. Costs a few instructions.
    pub fn can_recover(&self, chunks: usize, present: &ChunkSet, parities: &ChunkSet) -> bool {
        let lost = ChunkSet::below(chunks).without(present);
        match self.family {
            Family::Xor => xor::can_recover(self.m, &lost, parities),
            Family::Mds => lost.len() <= parities.len(),
        }
    }

    /// Computes the data chunks that are not present, in place; what these hold before does not matter. `parities` are rows with their
    /// numbers, in any order, and may be more than are needed. Says how many chunks were computed. In an error nothing has changed.
    pub fn decode<P: AsRef<[u8]>>(
        &self,
        data: &mut [u8],
        chunk_len: usize,
        present: &ChunkSet,
        parities: &[(usize, P)],
    ) -> Result<usize, DecodeError> {
        let mut rows = ChunkSet::EMPTY;
        let mut places = [0; ChunkSet::CAPACITY];
        for (place, (row, parity)) in parities.iter().enumerate() {
            let (row, bytes) = (*row, parity.as_ref().len());
            if row >= self.rows() {
                return Err(DecodeError::NoSuchRow(row));
            }
            if rows.contains(row) {
                return Err(DecodeError::RowTwice(row));
            }
            if bytes != chunk_len {
                return Err(DecodeError::ParityLength { row, bytes });
            }
            rows.insert(row);
            // As each row is there once, there are not more than 256.
            places[row] = place as u8;
        }
        let parity = |row: usize| parities[usize::from(places[row])].1.as_ref();
        self.decode_from(data, chunk_len, present, &rows, parity)
    }

    /// [`Code::decode`] from parity rows that lie one behind the other, beginning with row 0, of which those in `rows` are there.
    pub fn decode_in_one_piece(
        &self,
        data: &mut [u8],
        chunk_len: usize,
        present: &ChunkSet,
        rows: &ChunkSet,
        parity: &[u8],
    ) -> Result<usize, DecodeError> {
        if let Some(row) = rows.iter().find(|&row| row >= self.rows()) {
            return Err(DecodeError::NoSuchRow(row));
        }
        let room = parity.len().checked_div(chunk_len).unwrap_or(0);
        if let Some(row) = rows.iter().find(|&row| row >= room) {
            let bytes = parity.len().saturating_sub(row.saturating_mul(chunk_len));
            return Err(DecodeError::ParityLength { row, bytes });
        }
        self.decode_from(data, chunk_len, present, rows, |row| &parity[row * chunk_len..][..chunk_len])
    }

    fn decode_from<'p>(
        &self,
        data: &mut [u8],
        chunk_len: usize,
        present: &ChunkSet,
        rows: &ChunkSet,
        parity: impl Fn(usize) -> &'p [u8],
    ) -> Result<usize, DecodeError> {
        let chunks = Chunks::new(data.len(), chunk_len).filter(|chunks| chunks.count() <= self.k);
        let chunks = chunks.ok_or(DecodeError::Geometry { bytes: data.len(), chunk_len })?;
        let lost = ChunkSet::below(chunks.count()).without(present);
        if !self.can_recover(chunks.count(), present, rows) {
            return Err(DecodeError::TooManyLost { lost: lost.len(), parities: rows.len() });
        }
        if lost.is_empty() {
            return Ok(0);
        }
        match self.family {
            Family::Xor => xor::decode(self.kernel, self.m, data, chunks, &lost, parity),
            Family::Mds => {
                let needed = rows.iter().take(lost.len()).collect();
                mds::decode(self.kernel, self.k, data, chunks, &lost, &needed, parity);
            }
        }
        Ok(lost.len())
    }
}

fn apart<P: AsMut<[u8]>>(chunk_len: usize, parities: &mut [P]) -> Apart<'_, P> {
    let all_fit = parities.iter_mut().all(|parity| parity.as_mut().len() == chunk_len);
    assert!(all_fit, "a parity chunk has not the length of a chunk");
    Apart(parities)
}

fn in_one_piece(chunk_len: usize, parity: &mut [u8]) -> InOnePiece<'_> {
    assert!(chunk_len > 0 && parity.len().is_multiple_of(chunk_len), "no whole number of parity chunks");
    InOnePiece { bytes: parity, len: chunk_len }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Family::Xor => "xor",
            Family::Mds => "mds",
        })
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({}, {})", self.family, self.k, self.m)
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} by {}", self.kernel)
    }
}
