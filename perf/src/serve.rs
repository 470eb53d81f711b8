//! The server's end of a run: it answers, receives, or only lets the client work on its memory, until the client is done.

use std::time::{Duration, Instant};

use softnic_nic::transports::{Completion, Counters};

use super::best_effort::{self, Delivered};
use super::control::{Control, Message, must_work, unexpected};
use super::interval::{self, Intervals, Meter};
use super::latency::PingPong;
use super::pattern::Pattern;
use super::plan::Verb;
use super::side::{Finished, Side, next_line};
use super::stop;

/// Rounds between looks at what the client says.
const LOOK_EVERY: u32 = 1024;
/// How long nothing must come before what is missing counts as lost.
const SILENCE: Duration = Duration::from_millis(300);

/// Serves one client that is connected, until it says that it is done.
pub(crate) fn serve(side: &Side, control: &mut Control, intervals: Intervals) -> Result<(), String> {
    loop {
        match next_line(control, &side.context)? {
            Message::Go { size, warm_up } => {
                let outcome = serve_size(side, control, size, warm_up, intervals)?;
                control.send(&outcome)?;
            }
            Message::Bye => return Ok(()),
            other => return Err(unexpected(&other)),
        }
    }
}

fn serve_size(
    side: &Side,
    control: &mut Control,
    size: u32,
    warm_up: u64,
    intervals: Intervals,
) -> Result<Message, String> {
    if !side.plan.sizes.contains(&size) {
        return Err(format!("the peer wants to send {size} bytes, and did not say so before"));
    }
    let op = side.plan.op;
    if op.is_ping_pong() {
        PingPong::clear(side, size);
        control.send(&Message::Ready)?;
        let mut meter = Meter::new(intervals, size, Instant::now(), side.sent_again());
        let (line, received) = PingPong::new(side, control, size).answer(&mut meter)?;
        interval::tell_of_server(op.name(), size, meter.finish(Instant::now(), received, side.sent_again()), intervals);
        let Message::Done { .. } = line else { return Err(unexpected(&line)) };
        return Ok(Message::Outcome { received, seconds: 0.0, delivered: None });
    }
    let mut receiver = Receiver::new(side, size, warm_up);
    receiver.prepare();
    control.send(&Message::Ready)?;
    let sent = receiver.until_done(control, intervals)?;
    let (received, seconds) = receiver.collect(&sent)?;
    let delivered = receiver.delivered(&sent);
    receiver.verify(&sent, delivered.as_ref())?;
    Ok(Message::Outcome { received, seconds, delivered })
}

/// What comes of one size.
struct Receiver<'a> {
    side: &'a Side,
    size: u32,
    warm_up: u64,
    pattern: Pattern,
    /// Messages that came by each queue pair.
    came: Vec<u64>,
    received: u64,
    /// When the first message that counts, and the last one, came.
    first: Option<Instant>,
    last: Instant,
    /// What the NIC had counted before.
    before: Counters,
    /// Bytes of the messages that came into receives.
    placed: u64,
    batch: Vec<Completion>,
}

