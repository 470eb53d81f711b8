//! One collective, many times, by one group: what `softnic collective` runs, wherever the ranks are.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use softnic_fault_injector::random::Random;
use softnic_nic::Buffer;
use softnic_transports::congestion::Cc;
use softnic_transports::{Counters, Transport};

use crate::call::Call;
use crate::element;
use crate::member::{Member, MemberCounters, MemberSettings, Outcome};
use crate::report::{RankReport, Report};
use crate::uc::is_bounded;

/// A run.
#[derive(Debug, Clone)]
pub struct Options {
    /// What is called.
    pub call: Call,
    /// How many ranks.
    pub ranks: usize,
    /// The transport of the data.
    pub transport: Transport,
    /// Blocks that each packet of XP has a part of.
    pub stride: u16,
    /// Congestion control of the data.
    pub cc: Cc,
    /// ACK timeout of the data; by default what the network needs.
    pub timeout: Option<u8>,
    /// How often.
    pub iterations: u64,
    /// Between two of them.
    pub pause: Duration,
    /// How members work; `bounded` follows from the transport.
    pub member: MemberSettings,
    /// Of everything that is random.
    pub seed: u64,
}

/// A group, wherever its ranks are.
pub trait Ranks {
    /// What keeps it from its work.
    type Error;

    /// The ranks that are here: all, or one where each is a process of its own.
    fn here(&self) -> Range<usize>;

    /// The buffer of a rank, if frames carry any bytes.
    fn buffer(&self, rank: usize) -> Option<&Arc<Buffer>>;

    /// A rank.
    fn member(&self, rank: usize) -> &Member;

    /// What the NIC of a rank counted.
    fn counters(&mut self, rank: usize) -> Counters;

    /// Has all ranks begin a collective at once, and sees it through: each outcome, and how long after the beginning that was. `None` when
    /// `stop` says so.
    ///
    /// # Errors
    /// When a rank gives up.
    fn collective(
        &mut self,
        call: &Call,
        warm_up: bool,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<(Outcome, Duration)>>, Self::Error>;

    /// Lets time pass.
    ///
    /// # Errors
    /// When a rank gives up.
    fn pause(&mut self, time: Duration) -> Result<(), Self::Error>;
}

/// Runs a collective again and again. `go_on` is told how many are over, and says whether to go on.
///
/// # Errors
/// When a rank gives up.
pub fn drive<R: Ranks>(ranks: &mut R, options: &Options, go_on: &dyn Fn(u64) -> bool) -> Result<Report, R::Error> {
    let Options { call, iterations, pause, ref member, transport, .. } = *options;
    let here = ranks.here();
    let mut report =
        Report { ranks: vec![RankReport::default(); here.len()], first_rank: here.start, ..Report::default() };
    if is_bounded(transport) && member.fixed.is_none() {
        fill(ranks, options);
        match ranks.collective(&call, true, &|| !go_on(0))? {
            Some(outcomes) => report.warm_up = outcomes.iter().map(|(_, took)| *took).max(),
            None => report.interrupted = true,
        }
    }
    let before: Vec<MemberCounters> = here.clone().map(|rank| *ranks.member(rank).counters()).collect();
    for done in 0..iterations {
        if report.interrupted || !go_on(done) {
            report.interrupted = true;
            break;
        }
        fill(ranks, options);
        if !pause.is_zero() && done > 0 {
            ranks.pause(pause)?;
        }
        match ranks.collective(&call, false, &|| !go_on(done))? {
            Some(outcomes) => report.note(&outcomes),
            None => report.interrupted = true,
        }
    }
    go_on(report.times.all().len() as u64);
    for (rank, (of_rank, before)) in here.zip(report.ranks.iter_mut().zip(&before)) {
        of_rank.member = ranks.member(rank).counters().since(before);
        of_rank.nic = ranks.counters(rank);
    }
    let mean = report.times.mean_ms();
    if mean > 0.0 {
        report.bus_gbps = call.bytes as f64 * call.operation.bus_factor(options.ranks) * 8.0 / mean / 1e6;
    }
    Ok(report)
}

/// Gives each rank numbers of its own: small whole ones.
fn fill<R: Ranks>(ranks: &R, options: &Options) {
    let mut bytes = [0; 4096];
    for rank in ranks.here() {
        let Some(buffer) = ranks.buffer(rank) else { return };
        let mut random = Random::stream(options.seed, 5000 + rank as u64);
        let len = options.call.bytes as usize;
        for at in (0..len).step_by(bytes.len()) {
            let part = &mut bytes[..(len - at).min(4096)];
            element::fill(options.call.element, part, || random.below(7) as i8 - 3);
            buffer.write_at(at, part);
        }
    }
}

impl Report {
    /// Notes a collective.
    fn note(&mut self, outcomes: &[(Outcome, Duration)]) {
        self.times.add(outcomes.iter().map(|(_, took)| *took).max().unwrap_or_default());
        let (mut received, mut expected) = (0, 0);
        for (rank, (outcome, took)) in self.ranks.iter_mut().zip(outcomes) {
            rank.times.add(*took);
            received += outcome.received;
            expected += outcome.expected;
            outcome.losses.iter().for_each(|loss| self.losses.add(loss.clone()));
        }
        self.missing.push(if expected == 0 { 0.0 } else { (expected - received) as f64 / expected as f64 });
        self.timeouts.extend(outcomes.first().and_then(|(outcome, _)| outcome.budget).map(|budget| budget.timeout));
    }
}
