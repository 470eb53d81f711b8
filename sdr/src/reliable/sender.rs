//! The sending end of a reliable connection: chunks are handed out as they can leave, and again when they are asked for or a timeout says so
//! (SDR-RDMA §4.1.1).

use std::collections::VecDeque;
use std::time::Duration;

use softnic_nic::Nic;
use softnic_wire::Instant;
use softnic_wire::sdr::report::{Report, ReportKind};

use super::chunk_bits::ChunkBits;
use super::round_trip::RoundTrip;
use super::{Io, Outcome, ReliableAttr, ReliableCounters, ReliableError};
use crate::Local;
use crate::attr::packets;
use crate::error::SdrError;
use crate::qp::SdrQp;
use crate::sends::SendHandle;

/// Packets that are handed out as one part: the time at which they left is known for all of them together.
const PART: u32 = 16;

/// So often a chunk is sent with the same timeout, as the paper has it; then each further time waits twice as long, so many times.
const PATIENT_TRIES: u32 = 5;
const MOST_DOUBLINGS: u32 = 6;

/// Chunks that were handed out together, and have not left yet.
struct Part {
    first: u32,
    count: u32,
    /// Completions that say so, one for each channel.
    left: u32,
    packets: u32,
}

/// A message.
struct Write {
    id: u64,
    handle: SendHandle,
    memory: Local,
    chunks: u32,
    /// The first chunk that was never handed out.
    next: u32,
    acked: ChunkBits,
    /// All before this one are, and how many others are not.
    acked_below: u32,
    not_acked: u32,
    /// Chunks that were sent more than once: how long their acknowledgement took says nothing.
    repeated: ChunkBits,
    /// Chunks in `again`, and those of them that the peer asked for.
    queued: ChunkBits,
    asked_for: ChunkBits,
    again: VecDeque<u32>,
    handed_out: VecDeque<Part>,
    /// Completions of parts so far.
    parts_left: u64,
    /// When each chunk left last.
    sent: Vec<Instant>,
    /// Chunks in the order in which they left, each with the time.
    timers: VecDeque<(Instant, u32)>,
    /// How often each was sent, and those that were sent so often that they wait longer.
    tries: Vec<u8>,
    slow: Vec<(Instant, u32)>,
    ends: Instant,
    outcome: Option<Result<(), ReliableError>>,
}

/// What the messages of a connection are divided into.
#[derive(Debug, Clone, Copy)]
struct Shape {
    /// Bytes of a chunk, and of a packet.
    chunk: u32,
    mtu: u32,
    channels: u32,
}

impl Shape {
    fn chunk_packets(self) -> u32 {
        self.chunk / self.mtu
    }
}

/// All messages that are being sent.
pub(super) struct Sender {
    writes: VecDeque<Write>,
    spare: Vec<Write>,
    shape: Shape,
    /// Packets that may be handed out and not have left.
    depth: u32,
    waiting: u32,
    timeout: Duration,
    pub(super) round_trip: RoundTrip,
}

impl Sender {
    pub(super) fn new(attr: &ReliableAttr) -> Sender {
        Sender {
            writes: VecDeque::new(),
            spare: Vec::new(),
            shape: Shape { chunk: attr.qp.chunk, mtu: attr.qp.mtu.bytes(), channels: attr.qp.channels.into() },
            depth: attr.qp.send_depth,
            waiting: 0,
            timeout: attr.timeout,
            round_trip: RoundTrip::new(attr.rtt, attr.alpha, attr.ack_delay()),
        }
    }

    /// Takes over a message; it goes into the peer's receive of the same number.
    pub(super) fn post(&mut self, io: &mut Io<'_>, memory: Local) -> Result<u64, SdrError> {
        let Io { now, nic, qp, .. } = io;
        let now = *now;
        let handle = qp.send_stream_start(now, nic, memory.len, None)?;
        let chunks = (packets(memory.len, qp.attr().mtu).div_ceil(self.shape.chunk_packets().into())) as u32;
        let mut write = self.spare.pop().unwrap_or_else(|| Write::empty(handle, memory));
        write.begin(handle, memory, chunks, now + self.timeout);
        self.writes.push_back(write);
        Ok(handle.number())
    }

    /// What has left since the last look: before what the peer says of it.
    pub(super) fn take_left(&mut self, io: &mut Io<'_>) {
        for write in &mut self.writes {
            self.waiting -= write.take_left(io.now, io.qp).min(self.waiting);
        }
    }

