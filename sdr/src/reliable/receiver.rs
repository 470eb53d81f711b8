//! The receiving end of a reliable connection: it looks at the bitmaps of what is posted, tells what has come, and asks for what is missing
//! (SDR-RDMA §4.1.1).

use std::collections::VecDeque;
use std::time::Duration;

use softnic_nic::Nic;
use softnic_wire::Instant;
use softnic_wire::sdr::report::{HEAD, Report, ReportKind};

use super::{Outcome, ReliableAttr, ReliableCounters, ReliableError, Scheme};
use crate::Local;
use crate::bitmap::Bitmap;
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
    /// Chunks that had come when the peer was told last.
    told: u32,
    /// The first chunk of which nobody has looked yet whether it is missing, and those that were asked for, each with the time.
    looked: u32,
    asked: VecDeque<(Instant, u32)>,
    ends: Instant,
}

/// All receives.
pub(super) struct Receiver {
    scheme: Scheme,
    reads: VecDeque<Read>,
    /// Receives that were posted since the beginning.
    posted: u64,
    /// Reports are due: of messages that are complete, or of packets that told that the peer does not know of it.
    report_due: bool,
    /// Packets of all kinds that had come when the peer was told last, and when that was.
    seen: (u64, u64),
    told_at: Instant,
    sequence: u32,
    acks_per_rtt: u32,
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
            report_due: false,
            seen: (0, 0),
            told_at: Instant::ZERO,
            sequence: 0,
            acks_per_rtt: attr.acks_per_rtt,
            reordering: attr.reordering,
            timeout: attr.timeout,
            packet: attr.data().control_len as usize,
            bytes: Vec::new(),
        }
    }

    /// Posts memory for the next message: all of it must come.
    pub(super) fn post(&mut self, now: Instant, nic: &mut Nic, qp: &mut SdrQp, memory: Local) -> Result<u64, SdrError> {
        let handle = qp.recv_post(now, nic, memory)?;
        let bitmap = qp.recv_bitmap_get(handle)?.clone();
        self.reads.push_back(Read {
            handle,
            len: memory.len,
            bitmap,
            full_words: 0,
            told: 0,
            looked: 0,
            asked: VecDeque::new(),
            ends: now + self.timeout,
        });
        self.posted = handle.number() + 1;
        Ok(handle.number())
    }

    /// Does what there is to do.
    pub(super) fn progress(
        &mut self,
        now: Instant,
        nic: &mut Nic,
        qp: &mut SdrQp,
        rtt: Duration,
        counters: &mut ReliableCounters,
        out: &mut VecDeque<Outcome>,
    ) {
        self.end_those_that_are_over(now, nic, qp, out);
        let sdr = qp.counters(nic);
        // Packets that came twice, or late, are of a peer that does not know what is here.
        let seen = (sdr.packets, sdr.duplicates + sdr.late());
        if seen == self.seen && !self.report_due && self.scheme == Scheme::Sr {
            return;
        }
        if self.scheme == Scheme::Nack {
            self.ask(now, nic, qp, rtt, counters);
        }
        let is_time = now >= self.told_at + rtt / self.acks_per_rtt;
        if self.report_due || seen != self.seen && is_time {
            self.tell(now, nic, qp, seen, counters);
        }
    }

    /// When something is to be done although nothing happens.
    pub(super) fn poll_timeout(&self, nic: &mut Nic, qp: &SdrQp, rtt: Duration) -> Option<Instant> {
        let sdr = qp.counters(nic);
        let news = (sdr.packets, sdr.duplicates + sdr.late()) != self.seen || self.report_due;
        let report = news.then(|| self.told_at + rtt / self.acks_per_rtt);
        let asked = self.reads.iter().filter_map(|read| read.asked.front()).map(|&(at, _)| at + again_after(rtt)).min();
        let ends = self.reads.front().map(|read| read.ends);
        [report, asked, ends].into_iter().flatten().min()
    }

    fn end_those_that_are_over(&mut self, now: Instant, nic: &mut Nic, qp: &mut SdrQp, out: &mut VecDeque<Outcome>) {
        let newest = qp.seen();
        let mut at = 0;
        while let Some(read) = self.reads.get_mut(at) {
            let is_late = now >= read.ends;
            if read.handle.number() >= newest && !is_late {
                break;
            }
            let whole = read.is_whole();
            if !whole && !is_late {
                at += 1;
                continue;
            }
            let Some(read) = self.reads.remove(at) else { return };
            drop(read.bitmap);
            let _ = qp.recv_complete(nic, read.handle);
            let id = read.handle.number();
            self.report_due = true;
            let outcome = if whole { Ok(()) } else { Err(ReliableError::Timeout) };
            out.push_back(Outcome::Received { id, outcome });
        }
    }

    /// The messages that are over, those that ended in an error included: nobody waits for them. All below a number, and bits of the next 64.
    fn done(&self) -> (u64, u64) {
        let Some(oldest) = self.reads.front() else { return (self.posted, 0) };
        let done = oldest.handle.number();
        let open = self.reads.iter().map(|read| read.handle.number() - done).take_while(|&ahead| ahead < 64);
        let open = open.fold(0u64, |bits, ahead| bits | 1 << ahead);
        let posted = (self.posted - done).min(64) as u32;
        (done, !open & u64::MAX >> (64 - posted))
    }

    /// Tells what has come, of each message of which something new has.
    fn tell(&mut self, now: Instant, nic: &mut Nic, qp: &mut SdrQp, seen: (u64, u64), counters: &mut ReliableCounters) {
        let Some(token) = qp.peer_token() else { return };
        let repeated = seen.1 != self.seen.1;
        let (done, done_ahead) = self.done();
        let newest = qp.seen();
        let mut told = false;
        for at in 0..self.reads.len() {
            let read = &self.reads[at];
            let count = read.bitmap.count();
            if read.handle.number() >= newest || count == read.told && !repeated {
                continue;
            }
            // As many reports as it takes for all that came: a chunk that is here and not told of would be sent again.
            let room = (Report::room(self.packet) / 8).max(1);
            let end = (read.full_words..read.bitmap.words()).rev().find(|&word| read.bitmap.word(word) != 0);
            let end = end.map_or(read.full_words + 1, |word| word + 1);
            for from in (read.full_words..end).step_by(room) {
                let (message, len) = (read.handle.number(), read.len);
                let (kind, sequence) = (ReportKind::Ack, self.sequence);
                let [below, first] = [read.full_words, from].map(|word| (word as u32 * 64).min(read.bitmap.chunks()));
                let report =
                    Report { kind, token, sequence, done, done_ahead, message, len, below, first, bitmap: &[] };
                write_head(&mut self.bytes, &report);
                for word in from..end.min(from + room) {
                    self.bytes.extend(read.bitmap.word(word).to_le_bytes());
                }
                if !qp.send_other(now, nic, &self.bytes) {
                    return;
                }
                (self.sequence, told) = (self.sequence.wrapping_add(1), true);
                counters.acks_sent += 1;
            }
            self.reads[at].told = count;
        }
        // Of messages that are complete, also where the peer sends packets of these.
        if !told && (self.report_due || repeated) {
            let (kind, message, sequence) = (ReportKind::Ack, done, self.sequence);
            let (below, first, bitmap) = (0, 0, &[]);
            let report = Report { kind, token, sequence, done, done_ahead, message, len: 0, below, first, bitmap };
            write_head(&mut self.bytes, &report);
            if !qp.send_other(now, nic, &self.bytes) {
                return;
            }
            self.sequence = self.sequence.wrapping_add(1);
            counters.acks_sent += 1;
        }
        (self.report_due, self.seen, self.told_at) = (false, seen, now);
    }

    /// Asks for chunks that later ones tell to be lost, and again for those that have not come after a round trip.
    fn ask(&mut self, now: Instant, nic: &mut Nic, qp: &mut SdrQp, rtt: Duration, counters: &mut ReliableCounters) {
        let Some(token) = qp.peer_token() else { return };
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
        // Chunks that came tell of those before them.
        let mut newest = None;
        for word in self.looked as usize / 64..self.bitmap.words() {
            match self.bitmap.word(word) {
                0 if newest.is_some() => break,
                0 => {}
                bits => newest = Some(word as u32 * 64 + 63 - bits.leading_zeros()),
            }
        }
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