impl<'a> Receiver<'a> {
    fn new(side: &'a Side, size: u32, warm_up: u64) -> Receiver<'a> {
        Receiver {
            side,
            size,
            warm_up,
            pattern: Pattern::new(),
            came: vec![0; side.qps.len()],
            received: 0,
            first: None,
            last: Instant::now(),
            before: side.context.counters(),
            placed: 0,
            batch: Vec::with_capacity(64),
        }
    }

    /// Puts into memory what the client will find, or clears what it will write.
    fn prepare(&mut self) {
        let (side, len) = (self.side, self.size as usize);
        for q in 0..side.qps.len() {
            for slot in 0..side.plan.slots() as u64 {
                match side.plan.op.verb() {
                    Verb::Read => self.pattern.write(&side.mr, side.out_at(q, slot), len, q, slot),
                    Verb::Write | Verb::Atomic => side.mr.write_at(side.in_at(q, slot), &vec![0; len]),
                    Verb::Send | Verb::Raw => {}
                }
            }
        }
    }

    /// Lets the client work until it is done; how much it sent on each queue pair.
    fn until_done(&mut self, control: &mut Control, intervals: Intervals) -> Result<Vec<u64>, String> {
        let passive = self.side.plan.op.verb() != Verb::Send;
        let mut meter = Meter::new(intervals, self.size, Instant::now(), self.side.sent_again());
        let (mut rounds, mut idle) = (0u32, 0u32);
        loop {
            // A passive end has no completions, but may have much to do.
            let busy = if passive { self.side.context.progress() } else { self.take()? };
            idle = if busy { 0 } else { idle + 1 };
            rounds += 1;
            stop::yield_if_idle(idle);
            if rounds < LOOK_EVERY {
                continue;
            }
            rounds = 0;
            must_work(&self.side.context)?;
            let now = Instant::now();
            if meter.is_due(now) {
                meter.close(now, self.came(), self.side.sent_again());
            }
            match control.try_receive()? {
                Some(Message::Done { sent }) if sent.len() == self.side.qps.len() => {
                    let all = meter.finish(now, self.came(), self.side.sent_again());
                    interval::tell_of_server(self.side.plan.op.name(), self.size, all, intervals);
                    return Ok(sent);
                }
                Some(other) => return Err(unexpected(&other)),
                None if control.interruptible && stop::requested() => return Err(stop::MESSAGE.into()),
                None => {}
            }
        }
    }

    /// Takes what has come, and makes progress.
    #[inline]
    fn take(&mut self) -> Result<bool, String> {
        let mut batch = std::mem::take(&mut self.batch);
        self.side.poll(&mut batch)?;
        for completion in &batch {
            let finished = self.side.finished(completion)?;
            self.placed += u64::from(finished.bytes);
            if self.side.plan.verify && finished.partial {
                self.compare_part(&finished)?;
            } else if self.side.plan.verify {
                let at = self.side.in_at(finished.qp, finished.number) + self.side.header_len();
                // A peer that gives no number sends in order.
                let number = finished.imm.map_or(self.came[finished.qp], u64::from);
                if finished.bytes as usize != self.size as usize + self.side.header_len() {
                    return Err(format!("message {number} has {} bytes, not {}", finished.bytes, self.size));
                }
                self.pattern.compare(&self.side.mr, at, self.size as usize, finished.qp, number)?;
            }
            self.side.post_receive(finished.qp, finished.number)?;
            self.came[finished.qp] += 1;
            self.received += 1;
            if self.received == self.warm_up {
                self.first = Some(Instant::now());
            }
        }
        let any = !batch.is_empty();
        if any {
            self.last = Instant::now();
        }
        self.batch = batch;
        Ok(any)
    }

    /// Compares the bytes that came of a message that came in part.
    fn compare_part(&mut self, finished: &Finished) -> Result<(), String> {
        // Of one of which nothing came nobody knows which it was.
        let Some(number) = finished.imm else { return Ok(()) };
        let at = self.side.in_at(finished.qp, finished.number);
        let missing = best_effort::missing(self.side, at, self.size);
        let lost: u32 = missing.iter().map(|range| range.end - range.start).sum();
        if self.size - lost != finished.bytes {
            return Err(format!(
                "of message {number} {} bytes came, and {lost} are missing by its bitmap",
                finished.bytes
            ));
        }
        let message = (finished.qp, u64::from(number));
        self.pattern.compare_but(&self.side.mr, at, self.size as usize, message, &missing)
    }

    /// What came, where messages may come in part; of READs the client knows it.
    fn delivered(&self, sent: &[u64]) -> Option<Delivered> {
        let verb = self.side.plan.op.verb();
        if !self.side.plan.is_best_effort() || verb == Verb::Read {
            return None;
        }
        let size = u64::from(self.size);
        let missing = self.side.context.counters().xp_missing_bytes - self.before.xp_missing_bytes;
        let placed = if verb == Verb::Send { self.placed } else { (self.came() * size).saturating_sub(missing) };
        let sent = sent.iter().fold(0, |all: u64, &one| all.saturating_add(one)).saturating_mul(size);
        Some(Delivered::since(&self.before, self.side, sent, placed))
    }

    /// Waits for what is still under way; how many came that count, and how long they took.
    fn collect(&mut self, sent: &[u64]) -> Result<(u64, f64), String> {
        let total = sent.iter().fold(0, |all: u64, &one| all.saturating_add(one));
        let verb = self.side.plan.op.verb();
        let reliable = self.side.plan.transport.is_reliable();
        let mut received = 0;
        let mut since = Instant::now();
        while since.elapsed() < SILENCE {
            self.take()?;
            let now = match verb {
                Verb::Send => self.received,
                Verb::Write if !reliable => self.came(),
                // The client's completions say that all is here.
                _ => total,
            };
            if now != received {
                (received, since) = (now, Instant::now());
            }
            if received >= total {
                break;
            }
        }
        if reliable && received < total {
            return Err(format!("{received} messages came of {total} that the peer says were received"));
        }
        let seconds = self.first.map_or(0.0, |first| self.last.saturating_duration_since(first).as_secs_f64());
        Ok((received.saturating_sub(self.warm_up), seconds))
    }

    /// Compares what lies in memory now: the last message of every slot, or the count of all atomics.
    fn verify(&mut self, sent: &[u64], delivered: Option<&Delivered>) -> Result<(), String> {
        let side = self.side;
        if !side.plan.verify {
            return Ok(());
        }
        let lost = self.came() < sent.iter().fold(0, |all: u64, &one| all.saturating_add(one));
        let lost = lost || delivered.is_some_and(|delivered| delivered.missing_bytes > 0);
        for (q, &sent) in sent.iter().enumerate() {
            match side.plan.op.verb() {
                // A WRITE that was lost leaves what was there before.
                Verb::Write if side.plan.transport.is_reliable() => {
                    for number in sent.saturating_sub(side.plan.slots() as u64)..sent {
                        self.pattern.compare(&side.mr, side.in_at(q, number), self.size as usize, q, number)?;
                    }
                }
                Verb::Write => self.verify_lossy(q, sent, lost)?,
                Verb::Atomic => {
                    let mut bytes = [0; 8];
                    side.mr.read_at(side.in_at(q, 0), &mut bytes);
                    let count = u64::from_ne_bytes(bytes);
                    if count != sent {
                        return Err(format!("{sent} atomics on queue pair {q} added up to {count}"));
                    }
                }
                Verb::Read | Verb::Send | Verb::Raw => {}
            }
        }
        Ok(())
    }

    /// Where messages may be lost: what came last must be right.
    fn verify_lossy(&mut self, q: usize, sent: u64, lost: bool) -> Result<(), String> {
        let Some(last) = sent.checked_sub(1) else { return Ok(()) };
        match self.pattern.compare(&self.side.mr, self.side.in_at(q, last), self.size as usize, q, last) {
            Err(_) if lost => Ok(()),
            result => result,
        }
    }

    /// Messages that have come so far.
    fn came(&self) -> u64 {
        match self.side.plan.op.verb() {
            Verb::Send => self.received,
            verb => counted(verb, &self.side.context.counters()) - counted(verb, &self.before),
        }
    }
}

/// Messages of the peer that need no receive, as the NIC counts them.
fn counted(verb: Verb, counters: &Counters) -> u64 {
    match verb {
        Verb::Read => counters.rx_read_requests,
        Verb::Atomic => counters.rx_atomic_requests,
        _ => counters.rx_write_requests,
    }
}