    /// Everything ends.
    pub(super) fn fail(&mut self, why: ReliableError) {
        self.writes.iter_mut().for_each(|write| _ = write.outcome.get_or_insert(Err(why)));
    }

    /// What the peer says of a message.
    pub(super) fn on_report(&mut self, io: &mut Io<'_>, report: &Report<'_>) {
        let (now, counters) = (io.now, &mut *io.counters);
        let is_about_one = report.len > 0 || !report.bitmap.is_empty();
        let about = self.writes.iter_mut().find(|write| is_about_one && write.id == report.message);
        if let Some(write) = about
            && report.len != write.memory.len
        {
            write.outcome.get_or_insert(Err(ReliableError::Length(write.memory.len, report.len)));
        }
        for write in &mut self.writes {
            let ahead = write.id.checked_sub(report.done);
            let is_done = ahead.is_none_or(|ahead| ahead < 64 && report.done_ahead >> ahead & 1 == 1);
            // Nothing is acknowledged that was never sent.
            if is_done && write.next == write.chunks {
                write.outcome.get_or_insert(Ok(()));
            }
        }
        let about = self.writes.iter_mut().find(|write| is_about_one && write.id == report.message);
        let Some(write) = about.filter(|write| write.outcome.is_none()) else { return };
        match report.kind {
            ReportKind::Ack => write.on_ack(now, report, &mut self.round_trip, counters),
            ReportKind::Nack => write.on_nack(now, report, self.round_trip.rtt(), counters),
        }
    }

    /// Does what there is to do.
    pub(super) fn progress(&mut self, io: &mut Io<'_>) {
        let Io { now, nic, qp, counters, outcomes: out } = io;
        let now = *now;
        let rto = self.round_trip.rto();
        for write in &mut self.writes {
            write.run_timers(now, rto);
            if now >= write.ends {
                write.outcome.get_or_insert(Err(ReliableError::Timeout));
            }
            if let Some(error) = qp.failure() {
                write.outcome.get_or_insert(Err(ReliableError::Sdr(error)));
            }
        }
        let cleared = qp.vitals().cleared;
        let may_be_sent = |write: &&mut Write| write.outcome.is_none() && write.handle.number() < cleared;
        // First what was lost: the peer waits for it longest.
        for write in self.writes.iter_mut().filter(may_be_sent) {
            while self.waiting < self.depth
                && let Some(chunk) = write.again.pop_front()
            {
                write.queued.clear(chunk);
                if !write.acked.get(chunk) {
                    write.repeated.set(chunk);
                    write.sent[chunk as usize] = now;
                    counters.chunks_repeated += 1;
                    counters.timeouts += u64::from(!write.asked_for.get(chunk));
                    counters.chunks_asked_for += u64::from(write.asked_for.get(chunk));
                    write.asked_for.clear(chunk);
                    counters.packets_repeated += u64::from(write.packets_of(chunk, self.shape));
                    self.waiting += write.hand_out(now, nic, qp, self.shape, (chunk, 1));
                }
            }
        }
        for write in self.writes.iter_mut().filter(may_be_sent) {
            while self.waiting < self.depth && write.next < write.chunks {
                let count = (PART / self.shape.chunk_packets()).clamp(1, write.chunks - write.next);
                let first = write.next;
                write.next += count;
                counters.chunks_sent += u64::from(count);
                self.waiting += write.hand_out(now, nic, qp, self.shape, (first, count));
            }
        }
        self.end_those_that_are_over(qp, out);
    }

    /// A message is over when nothing of it waits to leave: its memory is the program's from then on.
    fn end_those_that_are_over(&mut self, qp: &mut SdrQp, out: &mut VecDeque<Outcome>) {
        let mut at = 0;
        while let Some(write) = self.writes.get_mut(at) {
            let Some(outcome) = write.outcome else {
                at += 1;
                continue;
            };
            let _ = qp.send_stream_end(write.handle);
            if qp.send_poll(write.handle) == Ok(false) {
                at += 1;
                continue;
            }
            out.push_back(Outcome::Written { id: write.id, outcome });
            if let Some(write) = self.writes.remove(at) {
                self.waiting -= write.packets_waiting().min(self.waiting);
                self.spare.push(write);
            }
        }
    }

