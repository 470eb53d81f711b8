//! A block whose receives are posted: which of its chunks are there, by themselves or by parity.

use std::vec::Drain;

use softnic_codes::ChunkSet;
use softnic_nic::Nic;
use softnic_nic::transports::planted::{Bug, planted};

use super::super::fallback;
use super::super::layout::{Block, Group, Layout};
use super::super::{Io, ReliableCounters};
use super::decoder::{Decoder, Task};
use crate::Local;
use crate::bitmap::Bitmap;
use crate::error::SdrError;
use crate::qp::SdrQp;
use crate::receives::RecvHandle;

/// The receives of a block.
#[derive(Default)]
pub(super) struct Posted {
    pub(super) shape: Block,
    memory: Local,
    data: Vec<(RecvHandle, Bitmap)>,
    /// Of each group.
    parity: Vec<Parity>,
    /// Groups that are not whole yet, and which are.
    open: u32,
    whole: Vec<bool>,
    /// Chunks that were computed.
    recovered: Vec<bool>,
    /// Groups of which further rows were asked for.
    asked_rows: Vec<bool>,
    /// Chunks and rows that had come when somebody looked.
    count: u32,
}

/// A receive for parity.
pub(super) struct Parity {
    pub(super) handle: RecvHandle,
    bitmap: Bitmap,
    /// Where it lies; without, nothing of it is taken.
    pub(super) piece: Option<u32>,
}

impl Posted {
    /// Posts the receives of a block, for which there is room; `memory` is that of the block. This value has none, but perhaps room of one.
    pub(super) fn post(
        &mut self,
        io: &mut Io<'_>,
        layout: &Layout,
        decoder: &mut Decoder,
        shape: Block,
        memory: Local,
    ) -> Result<(), SdrError> {
        if planted(Bug::SdrDecodedLate) && self.shape.groups == 1 && self.recovered.contains(&true) {
            decoder.write_again(io.nic, self.memory);
        }
        (self.shape, self.memory, self.open, self.count) = (shape, memory, shape.groups, 0);
        self.whole.clear();
        self.whole.resize(shape.groups as usize, false);
        self.recovered.clear();
        self.asked_rows.clear();
        self.asked_rows.resize(shape.groups as usize, false);
        let post = |qp: &mut SdrQp, nic: &mut Nic, memory| {
            let posting = qp.recv_prepare(nic, memory)?;
            Ok::<_, SdrError>((posting.handle(), posting.bitmap().clone()))
        };
        for message in 0..shape.groups {
            let (_, offset, len) = layout.data(&shape, message);
            let part = Local { addr: memory.addr.wrapping_add(offset), len, ..memory };
            self.data.push(post(io.qp, io.nic, part)?);
        }
        let parities = if shape.is_protected() { shape.groups } else { 0 };
        for group in 0..parities {
            let piece = decoder.pool.take(io.nic);
            let part = match piece {
                Some(piece) => decoder.pool.memory(piece, layout.group(&shape, group).message_len()),
                // Its messages come to nothing, so these chunks are without parity.
                None => Local { len: 0, ..memory },
            };
            io.counters.unprotected += u64::from(piece.is_none());
            let (handle, bitmap) = post(io.qp, io.nic, part)?;
            self.parity.push(Parity { handle, bitmap, piece });
        }
        Ok(())
    }

    /// The number of its first message.
    pub(super) fn base(&self) -> u64 {
        self.data.first().map_or(0, |(handle, _)| handle.number())
    }

    /// The bitmap of the only message of a block without parity.
    pub(super) fn plain(&self) -> Option<&Bitmap> {
        self.data.first().map(|(_, bitmap)| bitmap)
    }

    /// Whether a chunk of the block is there.
    pub(super) fn has(&self, layout: &Layout, chunk: u32) -> bool {
        let message = layout.message_of(chunk);
        let came = self.data.get(message as usize);
        came.is_some_and(|(_, bitmap)| bitmap.is_set(chunk - message * layout.k().min(self.shape.chunks)))
            || self.recovered.get(chunk as usize) == Some(&true)
    }

    pub(super) fn is_whole(&self) -> bool {
        self.open == 0
    }

    /// Groups that are not whole.
    pub(super) fn open_groups(&self) -> u32 {
        self.open
    }

    /// Adds what is to be asked for of the groups that are not whole: further rows, by the group's number in the message, where there are
    /// more of them than missing chunks and none were asked for before; else chunks, all of a group if `whole_groups` says so.
    pub(super) fn ask(&self, layout: &Layout, whole_groups: bool, chunks: &mut Vec<u32>, rows: &mut Vec<(u32, u8)>) {
        let (number, begin) = (layout.group_number(&self.shape, 0), rows.len());
        let asked = (0..self.shape.groups).filter_map(|group| Some((number + group, self.rows_to_ask(layout, group)?)));
        rows.extend(asked);
        let rows = &rows[begin..];
        chunks.extend((0..self.shape.chunks).filter_map(|chunk| {
            let (group, _) = self.shape.group_of(chunk);
            let by_rows = rows.binary_search_by_key(&(number + group), |&(number, _)| number).is_ok();
            let asked = !self.whole[group as usize] && !by_rows && (whole_groups || !self.has(layout, chunk));
            asked.then_some(self.shape.first + chunk)
        }));
    }

