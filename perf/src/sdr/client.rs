//! The client of a run of SDR: as many messages in flight as the depth allows, until the server has answered all.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use softnic_nic::transports::Completion;
use softnic_runtime::api::sdr::{SdrQueuePair, SdrSend};

use super::{Chunks, End, LEFT_AT, OVER_AT};
use crate::client::Tell;
use crate::control::{Control, Message, must_work, unexpected};
use crate::interval::{Intervals, Meter};
use crate::pattern::Pattern;
use crate::peak::Peak;
use crate::plan::Amount;
use crate::report::{Measured, Rates};
use crate::side::next_line;
use crate::stop;

/// Rounds without an answer between looks at what the peer says.
const LOOK_EVERY: u32 = 2048;
/// The server is told what has left anew after this time, where no answer comes: if it cannot be reached, that fails and ends the run.
const SILENCE: Duration = Duration::from_secs(1);
/// How long answers may take after Ctrl-C.
const GRACE: Duration = Duration::from_secs(1);

/// Runs all sizes over a connection; stops early at Ctrl-C.
pub(crate) fn run(
    end: &mut End,
    control: &mut Control,
    intervals: Intervals,
    tell: &mut Tell<'_>,
) -> Result<(), String> {
    for size in end.plan.sizes.clone() {
        end.side.counters();
        end.clear_numbers();
        control.send(&Message::Go { size, warm_up: end.plan.warm_up(size) })?;
        let qp = end.queue_pair(size)?;
        end.meet(&qp, control)?;
        control.send(&Message::Ready)?;
        match next_line(control, end.context())? {
            Message::Ready => {}
            other => return Err(unexpected(&other)),
        }
        let (mut rates, sent) = Sender::new(end, &qp, control, size).run(intervals)?;
        control.send(&Message::Done { sent: vec![sent] })?;
        rates.chunks = match outcome(end, control) {
            Ok(chunks) => Some(chunks),
            // What was measured is worth telling.
            Err(_) if stop::requested() => None,
            Err(e) => return Err(e),
        };
        let counters = end.side.counters();
        tell(&end.plan, &Measured::Bandwidth(rates), &counters)?;
        if stop::requested() {
            break;
        }
    }
    control.send(&Message::Bye)
}

/// What came of a size, which the server says also after Ctrl-C.
fn outcome(end: &End, control: &mut Control) -> Result<Chunks, String> {
    let begin = Instant::now();
    let line = loop {
        match control.try_receive()? {
            Some(line) => break line,
            None if stop::requested() && begin.elapsed() < GRACE => _ = end.context().progress(),
            None => break next_line(control, end.context())?,
        }
    };
    match line {
        Message::Chunks(chunks) => Ok(chunks),
        other => Err(unexpected(&other)),
    }
}

/// The client's end while it sends one size.
struct Sender<'a> {
    end: &'a End,
    qp: &'a SdrQueuePair,
    control: &'a mut Control,
    size: u32,
    pattern: Pattern,
    /// Messages that are not answered.
    sends: VecDeque<SdrSend>,
    posted: u64,
    answered: u64,
    /// What the server was told to have left, and whether that is on its way.
    told: u64,
    telling: bool,
    told_at: Instant,
    completions: Vec<Completion>,
}

