//! Reports: what a receiver tells of what has come, and asks for.

use std::collections::VecDeque;
use std::time::Duration;

use softnic_nic::transports::planted::{Bug, planted};
use softnic_wire::Instant;
use softnic_wire::sdr::report::{HEAD, Report, ReportKind};

use super::super::layout::Layout;
use super::super::{Io, ReliableAttr};
use super::read::Read;
use crate::counters::Counters;

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

/// What is told at a time.
#[derive(Debug, Clone, Copy)]
struct Round {
    /// Packets came twice, or late: they are of a peer that does not know what is here.
    repeated: bool,
    /// Some did not fit.
    rejected: bool,
    /// The first receive that is still to be told of.
    from: u64,
}

/// What the peer was told, and when.
pub(super) struct Telling {
    /// The newest message that is complete, and its length; and whether the peer is to be told.
    last_whole: Option<(u64, u64)>,
    due: bool,
    /// What is told just now, where there was no room for all of it.
    round: Option<Round>,
    /// What had come when the peer was told last, and when that was.
    seen: Seen,
    pub(super) told_at: Instant,
    pub(super) ack_delay: Duration,
    sequence: u32,
    packet: usize,
    bytes: Vec<u8>,
}

/// Messages behind the oldest that is open of which each report tells whether they are complete.
const AHEAD: u64 = 64;

/// The messages that are complete: all below a number, and bits of the next ones.
pub(super) fn done(reads: &VecDeque<Read>, posted: u64) -> (u64, u64) {
    let Some(oldest) = reads.front() else { return (posted, 0) };
    let done = oldest.id;
    let open = reads.iter().map(|read| read.id - done).take_while(|&ahead| ahead < AHEAD);
    let open = open.fold(0u64, |bits, ahead| bits | 1 << ahead);
    let posted = (posted - done).min(64) as u32;
    (done, !open & u64::MAX >> (64 - posted))
}

impl Telling {
    pub(super) fn new(attr: &ReliableAttr) -> Telling {
        Telling {
            last_whole: None,
            due: false,
            round: None,
            seen: Seen::default(),
            told_at: Instant::ZERO,
            ack_delay: attr.ack_delay(),
            sequence: 0,
            packet: attr.data().control_len as usize,
            bytes: Vec::new(),
        }
    }

    /// A message is whole: the peer is told at once.
    pub(super) fn is_whole(&mut self, id: u64, len: u64) {
        (self.due, self.last_whole) = (true, Some((id, len)));
    }

    /// Whether something is to be told at once.
    pub(super) fn is_due(&self) -> bool {
        self.due || self.round.is_some()
    }

    /// Whether something has come since the peer was told.
    pub(super) fn has_news(&self, io: &mut Io<'_>) -> bool {
        Seen::of(&io.qp.counters(io.nic)) != self.seen
    }

    /// Tells what is to be told now.
    pub(super) fn progress(&mut self, io: &mut Io<'_>, reads: &mut VecDeque<Read>, posted: u64, layout: &Layout) {
        let seen = Seen::of(&io.qp.counters(io.nic));
        if self.is_due() || seen != self.seen && io.now >= self.told_at + self.ack_delay {
            self.tell(io, reads, posted, layout, seen);
        }
    }

