//! The sending end of a reliable connection: chunks are handed out as they can leave, with their parity, and again when they are asked for or a
//! timeout says so (SDR-RDMA §4.1).

mod encoder;
mod write;

use std::collections::VecDeque;
use std::time::Duration;

use softnic_nic::Nic;
use softnic_nic::transports::memory::PdId;
use softnic_wire::Instant;
use softnic_wire::sdr::report::{Report, ReportKind};

use super::layout::Layout;
use super::pool::Pool;
use super::round_trip::RoundTrip;
use super::{Io, Outcome, ReliableAttr, ReliableError};
use crate::Local;
use crate::error::SdrError;
use encoder::Encoder;
use write::{Shape, Write};

/// All messages that are being sent.
pub(super) struct Sender {
    shape: Shape,
    writes: VecDeque<Write>,
    spare: Vec<Write>,
    /// Those that were posted since the beginning.
    posted: u64,
    /// Packets that may be handed out and not have left.
    depth: u32,
    waiting: u32,
    timeout: Duration,
    encoder: Encoder,
    pub(super) round_trip: RoundTrip,
}

impl Sender {
    pub(super) fn new(nic: &Nic, pd: PdId, attr: &ReliableAttr) -> Sender {
        let layout = Layout::new(attr);
        Sender {
            shape: Shape { layout, channels: attr.qp.channels.into() },
            writes: VecDeque::new(),
            spare: Vec::new(),
            posted: 0,
            depth: attr.qp.send_depth,
            waiting: 0,
            timeout: attr.timeout,
            encoder: Encoder::new(nic, pd, Pool::new(pd, layout.longest_parity(), attr.parity_pool)),
            round_trip: RoundTrip::new(attr.rtt, attr.alpha, attr.ack_delay()),
        }
    }

    /// Takes over a message; it goes into the peer's receive of the same number.
    pub(super) fn post(&mut self, io: &mut Io<'_>, memory: Local) -> Result<u64, SdrError> {
        let (_, longest) = io.qp.peer_room().ok_or(SdrError::NotConnected)?;
        if !self.shape.layout.is_coded() && memory.len > longest {
            return Err(SdrError::TooLong(memory.len, longest));
        }
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
        for write in &mut self.writes {
            let left = write.take_left(io.now, io.qp, &self.shape.layout, &mut self.encoder);
            self.waiting -= left.min(self.waiting);
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
            if is_done && write.next == write.chunks && write.outcome.is_none() {
                write.outcome = Some(Ok(()));
                if self.shape.layout.is_coded() {
                    write.sample_whole(now, &mut self.round_trip);
                }
            }
        }
        let about = self.writes.iter_mut().find(|write| is_about_one && write.id == report.message);
        let Some(write) = about.filter(|write| write.outcome.is_none()) else { return };
        write.heard_of(now);
        match report.kind {
            // Who sends parity is told of chunks only when some are missing, and much later.
            ReportKind::Ack if self.shape.layout.is_coded() => write.on_ack(now, report, None, counters),
            ReportKind::Ack => write.on_ack(now, report, Some(&mut self.round_trip), counters),
            ReportKind::Nack => write.on_nack(now, report, self.round_trip.rtt(), counters),
        }
    }

    /// Does what there is to do.
    pub(super) fn progress(&mut self, io: &mut Io<'_>) {
        let rto = self.round_trip.rto();
        for write in &mut self.writes {
            write.run_timers(io.now, rto, &self.shape.layout);
            if io.now >= write.ends {
                write.outcome.get_or_insert(Err(ReliableError::Timeout));
            }
            if let Some(error) = io.qp.failure() {
                write.outcome.get_or_insert(Err(ReliableError::Sdr(error)));
            }
        }
        self.send_again(io);
        self.send_on(io);
        self.end_those_that_are_over(io);
    }

    /// First what was lost: the peer waits for it longest.
    fn send_again(&mut self, io: &mut Io<'_>) {
        for write in self.writes.iter_mut().filter(|write| write.outcome.is_none()) {
            while self.waiting < self.depth
                && let Some(chunk) = write.next_again(&self.shape.layout)
            {
                self.waiting += write.hand_out_again(io, &self.shape, chunk);
            }
        }
    }

    /// Then what was never sent, message by message: their numbers follow each other at both ends.
    fn send_on(&mut self, io: &mut Io<'_>) {
        let Sender { shape, writes, encoder, depth, waiting, .. } = self;
        let cleared = io.qp.vitals().cleared;
        let slots = io.qp.peer_room().map_or(0, |(slots, _)| slots);
        for write in writes {
            write.retire(io.qp, &shape.layout, cleared.saturating_sub(slots.into()));
            while !write.is_handed_out(&shape.layout) {
                // One that failed ends all of them.
                if write.outcome.is_some() || !write.begin_block(io, shape, encoder) {
                    return;
                }
                if !write.is_cleared(cleared) || *waiting >= *depth {
                    return;
                }
                *waiting += write.hand_out_next(io, shape, encoder);
            }
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
            if !write.is_handed_out(&self.shape.layout) {
                // Of its block nothing more is sent, and none follows.
                self.encoder.abandon();
            }
            if !write.end(io.qp) {
                at += 1;
                continue;
            }
            io.outcomes.push_back(Outcome::Written { id: write.id, outcome });
            if let Some(mut write) = self.writes.remove(at) {
                self.waiting -= write.forget(&mut self.encoder).min(self.waiting);
                self.spare.push(write);
            }
        }
    }

    /// When something is to be done although nothing happens.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let (rto, layout) = (self.round_trip.rto(), &self.shape.layout);
        let open = self.writes.iter().filter(|write| write.outcome.is_none());
        open.map(|write| write.poll_timeout(rto, layout)).min()
    }

    /// Gives back what it has of the NIC.
    pub(super) fn destroy(&mut self, nic: &mut Nic) {
        self.encoder.pool.destroy(nic);
    }
}