    /// Further rows to ask for of a group, if they can repair it and none were asked for.
    fn rows_to_ask(&self, layout: &Layout, group: u32) -> Option<u8> {
        let shape = layout.group(&self.shape, group);
        let parity = self.parity.get(group as usize).filter(|parity| parity.piece.is_some())?;
        if shape.spare == 0 || self.whole[group as usize] || self.asked_rows[group as usize] {
            return None;
        }
        let is_lost = |&index: &u32| !self.has(layout, self.shape.chunk_of(group, index));
        let lost = (0..shape.chunks).filter(is_lost).count() as u32;
        let needed = lost.saturating_sub(parity.rows(layout, &shape).len() as u32);
        fallback::rows_to_ask(needed, lost, shape.spare).map(|rows| rows as u8)
    }

    /// Further rows of a group were asked for.
    pub(super) fn has_asked_rows(&mut self, group: u32) {
        self.asked_rows[group as usize] = true;
    }

    /// Looks at what has come, and computes what can be: whether anything new had come.
    pub(super) fn look(
        &mut self,
        nic: &Nic,
        layout: &Layout,
        decoder: &mut Decoder,
        counters: &mut ReliableCounters,
    ) -> bool {
        let data = self.data.iter().map(|(_, bitmap)| bitmap.count()).sum::<u32>();
        let rows = self.parity.iter().filter(|p| p.piece.is_some()).map(|p| p.bitmap.count()).sum::<u32>();
        if data + rows == self.count {
            return false;
        }
        self.count = data + rows;
        for group in 0..self.shape.groups {
            if !self.whole[group as usize] && self.complete(nic, layout, decoder, counters, group) {
                self.whole[group as usize] = true;
                self.open -= 1;
            }
        }
        true
    }

    /// Whether all of a group is there, or could be computed.
    fn complete(
        &mut self,
        nic: &Nic,
        layout: &Layout,
        decoder: &mut Decoder,
        counters: &mut ReliableCounters,
        group: u32,
    ) -> bool {
        let shape = layout.group(&self.shape, group);
        let chunks = shape.chunks as usize;
        let present = match self.shape.groups {
            1 => ChunkSet::from_words((0..self.data[0].1.words()).map(|word| self.data[0].1.word(word))),
            _ => (0..shape.chunks)
                .filter(|&i| self.has(layout, self.shape.chunk_of(group, i)))
                .map(|i| i as usize)
                .collect(),
        };
        if present.len() == chunks {
            return true;
        }
        let Some(parity @ Parity { piece: Some(piece), .. }) = self.parity.get(group as usize) else { return false };
        if parity.bitmap.count() == 0 {
            return false;
        }
        let rows = parity.rows(layout, &shape);
        let Some(code) = layout.code(&shape).filter(|code| code.can_recover(chunks, &present, &rows)) else {
            return false;
        };
        let (block, piece, memory) = (&self.shape, *piece, self.memory);
        let task = Task { block, group: (group, shape), code, present, rows, piece, memory };
        if !decoder.decode(nic, layout, &task, counters) {
            return false;
        }
        self.recovered.resize(self.shape.chunks as usize, false);
        for index in (0..shape.chunks).filter(|&index| !present.contains(index as usize)) {
            self.recovered[self.shape.chunk_of(group, index) as usize] = true;
        }
        true
    }

    /// Completes its receives of data: nothing is written to the program's memory any more. Those of parity are left.
    pub(super) fn complete_data(&mut self, nic: &mut Nic, qp: &mut SdrQp) -> Drain<'_, Parity> {
        for (handle, bitmap) in self.data.drain(..) {
            drop(bitmap);
            let _ = qp.recv_complete(nic, handle);
        }
        self.parity.drain(..)
    }
}

impl Parity {
    /// The rows that have come, of a group of this shape.
    fn rows(&self, layout: &Layout, shape: &Group) -> ChunkSet {
        // A row may be part of a chunk of its message, where it is shorter than one.
        let bits_of = |row: u32| {
            let at = |byte: u64| (byte / u64::from(layout.chunk)) as u32;
            let (from, to) = (u64::from(row) * u64::from(shape.row_len), u64::from(row + 1) * u64::from(shape.row_len));
            at(from)..=at(to - 1)
        };
        let is_there = |row: &u32| bits_of(*row).all(|bit| self.bitmap.is_set(bit));
        (0..shape.rows + shape.spare).filter(is_there).map(|row| row as usize).collect()
    }

    /// Completes the receive.
    pub(super) fn complete(self, nic: &mut Nic, qp: &mut SdrQp, decoder: &mut Decoder) {
        drop(self.bitmap);
        let _ = qp.recv_complete(nic, self.handle);
        self.piece.into_iter().for_each(|piece| decoder.pool.give_back(piece));
    }
}
