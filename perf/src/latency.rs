//! Latency: one message at a time, to and fro, or to the peer's memory and back.

use std::time::{Duration, Instant};

use softnic_nic::transports::Completion;

use super::control::{Control, Message, must_work};
use super::interval::{Intervals, Meter};
use super::pattern::Pattern;
use super::plan::{Amount, Verb};
use super::report::Times;
use super::side::Side;
use super::stop;

/// Rounds without anything between looks at the peer.
const LOOK_EVERY: u32 = 4096;
/// How long an answer may take where nothing is sent again.
const LOST: Duration = Duration::from_secs(3);

/// One end of a ping-pong, or the end that asks.
pub(crate) struct PingPong<'a> {
    side: &'a Side,
    control: &'a mut Control,
    size: u32,
    pattern: Pattern,
    /// Messages of ours that were sent, and that are known to have arrived.
    sent: u64,
    completed: u64,
    /// SENDs of the peer that arrived, and messages of the peer that were answered, or taken for an answer.
    arrived: u64,
    received: u64,
    batch: Vec<Completion>,
}

/// Why a wait ended.
enum Came {
    Message,
    Line(Message),
    Stopped,
}

impl<'a> PingPong<'a> {
    pub(crate) fn new(side: &'a Side, control: &'a mut Control, size: u32) -> PingPong<'a> {
        let batch = Vec::with_capacity(64);
        PingPong { side, control, size, pattern: Pattern::new(), sent: 0, completed: 0, arrived: 0, received: 0, batch }
    }

    /// Clears what the peer will write to.
    pub(crate) fn clear(side: &Side, size: u32) {
        side.mr.write_at(side.in_at(0, 0), &vec![0; size as usize]);
    }

    /// The client's end; also says how much was sent.
    pub(crate) fn ask(mut self, intervals: Intervals) -> Result<(Times, u64), String> {
        let plan = &self.side.plan;
        let (warm_up, limit) = (plan.warm_up(self.size), plan.iterations(self.size));
        let seconds = match plan.amount {
            Amount::Seconds(s) => Some(Duration::from_secs_f64(s)),
            _ => None,
        };
        let whole = !plan.op.is_ping_pong();
        let mut times = Times::new(self.size);
        let mut begin = Instant::now();
        let mut meter = Meter::new(intervals, self.size, begin, self.side.sent_again());
        for i in 0.. {
            if i == warm_up {
                begin = Instant::now();
                meter = Meter::new(intervals, self.size, begin, self.side.sent_again());
            }
            let counted = i >= warm_up;
            if counted && (limit == Some(i - warm_up) || seconds.is_some_and(|s| begin.elapsed() >= s)) {
                break;
            }
            let start = Instant::now();
            self.send()?;
            match self.wait(whole)? {
                Came::Message => {}
                Came::Line(line) => return Err(super::control::unexpected(&line)),
                Came::Stopped => break,
            }
            if counted {
                let now = Instant::now();
                let time = now - start;
                times.record(if whole { time } else { time / 2 });
                if meter.is_due(now) {
                    meter.close(now, times.count(), self.side.sent_again());
                }
            }
            if whole && self.side.plan.verify {
                self.verify_answer(i)?;
            }
            if stop::requested() {
                break;
            }
        }
        times.elapsed = begin.elapsed();
        times.intervals = meter.finish(begin + times.elapsed, times.count(), self.side.sent_again());
        Ok((times, self.sent))
    }

    /// The server's end: answers until a line comes.
    pub(crate) fn answer(mut self, meter: &mut Meter) -> Result<(Message, u64), String> {
        loop {
            match self.wait(false)? {
                Came::Message => self.send()?,
                Came::Line(line) => return Ok((line, self.received)),
                Came::Stopped => return Err(stop::MESSAGE.into()),
            }
            if let Some(now) = meter.is_due_now() {
                meter.close(now, self.received, self.side.sent_again());
            }
        }
    }

    /// The last byte of a WRITE, which the peer waits for: never the one before.
    fn mark(number: u64) -> u8 {
        (number + 1) as u8
    }

    fn send(&mut self) -> Result<(), String> {
        let (side, number, size) = (self.side, self.sent, self.size as usize);
        let at = side.out_at(0, number);
        match side.plan.op.verb() {
            Verb::Write => {
                if side.plan.verify {
                    self.pattern.write(&side.mr, at, size, 0, number);
                }
                side.mr.write_at(at + size - 1, &[Self::mark(number)]);
            }
            Verb::Send if side.plan.verify => self.pattern.write(&side.mr, at, size, 0, number),
            Verb::Read | Verb::Atomic if side.plan.verify => {
                side.mr.write_at(side.in_at(0, number), &vec![0xff; size]);
            }
            _ => {}
        }
        side.write_message(0, number, self.size)?;
        side.qps[0].ring_doorbell();
        self.sent += 1;
        Ok(())
    }

    /// Waits for what the next message waits for: the peer's, or, for what comes back by itself, the completion.
    fn wait(&mut self, own: bool) -> Result<Came, String> {
        if own || self.side.plan.wait_completion && self.sent > 0 {
            match self.wait_until(|this| this.completed == this.sent)? {
                Came::Message if !own => {}
                came => return Ok(came),
            }
        }
        let came = match self.side.plan.op.verb() {
            Verb::Write => self.wait_until(PingPong::written)?,
            _ => self.wait_until(|this| this.arrived > this.received)?,
        };
        if matches!(came, Came::Message) {
            if self.side.plan.op.verb() == Verb::Write {
                self.verify_written()?;
            }
            self.received += 1;
        }
        Ok(came)
    }

    /// Polls until `done`, a line of the peer, or an interruption.
    fn wait_until(&mut self, done: impl Fn(&Self) -> bool) -> Result<Came, String> {
        let mut idle = 0u32;
        let mut since: Option<Instant> = None;
        loop {
            self.take_completions()?;
            if done(self) {
                return Ok(Came::Message);
            }
            idle += 1;
            stop::yield_if_idle(idle);
            if idle == LOOK_EVERY {
                idle = 0;
                must_work(&self.side.context)?;
                if let Some(line) = self.control.try_receive()? {
                    return Ok(Came::Line(line));
                }
                if self.control.interruptible && stop::requested() {
                    return Ok(Came::Stopped);
                }
                let waited = since.get_or_insert_with(Instant::now).elapsed();
                let reliable = self.side.plan.transport.is_reliable();
                if self.control.interruptible && !reliable && self.sent > 0 && waited > LOST {
                    let transport = self.side.plan.transport.name();
                    return Err(format!(
                        "message {} or its answer was lost: {transport} sends nothing again",
                        self.sent - 1
                    ));
                }
            }
        }
    }

    fn take_completions(&mut self) -> Result<(), String> {
        let mut batch = std::mem::take(&mut self.batch);
        self.side.poll(&mut batch)?;
        for completion in &batch {
            let finished = self.side.finished(completion)?;
            if finished.received {
                if self.side.plan.verify {
                    let at = self.side.in_at(0, finished.number) + self.side.header_len();
                    self.pattern.compare(&self.side.mr, at, self.size as usize, 0, self.arrived)?;
                }
                self.side.post_receive(0, finished.number)?;
                self.arrived += 1;
            } else {
                self.completed += 1;
            }
        }
        self.batch = batch;
        Ok(())
    }

    /// Whether the peer's next WRITE is there, to its last byte.
    fn written(&self) -> bool {
        let last = self.side.in_at(0, self.received) + self.size as usize - 1;
        self.side.mr.load_byte(last) == Self::mark(self.received)
    }

    fn verify_written(&mut self) -> Result<(), String> {
        let (side, len) = (self.side, self.size as usize - 1);
        match side.plan.verify {
            true => self.pattern.compare(&side.mr, side.in_at(0, self.received), len, 0, self.received),
            false => Ok(()),
        }
    }

    fn verify_answer(&mut self, number: u64) -> Result<(), String> {
        let (side, at) = (self.side, self.side.in_at(0, number));
        if side.plan.op.verb() == Verb::Read {
            let slot = number % side.plan.slots() as u64;
            return self.pattern.compare(&side.mr, at, self.size as usize, 0, slot);
        }
        let mut bytes = [0; 8];
        side.mr.read_at(at, &mut bytes);
        match u64::from_ne_bytes(bytes) {
            n if n == number => Ok(()),
            n => Err(format!("atomic {number} found {n} instead of {number}")),
        }
    }
}
