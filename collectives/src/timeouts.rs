//! How long a collective may take (§3.1.2 of the paper): what the group needed before, smoothed, and a margin.
//!
//! After a collective a rank knows how long it took and how many bytes it got. Its cost is time / byte; what it proposes for the next one is
//! cost × bytes. Before the next collective of the same kind on the same group everybody has the proposals of all, so everybody comes to the
//! same budget: T = α · (1 + margin) · median + (1 - α) · T. The first time T = (1 + γ) · warm-up + δ, by the median of the warm-ups.
//!
//! Decided where the paper says nothing:
//!
//! - Of an even number the median is the mean of the two in the middle.
//! - A budget has two parts: what was needed, which is cut into slices by bytes, and what is spare (the margin; the first time γ and δ), which
//!   is not: the deadline of a phase is spare + its share of what was needed. The first phase waits for the first message of all ranks, and
//!   small messages take their latency, not their bytes. Without a margin that is the paper's rule.
//! - A rank without news (it has made no such collective, or expects no byte in it) is not counted. Where nobody has news T stays.
//! - A rank that got nothing of what it expected has a cost without bound. It proposes the most that counts: so T grows until bytes come.
//! - Only durations are told, each by the clock of one rank, so clocks need not agree; they need to run at the same speed.
//! - T is of a size: what a short collective needs says little of a long one. A size that is new begins with the T of the next larger one that
//!   has any, scaled by bytes; where no larger one has, it has no T before it.
//!
//! **What a rank that lies can do.** A proposal counts as at least T / bound and at most T · bound, so whatever all others say, one update
//! leaves T between (1 - α) · T and ((1 - α) + α · (1 + margin) · bound) · T. As long as fewer than half of the proposals are lies the median
//! is not beyond those of the honest ranks. T is never less than δ and never more than the patience of the group. The first T has no T before
//! it, and is bounded by the last two alone.

use std::collections::BTreeMap;
use std::time::Duration;

use softnic_transports::planted::{Bug, planted};

use crate::call::{Algorithm, Call, Operation};

/// The five numbers, and the most that T may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeoutSettings {
    /// α: how much of each update is new.
    pub alpha: f64,
    /// γ: the part by which the first budget is longer than the warm-up.
    pub gamma: f64,
    /// δ: what is added to the first budget; no budget is shorter.
    pub delta: Duration,
    /// The part by which an update is longer than the median; the paper has 0.
    pub margin: f64,
    /// Proposals further away from T than by this factor count as that far.
    pub bound: f64,
    /// No budget is longer.
    pub most: Duration,
}

impl Default for TimeoutSettings {
    fn default() -> TimeoutSettings {
        TimeoutSettings {
            alpha: 0.2,
            gamma: 0.25,
            delta: Duration::from_micros(50),
            margin: 0.5,
            bound: 8.0,
            most: Duration::from_secs(10),
        }
    }
}

/// What a rank knows of a collective that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    /// How long it took this rank.
    pub elapsed: Duration,
    /// Bytes that came, of messages in part too.
    pub received: u64,
    /// Bytes that would have come.
    pub expected: u64,
}

/// A budget and where it comes from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Budget {
    /// T.
    pub timeout: Duration,
    /// The part of it that is not cut into slices: whichever phase needs it first has it.
    pub spare: Duration,
    /// The median of what was proposed; `None` where nobody had news.
    pub median: Option<Duration>,
    /// T before the update, for the present size; `None` the first time.
    pub before: Option<Duration>,
}

/// What collectives share a budget: all but the type and the reduction. The last is the size.
type Kind = (Operation, Algorithm, u64);

/// How many kinds are remembered: those that were used last.
const REMEMBERED: usize = 256;

#[derive(Debug, Clone, Copy, Default)]
struct Record {
    /// T, and what is spare of it.
    timeout: Option<(Duration, Duration)>,
    news: Option<Observation>,
    warm_up: Option<Duration>,
    /// The how-manieth look at a record was the last one at this.
    used: u64,
}

/// The budgets of one rank for the collectives of one group.
#[derive(Debug, Clone, Default)]
pub struct Timeouts {
    settings: TimeoutSettings,
    records: BTreeMap<Kind, Record>,
    /// Looks at records so far.
    looks: u64,
}

impl Timeouts {
    /// Without any experience.
    pub fn new(settings: TimeoutSettings) -> Timeouts {
        Timeouts { settings, ..Timeouts::default() }
    }

    /// The settings.
    pub fn settings(&self) -> &TimeoutSettings {
        &self.settings
    }

    fn record(&mut self, call: &Call) -> &mut Record {
        let kind = kind(call);
        if self.records.len() >= REMEMBERED
            && !self.records.contains_key(&kind)
            && let Some((&oldest, _)) = self.records.iter().min_by_key(|(_, record)| record.used)
        {
            self.records.remove(&oldest);
        }
        self.looks += 1;
        let record = self.records.entry(kind).or_default();
        record.used = self.looks;
        record
    }

