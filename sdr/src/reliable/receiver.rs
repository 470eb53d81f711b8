//! The receiving end of a reliable connection: it looks at the bitmaps of what is posted, tells what has come, and asks for what is missing
//! (SDR-RDMA §4.1.1).

use std::collections::VecDeque;
use std::time::Duration;

use softnic_nic::Nic;
use softnic_wire::Instant;
use softnic_wire::sdr::report::{HEAD, Report, ReportKind};

use super::{Io, Outcome, ReliableAttr, ReliableCounters, ReliableError, Scheme};
use crate::Local;
use crate::bitmap::Bitmap;
use crate::counters::Counters;
use crate::error::SdrError;
use crate::qp::SdrQp;
use crate::receives::RecvHandle;

/// A receive that is posted.
struct Read {
    handle: RecvHandle,
    len: u64,
    bitmap: Bitmap,
    /// Words of the bitmap that are full, from the beginning.
    full_words: usize,
    /// Chunks that had come when the peer was told last, and the word from which it is to be told the rest.
    told: u32,
    told_to: usize,
    /// The first chunk of which nobody has looked yet whether it is missing, and those that were asked for, each with the time.
    looked: u32,
    asked: VecDeque<(Instant, u32)>,
    /// Since something of it came.
    ends: Option<Instant>,
}

/// What has come, as the counters of the SDR queue pair have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Seen {
    packets: u64,
    /// Twice, or late.
    repeated: u64,
    rejected: u64,
}

impl Seen {
    fn of(counters: &Counters) -> Seen {
        let Counters { packets, duplicates, rejected, .. } = *counters;
        Seen { packets, repeated: duplicates + counters.late(), rejected }
    }
}

/// The shortest time after which something that could not be done now is tried again.
const SHORTEST: Duration = Duration::from_micros(1);

/// All receives.
pub(super) struct Receiver {
    scheme: Scheme,
    reads: VecDeque<Read>,
    /// Receives that were posted since the beginning.
    posted: u64,
    /// The newest message that is complete, and its length; and whether the peer is to be told.
    last_whole: Option<(u64, u64)>,
    report_due: bool,
    /// What had come when the peer was told last, and when that was.
    seen: Seen,
    told_at: Instant,
    /// When chunks were asked for last.
    asked_at: Instant,
    sequence: u32,
    ack_delay: Duration,
    reordering: u32,
    timeout: Duration,
    packet: usize,
    bytes: Vec<u8>,
}

impl Receiver {
    pub(super) fn new(attr: &ReliableAttr) -> Receiver {
        Receiver {
            scheme: attr.scheme,
            reads: VecDeque::new(),
            posted: 0,
            last_whole: None,
            report_due: false,
            seen: Seen::default(),
            told_at: Instant::ZERO,
            asked_at: Instant::ZERO,
            sequence: 0,
            ack_delay: attr.ack_delay(),
            reordering: attr.reordering,
            timeout: attr.timeout,
            packet: attr.data().control_len as usize,
            bytes: Vec::new(),
        }
    }

    /// Posts memory for the next message: all of it must come.
    pub(super) fn post(&mut self, io: &mut Io<'_>, memory: Local) -> Result<u64, SdrError> {
        let Io { now, nic, qp, .. } = io;
        let handle = qp.recv_post(*now, nic, memory)?;
        let bitmap = qp.recv_bitmap_get(handle)?.clone();
        self.reads.push_back(Read {
            handle,
            len: memory.len,
            bitmap,
            full_words: 0,
            told: 0,
            told_to: 0,
            looked: 0,
            asked: VecDeque::new(),
            ends: None,
        });
        self.posted = handle.number() + 1;
        Ok(handle.number())
    }

    /// Does what there is to do.
    pub(super) fn progress(&mut self, io: &mut Io<'_>, rtt: Duration) {
        let Io { now, nic, qp, counters, outcomes: out } = io;
        let now = *now;
        // Of a connection that is about to end nothing is told: what was given up is not there.
        if !self.end_those_that_are_over(now, nic, qp, out) {
            return;
        }
        let seen = Seen::of(&qp.counters(nic));
        if self.scheme == Scheme::Nack && now >= self.asked_at + self.ack_delay / 4 {
            self.ask(now, nic, qp, rtt, counters);
        }
        if self.report_due || seen != self.seen && now >= self.told_at + self.ack_delay {
            self.tell(now, nic, qp, seen, counters);
        }
    }

