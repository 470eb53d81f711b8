//! One message that is being sent: its chunks, which of them are acknowledged, and when each is to be sent again.

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

/// Packets that are handed out as one part: the time at which they left is known for all of them together.
const PART: u32 = 16;
/// Chunks of a part that has parity, at least: fewer cost more to add.
const CODED_PART: u32 = 4;

/// So often a chunk is sent with the same timeout, as the paper has it; then each further time waits twice as long, so many times.
const PATIENT_TRIES: u32 = 5;
const MOST_DOUBLINGS: u32 = 6;

/// What the messages of a connection are divided into, and by how many channels they go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) layout: Layout,
    pub(super) channels: u32,
}

/// What was handed out together, and has not left yet.
struct Part {
    /// Its message of the SDK, and how many signaled work requests of that have completed when it has left.
    message: SendHandle,
    target: u64,
    packets: u32,
    /// Chunks; none of parity, which has a piece of memory.
    first: u32,
    count: u32,
    piece: Option<u32>,
}

/// A block whose messages were begun.
struct Begun {
    shape: Block,
    /// The number of its first message of the SDK.
    base: u64,
    /// Signaled work requests of each message.
    signaled: Vec<u64>,
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
    /// Chunks in `again`, and those of them that the peer asked for.
    queued: ChunkBits,
    asked_for: ChunkBits,
    again: VecDeque<u32>,
    handed_out: VecDeque<Part>,
    /// When each chunk left last.
    sent: Vec<Instant>,
    /// When data left last that had not before, and when anything happened.
    data_left: Instant,
    heard: Instant,
    probes: u32,
    /// Chunks in the order in which they left, each with the time.
    timers: VecDeque<(Instant, u32)>,
    /// How often each was sent, and those that were sent so often that they wait longer.
    tries: Vec<u8>,
    slow: Vec<(Instant, u32)>,
    pub(super) ends: Instant,
    pub(super) outcome: Option<Result<(), ReliableError>>,
}

