//! Lost chunks of a group, computed from the others and parity, in the program's memory.

use softnic_codes::{ChunkSet, Code};
use softnic_nic::transports::memory::{Access, PdId};
use softnic_nic::transports::planted::{Bug, planted};
use softnic_nic::transports::qp::PayloadMode;
use softnic_nic::{MrError, Nic};

use super::super::ReliableCounters;
use super::super::layout::{Block, Group, Layout};
use super::super::pool::Pool;
use crate::Local;
use crate::error::SdrError;

/// What computes them.
pub(super) struct Decoder {
    pd: PdId,
    pub(super) pool: Pool,
    clock: Option<fn() -> u64>,
    /// The chunks of a group, and its rows.
    chunks: Vec<u8>,
    rows: Vec<u8>,
    /// Nobody looks at bytes, so there are none.
    elided: bool,
}

/// A group whose lost chunks can be computed.
pub(super) struct Task<'a> {
    pub(super) block: &'a Block,
    pub(super) group: (u32, Group),
    pub(super) code: Code,
    pub(super) present: ChunkSet,
    pub(super) rows: ChunkSet,
    /// Where its parity lies.
    pub(super) piece: u32,
    /// The memory of the whole block.
    pub(super) memory: Local,
}

impl Decoder {
    pub(super) fn new(nic: &Nic, pd: PdId, pool: Pool, clock: Option<fn() -> u64>) -> Decoder {
        let elided = nic.payload_mode() == PayloadMode::Elided;
        Decoder { pd, pool, clock, chunks: Vec::new(), rows: Vec::new(), elided }
    }

    /// Whether memory can be received into.
    pub(super) fn check(&self, nic: &Nic, memory: Local) -> Result<(), SdrError> {
        let Local { key, addr, len } = memory;
        nic.check_local(self.pd, key, addr, len, Access::LOCAL_WRITE).map_err(|_| SdrError::Key(MrError::SlotBounds))
    }

    /// Computes what a group lost, and writes it where it belongs. `false` when that cannot be: memory that may not be touched any more.
    pub(super) fn decode(
        &mut self,
        nic: &Nic,
        layout: &Layout,
        task: &Task<'_>,
        counters: &mut ReliableCounters,
    ) -> bool {
        let (_, group) = task.group;
        let lost = ChunkSet::below(group.chunks as usize).without(&task.present);
        let began = self.clock.map(|clock| clock());
        if !self.elided && !self.compute(nic, layout, task, &lost) {
            return false;
        }
        if let (Some(began), Some(clock)) = (began, self.clock) {
            counters.decode_ns += clock().saturating_sub(began);
        }
        for index in lost.iter() {
            let (_, bytes) = self.place(layout, task, index);
            counters.chunks_recovered += 1;
            counters.packets_recovered += u64::from(bytes.div_ceil(layout.mtu));
        }
        true
    }

    /// Where a chunk of the group lies in its block, and how long it is.
    fn place(&self, layout: &Layout, task: &Task<'_>, index: usize) -> (u64, u32) {
        layout.bytes_of(task.block, task.block.chunk_of(task.group.0, index as u32))
    }

    /// Writes over memory what was computed last: only as a bug.
    pub(super) fn write_again(&self, nic: &Nic, memory: Local) {
        let len = self.chunks.len().min(memory.len as usize);
        let _ = nic.write_local(self.pd, memory.key, memory.addr, &self.chunks[..len]);
    }

    fn compute(&mut self, nic: &Nic, layout: &Layout, task: &Task<'_>, lost: &ChunkSet) -> bool {
        let (_, group) = task.group;
        let row_len = group.row_len as usize;
        let last = self.place(layout, task, group.chunks as usize - 1).1 as usize;
        let mut chunks = std::mem::take(&mut self.chunks);
        chunks.resize((group.chunks as usize - 1) * row_len + last, 0);
        // Further rows lie behind those that every group has, and mostly there are none.
        let rows = task.rows.iter().last().map_or(0, |last| last + 1).max(group.rows as usize);
        self.rows.resize(rows * row_len, 0);
        self.pool.read(task.piece, &mut self.rows);
        self.rows.rotate_left(if planted(Bug::SdrWrongRow) { row_len } else { 0 });
        let mut is_done = true;
        for index in task.present.iter().take_while(|&index| index < group.chunks as usize) {
            let (offset, len) = self.place(layout, task, index);
            let to = &mut chunks[index * row_len..][..len as usize];
            is_done &= nic.read_local(self.pd, task.memory.key, task.memory.addr.wrapping_add(offset), to).is_ok();
        }
        is_done &= task.code.decode_in_one_piece(&mut chunks, row_len, &task.present, &task.rows, &self.rows).is_ok();
        if !is_done {
            self.chunks = chunks;
            return false;
        }
        for index in lost.iter() {
            let (offset, len) = self.place(layout, task, index);
            let from = &chunks[index * row_len..][..len as usize];
            is_done &= nic.write_local(self.pd, task.memory.key, task.memory.addr.wrapping_add(offset), from).is_ok();
        }
        self.chunks = chunks;
        is_done
    }
}
