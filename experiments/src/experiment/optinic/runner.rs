//! One run: a group of ranks calls the same collective again and again, in virtual time, beside the background traffic of its network.

use std::time::Duration;

use softnic_collectives::call::{Algorithm, Call, Element, Operation, Reduction};
use softnic_collectives::member::{MemberSettings, Outcome};
use softnic_collectives::simulated::{Cluster, ClusterError, GroupConfig};
use softnic_sim::pair::timeout_code;
use softnic_sim::topology::Topology;
use softnic_sim::{Cc, Transport, UNITS};

use super::network::Net;

/// The ACK timeout of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Timeout {
    /// 4.096 µs · 2^code.
    Code(u8),
    /// The least code of at least four round trips.
    Least,
}

/// What is called, over which network and transport.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) net: Net,
    pub(super) operation: Operation,
    pub(super) algorithm: Algorithm,
    pub(super) bytes: u64,
    pub(super) transport: Transport,
    pub(super) timeout: Timeout,
    pub(super) cc: &'static str,
    pub(super) member: MemberSettings,
    /// Collectives of a run, after a warm-up over `rc` for XP.
    pub(super) collectives: u64,
    /// No further one begins after this virtual time.
    pub(super) most: Duration,
}

impl Case {
    pub(super) fn call(&self) -> Call {
        Call {
            operation: self.operation,
            algorithm: self.algorithm,
            element: Element::F32,
            reduction: Reduction::Sum,
            bytes: self.bytes,
        }
    }
}

/// What a run came to.
#[derive(Debug, Clone, Default)]
pub(super) struct Ran {
    /// From when all began to when the last rank was through, in ms.
    pub(super) times: Vec<f64>,
    /// The part of the bytes that did not come, of each collective.
    pub(super) missing: Vec<f64>,
    /// T of each, in ms.
    pub(super) budgets: Vec<f64>,
    /// What each rank knew of each collective.
    pub(super) outcomes: Vec<Vec<Outcome>>,
    /// When each began, in ms.
    pub(super) began: Vec<f64>,
    /// Of the warm-up, in ms; and what each rank knew of it.
    pub(super) warm_up: Option<f64>,
    pub(super) warm_ups: Vec<Duration>,
    /// Frames that queues of switches dropped, those of the background among them.
    pub(super) dropped: u64,
    /// Frames that the links of hosts lost, the same.
    pub(super) lost: u64,
    /// The code of the ACK timeout.
    pub(super) code: u8,
    /// Why it ended before its time.
    pub(super) failed: Option<String>,
}

/// Makes the run.
pub(super) fn run(case: &Case, seed: u64) -> Result<Ran, String> {
    run_on(&case.net.topology()?, case, seed)
}

/// Makes the run on a network that is a little different from that of the case.
pub(super) fn run_on(topology: &Topology, case: &Case, seed: u64) -> Result<Ran, String> {
    let mut cluster = Cluster::new(topology, seed).map_err(|e| e.to_string())?;
    let round_trip = cluster.network().round_trip(false) + case.net.queueing();
    let code = match case.timeout {
        Timeout::Code(code) => code,
        Timeout::Least => timeout_code(round_trip * 4),
    };
    let mut ran = Ran { code, ..Ran::default() };
    let config = GroupConfig {
        hosts: (0..case.net.hosts).collect(),
        transport: case.transport,
        stride: 1,
        cc: Cc::parse(case.cc, &UNITS).map_err(|e| e.to_string())?,
        timeout: Some(code),
        calls: vec![case.call()],
        member: case.member.clone(),
    };
    let group = cluster.add_group(config).map_err(|e| e.to_string())?;
    match drive(&mut cluster, group, case, &mut ran) {
        // A queue pair that runs out of retries is a result, too.
        Err(why @ ClusterError::Member { .. }) => ran.failed = Some(why.to_string()),
        Err(other) => return Err(other.to_string()),
        Ok(()) => {}
    }
    let report = cluster.report().map_err(|e| e.to_string())?;
    ran.dropped = report.ports.iter().map(|port| port.stats.dropped).sum();
    ran.lost = report.lost_before_switches;
    Ok(ran)
}

fn drive(cluster: &mut Cluster<'_>, group: usize, case: &Case, ran: &mut Ran) -> Result<(), ClusterError> {
    let call = case.call();
    let warm_up = case.transport.is_bounded() && case.member.fixed.is_none();
    let ms = |from: u64, to: u64| (to - from) as f64 / 1e9;
    if warm_up {
        let from = cluster.network().now().0;
        let outcomes = cluster.run(&[(group, call)], true, &|| false)?.remove(0);
        ran.warm_ups = outcomes.iter().map(|(outcome, _)| outcome.elapsed).collect();
        ran.warm_up = outcomes.iter().map(|(_, at)| ms(from, at.0)).reduce(f64::max);
    }
    let begin = cluster.network().now();
    for _ in 0..case.collectives {
        let from = cluster.network().now();
        if from > begin.after(case.most) {
            break;
        }
        let outcomes = cluster.run(&[(group, call)], false, &|| false)?.remove(0);
        ran.began.push(ms(begin.0, from.0));
        ran.times.push(outcomes.iter().map(|(_, at)| ms(from.0, at.0)).fold(0.0, f64::max));
        let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(|(outcome, _)| of(outcome)).sum::<u64>();
        let (received, expected) = (sum(|o| o.received), sum(|o| o.expected));
        ran.missing.push(if expected == 0 { 0.0 } else { (expected - received) as f64 / expected as f64 });
        ran.budgets.extend(outcomes[0].0.budget.map(|budget| budget.timeout.as_secs_f64() * 1e3));
        ran.outcomes.push(outcomes.into_iter().map(|(outcome, _)| Outcome { losses: Vec::new(), ..outcome }).collect());
    }
    Ok(())
}