impl Write {
    pub(super) fn begin(&mut self, id: u64, memory: Local, layout: &Layout, ends: Instant) {
        let chunks = layout.chunks(memory.len);
        for bits in [&mut self.acked, &mut self.repeated, &mut self.queued, &mut self.asked_for] {
            bits.reset(chunks);
        }
        self.again.clear();
        self.handed_out.clear();
        self.timers.clear();
        self.sent.clear();
        self.sent.resize(chunks as usize, Instant::ZERO);
        self.tries.clear();
        self.tries.resize(chunks as usize, 0);
        self.slow.clear();
        self.spare.extend(self.blocks.drain(..));
        (self.id, self.memory, self.chunks, self.ends) = (id, memory, chunks, ends);
        (self.next, self.first_block, self.parities_out, self.is_blocked) = (0, 0, 0, false);
        (self.acked_below, self.not_acked, self.any_repeated) = (0, chunks, false);
        (self.data_left, self.heard, self.probes, self.outcome) = (Instant::ZERO, Instant::ZERO, 0, None);
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
                Some(group) => layout.group(&block, group).parity_len(),
            };
            if let Err(error) = io.qp.send_stream_start(io.now, io.nic, len, None) {
                self.outcome.get_or_insert(Err(ReliableError::Sdr(error)));
                return false;
            }
        }
        encoder.begin(io.nic, layout, &block);
        self.parities_out = 0;
        let mut signaled = self.spare.pop().map(|begun| begun.signaled).unwrap_or_default();
        signaled.clear();
        signaled.resize(block.messages() as usize, 0);
        self.blocks.push_back(Begun { shape: block, base, signaled });
        true
    }

    /// Whether the receives of the newest block are there.
    pub(super) fn is_cleared(&mut self, cleared: u64) -> bool {
        let newest = self.blocks.back().map(|begun| begun.base + u64::from(begun.shape.messages()));
        self.is_blocked = newest.is_none_or(|end| end > cleared);
        !self.is_blocked
    }

    /// Hands out the next part of the newest block; how many packets it has.
    pub(super) fn hand_out_next(&mut self, io: &mut Io<'_>, shape: &Shape, encoder: &mut Encoder) -> u32 {
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
    fn hand_out_parity(&mut self, io: &mut Io<'_>, shape: &Shape, encoder: &mut Encoder, at: usize) -> u32 {
        let begun = &mut self.blocks[at];
        let group = self.parities_out;
        let message = begun.shape.groups + group;
        let handle = SendHandle(begun.base + u64::from(message));
        self.parities_out += 1;
        let Some((piece, memory)) = encoder.finish(group) else {
            io.counters.unprotected += 1;
            let _ = io.qp.send_stream_end(handle);
            return 0;
        };
        let packets = memory.len.div_ceil(shape.layout.mtu.into()) as u32;
        let target = &mut begun.signaled[message as usize];
        *target += u64::from(packets.min(shape.channels));
        self.handed_out.push_back(Part {
            message: handle,
            target: *target,
            packets,
            first: 0,
            count: 0,
            piece: Some(piece),
        });
        io.counters.parity_packets += u64::from(packets);
        if let Err(error) = io.qp.send_stream_continue(io.now, io.nic, handle, 0, memory) {
            self.outcome.get_or_insert(Err(ReliableError::Sdr(error)));
        }
        // It is sent once.
        let _ = io.qp.send_stream_end(handle);
        packets
    }

    /// The bytes of chunks of a block.
    fn bytes(&self, layout: &Layout, block: &Block, first: u32, count: u32) -> Local {
        let (offset, _) = layout.bytes_of(block, first);
        let len = (u64::from(count) * u64::from(layout.chunk)).min(block.len - offset.min(block.len));
        let from = u64::from(block.first) * u64::from(layout.chunk) + offset;
        Local { addr: self.memory.addr.wrapping_add(from), len, ..self.memory }
    }

    /// Hands chunks of one data message to the queue pair; how many packets they have.
    fn hand_out(&mut self, io: &mut Io<'_>, shape: &Shape, at: usize, (first, count): (u32, u32)) -> u32 {
        let layout = &shape.layout;
        let block = self.blocks[at].shape;
        let memory = self.bytes(layout, &block, first, count);
        let message = layout.message_of(first);
        let (message_first, _, _) = layout.data(&block, message);
        let offset = u64::from(first - message_first) * u64::from(layout.chunk);
        let handle = SendHandle(self.blocks[at].base + u64::from(message));
        if let Err(error) = io.qp.send_stream_continue(io.now, io.nic, handle, offset, memory) {
            self.outcome.get_or_insert(Err(ReliableError::Sdr(error)));
            return 0;
        }
        let packets = memory.len.div_ceil(layout.mtu.into()).max(1) as u32;
        let target = &mut self.blocks[at].signaled[message as usize];
        *target += u64::from(packets.min(shape.channels));
        let (target, first) = (*target, block.first + first);
        self.handed_out.push_back(Part { message: handle, target, packets, first, count, piece: None });
        packets
    }

    /// The next chunk to be sent again.
    pub(super) fn next_again(&mut self, layout: &Layout) -> Option<u32> {
        while let Some(chunk) = self.again.pop_front() {
            self.queued.clear(chunk);
            if !self.acked.get(chunk) && layout.block_of(chunk) >= self.first_block {
                return Some(chunk);
            }
        }
        None
    }

    /// Hands out a chunk again; how many packets it has.
    pub(super) fn hand_out_again(&mut self, io: &mut Io<'_>, shape: &Shape, chunk: u32) -> u32 {
        let at = (shape.layout.block_of(chunk) - self.first_block) as usize;
        let Some(first) = self.blocks.get(at).map(|begun| begun.shape.first) else { return 0 };
        self.repeated.set(chunk);
        self.any_repeated = true;
        self.sent[chunk as usize] = io.now;
        io.counters.chunks_repeated += 1;
        io.counters.timeouts += u64::from(!self.asked_for.get(chunk));
        io.counters.chunks_asked_for += u64::from(self.asked_for.get(chunk));
        self.asked_for.clear(chunk);
        let packets = self.hand_out(io, shape, at, (chunk - first, 1));
        io.counters.packets_repeated += u64::from(packets);
        packets
    }

    // ---- what has left ----

    /// What has left since the last look: its timers begin. How many packets that were.
    pub(super) fn take_left(&mut self, now: Instant, qp: &mut SdrQp, layout: &Layout, encoder: &mut Encoder) -> u32 {
        let mut packets = 0;
        while let Some(part) = self.handed_out.front() {
            // One that is over has left.
            if qp.send_stream_left(part.message).is_ok_and(|left| left < part.target) {
                break;
            }
            let Part { first, count, packets: of_part, piece, .. } = *part;
            for chunk in first..first + count {
                self.sent[chunk as usize] = now;
                self.tries[chunk as usize] = self.tries[chunk as usize].saturating_add(1);
                let repeated = self.repeated.get(chunk);
                if !repeated {
                    self.data_left = now;
                }
                // Who sends parity waits for the peer to ask, unless it did.
                if repeated || !layout.is_coded() {
                    self.timers.push_back((now, chunk));
                }
            }
            self.heard = now;
            if let Some(piece) = piece {
                encoder.pool.give_back(piece);
            }
            packets += of_part;
            self.handed_out.pop_front();
        }
        packets
    }

    /// All messages of the SDK below this number are complete at the peer: their places serve others by now. So nothing of them is sent
    /// again, whatever became of its answer: it would be taken for a part of those.
    pub(super) fn retire(&mut self, qp: &mut SdrQp, layout: &Layout, below: u64) {
        while let Some(begun) = self.blocks.front()
            && begun.base + u64::from(begun.shape.messages()) <= below
            && (self.blocks.len() > 1 || self.is_block_out(&begun.shape))
        {
            let Some(begun) = self.blocks.pop_front() else { return };
            let Block { first, chunks, groups, .. } = begun.shape;
            for chunk in first..first + chunks {
                self.not_acked -= u32::from(self.acked.set(chunk));
            }
            (0..groups).for_each(|message| _ = qp.send_stream_end(SendHandle(begun.base + u64::from(message))));
            self.first_block += 1;
            self.spare.push(begun);
        }
        if self.first_block == layout.blocks(self.memory.len) {
            self.outcome.get_or_insert(Ok(()));
        }
    }

    /// Nothing more of it is sent; whether all that was handed out has left.
    pub(super) fn end(&mut self, qp: &mut SdrQp) -> bool {
        let mut all_left = true;
        for begun in &self.blocks {
            for message in 0..begun.shape.messages() {
                let handle = SendHandle(begun.base + u64::from(message));
                let _ = qp.send_stream_end(handle);
                all_left &= qp.send_poll(handle) != Ok(false);
            }
        }
        all_left
    }

    /// Gives back what it has; how many packets were not known to have left.
    pub(super) fn forget(&mut self, encoder: &mut Encoder) -> u32 {
        let mut packets = 0;
        for part in self.handed_out.drain(..) {
            packets += part.packets;
            part.piece.into_iter().for_each(|piece| encoder.pool.give_back(piece));
        }
        self.spare.extend(self.blocks.drain(..));
        packets
    }

    // ---- time ----

    /// When the peer should have said something, if all was sent with parity, or all that it has receives for, and nothing again.
    fn probe_at(&self, rto: Duration, layout: &Layout) -> Option<Instant> {
        let idle = layout.is_coded()
            && self.handed_out.is_empty()
            && self.again.is_empty()
            && self.timers.is_empty()
            && self.slow.is_empty()
            && (self.is_blocked || self.is_handed_out(layout));
        let patience = 1 << self.probes.saturating_sub(PATIENT_TRIES).min(MOST_DOUBLINGS);
        idle.then(|| self.heard + rto * patience)
    }

    /// Chunks that were not acknowledged in time are sent again.
    pub(super) fn run_timers(&mut self, now: Instant, rto: Duration, layout: &Layout) {
        while let Some(&(sent, chunk)) = self.timers.front()
            && (sent + rto <= now || self.acked.get(chunk))
        {
            self.timers.pop_front();
            // One that was sent again since has a timer of its own.
            if self.acked.get(chunk) || self.sent[chunk as usize] != sent {
                continue;
            }
            match u32::from(self.tries[chunk as usize]).saturating_sub(PATIENT_TRIES) {
                0 => self.send_again(chunk),
                // It is not loss alone that keeps it from coming: each further time twice as long.
                more => self.slow.push((sent + rto * (1 << more.min(MOST_DOUBLINGS)), chunk)),
            }
        }
        let mut at = 0;
        while let Some(&(due, chunk)) = self.slow.get(at) {
            match due <= now || self.acked.get(chunk) {
                false => at += 1,
                true => {
                    self.slow.swap_remove(at);
                    self.send_again(chunk);
                }
            }
        }
        if self.outcome.is_none() && self.probe_at(rto, layout).is_some_and(|at| at <= now) {
            // All of it may be lost, or the answer: the last chunk that is not acknowledged makes the peer speak.
            self.probes += 1;
            self.heard = now;
            let last = (self.acked_below..self.next).rev().find(|&chunk| !self.acked.get(chunk));
            last.into_iter().for_each(|chunk| self.send_again(chunk));
        }
    }

    fn send_again(&mut self, chunk: u32) {
        if !self.acked.get(chunk) && self.queued.set(chunk) {
            self.again.push_back(chunk);
        }
    }

    /// When something is to be done although nothing happens.
    pub(super) fn poll_timeout(&self, rto: Duration, layout: &Layout) -> Instant {
        let timer = self.timers.front().map(|&(sent, _)| sent + rto);
        let slow = self.slow.iter().map(|&(due, _)| due).min();
        let probe = self.probe_at(rto, layout);
        timer.into_iter().chain(slow).chain(probe).fold(self.ends, Instant::min)
    }

    // ---- what the peer says ----

    /// The peer speaks of it.
    pub(super) fn heard_of(&mut self, now: Instant) {
        self.heard = now;
    }

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

    /// Chunks that the peer asks for are sent again, unless they left a moment ago: what comes in between crosses its question.
    pub(super) fn on_nack(
        &mut self,
        now: Instant,
        report: &Report<'_>,
        rtt: Duration,
        counters: &mut ReliableCounters,
    ) {
        for chunk in report.chunks() {
            if chunk >= self.next {
                counters.rejected += 1;
                continue;
            }
            let sent = self.sent[chunk as usize];
            let recently = sent == Instant::ZERO || now.saturating_since(sent) < rtt.mul_f64(0.75);
            if !self.acked.get(chunk) && !recently && self.queued.set(chunk) {
                self.asked_for.set(chunk);
                self.again.push_back(chunk);
            }
        }
    }
}
