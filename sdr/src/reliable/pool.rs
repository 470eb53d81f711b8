//! Memory for parity, up to a limit: pieces of equal length that serve again and again.

use std::sync::Arc;

use softnic_nic::transports::memory::{Access, PdId};
use softnic_nic::{Buffer, Nic};

use crate::Local;

/// Bytes that are registered at a time.
const SLAB: u64 = 4 << 20;

/// The pieces of one direction of a connection.
pub(super) struct Pool {
    pd: PdId,
    piece: u64,
    pieces_per_slab: u32,
    /// How many there may be, and how many there are.
    most: u32,
    made: u32,
    slabs: Vec<(Arc<Buffer>, u32)>,
    free: Vec<u32>,
}

impl Pool {
    /// Pieces of so many bytes, and so many bytes in all.
    pub(super) fn new(pd: PdId, piece: u64, limit: u64) -> Pool {
        let piece = piece.max(1);
        let most = (limit / piece).min(u32::MAX.into()) as u32;
        let pieces_per_slab = (SLAB / piece).clamp(1, u64::from(most).max(1)) as u32;
        Pool { pd, piece, pieces_per_slab, most, made: 0, slabs: Vec::new(), free: Vec::new() }
    }

    /// A piece, if there is one.
    pub(super) fn take(&mut self, nic: &mut Nic) -> Option<u32> {
        if let Some(piece) = self.free.pop() {
            return Some(piece);
        }
        if self.made >= self.most {
            return None;
        }
        if self.made == self.slabs.len() as u32 * self.pieces_per_slab {
            let buffer = Buffer::new(0, (u64::from(self.pieces_per_slab) * self.piece) as usize);
            // A NIC without a key for it has no more memory for parity.
            let key = nic.reg_mr(self.pd, &buffer, Access::LOCAL_WRITE | Access::REMOTE_WRITE).ok()?;
            self.slabs.push((buffer, key));
        }
        self.made += 1;
        Some(self.made - 1)
    }

    /// A piece is free again.
    pub(super) fn give_back(&mut self, piece: u32) {
        self.free.push(piece);
    }

    fn place(&self, piece: u32) -> (&(Arc<Buffer>, u32), u64) {
        let slab = &self.slabs[(piece / self.pieces_per_slab) as usize];
        (slab, u64::from(piece % self.pieces_per_slab) * self.piece)
    }

    /// The first bytes of a piece, for work requests.
    pub(super) fn memory(&self, piece: u32, len: u64) -> Local {
        let ((buffer, key), offset) = self.place(piece);
        Local { key: *key, addr: buffer.addr() + offset, len: len.min(self.piece) }
    }

    /// Writes to a piece.
    pub(super) fn write(&self, piece: u32, bytes: &[u8]) {
        let ((buffer, _), offset) = self.place(piece);
        buffer.write_at(offset as usize, bytes);
    }

    /// Reads from a piece.
    pub(super) fn read(&self, piece: u32, out: &mut [u8]) {
        let ((buffer, _), offset) = self.place(piece);
        buffer.read_at(offset as usize, out);
    }

    /// Gives back what it has of the NIC.
    pub(super) fn destroy(&mut self, nic: &mut Nic) {
        for (_, key) in self.slabs.drain(..) {
            let _ = nic.dereg_mr(key);
        }
        (self.made, self.most) = (0, 0);
        self.free.clear();
    }
}