    /// Tells what has come, of each message of which something new has. What there is no room for now is told when there is, from there on.
    fn tell(&mut self, io: &mut Io<'_>, reads: &mut VecDeque<Read>, posted: u64, layout: &Layout, seen: Seen) {
        let Some(token) = io.qp.peer_token() else { return };
        let mut round = match self.round.take() {
            Some(round) => round,
            None => {
                let before = std::mem::replace(&mut self.seen, seen);
                self.told_at = io.now;
                let repeated = seen.repeated != before.repeated;
                self.due |= repeated && !planted(Bug::SdrFinalAckForgotten);
                Round { repeated, rejected: seen.rejected != before.rejected, from: 0 }
            }
        };
        let (done, done_ahead) = done(reads, posted);
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
        if self.due {
            // With the length of the newest that is whole: its sender compares.
            let (message, len) = self.last_whole.unwrap_or((done, 0));
            match message.checked_sub(done + AHEAD) {
                None => write_head(&mut self.bytes, &head(message, len, self.sequence)),
                Some(span) => {
                    let report = Report { kind: ReportKind::Done, ..head(done + AHEAD, 0, self.sequence) };
                    write_head(&mut self.bytes, &report);
                    let bits = (span + 1).min(8 * Report::room(self.packet) as u64);
                    self.bytes.resize(HEAD + (bits as usize).div_ceil(8), 0);
                    let mut open = reads.iter().map(|read| read.id).skip_while(|&id| id < done + AHEAD).peekable();
                    for bit in 0..bits {
                        let is_open = open.next_if_eq(&(done + AHEAD + bit)).is_some();
                        self.bytes[HEAD + bit as usize / 8] |= u8::from(!is_open) << (bit % 8);
                    }
                }
            }
            if !self.send(io) {
                self.round = Some(round);
                return;
            }
            self.due = false;
        }
        let room = (Report::room(self.packet) / 8).max(1);
        for (at, read) in reads.iter_mut().enumerate().take_while(|(at, read)| *at == 0 || read.first_seen.is_some()) {
            if read.id < round.from {
                continue;
            }
            let news = read.news(layout);
            // With parity it is enough to know when all is there, unless some of it is missing for long, or the peer sends what is there.
            let is_silent = layout.is_coded() && read.asked_at.is_none() && !round.repeated;
            let has_news = !is_silent && (news != read.told || round.repeated);
            // What does not fit the oldest one was meant for it: its sender learns how long it is.
            if !(has_news || round.rejected && at == 0) {
                continue;
            }
            let end = (read.full_words..read.words()).rev().find(|&word| read.word(layout, word) != 0);
            let end = end.map_or(read.full_words + 1, |word| word + 1);
            let begin = read.told_to.clamp(read.full_words, end);
            for from in (begin..end).step_by(room) {
                let first = (from as u32 * 64).min(read.chunks);
                let below = read.below(layout);
                let report = Report { below, first, ..head(read.id, read.memory.len, self.sequence) };
                write_head(&mut self.bytes, &report);
                for word in from..end.min(from + room) {
                    let untrue = u64::from(planted(Bug::SdrAckEarly));
                    self.bytes.extend((read.word(layout, word) | untrue).to_le_bytes());
                }
                if !self.send(io) {
                    read.told_to = from;
                    round.from = read.id;
                    self.round = Some(round);
                    return;
                }
            }
            (read.told, read.told_to) = (news, 0);
        }
    }

    /// Sends the report; `false` when there is no room for it now.
    fn send(&mut self, io: &mut Io<'_>) -> bool {
        let sent = io.send_control(&self.bytes);
        self.sequence = self.sequence.wrapping_add(u32::from(sent));
        io.counters.acks_sent += u64::from(sent);
        sent
    }

    /// Asks for chunks of a message, which are in ascending order; `false` when there was no room for all of them.
    pub(super) fn ask(&mut self, io: &mut Io<'_>, done: (u64, u64), read: &Read, chunks: &[u32]) -> bool {
        let bits = 8 * Report::room(self.packet) as u32;
        let mut rest = chunks;
        while let Some(&first) = rest.first() {
            let (now, later) = rest.split_at(rest.partition_point(|&chunk| chunk - first < bits));
            rest = later;
            let span = now.last().map_or(0, |last| (last - first) as usize / 8 + 1);
            let fill = |bitmap: &mut [u8]| {
                for at in now.iter().map(|chunk| (chunk - first) as usize) {
                    bitmap[at / 8] |= 1 << (at % 8);
                }
            };
            if !self.send_nack(io, (ReportKind::Nack, first), done, read, span, fill) {
                return false;
            }
        }
        true
    }

    /// Asks for further rows of groups of a message, which are in ascending order; `false` when there was no room for all of them.
    pub(super) fn ask_rows(&mut self, io: &mut Io<'_>, done: (u64, u64), read: &Read, rows: &[(u32, u8)]) -> bool {
        let room = Report::room(self.packet) as u32;
        let mut rest = rows;
        while let Some(&(first, _)) = rest.first() {
            let (now, later) = rest.split_at(rest.partition_point(|&(group, _)| group - first < room));
            rest = later;
            let span = now.last().map_or(0, |(last, _)| (last - first) as usize + 1);
            let fill = |bytes: &mut [u8]| now.iter().for_each(|&(group, rows)| bytes[(group - first) as usize] = rows);
            if !self.send_nack(io, (ReportKind::Rows, first), done, read, span, fill) {
                return false;
            }
        }
        true
    }

    /// Sends what asks for something of a message, with so many bytes behind the head; `false` when there is no room for it now.
    fn send_nack(
        &mut self,
        io: &mut Io<'_>,
        (kind, first): (ReportKind, u32),
        (done, done_ahead): (u64, u64),
        read: &Read,
        span: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> bool {
        let Some(token) = io.qp.peer_token() else { return false };
        let (message, len, sequence) = (read.id, read.memory.len, self.sequence);
        let report = Report { kind, token, sequence, done, done_ahead, message, len, below: 0, first, bitmap: &[] };
        write_head(&mut self.bytes, &report);
        self.bytes.resize(HEAD + span, 0);
        fill(&mut self.bytes[HEAD..]);
        let sent = io.send_control(&self.bytes);
        self.sequence = self.sequence.wrapping_add(u32::from(sent));
        io.counters.nacks_sent += u64::from(sent);
        sent
    }
}

fn write_head(bytes: &mut Vec<u8>, report: &Report<'_>) {
    let mut head = [0; HEAD];
    report.emit_head(&mut head);
    bytes.clear();
    bytes.extend(head);
}