    /// T as it is now; `None` before the first use.
    pub fn timeout(&self, call: &Call) -> Option<Duration> {
        Some(self.parts(call)?.0)
    }

    /// T and what is spare of it: of this size, else of the next larger one. A warm-up says more than that.
    fn parts(&self, call: &Call) -> Option<(Duration, Duration)> {
        let (operation, algorithm, bytes) = kind(call);
        let own = self.records.get(&kind(call));
        if own.is_some_and(|own| own.timeout.is_none() && own.warm_up.is_some()) {
            return None;
        }
        let mut larger = self.records.range((operation, algorithm, bytes)..=(operation, algorithm, u64::MAX));
        let (from, (timeout, spare)) = larger.find_map(|(&(_, _, from), record)| Some((from, record.timeout?)))?;
        Some((scaled(timeout, bytes, from), scaled(spare, bytes, from)))
    }

    /// A collective over a reliable transport took so long.
    pub fn warm_up(&mut self, call: &Call, took: Duration) {
        self.record(call).warm_up = Some(took);
    }

    /// A collective is over.
    pub fn observe(&mut self, call: &Call, observation: Observation) {
        if planted(Bug::CollectiveMedianOfAnother)
            && let Some(first) = self.records.values_mut().next()
        {
            first.news = Some(observation);
            return;
        }
        self.record(call).news = Some(observation);
    }

    /// What this rank proposes for a collective, in nanoseconds. `expected` are the bytes that it will receive.
    pub fn proposal(&self, call: &Call, expected: u64) -> Option<u64> {
        let record = self.records.get(&kind(call))?;
        let nanos = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX - 1).min(u64::MAX - 1);
        let Some(Observation { elapsed, received, expected: before }) = record.news else {
            return record.warm_up.map(nanos);
        };
        match (before, received) {
            (0, _) => None,
            (_, 0) => Some(u64::MAX - 1),
            _ => Some(nanos(scaled(elapsed, expected, received))),
        }
    }

    /// The budget of the next collective, from what all ranks propose; this is the update. `None` without any proposal the first time:
    /// then there is no budget.
    ///
    /// `proposals` is used as scratch memory.
    pub fn next(&mut self, call: &Call, proposals: &mut [u64]) -> Option<Budget> {
        let settings = self.settings;
        let parts = self.parts(call);
        let before = parts.map(|(timeout, _)| timeout);
        if let Some(before) = before {
            let nanos = before.as_nanos() as f64;
            let [low, high] = [nanos / settings.bound, nanos * settings.bound].map(|ns| ns as u64);
            proposals.iter_mut().for_each(|ns| *ns = (*ns).clamp(low, high));
        }
        let median = median(proposals);
        // The numbers in seconds: what is needed, and what is spare beside it.
        let (needed, spare) = match (parts, median) {
            (Some((timeout, spare)), Some(median)) => {
                let (new, old) = (median.as_secs_f64(), (timeout - spare).as_secs_f64());
                let smooth = |new: f64, old: f64| settings.alpha * new + (1.0 - settings.alpha) * old;
                (smooth(new, old), smooth(new * settings.margin, spare.as_secs_f64()))
            }
            (Some((timeout, spare)), None) => ((timeout - spare).as_secs_f64(), spare.as_secs_f64()),
            (None, Some(warm_up)) => {
                let needed = warm_up.as_secs_f64();
                (needed, settings.gamma * needed + settings.delta.as_secs_f64())
            }
            (None, None) => return None,
        };
        let timeout = seconds(needed + spare).clamp(settings.delta.min(settings.most), settings.most);
        let spare = seconds(spare).min(timeout);
        let record = self.record(call);
        record.timeout = Some((timeout, spare));
        // It has been told.
        record.news = None;
        record.warm_up = None;
        Some(Budget { timeout, spare, median, before })
    }
}

fn kind(call: &Call) -> Kind {
    (call.operation, call.algorithm, call.bytes)
}

fn seconds(s: f64) -> Duration {
    Duration::try_from_secs_f64(s).unwrap_or(Duration::MAX)
}

/// A time for `from` bytes, for `to` bytes.
fn scaled(time: Duration, to: u64, from: u64) -> Duration {
    match from {
        _ if from == to => time,
        0 => time,
        _ => {
            let nanos = time.as_nanos().saturating_mul(u128::from(to)) / u128::from(from);
            Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
        }
    }
}

/// The median; of an even number the mean of the two in the middle.
fn median(numbers: &mut [u64]) -> Option<Duration> {
    numbers.sort_unstable();
    let upper = *numbers.get(numbers.len() / 2)?;
    let median = if numbers.len().is_multiple_of(2) { numbers[numbers.len() / 2 - 1].midpoint(upper) } else { upper };
    Some(Duration::from_nanos(median))
}
