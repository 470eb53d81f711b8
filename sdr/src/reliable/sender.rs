//! The sending end of a reliable connection: chunks are handed out as they can leave, with their parity, and again when they are asked for or a
//! timeout says so (SDR-RDMA §4.1).

mod encoder;
mod timers;
mod write;

use std::collections::VecDeque;
use std::time::Duration;

use softnic_nic::Nic;
use softnic_nic::transports::memory::PdId;
use softnic_nic::transports::planted::{Bug, planted};
use softnic_wire::Instant;
use softnic_wire::sdr::report::{HEAD, Report, ReportKind};

use super::layout::Layout;
use super::pool::Pool;
use super::round_trip::RoundTrip;
use super::{Io, Outcome, ReliableAttr, ReliableError};
use crate::Local;
use crate::error::SdrError;
use encoder::Encoder;
use timers::{Chunk, Timers};
use write::{Part, Shape, Write};

/// All messages that are being sent.
pub(super) struct Sender {
    shape: Shape,
    /// In the order of their numbers.
    writes: VecDeque<Write>,
    spare: Vec<Write>,
    /// Those that were posted since the beginning, and the first that was not handed out whole.
    posted: u64,
    sending: u64,
    /// What was handed out and has not left, and how many packets that may be and are.
    handed_out: VecDeque<Part>,
    depth: u32,
    waiting: u32,
    /// Chunks that are to be sent again, and groups of messages of which further rows are to be.
    again: VecDeque<Chunk>,
    further: VecDeque<(u64, u32)>,
    timers: Timers,
    /// Some may be over.
    any_over: bool,
    timeout: Duration,
    encoder: Encoder,
    pub(super) round_trip: RoundTrip,
    /// What the peer was told of it, and when.
    told_rtt: Duration,
    told_at: Instant,
}

impl Sender {
    pub(super) fn new(nic: &Nic, pd: PdId, attr: &ReliableAttr) -> Sender {
        let layout = Layout::new(attr);
        Sender {
            shape: Shape { layout, channels: attr.qp.channels.into() },
            writes: VecDeque::new(),
            spare: Vec::new(),
            posted: 0,
            sending: 0,
            handed_out: VecDeque::new(),
            depth: attr.qp.send_depth,
            waiting: 0,
            again: VecDeque::new(),
            further: VecDeque::new(),
            timers: Timers::default(),
            any_over: false,
            timeout: attr.timeout,
            encoder: Encoder::new(nic, pd, Pool::new(pd, layout.longest_parity(), attr.parity_pool)),
            round_trip: RoundTrip::new(attr.rtt, attr.alpha, attr.ack_delay()),
            told_rtt: attr.rtt,
            told_at: Instant::ZERO,
        }
    }

    /// Takes over a message; it goes into the peer's receive of the same number.
    pub(super) fn post(&mut self, io: &mut Io<'_>, memory: Local) -> Result<u64, SdrError> {
        let (_, longest) = io.qp.peer_room().ok_or(SdrError::NotConnected)?;
        let longest = self.shape.layout.longest(longest);
        if memory.len > longest {
            return Err(SdrError::TooLong(memory.len, longest));
        }
        self.encoder.check(io.nic, memory)?;
        if let Some(error) = io.qp.failure() {
            return Err(error);
        }
        let id = self.posted;
        let mut write = self.spare.pop().unwrap_or_default();
        write.begin(id, memory, &self.shape.layout, io.now + self.timeout);
        self.writes.push_back(write);
        self.posted += 1;
        Ok(id)
    }

    /// What has left since the last look: before what the peer says of it.
    pub(super) fn take_left(&mut self, io: &mut Io<'_>) {
        while let Some(part) = self.handed_out.front() {
            // One that is over has left.
            if io.qp.send_stream_left(part.message).is_ok_and(|left| left < part.target) {
                break;
            }
            let Some(part) = self.handed_out.pop_front() else { break };
            self.waiting -= part.packets.min(self.waiting);
            part.piece.into_iter().for_each(|piece| self.encoder.pool.give_back(piece));
            let Some(write) = find(&mut self.writes, part.write) else { continue };
            let untimed = planted(Bug::SdrTimerNotRestarted) && write.tries.get(part.first as usize) > Some(&0);
            if write.has_left(io.now, &self.shape.layout, &part) && !untimed {
                (part.first..part.first + part.count).for_each(|c| self.timers.start(io.now, (part.write, c)));
            }
            if self.shape.layout.is_coded() && write.outstanding == 0 && !write.probe_set {
                write.probe_set = true;
                self.timers.expect(io.now + self.round_trip.rto(), part.write);
            }
        }
    }

