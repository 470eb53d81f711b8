//! One message that is being sent: its chunks, which of them are acknowledged, and when each is to be sent again.

mod further;

use std::collections::VecDeque;
use std::time::Duration;

use softnic_wire::Instant;
use softnic_wire::sdr::report::Report;

use super::super::chunk_bits::ChunkBits;
use super::super::layout::{Block, Layout};
use super::super::round_trip::RoundTrip;
use super::super::{Io, ReliableCounters, ReliableError};
use super::encoder::Encoder;
use crate::Local;
use crate::qp::SdrQp;
use crate::sends::SendHandle;
use further::Further;

/// Packets that are handed out as one part: the time at which they left is known for all of them together.
const PART: u32 = 16;
/// Chunks of a part that has parity, at least: fewer cost more to add.
const CODED_PART: u32 = 4;

/// What the messages of a connection are divided into, and by how many channels they go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) layout: Layout,
    pub(super) channels: u32,
}

/// What was handed out together, and has not left yet.
pub(super) struct Part {
    pub(super) write: u64,
    /// Its message of the SDK, and how many signaled work requests of that have completed when it has left.
    pub(super) message: SendHandle,
    pub(super) target: u64,
    pub(super) packets: u32,
    /// Chunks; none of parity, which has a piece of memory.
    pub(super) first: u32,
    pub(super) count: u32,
    pub(super) piece: Option<u32>,
}

/// A block whose messages were begun.
#[derive(Default)]
struct Begun {
    shape: Block,
    /// The number of its first message of the SDK.
    base: u64,
    /// Signaled work requests of each message.
    signaled: Vec<u64>,
    /// Further rows of parity of each group.
    further: Vec<Further>,
}

/// A message.
#[derive(Default)]
pub(super) struct Write {
    pub(super) id: u64,
    pub(super) memory: Local,
    pub(super) chunks: u32,
    /// The first chunk that was never handed out.
    pub(super) next: u32,
    /// Blocks that were begun and may still be sent from, the number of the first, and of parity in the newest that was handed out.
    blocks: VecDeque<Begun>,
    first_block: u32,
    parities_out: u32,
    /// The peer has no receives for it yet.
    is_blocked: bool,
    spare: Vec<Begun>,
    acked: ChunkBits,
    /// All before this one are, and how many others are not.
    acked_below: u32,
    not_acked: u32,
    /// Chunks that were sent more than once: how long their acknowledgement took says nothing.
    repeated: ChunkBits,
    any_repeated: bool,
    /// Chunks that wait to be sent again, and those of them that the peer asked for.
    queued: ChunkBits,
    asked_for: ChunkBits,
    /// Parts that have not left, and chunks that are to be sent again or have a timer.
    pub(super) outstanding: u32,
    pub(super) pending: u32,
    /// When each chunk left last, and how often.
    pub(super) sent: Vec<Instant>,
    pub(super) tries: Vec<u8>,
    /// When data left last that had not before, and when anything happened.
    data_left: Instant,
    pub(super) heard: Instant,
    /// How often the peer was made to speak, and whether there is a time at which it is to be.
    pub(super) probes: u32,
    pub(super) probe_set: bool,
    pub(super) ends: Instant,
    pub(super) outcome: Option<Result<(), ReliableError>>,
}

impl Write {
    pub(super) fn begin(&mut self, id: u64, memory: Local, layout: &Layout, ends: Instant) {
        let chunks = layout.chunks(memory.len);
        for bits in [&mut self.acked, &mut self.repeated, &mut self.queued, &mut self.asked_for] {
            bits.reset(chunks);
        }
        self.sent.clear();
        self.sent.resize(chunks as usize, Instant::ZERO);
        self.tries.clear();
        self.tries.resize(chunks as usize, 0);
        self.spare.extend(self.blocks.drain(..));
        (self.id, self.memory, self.chunks, self.ends) = (id, memory, chunks, ends);
        (self.next, self.first_block, self.parities_out, self.is_blocked) = (0, 0, 0, false);
        (self.acked_below, self.not_acked, self.any_repeated) = (0, chunks, false);
        (self.outstanding, self.pending) = (0, 0);
        (self.data_left, self.heard, self.outcome) = (Instant::ZERO, Instant::ZERO, None);
        (self.probes, self.probe_set) = (0, false);
    }

    // ---- handing out ----

