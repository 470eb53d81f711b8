//! The server of a run of SDR: it polls the bitmaps of its receives, in order, and answers for each that is over.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use softnic_runtime::api::sdr::{Bitmap, SdrQueuePair, SdrReceive};

use super::{ANSWERS, Chunks, End, LEFT_AT, OVER_AT};
use crate::control::{Control, Message, must_work, unexpected};
use crate::pattern::Pattern;
use crate::side::next_line;
use crate::stop;

/// Rounds between looks at what the client says, and at what is missing for good.
const LOOK_EVERY: u32 = 1024;
/// A message that so many later ones of its generation have overtaken has lost something: they go by one queue pair, if there is one channel.
const OVERTAKEN: usize = 2;
/// So has one that has left, or that others have overtaken, where no packet came for this time, and in so many looks: this thread may have
/// slept all the time.
const SILENCE: Duration = Duration::from_millis(5);
const QUIET_LOOKS: u32 = 4;

/// The longest time that is told apart from longer ones.
const LONGEST_NS: u64 = 1_000_000_000;

/// Serves one client that is connected, until it says that it is done.
pub(crate) fn serve(end: &mut End, control: &mut Control) -> Result<(), String> {
    loop {
        match next_line(control, end.context())? {
            Message::Go { size, .. } if end.plan.sizes.contains(&size) => {
                let outcome = serve_size(end, control, size)?;
                control.send(&Message::Chunks(outcome))?;
            }
            Message::Bye => return Ok(()),
            other => return Err(unexpected(&other)),
        }
    }
}

fn serve_size(end: &End, control: &mut Control, size: u32) -> Result<Chunks, String> {
    let qp = end.queue_pair(size)?;
    end.meet(&qp, control)?;
    match next_line(control, end.context())? {
        Message::Ready => {}
        other => return Err(unexpected(&other)),
    }
    end.clear_numbers();
    let mut receiver = Receiver::new(end, &qp, size);
    (0..end.plan.outstanding()).try_for_each(|_| receiver.post())?;
    control.send(&Message::Ready)?;
    receiver.until_done(control)?;
    let counters = qp.counters().map_err(|e| e.to_string())?;
    let Receiver { mut outcome, reposting, .. } = receiver;
    (outcome.late_packets, outcome.cts_sent) = (counters.late(), counters.cts_sent);
    outcome.repost_ns = reposting.value_at_quantile(0.5);
    Ok(outcome)
}

/// The server's end while it receives one size.
struct Receiver<'a> {
    end: &'a End,
    qp: &'a SdrQueuePair,
    size: u32,
    pattern: Pattern,
    receives: VecDeque<SdrReceive>,
    posted: u64,
    /// Messages that are over, and those that the client was told of.
    over: u64,
    answered: u64,
    /// Answers whose completions are to come.
    answers: u32,
    /// Nanoseconds that completing a receive and posting the next took.
    reposting: Histogram<u64>,
    outcome: Chunks,
}

