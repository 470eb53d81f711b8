//! Parity of the block that is being sent: chunks are added as they are handed out. And further rows, when they are asked for.

use std::ops::Range;

use softnic_nic::Nic;
use softnic_nic::transports::Status;
use softnic_nic::transports::memory::{Access, PdId};
use softnic_nic::transports::planted::{Bug, planted};
use softnic_nic::transports::qp::PayloadMode;

use super::super::layout::{Block, Group, Layout};
use super::super::pool::Pool;
use crate::Local;
use crate::error::SdrError;

/// What adds up the parity of one block at a time.
pub(super) struct Encoder {
    pd: PdId,
    pub(super) pool: Pool,
    groups: Vec<Sum>,
    /// Chunks as they are read from the program's memory, and further rows of them.
    scratch: Vec<u8>,
    further: Vec<u8>,
    /// Nobody looks at bytes, so there are none.
    elided: bool,
}

/// The parity of one group.
struct Sum {
    shape: Group,
    /// Where it will lie when it is sent; without, there is none.
    piece: Option<u32>,
    rows: Vec<u8>,
}

impl Encoder {
    pub(super) fn new(nic: &Nic, pd: PdId, pool: Pool) -> Encoder {
        let elided = nic.payload_mode() == PayloadMode::Elided;
        Encoder { pd, pool, groups: Vec::new(), scratch: Vec::new(), further: Vec::new(), elided }
    }

    /// Whether memory can be sent from.
    pub(super) fn check(&self, nic: &Nic, memory: Local) -> Result<(), SdrError> {
        let Local { key, addr, len } = memory;
        nic.check_local(self.pd, key, addr, len, Access::NONE).map_err(|_| SdrError::Send(Status::LocProtErr))
    }

    /// Begins a block, when the one before is over.
    pub(super) fn begin(&mut self, nic: &mut Nic, layout: &Layout, block: &Block) {
        let parities = if block.is_protected() { block.groups } else { 0 };
        for g in 0..parities {
            let (shape, piece) = (layout.group(block, g), self.pool.take(nic));
            let at = g as usize;
            if at == self.groups.len() {
                self.groups.push(Sum { shape, piece, rows: Vec::new() });
            }
            let sum = &mut self.groups[at];
            (sum.shape, sum.piece) = (shape, piece);
            if !planted(Bug::SdrParityOfAnother) {
                sum.rows.clear();
            }
            if piece.is_some() && !self.elided {
                sum.rows.resize(shape.parity_len() as usize, 0);
            }
        }
    }

    /// Adds chunks of the block that follow each other; `memory` is theirs.
    pub(super) fn add(&mut self, nic: &Nic, layout: &Layout, block: &Block, first: u32, memory: Local) {
        if self.elided || !block.is_protected() {
            return;
        }
        self.scratch.resize(memory.len as usize, 0);
        if nic.read_local(self.pd, memory.key, memory.addr, &mut self.scratch).is_err() {
            // Nor can the NIC send them: it says so, and everything ends.
            return;
        }
        if block.groups == 1 {
            return self.groups[0].add(layout, first, &self.scratch);
        }
        for (chunk, bytes) in (first..).zip(self.scratch.chunks(layout.chunk as usize)) {
            let (group, index) = block.group_of(chunk);
            self.groups[group as usize].add(layout, index, bytes);
        }
    }

    /// The parity of a group, all of whose chunks were added: what is to be sent, if there is any.
    pub(super) fn finish(&mut self, group: u32) -> Option<(u32, Local)> {
        let sum = self.groups.get_mut(group as usize)?;
        let piece = sum.piece.take()?;
        self.pool.write(piece, &sum.rows);
        Some((piece, self.pool.memory(piece, sum.shape.parity_len())))
    }

    /// Further rows of a group of any block, whose memory is given: what is to be sent, where there is memory for it.
    pub(super) fn further_rows(
        &mut self,
        nic: &mut Nic,
        layout: &Layout,
        (block, group): (&Block, u32),
        rows: Range<u32>,
        memory: Local,
    ) -> Option<(u32, Local)> {
        let shape = layout.group(block, group);
        let (code, row_len) = (layout.code(&shape)?, shape.row_len as usize);
        let piece = self.pool.take(nic)?;
        let len = rows.len() * row_len;
        if !self.elided {
            self.scratch.clear();
            for index in 0..shape.chunks {
                let (offset, bytes) = layout.bytes_of(block, block.chunk_of(group, index));
                let at = self.scratch.len();
                self.scratch.resize(at + bytes as usize, 0);
                let from = memory.addr.wrapping_add(offset);
                if nic.read_local(self.pd, memory.key, from, &mut self.scratch[at..]).is_err() {
                    self.pool.give_back(piece);
                    return None;
                }
            }
            self.further.resize(len, 0);
            let first = rows.start as usize - usize::from(planted(Bug::SdrWrongFurtherRow));
            code.encode_in_one_piece(first, &self.scratch, row_len, &mut self.further);
            self.pool.write(piece, &self.further);
        }
        Some((piece, self.pool.memory(piece, len as u64)))
    }

    /// What was begun is not needed any more.
    pub(super) fn abandon(&mut self) {
        for sum in &mut self.groups {
            if let Some(piece) = sum.piece.take() {
                self.pool.give_back(piece);
            }
        }
    }
}

impl Sum {
    fn add(&mut self, layout: &Layout, index: u32, bytes: &[u8]) {
        if self.piece.is_some()
            && let Some(code) = layout.code(&self.shape)
        {
            code.add_in_one_piece(index as usize, bytes, self.shape.row_len as usize, &mut self.rows);
        }
    }
}