    /// Tells the peer the round trip, by which it decides how long to wait: it measures none itself.
    pub(super) fn tell_round_trip(&mut self, io: &mut Io<'_>) {
        let Some((rtt, token)) = self.round_trip.measured().zip(io.qp.peer_token()) else { return };
        let changed = rtt.abs_diff(self.told_rtt) > rtt / 8;
        if !changed || io.now < self.told_at + rtt {
            return;
        }
        let report = Report {
            kind: ReportKind::RoundTrip,
            token,
            sequence: 0,
            done: 0,
            done_ahead: 0,
            message: 0,
            len: rtt.as_nanos() as u64,
            below: 0,
            first: 0,
            bitmap: &[],
        };
        let mut bytes = [0; HEAD];
        report.emit_head(&mut bytes);
        if io.send_control(&bytes) {
            (self.told_rtt, self.told_at) = (rtt, io.now);
        }
    }

    /// Everything ends.
    pub(super) fn fail(&mut self, why: ReliableError) {
        self.any_over = true;
        self.writes.iter_mut().for_each(|write| _ = write.outcome.get_or_insert(Err(why)));
    }

    /// What the peer says of a message.
    pub(super) fn on_report(&mut self, io: &mut Io<'_>, report: &Report<'_>) {
        let (now, counters) = (io.now, &mut *io.counters);
        let is_about_one = report.kind != ReportKind::Done && (report.len > 0 || !report.bitmap.is_empty());
        let is_coded = self.shape.layout.is_coded();
        self.any_over = true;
        if let Some(write) = find(&mut self.writes, report.message)
            && is_about_one
            && report.len != write.memory.len
        {
            write.outcome.get_or_insert(Err(ReliableError::Length(write.memory.len, report.len)));
        }
        let is_list = report.kind == ReportKind::Done;
        for write in &mut self.writes {
            let is_done = match (write.id.checked_sub(report.done), write.id.checked_sub(report.message)) {
                (None, _) => true,
                (Some(ahead), _) if ahead < 64 => report.done_ahead >> ahead & 1 == 1,
                (_, Some(bit)) if is_list => report.has(bit),
                _ => break,
            };
            // Nothing is acknowledged that was never sent.
            if is_done && write.next == write.chunks && write.outcome.is_none() {
                write.outcome = Some(Ok(()));
                if is_coded {
                    write.sample_whole(now, &mut self.round_trip);
                }
            }
        }
        let about = find(&mut self.writes, report.message).filter(|_| is_about_one);
        let Some(write) = about.filter(|write| write.outcome.is_none()) else { return };
        write.heard = now;
        match report.kind {
            // Who sends parity is told of chunks only when some are missing, and much later.
            ReportKind::Ack if is_coded => write.on_ack(now, report, None, counters),
            ReportKind::Ack => write.on_ack(now, report, Some(&mut self.round_trip), counters),
            ReportKind::Done | ReportKind::RoundTrip => {}
            ReportKind::Rows => {
                for (group, rows) in report.rows() {
                    match write.is_asked_for_rows(&self.shape, group, rows.into()) {
                        Some(true) => self.further.push_back((write.id, group)),
                        Some(false) => {}
                        None => counters.rejected += 1,
                    }
                }
            }
            ReportKind::Nack => {
                // However short the peer makes it look.
                let rtt = self.round_trip.rtt().max(self.round_trip.ack_delay);
                for chunk in report.chunks() {
                    match chunk < write.next {
                        true if write.is_asked_for(now, chunk, rtt) => self.again.push_back((write.id, chunk)),
                        true => {}
                        false => counters.rejected += 1,
                    }
                }
            }
        }
    }

    /// Does what there is to do.
    pub(super) fn progress(&mut self, io: &mut Io<'_>) {
        self.run_timers(io.now);
        // They were posted in this order, and all have as much time.
        if let Some(oldest) = self.writes.iter_mut().find(|write| write.outcome.is_none())
            && io.now >= oldest.ends
        {
            (self.any_over, oldest.outcome) = (true, Some(Err(ReliableError::Timeout)));
        }
        if let Some(error) = io.qp.failure() {
            self.fail(ReliableError::Sdr(error));
        }
        self.send_again(io);
        if std::mem::take(&mut self.any_over) {
            self.end_those_that_are_over(io);
        }
        self.send_on(io);
        if std::mem::take(&mut self.any_over) {
            self.end_those_that_are_over(io);
        }
    }