impl<'a> Receiver<'a> {
    fn new(end: &'a End, qp: &'a SdrQueuePair, size: u32) -> Receiver<'a> {
        Receiver {
            end,
            qp,
            size,
            pattern: Pattern::new(),
            receives: VecDeque::new(),
            posted: 0,
            over: 0,
            answered: 0,
            answers: 0,
            // The bounds are constants that make sense.
            reposting: Histogram::new_with_bounds(1, LONGEST_NS, 3).unwrap_or_else(|_| unreachable!()),
            outcome: Chunks::default(),
        }
    }

    fn post(&mut self) -> Result<(), String> {
        let receive = self.qp.recv_post(&self.end.memory, self.end.at(self.posted), self.size as usize);
        self.receives.push_back(receive.map_err(|e| format!("cannot post receive {}: {e}", self.posted))?);
        self.posted += 1;
        Ok(())
    }

    /// Receives until the client says that it is done.
    fn until_done(&mut self, control: &mut Control) -> Result<(), String> {
        let mut completions = Vec::new();
        let (mut rounds, mut idle, mut quiet) = (0u32, 0u32, Quiet::new());
        loop {
            let before = self.over;
            while self.receives.front().is_some_and(|head| head.bitmap().is_full()) {
                self.end_first()?;
            }
            if self.answers > 0 {
                self.answers -= self.end.take_completions(&mut completions)?;
            }
            self.answer()?;
            idle = if self.over > before { 0 } else { idle.wrapping_add(1) };
            stop::yield_if_idle(idle);
            rounds = rounds.wrapping_add(1);
            if !rounds.is_multiple_of(LOOK_EVERY) {
                continue;
            }
            match control.try_receive()? {
                None if control.interruptible && stop::requested() => return Err(stop::MESSAGE.into()),
                None => {}
                Some(Message::Done { .. }) => break,
                Some(other) => return Err(unexpected(&other)),
            }
            must_work(self.end.context())?;
            if !quiet.is_due() {
                continue;
            }
            let packets = self.qp.counters().map_err(|e| e.to_string())?.packets;
            if quiet.look((self.over, packets)) {
                // Who has sent nothing has lost nothing.
                let left = self.end.told(LEFT_AT) > self.over;
                if left || self.overtakers(|_| true) >= OVERTAKEN {
                    self.end_first()?;
                }
            }
            let slots = self.end.plan.outstanding();
            let generation = self.over / slots;
            if self.end.plan.sdr.is_none_or(|sdr| sdr.channels == 1)
                && self.overtakers(|r| r.number() / slots == generation) >= OVERTAKEN
            {
                self.end_first()?;
            }
        }
        // What is sent again would be taken for a number of the next size.
        while self.answers > 0 && !stop::requested() {
            self.answers -= self.end.take_completions(&mut completions)?;
        }
        Ok(())
    }

    /// Messages behind the first that are whole, of those that count.
    fn overtakers(&self, counts: impl Fn(&SdrReceive) -> bool) -> usize {
        self.receives.iter().skip(1).filter(|r| counts(r) && r.bitmap().is_full()).count()
    }

    /// Ends the first receive, whatever is missing, and posts another.
    fn end_first(&mut self) -> Result<(), String> {
        let Some(receive) = self.receives.pop_front() else { return Ok(()) };
        let missing = missing(receive.bitmap(), self.size, self.end.plan.sdr.unwrap_or_default().chunk);
        self.outcome.chunks += u64::from(receive.bitmap().chunks());
        self.outcome.bytes += u64::from(self.size);
        self.outcome.chunks_missing += missing.len() as u64;
        self.outcome.bytes_missing += missing.iter().map(|range| u64::from(range.end - range.start)).sum::<u64>();
        if self.end.plan.verify {
            let (at, len, message) = (self.end.at(self.over), self.size as usize, (0, self.over));
            self.pattern.compare_but(&self.end.memory, at, len, message, &missing)?;
        }
        let begin = Instant::now();
        receive.complete().map_err(|e| format!("cannot complete receive {}: {e}", self.over))?;
        self.post()?;
        self.reposting.saturating_record(begin.elapsed().as_nanos() as u64);
        self.over += 1;
        Ok(())
    }

    /// Tells the client how many messages are over, if it does not know and there is room.
    fn answer(&mut self) -> Result<(), String> {
        if self.answered == self.over || self.answers == ANSWERS {
            return Ok(());
        }
        self.end.tell(OVER_AT, self.over)?;
        (self.answered, self.answers) = (self.over, self.answers + 1);
        Ok(())
    }
}

/// How long nothing came.
struct Quiet {
    seen: (u64, u64),
    since: Instant,
    looks: u32,
    looked: Instant,
}

impl Quiet {
    fn new() -> Quiet {
        let now = Instant::now();
        Quiet { seen: (0, 0), since: now, looks: 0, looked: now }
    }

    /// Whether it is time for a look: each takes the engines from their work.
    fn is_due(&mut self) -> bool {
        let due = self.looked.elapsed() > SILENCE / (QUIET_LOOKS + 1);
        if due {
            self.looked = Instant::now();
        }
        due
    }

    /// Messages that are over, and packets that came so far: whether neither has changed for long.
    fn look(&mut self, seen: (u64, u64)) -> bool {
        if seen != self.seen {
            *self = Quiet { seen, ..Quiet::new() };
        }
        self.looks += 1;
        self.looks > QUIET_LOOKS && self.since.elapsed() > SILENCE
    }
}

/// The bytes of a message whose chunks did not come.
fn missing(bitmap: &Bitmap, size: u32, chunk: u32) -> Vec<Range<u32>> {
    let bytes = |n: u32| n.saturating_mul(chunk)..(n + 1).saturating_mul(chunk).min(size);
    bitmap.missing().map(bytes).collect()
}