    /// Whether all of it was handed out once, and its parity.
    pub(super) fn is_handed_out(&self, layout: &Layout) -> bool {
        self.first_block + self.blocks.len() as u32 == layout.blocks(self.memory.len)
            && self.blocks.back().is_none_or(|begun| self.is_block_out(&begun.shape))
    }

    /// Whether all of the newest block was handed out.
    fn is_block_out(&self, newest: &Block) -> bool {
        self.next == newest.first + newest.chunks && (!newest.is_protected() || self.parities_out == newest.groups)
    }

    /// Begins the messages of the next block, when the one before was handed out. `false` when that failed.
    pub(super) fn begin_block(&mut self, io: &mut Io<'_>, shape: &Shape, encoder: &mut Encoder) -> bool {
        let index = self.first_block + self.blocks.len() as u32;
        if self.blocks.back().is_some_and(|begun| !self.is_block_out(&begun.shape)) {
            return true;
        }
        let layout = &shape.layout;
        let block = layout.block(self.memory.len, index);
        let base = io.qp.vitals().started;
        for message in 0..block.messages() {
            let len = match message.checked_sub(block.groups) {
                None => layout.data(&block, message).2,
                Some(group) => layout.group(&block, group).message_len(),
            };
            if let Err(error) = io.qp.send_stream_start(io.now, io.nic, len, None) {
                self.outcome.get_or_insert(Err(ReliableError::Sdr(error)));
                return false;
            }
        }
        encoder.begin(io.nic, layout, &block);
        self.parities_out = 0;
        let mut begun = self.spare.pop().unwrap_or_default();
        (begun.shape, begun.base) = (block, base);
        begun.signaled.clear();
        begun.signaled.resize(block.messages() as usize, 0);
        begun.further.clear();
        begun.further.resize(block.groups as usize, Further::default());
        self.blocks.push_back(begun);
        true
    }

    /// Whether the receives of the newest block are there.
    pub(super) fn is_cleared(&mut self, cleared: u64) -> bool {
        let newest = self.blocks.back().map(|begun| begun.base + u64::from(begun.shape.messages()));
        self.is_blocked = newest.is_none_or(|end| end > cleared);
        !self.is_blocked
    }

    /// Hands out the next part of the newest block; `None` of parity that there is no memory for, and after an error.
    pub(super) fn hand_out_next(&mut self, io: &mut Io<'_>, shape: &Shape, encoder: &mut Encoder) -> Option<Part> {
        let layout = &shape.layout;
        let at = self.blocks.len() - 1;
        let block = self.blocks[at].shape;
        if self.next == block.first + block.chunks {
            return self.hand_out_parity(io, shape, encoder, at);
        }
        let chunk = self.next - block.first;
        let end = ((layout.message_of(chunk) + 1).saturating_mul(layout.k())).min(block.chunks);
        let least = if block.is_protected() { CODED_PART } else { 1 };
        let count = (PART / (layout.chunk / layout.mtu)).max(least).min(end - chunk);
        self.next += count;
        io.counters.chunks_sent += u64::from(count);
        let memory = self.bytes(layout, &block, chunk, count);
        encoder.add(io.nic, layout, &block, chunk, memory);
        self.hand_out(io, shape, at, (chunk, count))
    }

    /// The parity of the next group of a block, all of whose data was handed out.
    fn hand_out_parity(&mut self, io: &mut Io<'_>, shape: &Shape, encoder: &mut Encoder, at: usize) -> Option<Part> {
        let group = self.parities_out;
        self.parities_out += 1;
        let finished = encoder.finish(group);
        io.counters.unprotected += u64::from(finished.is_none());
        let part = finished.map(|parity| self.hand_out_rows(io, shape, (at, group), 0, parity));
        let block = &self.blocks[at].shape;
        // It is sent once, and further rows behind it where there may be any.
        if shape.layout.group(block, group).spare == 0 {
            let handle = SendHandle(self.blocks[at].base + u64::from(block.groups + group));
            let _ = io.qp.send_stream_end(handle);
        }
        part
    }