    /// Chunks that were not acknowledged in time are to be sent again.
    fn run_timers(&mut self, now: Instant) {
        let rto = self.round_trip.rto();
        let Sender { timers, writes, again, round_trip, .. } = self;
        loop {
            let is_over = |(id, chunk)| find_ref(writes, id).is_none_or(|write| write.is_acked(chunk));
            let Some((sent, (id, chunk))) = timers.next_usual(now, rto, is_over) else { break };
            let Some(write) = find(writes, id) else { continue };
            write.pending -= 1;
            // One that was sent again since has a timer of its own.
            if write.is_acked(chunk) || write.sent[chunk as usize] != sent {
                continue;
            }
            match timers::patience(write.tries[chunk as usize].into()) {
                1 if write.queue_again(chunk) => {
                    round_trip.on_timeout(now);
                    again.push_back((id, chunk));
                }
                1 => {}
                // It is not loss alone that keeps it from coming: each further time twice as long.
                longer => {
                    write.pending += 1;
                    timers.wait_longer(sent + rto * longer, (id, chunk));
                }
            }
        }
        while let Some((id, chunk)) = timers.next_slow(now) {
            let Some(write) = find(writes, id) else { continue };
            write.pending -= 1;
            // One that was sent again since has a timer of its own.
            if write.sent[chunk as usize] + rto <= now && write.queue_again(chunk) {
                again.push_back((id, chunk));
            }
        }
        while let Some(id) = timers.next_silent(now) {
            let Some(write) = find(writes, id) else { continue };
            let mut until = write.heard + rto * timers::patience(write.probes);
            if until <= now
                && write.is_quiet(&self.shape.layout)
                && let Some(chunk) = write.probe()
                && write.queue_again(chunk)
            {
                write.probes += 1;
                again.push_back((id, chunk));
            }
            until = until.max(now + rto);
            // When something of it leaves, it is expected anew.
            write.probe_set = write.outstanding == 0 && write.outcome.is_none();
            if write.probe_set {
                timers.expect(until, id);
            }
        }
    }

    /// First what was lost: the peer waits for it longest.
    fn send_again(&mut self, io: &mut Io<'_>) {
        while self.waiting < self.depth
            && let Some((id, chunk)) = self.again.pop_front()
        {
            let Some(write) = find(&mut self.writes, id) else { continue };
            if !write.take_again(&self.shape.layout, chunk) {
                continue;
            }
            match write.hand_out_again(io, &self.shape, chunk) {
                Some(part) => {
                    self.waiting += part.packets;
                    self.handed_out.push_back(part);
                }
                None => self.any_over = true,
            }
        }
        while self.waiting < self.depth
            && let Some((id, group)) = self.further.pop_front()
        {
            let Some(write) = find(&mut self.writes, id) else { continue };
            if let Some(part) = write.hand_out_further(io, &self.shape, &mut self.encoder, group) {
                self.any_over |= write.outcome.is_some();
                self.waiting += part.packets;
                self.handed_out.push_back(part);
            }
        }
    }

    /// Then what was never sent, message by message: their numbers follow each other at both ends.
    fn send_on(&mut self, io: &mut Io<'_>) {
        let Sender { shape, writes, encoder, depth, waiting, handed_out, sending, any_over, .. } = self;
        let cleared = io.qp.vitals().cleared;
        let slots = io.qp.peer_room().map_or(0, |(slots, _)| slots);
        let complete = cleared.saturating_sub(slots.into());
        while let Some(at) = writes.iter().position(|write| write.outcome.is_none())
            && complete > 0
            && writes[at].retire(io.qp, complete)
            && writes[at].outcome.is_some()
        {
            *any_over = true;
        }
        let begin = writes.partition_point(|write| write.id < *sending);
        for write in writes.range_mut(begin..) {
            while !write.is_handed_out(&shape.layout) {
                // One that failed ends all of them.
                if write.outcome.is_some() || !write.begin_block(io, shape, encoder) {
                    *any_over = true;
                    return;
                }
                if !write.is_cleared(cleared) || *waiting >= *depth {
                    return;
                }
                if let Some(part) = write.hand_out_next(io, shape, encoder) {
                    *waiting += part.packets;
                    handed_out.push_back(part);
                }
            }
            *sending = write.id + 1;
        }
    }

    /// A message is over when nothing of it waits to leave: its memory is the program's from then on.
    fn end_those_that_are_over(&mut self, io: &mut Io<'_>) {
        let mut at = 0;
        while let Some(write) = self.writes.get_mut(at) {
            let Some(outcome) = write.outcome else {
                at += 1;
                continue;
            };
            if write.id == self.sending {
                // Of its block nothing more is sent, and none follows.
                self.encoder.abandon();
                self.sending += 1;
            }
            if !write.end(io.qp) {
                self.any_over = true;
                at += 1;
                continue;
            }
            io.outcomes.push_back(Outcome::Written { id: write.id, outcome });
            self.spare.extend(self.writes.remove(at));
        }
    }

    /// When something is to be done although nothing happens.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let ends = self.writes.iter().find(|write| write.outcome.is_none()).map(|write| write.ends);
        ends.into_iter().chain(self.timers.poll_timeout(self.round_trip.rto())).min()
    }

    /// Gives back what it has of the NIC.
    pub(super) fn destroy(&mut self, nic: &mut Nic) {
        self.encoder.pool.destroy(nic);
    }
}

fn find_ref(writes: &VecDeque<Write>, id: u64) -> Option<&Write> {
    let at = writes.partition_point(|write| write.id < id);
    writes.get(at).filter(|write| write.id == id)
}

fn find(writes: &mut VecDeque<Write>, id: u64) -> Option<&mut Write> {
    let at = writes.partition_point(|write| write.id < id);
    writes.get_mut(at).filter(|write| write.id == id)
}
