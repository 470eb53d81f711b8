//! The receiving end of a reliable connection: it looks at the bitmaps of what is posted, repairs what parity can, tells what has come, and asks
//! for what is missing (SDR-RDMA §4.1).

mod decoder;
mod posted;
mod read;
mod telling;

use std::collections::VecDeque;
use std::time::Duration;

use softnic_nic::Nic;
use softnic_nic::transports::memory::PdId;
use softnic_wire::Instant;

use super::layout::Layout;
use super::pool::Pool;
use super::{Fallback, Io, Outcome, ReliableAttr, ReliableError, Scheme};
use crate::Local;
use crate::error::SdrError;
use decoder::Decoder;
use posted::{Parity, Posted};
use read::Read;
use telling::Telling;

/// The shortest time after which something that could not be done now is tried again.
const SHORTEST: Duration = Duration::from_micros(1);

/// All receives.
pub(super) struct Receiver {
    layout: Layout,
    reads: VecDeque<Read>,
    spare: Vec<Posted>,
    spare_reads: Vec<Read>,
    decoder: Decoder,
    /// Receives for parity whose data is whole: what is under way to them is not late. Each with the time after which it may be.
    closing: VecDeque<(Instant, Parity)>,
    /// Receives that were posted since the beginning.
    posted: u64,
    telling: Telling,
    asks_for_gaps: bool,
    /// When chunks were asked for last.
    asked_at: Instant,
    /// Something came of which nobody has looked yet what it says of gaps.
    gaps_due: bool,
    gaps: Vec<u32>,
    rows: Vec<(u32, u8)>,
    reordering: u32,
    fallback: Fallback,
    /// What queues on one way may add to a round trip, as a part of it; and the time that a byte takes on the line.
    beta: f64,
    rate: Option<u64>,
    slots: u32,
    timeout: Duration,
    /// The round trip as the peer measured it.
    told_rtt: Option<Duration>,
}

impl Receiver {
    pub(super) fn new(nic: &Nic, pd: PdId, attr: &ReliableAttr) -> Receiver {
        let layout = Layout::new(attr);
        let pool = Pool::new(pd, layout.longest_parity_message(), attr.parity_pool);
        Receiver {
            layout,
            reads: VecDeque::new(),
            spare: Vec::new(),
            spare_reads: Vec::new(),
            decoder: Decoder::new(nic, pd, pool, attr.clock),
            closing: VecDeque::new(),
            posted: 0,
            telling: Telling::new(attr),
            asks_for_gaps: attr.scheme == Scheme::Nack,
            asked_at: Instant::ZERO,
            gaps_due: false,
            told_rtt: None,
            gaps: Vec::new(),
            rows: Vec::new(),
            reordering: attr.reordering,
            fallback: attr.fallback,
            beta: attr.alpha / 2.0,
            rate: attr.rate,
            slots: attr.qp.slots,
            timeout: attr.timeout,
        }
    }

    /// Posts memory for the next message: all of it must come.
    pub(super) fn post(&mut self, io: &mut Io<'_>, memory: Local) -> Result<u64, SdrError> {
        let slots = io.qp.attr().slots;
        let has_room = match self.layout.is_coded() {
            // Its blocks are posted as those before them are done.
            true => self.reads.len() < slots as usize,
            false => io.qp.recv_has_room(1),
        };
        if !has_room {
            return Err(SdrError::Full(slots));
        }
        let (id, longest) = (self.posted, self.layout.longest(io.qp.attr().max_message));
        if memory.len > longest {
            return Err(SdrError::TooLong(memory.len, longest));
        }
        // All of it, before a part of it is posted.
        self.decoder.check(io.nic, memory)?;
        let mut read = self.spare_reads.pop().unwrap_or_default();
        read.begin(id, memory, &self.layout);
        self.reads.push_back(read);
        if let Err(error) = self.post_blocks(io) {
            self.spare_reads.extend(self.reads.pop_back());
            return Err(error);
        }
        self.posted += 1;
        Ok(id)
    }

