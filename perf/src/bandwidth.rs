//! Bandwidth, as the client measures it: as many work requests as the depth allows, all the time.

use std::time::{Duration, Instant};

use softnic_nic::transports::Completion;

use super::best_effort::{self, Delivered};
use super::control::Control;
use super::interval::{Intervals, Meter};
use super::pattern::Pattern;
use super::peak::Peak;
use super::plan::{Amount, Verb};
use super::report::Rates;
use super::side::{Finished, Side};
use super::stop;

/// Rounds without a completion between looks at the clock and at the peer.
const LOOK_EVERY: u32 = 4096;
/// How long completions may take after Ctrl-C.
const GRACE: Duration = Duration::from_secs(1);

/// How much to send.
#[derive(Debug, Clone, Copy)]
enum Until {
    Count(u64),
    Time(Duration),
}

/// The client's end while it sends one size.
pub(crate) struct Sender<'a> {
    side: &'a Side,
    control: &'a mut Control,
    size: u32,
    pattern: Pattern,
    /// Messages on each queue pair: posted, and completed.
    posted: Vec<u64>,
    done: Vec<u64>,
    batch: Vec<Completion>,
    /// Bytes that completions say came.
    placed: u64,
}

impl<'a> Sender<'a> {
    pub(crate) fn new(side: &'a Side, control: &'a mut Control, size: u32) -> Sender<'a> {
        let zero = vec![0; side.qps.len()];
        let batch = Vec::with_capacity(64);
        Sender { side, control, size, pattern: Pattern::new(), posted: zero.clone(), done: zero, batch, placed: 0 }
    }

    /// Sends what the plan says; how fast that was, and how much was sent on each queue pair, warm-up included.
    pub(crate) fn run(mut self, intervals: Intervals) -> Result<(Rates, Vec<u64>), String> {
        let before = self.side.context.counters();
        self.phase(Until::Count(self.side.plan.warm_up(self.size)), Intervals::None)?;
        let until = match (self.side.plan.iterations(self.size), self.side.plan.amount) {
            (_, Amount::Seconds(s)) => Until::Time(Duration::from_secs_f64(s)),
            (n, _) => Until::Count(n.unwrap_or(0)),
        };
        let mut rates = self.phase(until, intervals)?;
        if self.side.plan.is_best_effort() && self.side.plan.op.verb() == Verb::Read {
            let asked = self.done.iter().sum::<u64>() * u64::from(self.size);
            rates.delivered = Some(Delivered::since(&before, self.side, asked, self.placed));
        }
        Ok((rates, self.done))
    }

    fn phase(&mut self, until: Until, intervals: Intervals) -> Result<Rates, String> {
        let depth = self.side.plan.outstanding();
        let start = Instant::now();
        let (mut left, deadline) = match until {
            Until::Count(n) => (n, None),
            Until::Time(t) => (u64::MAX, Some(start + t)),
        };
        let mut rates = Rates::new(self.size);
        let mut meter = Meter::new(intervals, self.size, start, self.side.sent_again());
        let mut peak = Peak::new(start);
        let mut idle = 0u32;
        let mut stopped: Option<Instant> = None;
        let mut outstanding = 0u64;
        while left > 0 || outstanding > 0 {
            for q in 0..self.side.qps.len() {
                let before = left;
                while left > 0 && self.posted[q] - self.done[q] < depth {
                    self.post(q)?;
                    (left, outstanding) = (left - 1, outstanding + 1);
                }
                if left < before {
                    self.side.qps[q].ring_doorbell();
                }
            }
            let finished = self.take()?;
            outstanding -= finished;
            rates.count += finished;
            peak.add(finished);
            idle = if finished == 0 { idle + 1 } else { 0 };
            if idle == LOOK_EVERY {
                idle = 0;
                // The peer says nothing before we are done, unless something is wrong.
                self.control.try_receive()?;
            }
            stop::yield_if_idle(idle);
            if idle.is_multiple_of(64) {
                let now = Instant::now();
                peak.look(now, &mut rates);
                if meter.is_due(now) {
                    meter.close(now, rates.count, self.side.sent_again());
                }
                if left > 0 && (stop::requested() || deadline.is_some_and(|at| now >= at)) {
                    left = 0;
                }
                if stop::requested() && *stopped.get_or_insert(now) + GRACE < now {
                    break;
                }
            }
        }
        rates.elapsed = start.elapsed();
        rates.intervals = meter.finish(start + rates.elapsed, rates.count, self.side.sent_again());
        Ok(rates)
    }

    #[inline]
    fn post(&mut self, q: usize) -> Result<(), String> {
        let number = self.posted[q];
        if self.side.plan.verify {
            self.prepare(q, number);
        }
        self.posted[q] += 1;
        self.side.write_message(q, number, self.size)
    }

    /// Makes a message different from all others, or the place of an answer different from what it must be.
    fn prepare(&mut self, q: usize, number: u64) {
        let (side, len) = (self.side, self.size as usize);
        match side.plan.op.verb() {
            Verb::Write | Verb::Send => self.pattern.write(&side.mr, side.out_at(q, number), len, q, number),
            Verb::Read | Verb::Atomic => side.mr.write_at(side.in_at(q, number), &vec![0xff; len]),
            Verb::Raw => {}
        }
    }

    /// Takes completions; how many.
    #[inline]
    fn take(&mut self) -> Result<u64, String> {
        let mut batch = std::mem::take(&mut self.batch);
        self.side.poll(&mut batch)?;
        for completion in &batch {
            let finished = self.side.finished(completion)?;
            self.placed += u64::from(finished.bytes);
            if self.side.plan.verify {
                self.verify(&finished)?;
            }
            self.done[finished.qp] += 1;
        }
        let count = batch.len() as u64;
        self.batch = batch;
        Ok(count)
    }

    /// What came back: the peer's memory, or the count before.
    fn verify(&mut self, finished: &Finished) -> Result<(), String> {
        let Finished { qp: q, number, .. } = *finished;
        let (side, at) = (self.side, self.side.in_at(q, number));
        match side.plan.op.verb() {
            Verb::Read => {
                let slot = number % side.plan.slots() as u64;
                let missing = if finished.partial { best_effort::missing(side, at, self.size) } else { Vec::new() };
                self.pattern.compare_but(&side.mr, at, self.size as usize, (q, slot), &missing)
            }
            Verb::Atomic => {
                let mut bytes = [0; 8];
                side.mr.read_at(at, &mut bytes);
                match u64::from_ne_bytes(bytes) {
                    n if n == number => Ok(()),
                    n => Err(format!("atomic {number} on queue pair {q} found {n} instead of {number}")),
                }
            }
            Verb::Write | Verb::Send | Verb::Raw => Ok(()),
        }
    }
}