    /// Hands rows of parity, which lie in a piece of memory, to the queue pair, from an offset of their message on.
    fn hand_out_rows(
        &mut self,
        io: &mut Io<'_>,
        shape: &Shape,
        (at, group): (usize, u32),
        offset: u64,
        (piece, memory): (u32, Local),
    ) -> Part {
        let begun = &mut self.blocks[at];
        let message = begun.shape.groups + group;
        let handle = SendHandle(begun.base + u64::from(message));
        let packets = memory.len.div_ceil(shape.layout.mtu.into()) as u32;
        let target = &mut begun.signaled[message as usize];
        *target += u64::from(packets.min(shape.channels));
        let target = *target;
        io.counters.parity_packets += u64::from(packets);
        if let Err(error) = io.qp.send_stream_continue(io.now, io.nic, handle, offset, memory) {
            self.outcome.get_or_insert(Err(ReliableError::Sdr(error)));
        }
        self.outstanding += 1;
        Part { write: self.id, message: handle, target, packets, first: 0, count: 0, piece: Some(piece) }
    }

    /// The bytes of chunks of a block.
    fn bytes(&self, layout: &Layout, block: &Block, first: u32, count: u32) -> Local {
        let (offset, _) = layout.bytes_of(block, first);
        let len = (u64::from(count) * u64::from(layout.chunk)).min(block.len - offset.min(block.len));
        let from = u64::from(block.first) * u64::from(layout.chunk) + offset;
        Local { addr: self.memory.addr.wrapping_add(from), len, ..self.memory }
    }

    /// Hands chunks of one data message to the queue pair.
    fn hand_out(&mut self, io: &mut Io<'_>, shape: &Shape, at: usize, (first, count): (u32, u32)) -> Option<Part> {
        let layout = &shape.layout;
        let block = self.blocks[at].shape;
        let memory = self.bytes(layout, &block, first, count);
        let message = layout.message_of(first);
        let (message_first, _, _) = layout.data(&block, message);
        let offset = u64::from(first - message_first) * u64::from(layout.chunk);
        let handle = SendHandle(self.blocks[at].base + u64::from(message));
        if let Err(error) = io.qp.send_stream_continue(io.now, io.nic, handle, offset, memory) {
            self.outcome.get_or_insert(Err(ReliableError::Sdr(error)));
            return None;
        }
        let packets = memory.len.div_ceil(layout.mtu.into()).max(1) as u32;
        let target = &mut self.blocks[at].signaled[message as usize];
        *target += u64::from(packets.min(shape.channels));
        let (target, first) = (*target, block.first + first);
        self.outstanding += 1;
        Some(Part { write: self.id, message: handle, target, packets, first, count, piece: None })
    }

    /// Whether a chunk that waits to be sent again still must be.
    pub(super) fn take_again(&mut self, layout: &Layout, chunk: u32) -> bool {
        self.queued.clear(chunk);
        self.pending -= 1;
        self.outcome.is_none() && !self.acked.get(chunk) && layout.block_of(chunk) >= self.first_block
    }

    /// Hands out a chunk again.
    pub(super) fn hand_out_again(&mut self, io: &mut Io<'_>, shape: &Shape, chunk: u32) -> Option<Part> {
        let at = (shape.layout.block_of(chunk) - self.first_block) as usize;
        let first = self.blocks.get(at)?.shape.first;
        self.repeated.set(chunk);
        self.any_repeated = true;
        self.sent[chunk as usize] = io.now;
        io.counters.chunks_repeated += 1;
        io.counters.timeouts += u64::from(!self.asked_for.get(chunk));
        io.counters.chunks_asked_for += u64::from(self.asked_for.get(chunk));
        self.asked_for.clear(chunk);
        let part = self.hand_out(io, shape, at, (chunk - first, 1))?;
        io.counters.packets_repeated += u64::from(part.packets);
        Some(part)
    }

    /// A chunk is to be sent again; `false` when it waits for that already, or has come.
    pub(super) fn queue_again(&mut self, chunk: u32) -> bool {
        let queued = !self.acked.get(chunk) && self.queued.set(chunk);
        self.pending += u32::from(queued);
        queued
    }

    pub(super) fn is_acked(&self, chunk: u32) -> bool {
        self.acked.get(chunk)
    }

    /// A part of it has left. Says whether its chunks are to have timers.
    pub(super) fn has_left(&mut self, now: Instant, layout: &Layout, part: &Part) -> bool {
        self.outstanding -= 1;
        self.heard = now;
        let chunks = part.first..part.first + part.count;
        for chunk in chunks.clone() {
            self.sent[chunk as usize] = now;
            self.tries[chunk as usize] = self.tries[chunk as usize].saturating_add(1);
        }
        // What is sent again is sent by itself.
        let repeated = part.count > 0 && self.repeated.get(part.first);
        if part.count > 0 && !repeated {
            self.data_left = now;
        }
        // Who sends parity waits for the peer to ask, unless it did.
        let timed = part.count > 0 && (repeated || !layout.is_coded());
        self.pending += if timed { part.count } else { 0 };
        timed
    }