impl<'a> Sender<'a> {
    fn new(end: &'a End, qp: &'a SdrQueuePair, control: &'a mut Control, size: u32) -> Sender<'a> {
        let (pattern, sends) = (Pattern::new(), VecDeque::new());
        let (posted, answered, told, telling, completions) = (0, 0, 0, false, Vec::new());
        let told_at = Instant::now();
        Sender { end, qp, control, size, pattern, sends, posted, answered, told, telling, told_at, completions }
    }

    /// Sends what the plan says; how fast that was, and how much was sent, warm-up included.
    fn run(mut self, intervals: Intervals) -> Result<(Rates, u64), String> {
        let plan = &self.end.plan;
        self.phase(plan.warm_up(self.size), None, Intervals::None)?;
        let rates = match (plan.iterations(self.size), plan.amount) {
            (_, Amount::Seconds(s)) => self.phase(u64::MAX, Some(Duration::from_secs_f64(s)), intervals)?,
            (n, _) => self.phase(n.unwrap_or(0), None, intervals)?,
        };
        // What is sent again would be taken for a number of the next size.
        while self.telling && !stop::requested() {
            self.telling = self.end.take_completions(&mut self.completions)? == 0;
        }
        Ok((rates, self.posted))
    }

    fn phase(&mut self, count: u64, limit: Option<Duration>, intervals: Intervals) -> Result<Rates, String> {
        let (depth, start, mut left) = (self.end.plan.outstanding(), Instant::now(), count);
        let mut rates = Rates::new(self.size);
        let mut meter = Meter::new(intervals, self.size, start, 0);
        let mut peak = Peak::new(start);
        let (mut idle, mut stopped) = (0u32, None);
        while left > 0 || self.answered < self.posted {
            while left > 0 && self.posted - self.answered < depth {
                self.post()?;
                left -= 1;
            }
            let answered = self.look()?;
            rates.count += answered;
            peak.add(answered);
            idle = if answered == 0 { idle + 1 } else { 0 };
            if idle == LOOK_EVERY {
                idle = 0;
                self.tell_what_left()?;
                // The peer says nothing before we are done, unless something is wrong.
                self.control.try_receive()?;
            }
            stop::yield_if_idle(idle);
            if idle.is_multiple_of(64) {
                let now = Instant::now();
                peak.look(now, &mut rates);
                if meter.is_due(now) {
                    meter.close(now, rates.count, 0);
                }
                if left > 0 && (stop::requested() || limit.is_some_and(|limit| now - start >= limit)) {
                    left = 0;
                }
                if stop::requested() && *stopped.get_or_insert(now) + GRACE < now {
                    break;
                }
            }
        }
        rates.elapsed = start.elapsed();
        rates.intervals = meter.finish(start + rates.elapsed, rates.count, 0);
        Ok(rates)
    }

    fn post(&mut self) -> Result<(), String> {
        let (at, len) = (self.end.at(self.posted), self.size as usize);
        if self.end.plan.verify {
            self.pattern.write(&self.end.memory, at, len, 0, self.posted);
        }
        let send = self.qp.send_post(&self.end.memory, at, len, None);
        self.sends.push_back(send.map_err(|e| format!("cannot send message {}: {e}", self.posted))?);
        self.posted += 1;
        Ok(())
    }

    /// No answer comes: tells the server of the messages that have left as a whole.
    fn tell_what_left(&mut self) -> Result<(), String> {
        if self.telling {
            self.telling = self.end.take_completions(&mut self.completions)? == 0;
        }
        let has_left = |send: &SdrSend| send.poll().map_err(|e| format!("a message cannot be sent: {e}"));
        let mut left = self.answered;
        for send in &self.sends {
            if !has_left(send)? {
                break;
            }
            left += 1;
        }
        if (left > self.told || self.told_at.elapsed() > SILENCE) && !self.telling {
            self.end.tell(LEFT_AT, left)?;
            (self.told, self.telling, self.told_at) = (left, true, Instant::now());
        }
        Ok(())
    }

    /// Makes progress, and looks at what the server answered; how many messages.
    fn look(&mut self) -> Result<u64, String> {
        self.end.context().progress();
        let answered = self.end.told(OVER_AT);
        let (before, posted) = (self.answered, self.posted);
        if !(before..=posted).contains(&answered) {
            return Err(format!("the peer answers {answered} messages, after {before}, of {posted} that were sent"));
        }
        let new = answered - before;
        self.sends.drain(..new as usize);
        self.answered = answered;
        must_work(self.end.context()).map(|()| new)
    }
}