    /// When something is to be done although nothing happens: never at once, for what could be done was.
    pub(super) fn poll_timeout(&self, io: &mut Io<'_>, rtt: Duration) -> Option<Instant> {
        let Io { now, nic, qp, .. } = io;
        let now = *now;
        let ends = self.reads.iter().filter_map(|read| read.ends).min();
        if qp.peer_token().is_none() {
            return ends;
        }
        let news = Seen::of(&qp.counters(nic)) != self.seen;
        let report = (news || self.report_due).then(|| self.told_at + self.ack_delay);
        let gaps = (news && self.scheme == Scheme::Nack).then(|| self.asked_at + self.ack_delay / 4);
        let asked = self.reads.iter().filter_map(|read| read.asked.front()).map(|&(at, _)| at + again_after(rtt)).min();
        let next = [report, gaps, asked].into_iter().flatten().min().map(|at| at.max(now + SHORTEST));
        next.into_iter().chain(ends).min()
    }

    /// Ends the receives that are whole. `false` when the time of one is over that is not.
    fn end_those_that_are_over(
        &mut self,
        now: Instant,
        nic: &mut Nic,
        qp: &mut SdrQp,
        out: &mut VecDeque<Outcome>,
    ) -> bool {
        let newest = qp.seen();
        let mut at = 0;
        while let Some(read) = self.reads.get_mut(at) {
            if read.handle.number() >= newest {
                break;
            }
            let ends = *read.ends.get_or_insert(now + self.timeout);
            let whole = read.is_whole();
            if !whole && now < ends {
                at += 1;
                continue;
            }
            let Some(read) = self.reads.remove(at) else { break };
            drop(read.bitmap);
            let _ = qp.recv_complete(nic, read.handle);
            let id = read.handle.number();
            if !whole {
                out.push_back(Outcome::Received { id, outcome: Err(ReliableError::Timeout) });
                return false;
            }
            (self.report_due, self.last_whole) = (true, Some((id, read.len)));
            out.push_back(Outcome::Received { id, outcome: Ok(()) });
        }
        true
    }

    /// Everything ends.
    pub(super) fn fail(&mut self, io: &mut Io<'_>, why: ReliableError) {
        let Io { nic, qp, outcomes: out, .. } = io;
        for read in self.reads.drain(..) {
            drop(read.bitmap);
            let _ = qp.recv_complete(nic, read.handle);
            out.push_back(Outcome::Received { id: read.handle.number(), outcome: Err(why) });
        }
    }

    /// The messages that are complete: all below a number, and bits of the next 64.
    fn done(&self) -> (u64, u64) {
        let Some(oldest) = self.reads.front() else { return (self.posted, 0) };
        let done = oldest.handle.number();
        let open = self.reads.iter().map(|read| read.handle.number() - done).take_while(|&ahead| ahead < 64);
        let open = open.fold(0u64, |bits, ahead| bits | 1 << ahead);
        let posted = (self.posted - done).min(64) as u32;
        (done, !open & u64::MAX >> (64 - posted))
    }

    /// Tells what has come, of each message of which something new has. What there is no room for now is told the next time, from there on.
    fn tell(&mut self, now: Instant, nic: &mut Nic, qp: &mut SdrQp, seen: Seen, counters: &mut ReliableCounters) {
        let Some(token) = qp.peer_token() else { return };
        // Packets that came twice, or late, are of a peer that does not know what is here.
        let (repeated, rejected) = (seen.repeated != self.seen.repeated, seen.rejected != self.seen.rejected);
        let (done, done_ahead) = self.done();
        let head = |message: u64, len: u64, sequence: u32| Report {
            kind: ReportKind::Ack,
            token,
            sequence,
            done,
            done_ahead,
            message,
            len,
            below: 0,
            first: 0,
            bitmap: &[],
        };
        self.told_at = now;
        if self.report_due || repeated {
            // With the length of the newest that is whole: its sender compares.
            let (message, len) = self.last_whole.unwrap_or((done, 0));
            write_head(&mut self.bytes, &head(message, len, self.sequence));
            if !self.send(now, nic, qp, counters) {
                return;
            }
            self.report_due = false;
        }
        let (newest, room) = (qp.seen(), (Report::room(self.packet) / 8).max(1));
        for at in 0..self.reads.len() {
            let read = &self.reads[at];
            let count = read.bitmap.count();
            let has_news = read.handle.number() < newest && (count != read.told || repeated);
            // What does not fit the oldest one was meant for it: its sender learns how long it is.
            if !(has_news || rejected && at == 0) {
                continue;
            }
            let end = (read.full_words..read.bitmap.words()).rev().find(|&word| read.bitmap.word(word) != 0);
            let end = end.map_or(read.full_words + 1, |word| word + 1);
            let begin = read.told_to.clamp(read.full_words, end);
            for from in (begin..end).step_by(room) {
                let read = &self.reads[at];
                let [below, first] = [read.full_words, from].map(|word| (word as u32 * 64).min(read.bitmap.chunks()));
                let report = Report { below, first, ..head(read.handle.number(), read.len, self.sequence) };
                write_head(&mut self.bytes, &report);
                for word in from..end.min(from + room) {
                    self.bytes.extend(read.bitmap.word(word).to_le_bytes());
                }
                if !self.send(now, nic, qp, counters) {
                    self.reads[at].told_to = from;
                    return;
                }
            }
            (self.reads[at].told, self.reads[at].told_to) = (count, 0);
        }
        self.seen = seen;
    }

