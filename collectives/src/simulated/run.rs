//! A run in virtual time.

use std::sync::Arc;
use std::time::Duration;

use softnic_nic::Buffer;
use softnic_sim::topology::Topology;
use softnic_transports::Counters;

use super::{Cluster, ClusterError, GroupConfig};
use crate::call::Call;
use crate::member::{Member, Outcome};
use crate::report::Report;
use crate::run::{Options, Ranks, drive};

/// Runs a collective again and again, on the first hosts of a network; the same options, network and seed give the same report. `go_on` is
/// told how many are over, and says whether to go on.
///
/// # Errors
/// When it cannot be run, or a rank gives up.
pub fn run(topology: &Topology, options: &Options, go_on: &dyn Fn(u64) -> bool) -> Result<Report, ClusterError> {
    if options.ranks > topology.hosts.len() {
        return Err(ClusterError::Hosts(options.ranks));
    }
    let mut cluster = Cluster::new(topology, options.seed)?;
    let group = cluster.add_group(GroupConfig {
        hosts: (0..options.ranks).collect(),
        transport: options.transport,
        stride: options.stride,
        cc: options.cc,
        timeout: options.timeout,
        calls: vec![options.call],
        member: options.member.clone(),
    })?;
    let mut hosts = Hosts { cluster, group };
    let mut report = drive(&mut hosts, options, go_on)?;
    let network = hosts.cluster.network();
    report.total_time = Duration::from_nanos(network.now().0 / 1000);
    report.digest = Some(network.digest());
    Ok(report)
}

/// One group of a network, a rank on each of its first hosts.
struct Hosts<'t> {
    cluster: Cluster<'t>,
    group: usize,
}

impl Ranks for Hosts<'_> {
    type Error = ClusterError;

    fn here(&self) -> std::ops::Range<usize> {
        0..self.cluster.members(self.group).len()
    }

    fn buffer(&self, rank: usize) -> Option<&Arc<Buffer>> {
        self.cluster.endpoint(self.group, rank).buffer()
    }

    fn member(&self, rank: usize) -> &Member {
        &self.cluster.members(self.group)[rank]
    }

    fn counters(&mut self, rank: usize) -> Counters {
        *self.cluster.network().nic(rank).counters()
    }

    fn collective(
        &mut self,
        call: &Call,
        warm_up: bool,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<(Outcome, Duration)>>, ClusterError> {
        let began = self.cluster.network().now();
        match self.cluster.run(&[(self.group, *call)], warm_up, stop) {
            Err(ClusterError::Interrupted) => Ok(None),
            Err(other) => Err(other),
            Ok(mut outcomes) => {
                let since = |(outcome, at): (Outcome, softnic_sim::Time)| {
                    (outcome, Duration::from_nanos((at.0 - began.0) / 1000))
                };
                Ok(Some(outcomes.remove(0).into_iter().map(since).collect()))
            }
        }
    }

    fn pause(&mut self, time: Duration) -> Result<(), ClusterError> {
        self.cluster.pause(time)
    }
}