    /// All messages of the SDK below this number are complete at the peer: their places serve others by now. So nothing of them is sent
    /// again, whatever became of its answer: it would be taken for a part of those.
    /// Whether that is all of what was begun, or it is over.
    pub(super) fn retire(&mut self, qp: &mut SdrQp, below: u64) -> bool {
        while let Some(begun) = self.blocks.front()
            && begun.base + u64::from(begun.shape.messages()) <= below
            && (self.blocks.len() > 1 || self.is_block_out(&begun.shape))
        {
            let Some(begun) = self.blocks.pop_front() else { break };
            let Block { first, chunks, .. } = begun.shape;
            for chunk in first..first + chunks {
                self.not_acked -= u32::from(self.acked.set(chunk));
            }
            let messages = 0..u64::from(begun.shape.messages());
            messages.for_each(|message| _ = qp.send_stream_end(SendHandle(begun.base + message)));
            self.first_block += 1;
            self.spare.push(begun);
        }
        // Blocks behind them may have been acknowledged before.
        if self.not_acked == 0 {
            self.outcome.get_or_insert(Ok(()));
        }
        self.blocks.is_empty() || self.outcome.is_some()
    }

    /// Nothing more of it is sent; whether all that was handed out has left.
    pub(super) fn end(&mut self, qp: &mut SdrQp) -> bool {
        // Also of blocks that the peer completed in between.
        let mut all_left = self.outstanding == 0 || qp.failure().is_some();
        for begun in &self.blocks {
            for message in 0..begun.shape.messages() {
                let handle = SendHandle(begun.base + u64::from(message));
                let _ = qp.send_stream_end(handle);
                all_left &= qp.send_poll(handle) != Ok(false);
            }
        }
        all_left
    }

    /// Whether the peer should say something: all was sent with parity, or all that it has receives for, and nothing again.
    pub(super) fn is_quiet(&self, layout: &Layout) -> bool {
        layout.is_coded()
            && self.outcome.is_none()
            && (self.outstanding, self.pending) == (0, 0)
            && (self.is_blocked || self.is_handed_out(layout))
    }

    /// The chunk that makes the peer speak: all may be lost, or the answer.
    pub(super) fn probe(&self) -> Option<u32> {
        (self.acked_below..self.next).rev().find(|&chunk| !self.acked.get(chunk))
    }

    // ---- what the peer says ----

    /// It is done, by one answer: what that says of the round trip.
    pub(super) fn sample_whole(&self, now: Instant, round_trip: &mut RoundTrip) {
        if !self.any_repeated && self.data_left != Instant::ZERO {
            round_trip.sample(now.saturating_since(self.data_left));
        }
    }

    pub(super) fn on_ack(
        &mut self,
        now: Instant,
        report: &Report<'_>,
        round_trip: Option<&mut RoundTrip>,
        counters: &mut ReliableCounters,
    ) {
        // What was never sent has not come.
        let next = self.next;
        counters.rejected += report.chunks().skip_while(|&chunk| chunk < next).count() as u64;
        let mut newest = None;
        let below = report.below.min(next);
        for chunk in (self.acked_below..below).chain(report.chunks().take_while(|&chunk| chunk < next)) {
            if self.acked.set(chunk) {
                self.not_acked -= 1;
                let sent = self.sent[chunk as usize];
                if !self.repeated.get(chunk) && sent != Instant::ZERO {
                    newest = newest.max(Some(sent));
                }
            }
        }
        self.acked_below = self.acked_below.max(below);
        if let (Some(sent), Some(round_trip)) = (newest, round_trip) {
            round_trip.sample(now.saturating_since(sent));
        }
        if self.not_acked == 0 {
            self.outcome.get_or_insert(Ok(()));
        }
    }

    /// Whether a chunk that the peer asks for is to be sent again: not if it left a moment ago, for what comes in between crosses its question.
    pub(super) fn is_asked_for(&mut self, now: Instant, chunk: u32, rtt: Duration) -> bool {
        let sent = self.sent[chunk as usize];
        let recently = sent == Instant::ZERO || now.saturating_since(sent) < rtt.mul_f64(0.75);
        let again = !recently && self.queue_again(chunk);
        if again {
            self.asked_for.set(chunk);
        }
        again
    }
}
