//! The client of a run of reliable messages: as many in flight as the depth allows, until all are acknowledged.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use softnic_runtime::api::sdr::{Outcome, ReliableQueuePair};

use super::{Reliable, ReliableOutcome, place, round_trip};
use crate::client::Tell;
use crate::control::{Control, Hello, Message, unexpected};
use crate::interval::{Intervals, Meter};
use crate::pattern::Pattern;
use crate::peak::Peak;
use crate::plan::Amount;
use crate::report::{Measured, Rates, Times};
use crate::side::{Side, next_line};
use crate::stop;

/// Rounds without an outcome between looks at what the peer says.
const LOOK_EVERY: u32 = 2048;
/// How long outcomes may take after Ctrl-C.
const GRACE: Duration = Duration::from_secs(1);

/// Agrees with the server on what the plan asks for; `None` where the peer does not have it, and RC is used.
pub(crate) fn agree(side: &mut Side, control: &mut Control, peer: &Hello) -> Result<Option<Reliable>, String> {
    let Some(plan) = side.plan.reliable else { return Ok(None) };
    let agreed = match peer.reliable {
        true => try_agree(side, control, peer)?,
        false => None,
    };
    side.plan.negotiated = Some(if agreed.is_some() { plan.name() } else { "rc".into() });
    if agreed.is_none() {
        say!("softnic: the peer does not speak {}: rc is used", plan.name());
    }
    Ok(agreed)
}

fn try_agree(side: &Side, control: &mut Control, peer: &Hello) -> Result<Option<Reliable>, String> {
    let Some(plan) = side.plan.reliable else { return Ok(None) };
    let rtt = round_trip(side, peer)?;
    control.send(&Message::RoundTrip { ns: rtt.as_nanos() as u64 })?;
    let mut reliable = Reliable::new(side, plan, peer, rtt)?;
    let met = reliable.meet_first(side, control)?;
    control.send(if met { &Message::Ready } else { &Message::Fallback })?;
    match next_line(control, &side.context)? {
        Message::Ready if met => Ok(Some(reliable)),
        Message::Ready | Message::Fallback => Ok(None),
        other => Err(unexpected(&other)),
    }
}

/// Runs all sizes over a connection; stops early at Ctrl-C.
pub(crate) fn run(
    side: &mut Side,
    mut reliable: Reliable,
    control: &mut Control,
    intervals: Intervals,
    tell: &mut Tell<'_>,
) -> Result<(), String> {
    for size in side.plan.sizes.clone() {
        side.counters();
        control.send(&Message::Go { size, warm_up: side.plan.warm_up(size) })?;
        let qp = reliable.connected(side, size, control)?;
        match next_line(control, &side.context)? {
            Message::Ready => {}
            other => return Err(unexpected(&other)),
        }
        let (mut rates, times, sent) = Sender::new(side, &reliable, &qp, control, size).run(intervals)?;
        control.send(&Message::Done { sent: vec![sent] })?;
        let mut outcome = ReliableOutcome::of(&qp, reliable.plan.chunk(side.plan.path_mtu()))?;
        match next_line(control, &side.context) {
            Ok(Message::Reliable(receiver)) => outcome = outcome.with_receiver(&receiver),
            // What was measured is worth telling.
            Err(_) if stop::requested() => {}
            Ok(other) => return Err(unexpected(&other)),
            Err(e) => return Err(e),
        }
        let counters = side.counters();
        let measured = if side.plan.op.is_latency() {
            Measured::Latency(times)
        } else {
            (rates.reliable, rates.times) = (Some(Box::new(outcome)), Some(Box::new(times)));
            Measured::Bandwidth(rates)
        };
        tell(&side.plan, &measured, &counters)?;
        if stop::requested() {
            break;
        }
    }
    control.send(&Message::Bye)
}

/// The client's end while it sends one size.
struct Sender<'a> {
    side: &'a Side,
    reliable: &'a Reliable,
    qp: &'a ReliableQueuePair,
    control: &'a mut Control,
    size: u32,
    pattern: Pattern,
    /// Messages from the oldest that is not over: when each was posted, if it is not over.
    open: VecDeque<Option<Instant>>,
    posted: u64,
    times: Times,
}

impl<'a> Sender<'a> {
    fn new(
        side: &'a Side,
        reliable: &'a Reliable,
        qp: &'a ReliableQueuePair,
        control: &'a mut Control,
        size: u32,
    ) -> Sender<'a> {
        let (pattern, open, times) = (Pattern::new(), VecDeque::new(), Times::new(size));
        Sender { side, reliable, qp, control, size, pattern, open, posted: 0, times }
    }

    /// Sends what the plan says; how fast that was, how long each message took, and how many there were, warm-up included.
    fn run(mut self, intervals: Intervals) -> Result<(Rates, Times, u64), String> {
        let plan = &self.side.plan;
        self.phase(plan.warm_up(self.size), None, Intervals::None)?;
        self.times = Times::new(self.size);
        let rates = match (plan.iterations(self.size), plan.amount) {
            (_, Amount::Seconds(s)) => self.phase(u64::MAX, Some(Duration::from_secs_f64(s)), intervals)?,
            (n, _) => self.phase(n.unwrap_or(0), None, intervals)?,
        };
        self.times.elapsed = rates.elapsed;
        Ok((rates, self.times, self.posted))
    }

    fn phase(&mut self, count: u64, limit: Option<Duration>, intervals: Intervals) -> Result<Rates, String> {
        let (depth, start, mut left) = (self.side.plan.in_flight(), Instant::now(), count);
        let mut rates = Rates::new(self.size);
        let mut meter = Meter::new(intervals, self.size, start, self.sent_again()?);
        let mut peak = Peak::new(start);
        let (mut idle, mut stopped) = (0u32, None);
        while left > 0 || !self.open.is_empty() {
            while left > 0 && (self.open.len() as u64) < depth {
                self.post()?;
                left -= 1;
            }
            let over = self.take()?;
            rates.count += over;
            peak.add(over);
            idle = if over == 0 { idle + 1 } else { 0 };
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
                    meter.close(now, rates.count, self.sent_again()?);
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
        rates.intervals = meter.finish(start + rates.elapsed, rates.count, self.sent_again()?);
        Ok(rates)
    }

    fn sent_again(&self) -> Result<u64, String> {
        self.qp.reliable_counters().map(|counters| counters.packets_repeated).map_err(|e| e.to_string())
    }

    fn post(&mut self) -> Result<(), String> {
        let (at, len) = (place(&self.side.plan, self.posted), self.size as usize);
        if self.side.plan.verify {
            self.pattern.write(&self.reliable.memory, at, len, 0, self.posted);
        }
        let posted = self.qp.write(&self.reliable.memory, at, len);
        posted.map_err(|e| format!("cannot send message {}: {e}", self.posted))?;
        self.open.push_back(Some(Instant::now()));
        self.posted += 1;
        Ok(())
    }

    /// Takes the messages that are over; how many.
    fn take(&mut self) -> Result<u64, String> {
        let mut over = 0;
        while let Some(outcome) = self.qp.poll() {
            let Outcome::Written { id, outcome } = outcome else { continue };
            outcome.map_err(|e| format!("message {id} was not carried over: {e}"))?;
            let oldest = self.posted - self.open.len() as u64;
            let posted = self.open.get_mut((id - oldest) as usize).and_then(Option::take);
            self.times.record(posted.map_or(Duration::ZERO, |posted| posted.elapsed()));
            over += 1;
        }
        while let Some(None) = self.open.front() {
            self.open.pop_front();
        }
        Ok(over)
    }
}