    /// Posts as many blocks as there is room for.
    fn post_blocks(&mut self, io: &mut Io<'_>) -> Result<(), SdrError> {
        let mut any = false;
        // Those before it are posted as a whole.
        let begin = self.reads.partition_point(|read| read.next_block().is_none());
        'all: for read in self.reads.range_mut(begin..) {
            while let Some(index) = read.next_block() {
                let block = self.layout.block(read.memory.len, index);
                if !io.qp.recv_has_room(block.messages()) {
                    break 'all;
                }
                let memory = read.block_memory(&self.layout, block.first, block.len);
                let mut posted = self.spare.pop().unwrap_or_default();
                posted.post(io, &self.layout, &mut self.decoder, block, memory)?;
                read.posted.push_back(Some(posted));
                any = true;
            }
        }
        if any {
            io.qp.recv_announce(io.now, io.nic);
        }
        Ok(())
    }

    /// Does what there is to do.
    pub(super) fn progress(&mut self, io: &mut Io<'_>, rtt: Duration) {
        let rtt = self.told_rtt.unwrap_or(rtt);
        self.close_parity(io);
        self.look(io, rtt);
        // Of a connection that is about to end nothing is told: what was given up is not there.
        if !self.end_those_that_are_over(io) {
            return;
        }
        if let Err(error) = self.post_blocks(io)
            && let Some(at) = self.reads.iter().position(|read| read.next_block().is_some())
            && let Some(read) = self.reads.remove(at)
        {
            let outcome = Err(ReliableError::Sdr(error));
            io.outcomes.push_back(Outcome::Received { id: read.id, outcome });
            return self.close(io, read);
        }
        self.gaps_due |= self.asks_for_gaps && (self.telling.has_news(io) || self.is_asked_in_vain(io.now, rtt));
        if self.gaps_due && io.now >= self.asked_at + self.telling.ack_delay / 4 {
            self.ask_for_gaps(io, rtt);
        }
        self.ask_for_failed(io, rtt);
        self.telling.progress(io, &mut self.reads, self.posted, &self.layout);
    }

    /// The peer tells the round trip, in nanoseconds. One that cannot be is not waited for.
    pub(super) fn on_round_trip(&mut self, nanoseconds: u64) {
        self.told_rtt = Some(Duration::from_nanos(nanoseconds).clamp(SHORTEST, self.timeout));
    }

    /// Looks at the blocks that something came of: what is whole is completed.
    fn look(&mut self, io: &mut Io<'_>, rtt: Duration) {
        let newest = io.qp.seen();
        for read in self.reads.iter_mut().take_while(|read| read.is_seen(newest)) {
            read.first_seen.get_or_insert(io.now);
            if !self.layout.is_coded() {
                continue;
            }
            for slot in &mut read.posted {
                let Some(block) = slot else { continue };
                if block.base() >= newest {
                    break;
                }
                if !block.look(io.nic, &self.layout, &mut self.decoder, io.counters) {
                    continue;
                }
                (read.moved_at, read.moves) = (io.now, read.moves + 1);
                if block.is_whole() {
                    let until = io.now + rtt.mul_f64(self.beta);
                    self.closing.extend(block.complete_data(io.nic, io.qp).map(|parity| (until, parity)));
                    self.spare.extend(slot.take());
                }
            }
            read.drop_whole(&self.layout);
        }
    }

    /// Receives for parity are completed when later messages come, or nothing does.
    fn close_parity(&mut self, io: &mut Io<'_>) {
        let newest = io.qp.seen();
        while let Some((until, parity)) = self.closing.front()
            && (parity.handle.number() + 1 < newest || *until <= io.now)
            && let Some((_, parity)) = self.closing.pop_front()
        {
            parity.complete(io.nic, io.qp, &mut self.decoder);
        }
    }

    /// Ends the receives that are whole. `false` when the time of one is over that is not.
    fn end_those_that_are_over(&mut self, io: &mut Io<'_>) -> bool {
        let mut at = 0;
        while let Some(read) = self.reads.get_mut(at) {
            let Some(first_seen) = read.first_seen else { break };
            let whole = match self.layout.is_coded() {
                true => read.first_block == read.blocks,
                false => read.is_plain_whole(),
            };
            if !whole && io.now < first_seen + self.timeout {
                at += 1;
                continue;
            }
            let Some(read) = self.reads.remove(at) else { break };
            let (id, len) = (read.id, read.memory.len);
            self.close(io, read);
            if !whole {
                io.outcomes.push_back(Outcome::Received { id, outcome: Err(ReliableError::Timeout) });
                return false;
            }
            self.telling.is_whole(id, len);
            io.outcomes.push_back(Outcome::Received { id, outcome: Ok(()) });
        }
        true
    }

    /// Completes what is posted of a receive.
    fn close(&mut self, io: &mut Io<'_>, mut read: Read) {
        for mut block in read.posted.drain(..).flatten() {
            let parities = block.complete_data(io.nic, io.qp);
            parities.for_each(|parity| parity.complete(io.nic, io.qp, &mut self.decoder));
            self.spare.push(block);
        }
        self.spare_reads.push(read);
    }

    /// Everything ends.
    pub(super) fn fail(&mut self, io: &mut Io<'_>, why: ReliableError) {
        while let Some(read) = self.reads.pop_front() {
            io.outcomes.push_back(Outcome::Received { id: read.id, outcome: Err(why) });
            self.close(io, read);
        }
    }

    /// When something is to be done although nothing happens: never at once, for what could be done was.
    pub(super) fn poll_timeout(&self, io: &mut Io<'_>, rtt: Duration) -> Option<Instant> {
        let rtt = self.told_rtt.unwrap_or(rtt);
        let seen = || self.reads.iter().take_while(|read| read.first_seen.is_some());
        // They were seen in this order.
        let ends = self.reads.front().and_then(|read| read.first_seen).map(|seen| seen + self.timeout);
        if io.qp.peer_token().is_none() {
            return ends;
        }
        let news = self.telling.has_news(io);
        let report = (news || self.telling.is_due()).then(|| self.telling.told_at + self.telling.ack_delay);
        let gaps = self.gaps_due.then(|| self.asked_at + self.telling.ack_delay / 4);
        let asked = seen().filter_map(|read| read.asked.front()).map(|&(at, _)| at + again_after(rtt)).min();
        let failed = seen().filter_map(|read| self.falls_back_at(read, rtt)).min();
        let closing = self.closing.front().map(|&(until, _)| until);
        let next = [report, gaps, asked, failed, closing].into_iter().flatten().min();
        next.map(|at| at.max(io.now + SHORTEST)).into_iter().chain(ends).min()
    }

    // ---- what is missing ----

    /// Whether something that was asked for has not come in its time.
    fn is_asked_in_vain(&self, now: Instant, rtt: Duration) -> bool {
        let seen = self.reads.iter().take_while(|read| read.first_seen.is_some());
        seen.filter_map(|read| read.asked.front()).any(|&(at, _)| at + again_after(rtt) <= now)
    }

    /// Asks for chunks that later ones tell to be lost, and again for those that have not come after a round trip.
    fn ask_for_gaps(&mut self, io: &mut Io<'_>, rtt: Duration) {
        (self.asked_at, self.gaps_due) = (io.now, false);
        let (done, newest) = (telling::done(&self.reads, self.posted), io.qp.seen());
        for read in self.reads.iter_mut().take_while(|read| read.is_seen(newest)) {
            read.gaps(io.now, self.reordering, again_after(rtt), &mut self.gaps);
            // What there is no room for is asked for when its time has come again.
            let _ = self.telling.ask(io, done, read, &self.gaps);
        }
    }

    /// When a receive whose parity does not repair all is to be sent again: FTO (SDR-RDMA §4.2.3), and as long as something comes of it later;
    /// then after each round trip.
    fn falls_back_at(&self, read: &Read, rtt: Duration) -> Option<Instant> {
        let first_seen = read.first_seen.filter(|_| self.layout.is_coded())?;
        let patience = rtt.mul_f64(self.beta).max(self.telling.ack_delay);
        let all_sent = match read.asked_at {
            Some(asked_at) => asked_at + rtt,
            None => first_seen + self.injection(read),
        };
        Some(all_sent.max(read.moved_at) + patience)
    }

    /// How long the data and the parity of a receive take on the line.
    fn injection(&self, read: &Read) -> Duration {
        let Some(rate) = self.rate.filter(|&rate| rate > 0) else { return Duration::ZERO };
        // No more than there are receives for: what is missing of these holds up the rest.
        let len = (read.memory.len as f64).min(f64::from(self.slots) / 2.0 * self.layout.submessage() as f64);
        let bytes = len * (1.0 + self.layout.parity_share());
        Duration::try_from_secs_f64(bytes * 8.0 / rate as f64).unwrap_or(self.timeout)
    }

    /// Asks for what parity did not repair in time.
    fn ask_for_failed(&mut self, io: &mut Io<'_>, rtt: Duration) {
        let newest = io.qp.seen();
        for at in 0..self.reads.len() {
            match self.falls_back_at(&self.reads[at], rtt) {
                // Nothing of it came, nor of those behind it.
                None => break,
                Some(at) if at > io.now => continue,
                Some(_) => {}
            }
            let done = telling::done(&self.reads, self.posted);
            let (layout, whole_groups) = (&self.layout, self.fallback == Fallback::Submessages);
            let read = &mut self.reads[at];
            self.gaps.clear();
            self.rows.clear();
            let mut groups = 0;
            for block in read.posted.iter().flatten().take_while(|block| block.base() < newest) {
                groups += block.open_groups();
                block.ask(layout, whole_groups, &mut self.gaps, &mut self.rows);
            }
            if self.gaps.is_empty() && self.rows.is_empty() {
                // What is not there yet was not sent: it is waited for.
                read.moved_at = io.now;
                continue;
            }
            if !self.telling.ask_rows(io, done, read, &self.rows) || !self.telling.ask(io, done, read, &self.gaps) {
                continue;
            }
            self.rows.iter().for_each(|&(number, _)| read.has_asked_rows(layout, number));
            if read.asked_at.replace(io.now).is_none() {
                io.counters.fallbacks += 1;
                io.counters.failed_submessages += u64::from(groups);
            }
        }
    }

    /// Gives back what it has of the NIC.
    pub(super) fn destroy(&mut self, nic: &mut Nic) {
        self.decoder.pool.destroy(nic);
    }
}

/// A chunk that was asked for and has not come is asked for again after this time: a round trip, and what one of its ends may take.
fn again_after(rtt: Duration) -> Duration {
    rtt.mul_f64(1.25)
}
