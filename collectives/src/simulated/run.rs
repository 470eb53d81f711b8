//! One collective, many times, by one group: what `softnic collective` runs in virtual time.

use std::time::Duration;

use softnic_fault_injector::random::Random;
use softnic_nic::transports::Transport;
use softnic_sim::topology::Topology;
use softnic_sim::{Cc, Time};

use super::report::{RankReport, Report};
use super::{Cluster, ClusterError, GroupConfig};
use crate::call::Call;
use crate::member::{MemberCounters, MemberSettings, Outcome};

/// A run.
#[derive(Debug, Clone)]
pub struct Options {
    /// What is called.
    pub call: Call,
    /// How many ranks, on the first hosts of the network.
    pub ranks: usize,
    /// The transport of the data.
    pub transport: Transport,
    /// Blocks that each packet of XP has a part of.
    pub stride: u16,
    /// Congestion control of the data.
    pub cc: Cc,
    /// ACK timeout of the data; by default that of the network.
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

/// Runs a collective again and again; the same options, network and seed give the same report. `go_on` is told how many are over, and says
/// whether to go on.
///
/// # Errors
/// When it cannot be run, or a rank gives up.
pub fn run(topology: &Topology, options: &Options, go_on: &dyn Fn(u64) -> bool) -> Result<Report, ClusterError> {
    if options.ranks > topology.hosts.len() {
        return Err(ClusterError::Hosts(options.ranks));
    }
    let mut cluster = Cluster::new(topology, options.seed);
    let group = cluster.add_group(GroupConfig {
        hosts: (0..options.ranks).collect(),
        transport: options.transport,
        stride: options.stride,
        cc: options.cc,
        timeout: options.timeout,
        calls: vec![options.call],
        member: options.member.clone(),
    })?;
    let mut run = Run { cluster, group, options, report: Report::default(), warmed_up: Vec::new() };
    run.report.ranks = vec![RankReport::default(); options.ranks];
    match run.drive(go_on) {
        Err(ClusterError::Interrupted) => run.report.interrupted = true,
        other => other?,
    }
    Ok(run.finish())
}

struct Run<'o> {
    cluster: Cluster<'o>,
    group: usize,
    options: &'o Options,
    report: Report,
    /// What members had counted when the warm-up was over.
    warmed_up: Vec<MemberCounters>,
}

impl Run<'_> {
    fn drive(&mut self, go_on: &dyn Fn(u64) -> bool) -> Result<(), ClusterError> {
        let Options { call, iterations, pause, ref member, transport, .. } = *self.options;
        let calls = [(self.group, call)];
        if transport.is_bounded() && member.fixed.is_none() {
            self.fill();
            let began = self.cluster.stage().sim().now();
            let outcomes = self.cluster.run(&calls, true, &|| !go_on(0))?;
            self.report.warm_up = outcomes[0].iter().map(|(_, at)| since(began, *at)).max();
        }
        self.warmed_up = self.cluster.members(self.group).iter().map(|member| *member.counters()).collect();
        for done in 0..iterations {
            self.fill();
            if !pause.is_zero() && done > 0 {
                self.cluster.pause(pause)?;
            }
            let began = self.cluster.stage().sim().now();
            let outcomes = self.cluster.run(&calls, false, &|| !go_on(done))?;
            self.note(began, &outcomes[0]);
        }
        go_on(iterations);
        Ok(())
    }

    /// Gives each rank numbers of its own, whole ones that no sum of ranks rounds.
    fn fill(&mut self) {
        let mut bytes = [0; 4096];
        for rank in 0..self.options.ranks {
            let Some(buffer) = self.cluster.endpoint(self.group, rank).buffer().cloned() else { return };
            let mut random = Random::stream(self.options.seed, 5000 + rank as u64);
            let len = self.options.call.bytes as usize;
            for at in (0..len).step_by(bytes.len()) {
                let part = &mut bytes[..(len - at).min(4096)];
                crate::element::fill(self.options.call.element, part, || random.below(7) as i8 - 3);
                buffer.write_at(at, part);
            }
        }
    }

    fn note(&mut self, began: Time, outcomes: &[(Outcome, Time)]) {
        let report = &mut self.report;
        let last = outcomes.iter().map(|(_, at)| *at).max().unwrap_or(began);
        report.times.add(since(began, last));
        let (mut received, mut expected) = (0, 0);
        for (rank, (outcome, at)) in report.ranks.iter_mut().zip(outcomes) {
            rank.times.add(since(began, *at));
            received += outcome.received;
            expected += outcome.expected;
            outcome.losses.iter().for_each(|loss| report.losses.add(loss.clone()));
        }
        report.missing.push(if expected == 0 { 0.0 } else { (expected - received) as f64 / expected as f64 });
        report.timeouts.extend(outcomes.first().and_then(|(outcome, _)| outcome.budget).map(|budget| budget.timeout));
    }

    fn finish(mut self) -> Report {
        let Options { call, ranks, .. } = *self.options;
        for rank in 0..ranks {
            let member = *self.cluster.members(self.group)[rank].counters();
            let before = self.warmed_up.get(rank).copied().unwrap_or_default();
            self.report.ranks[rank].member = member.since(&before);
            self.report.ranks[rank].nic = *self.cluster.stage().sim().nic(rank).counters();
        }
        let mean = self.report.times.mean_ms();
        if mean > 0.0 {
            self.report.bus_gbps = call.bytes as f64 * call.operation.bus_factor(ranks) * 8.0 / mean / 1e6;
        }
        let sim = self.cluster.stage().sim();
        self.report.virtual_time = since(Time::default(), sim.now());
        self.report.digest = sim.digest();
        self.report
    }
}

fn since(began: Time, at: Time) -> Duration {
    Duration::from_nanos((at.0 - began.0) / 1000)
}