    /// When something is to be done although nothing happens.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let rto = self.round_trip.rto();
        let of = |write: &Write| {
            let timer = write.timers.front().map(|&(sent, _)| sent + rto);
            let slow = write.slow.iter().map(|&(due, _)| due).min();
            timer.into_iter().chain(slow).chain([write.ends]).min().unwrap_or(write.ends)
        };
        self.writes.iter().filter(|write| write.outcome.is_none()).map(of).min()
    }
}

impl Write {
    fn empty(handle: SendHandle, memory: Local) -> Write {
        Write {
            id: 0,
            handle,
            memory,
            chunks: 0,
            next: 0,
            acked: ChunkBits::default(),
            acked_below: 0,
            not_acked: 0,
            repeated: ChunkBits::default(),
            queued: ChunkBits::default(),
            asked_for: ChunkBits::default(),
            again: VecDeque::new(),
            handed_out: VecDeque::new(),
            parts_left: 0,
            sent: Vec::new(),
            timers: VecDeque::new(),
            tries: Vec::new(),
            slow: Vec::new(),
            ends: Instant::ZERO,
            outcome: None,
        }
    }

    fn begin(&mut self, handle: SendHandle, memory: Local, chunks: u32, ends: Instant) {
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
        (self.id, self.handle, self.memory, self.chunks, self.ends) = (handle.number(), handle, memory, chunks, ends);
        (self.next, self.acked_below, self.not_acked, self.parts_left, self.outcome) = (0, 0, chunks, 0, None);
    }

    /// Hands chunks to the queue pair; how many packets they have.
    fn hand_out(
        &mut self,
        now: Instant,
        nic: &mut Nic,
        qp: &mut SdrQp,
        Shape { chunk, mtu, channels }: Shape,
        (first, count): (u32, u32),
    ) -> u32 {
        let offset = u64::from(first) * u64::from(chunk);
        let len = (u64::from(count) * u64::from(chunk)).min(self.memory.len - offset.min(self.memory.len));
        let part = Local { addr: self.memory.addr.wrapping_add(offset), len, ..self.memory };
        if let Err(error) = qp.send_stream_continue(now, nic, self.handle, offset, part) {
            self.outcome.get_or_insert(Err(ReliableError::Sdr(error)));
            return 0;
        }
        let packets = len.div_ceil(mtu.into()).max(1) as u32;
        self.handed_out.push_back(Part { first, count, left: packets.min(channels), packets });
        packets
    }

    fn packets_waiting(&self) -> u32 {
        self.handed_out.iter().map(|part| part.packets).sum()
    }

    /// What has left since the last look: its timers begin. How many packets that were.
    fn take_left(&mut self, now: Instant, qp: &mut SdrQp) -> u32 {
        // One that is ended is over.
        let Ok(left) = qp.send_stream_left(self.handle) else { return 0 };
        let mut packets = 0;
        while self.parts_left < left
            && let Some(part) = self.handed_out.front_mut()
        {
            self.parts_left += 1;
            part.left -= 1;
            if part.left == 0 {
                let Part { first, count, packets: of_part, .. } = *part;
                for chunk in first..first + count {
                    self.sent[chunk as usize] = now;
                    self.tries[chunk as usize] = self.tries[chunk as usize].saturating_add(1);
                    self.timers.push_back((now, chunk));
                }
                packets += of_part;
                self.handed_out.pop_front();
            }
        }
        packets
    }

    /// Chunks that were not acknowledged in time are sent again.
    fn run_timers(&mut self, now: Instant, rto: Duration) {
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
    }

    fn send_again(&mut self, chunk: u32) {
        if !self.acked.get(chunk) && self.queued.set(chunk) {
            self.again.push_back(chunk);
        }
    }

    fn packets_of(&self, chunk: u32, shape: Shape) -> u32 {
        let left = self.memory.len.saturating_sub(u64::from(chunk) * u64::from(shape.chunk));
        left.min(shape.chunk.into()).div_ceil(shape.mtu.into()).max(1) as u32
    }

    fn on_ack(
        &mut self,
        now: Instant,
        report: &Report<'_>,
        round_trip: &mut RoundTrip,
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
        if let Some(sent) = newest {
            round_trip.sample(now.saturating_since(sent));
        }
        if self.not_acked == 0 {
            self.outcome.get_or_insert(Ok(()));
        }
    }

    /// Chunks that the peer asks for are sent again, unless they left a moment ago: what comes in between crosses its question.
    fn on_nack(&mut self, now: Instant, report: &Report<'_>, rtt: Duration, counters: &mut ReliableCounters) {
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