    /// Sends the report; `false` when there is no room for it now.
    fn send(&mut self, now: Instant, nic: &mut Nic, qp: &mut SdrQp, counters: &mut ReliableCounters) -> bool {
        let sent = qp.send_other(now, nic, &self.bytes);
        self.sequence = self.sequence.wrapping_add(u32::from(sent));
        counters.acks_sent += u64::from(sent);
        sent
    }

    /// Asks for chunks that later ones tell to be lost, and again for those that have not come after a round trip.
    fn ask(&mut self, now: Instant, nic: &mut Nic, qp: &mut SdrQp, rtt: Duration, counters: &mut ReliableCounters) {
        let Some(token) = qp.peer_token() else { return };
        self.asked_at = now;
        let newest = qp.seen();
        let (room, reordering) = (Report::room(self.packet), self.reordering);
        let (done, done_ahead) = self.done();
        for read in self.reads.iter_mut().take_while(|read| read.handle.number() < newest) {
            let chunks = read.missing(now, reordering, again_after(rtt));
            let Some(&first) = chunks.first() else { continue };
            // What does not fit is asked for when its time has come again.
            let span = chunks.last().map_or(0, |last| (last - first) as usize / 8 + 1).min(room);
            let report = Report {
                kind: ReportKind::Nack,
                token,
                sequence: self.sequence,
                done,
                done_ahead,
                message: read.handle.number(),
                len: read.len,
                below: 0,
                first,
                bitmap: &[],
            };
            write_head(&mut self.bytes, &report);
            self.bytes.resize(HEAD + span, 0);
            for chunk in chunks {
                let at = (chunk - first) as usize;
                if let Some(byte) = self.bytes.get_mut(HEAD + at / 8) {
                    *byte |= 1 << (at % 8);
                }
            }
            if qp.send_other(now, nic, &self.bytes) {
                self.sequence = self.sequence.wrapping_add(1);
                counters.nacks_sent += 1;
            }
        }
    }
}

/// A chunk that was asked for and has not come is asked for again after this time: a round trip, and what one of its ends may take.
fn again_after(rtt: Duration) -> Duration {
    rtt.mul_f64(1.25)
}

fn write_head(bytes: &mut Vec<u8>, report: &Report<'_>) {
    let mut head = [0; HEAD];
    report.emit_head(&mut head);
    bytes.clear();
    bytes.extend(head);
}

impl Read {
    /// Whether all chunks have come.
    fn is_whole(&mut self) -> bool {
        let words = self.bitmap.words();
        while self.full_words + 1 < words && self.bitmap.word(self.full_words) == u64::MAX {
            self.full_words += 1;
        }
        self.full_words + 1 >= words && self.bitmap.is_full()
    }

    /// Chunks to ask for now, in ascending order.
    fn missing(&mut self, now: Instant, reordering: u32, again_after: Duration) -> Vec<u32> {
        let mut missing = Vec::new();
        while let Some(&(at, chunk)) = self.asked.front()
            && (at + again_after <= now || self.bitmap.is_set(chunk))
        {
            self.asked.pop_front();
            if !self.bitmap.is_set(chunk) {
                missing.push(chunk);
            }
        }
        // Chunks that came tell of those before them, however many are missing in between.
        let words = (self.looked as usize / 64..self.bitmap.words()).rev();
        let newest = words.map(|word| (word, self.bitmap.word(word))).find(|&(_, bits)| bits != 0);
        let newest = newest.map(|(word, bits)| word as u32 * 64 + 63 - bits.leading_zeros());
        if let Some(end) = newest.map(|newest| (newest + 1).saturating_sub(reordering)).filter(|&end| end > self.looked)
        {
            missing.extend((self.looked..end).filter(|&chunk| !self.bitmap.is_set(chunk)));
            self.looked = end;
        }
        self.asked.extend(missing.iter().map(|&chunk| (now, chunk)));
        missing.sort_unstable();
        missing
    }
}
