//! What the flows and groups of a topology came to.

use softnic_sdr::reliable::Shortfall;
use softnic_transports::Status;

use super::background::BackgroundReport;
use super::flows::Run;
use super::running::Running;
use crate::report::{CompletionTimes, Delivered};
use softnic_switch::PortStats;
use softnic_switch::group::GroupCounters;
use softnic_switch::pfc::PfcStats;
use softnic_wire::Psn;

/// The outcome of one flow.
#[derive(Debug, Clone)]
pub struct FlowReport {
    /// Payload bits completed a second, in 10^9, from the flow's start to its last completion.
    pub goodput_gbps: f64,
    /// Post to completion of each work request; for uc and ud, to its delivery.
    pub completion_times: CompletionTimes,
    /// Work requests completed well at the requester; of uc and ud that says that they were sent.
    pub sent: u64,
    /// Work requests completed well at the requester; for uc and ud, messages delivered at the receiver.
    pub completed: u64,
    /// Work requests that ended otherwise.
    pub failed: u64,
    /// How the first of them ended.
    pub first_failure: Option<Status>,
    /// From the start to the last completion, in milliseconds.
    pub duration_ms: f64,
    /// What came of messages of best effort, where the transport is one.
    pub delivered: Option<Delivered>,
    /// Packets that came for such messages when those were over, at either end.
    pub late_packets: u64,
    /// Why reliable messages over SDR could not fill the line of their sender, if that is so.
    pub shortfall: Option<Shortfall>,
}

/// The outcome of one group.
#[derive(Debug, Clone)]
pub struct GroupReport {
    /// What the sender got done: a work request completes when all receivers have it.
    pub work: FlowReport,
    /// The switch that merged acknowledgements.
    pub merged_at: String,
    /// What that switch counted.
    pub counters: GroupCounters,
    /// All receivers have everything up to this one.
    pub merged_psn: Option<Psn>,
    /// Every switch that copied, with the packets that came and the copies that left.
    pub switches: Vec<(String, u64, u64)>,
    /// The receivers, in the order given.
    pub members: Vec<MemberReport>,
}

/// A receiver of a group.
#[derive(Debug, Clone)]
pub struct MemberReport {
    /// Its name.
    pub host: String,
    /// Bytes of payload that it took.
    pub bytes: u64,
    /// The last PSN that the merging switch heard it acknowledge.
    pub acked_psn: Option<Psn>,
    /// Packets that it has not acknowledged.
    pub behind: u32,
}

/// What a host sent.
#[derive(Debug, Clone)]
pub struct HostReport {
    /// Its name.
    pub host: String,
    /// Frames.
    pub frames: u64,
    /// Bytes, everything on the wire counted.
    pub wire_bytes: u64,
}

/// What a port of a switch did.
#[derive(Debug, Clone)]
pub struct PortReport {
    /// The switch.
    pub switch: String,
    /// Its port.
    pub port: usize,
    /// Who is at the other end.
    pub to: String,
    /// Counters.
    pub stats: PortStats,
    /// Part of the link's rate that was used, from the first post to the last completion.
    pub utilization: f64,
    /// Frames that the link behind it lost.
    pub lost: u64,
    /// What flow control did there.
    pub pfc: PfcStats,
}

/// The outcome of a topology's flows.
#[derive(Debug, Clone)]
pub struct TopologyReport {
    /// One for each flow, in the order given.
    pub flows: Vec<FlowReport>,
    /// One for each group, in the order given.
    pub groups: Vec<GroupReport>,
    /// One for each background, in the order given.
    pub background: Vec<BackgroundReport>,
    /// All hosts.
    pub hosts: Vec<HostReport>,
    /// The ports of all switches.
    pub ports: Vec<PortReport>,
    /// Payload bits of all flows and groups a second, those of a group counted once, in 10^9, from the first post to the last completion.
    pub goodput_gbps: f64,
    /// Of all flows.
    pub completion_times: CompletionTimes,
    /// Request frames of all hosts, those sent again and repair packets included.
    pub tx_packets: u64,
    /// Those sent again.
    pub retransmitted_packets: u64,
    /// Frames that came marked.
    pub marks_received: u64,
    /// Congestion notifications that hosts sent, and that a congestion control heard.
    pub cnps_sent: u64,
    /// See above.
    pub cnps_handled: u64,
    /// Frames that the links of the hosts lost, on their way to a switch.
    pub lost_before_switches: u64,
    /// Frames that a switch dropped for other reasons than a full queue.
    pub discarded: u64,
    /// Nothing more would ever have happened, though not all work was done.
    pub stalled: bool,
    /// Somebody ended the run before all work was done.
    pub interrupted: bool,
    /// Virtual time from the first post to the last completion, in milliseconds.
    pub virtual_ms: f64,
    /// Hash of the whole event trace.
    pub digest: u64,
}

impl Run<'_> {
    pub(super) fn report(mut self) -> TopologyReport {
        let begin = self.flows.iter().map(|f| f.start.instant().as_nanos()).min().unwrap_or(0);
        // Without flows it is the caller's traffic, or what is in the background, that counts.
        let now = self.world.sim.now().instant().as_nanos();
        let end = self.flows.iter().map(|f| f.last).max().unwrap_or(now).max(begin);
        let per_second = |bits: f64, ns: u64| if ns > 0 { bits / (ns as f64 / 1e9) } else { 0.0 };
        let bits = |f: &Running| f.bytes() * 8.0;
        let world = &mut self.world;
        let reports = self.flows.iter().map(|f| {
            let took = f.last.saturating_sub(f.start.instant().as_nanos());
            FlowReport {
                goodput_gbps: per_second(bits(f), took) / 1e9,
                completion_times: f.times.clone(),
                sent: f.sent,
                completed: f.done,
                failed: f.failed,
                first_failure: f.first_failure,
                duration_ms: took as f64 / 1e6,
                delivered: f.delivered,
                late_packets: if f.delivered.is_some() { f.late_packets(world) } else { 0 },
                shortfall: f.reliable.as_ref().and_then(|reliable| reliable.shortfall),
            }
        });
        let mut flows: Vec<FlowReport> = reports.collect();
        let t = self.world.topology;
        let mut groups = Vec::new();
        for (i, work) in flows.split_off(t.flows.len()).into_iter().enumerate() {
            groups.extend(self.group_report(t.flows.len() + i, work));
        }
        let goodput_gbps = per_second(self.flows.iter().map(bits).sum(), end - begin) / 1e9;
        let mut hosts = Vec::new();
        for host in 0..t.hosts.len() {
            let stats = self.world.uplink(host).map(|link| self.world.sim.link_stats(link)).unwrap_or_default();
            hosts.push(HostReport { host: t.hosts[host].clone(), frames: stats.frames, wire_bytes: stats.wire_bytes });
        }
        let (mut tx_packets, mut retransmitted_packets, mut marks_received, mut discarded) = (0, 0, 0, 0);
        let (mut cnps_sent, mut cnps_handled) = (0, 0);
        for host in 0..t.hosts.len() {
            let c = *self.world.sim.nic(host).counters();
            tx_packets += c.sent_requests + c.retransmitted_packets + c.lowar_repairs_sent;
            retransmitted_packets += c.retransmitted_packets;
            marks_received += c.np_ecn_marked_roce_packets;
            cnps_sent += c.np_cnp_sent;
            cnps_handled += c.rp_cnp_handled;
        }
        for f in &self.flows {
            let nic = self.world.sim.nic(f.flow.from);
            let repeated = f.reliable.as_ref().map(|reliable| reliable.counters(nic).packets_repeated);
            retransmitted_packets += repeated.unwrap_or(0);
        }
        for switch in 0..t.switches.len() {
            let Some(c) = self.world.switch(switch).map(|s| s.counters()) else { continue };
            discarded += c.filtered + c.unroutable + c.hops_exceeded + c.no_buffer;
        }
        let mut ports = Vec::new();
        for p in self.world.ports.clone() {
            let link = self.world.sim.link_stats(p.link);
            let switch = self.world.switch(p.switch);
            let (mut stats, pfc) = switch.map(|s| (s.port_stats(p.port), s.pfc_stats(p.port))).unwrap_or_default();
            // Where nothing is dropped before a port, what came in there without room counts.
            stats.dropped += pfc.overflowed;
            ports.push(PortReport {
                switch: t.switches[p.switch].clone(),
                port: p.port,
                to: t.name(p.to).to_owned(),
                stats,
                utilization: per_second(link.wire_bytes as f64 * 8.0, end - begin) / p.rate as f64,
                lost: link.lost,
                pfc,
            });
        }
        let all_lost: u64 = (0..2 * t.links.len()).map(|l| self.world.sim.link_stats(l).lost).sum();
        let lost_before_switches = all_lost - ports.iter().map(|p| p.lost).sum::<u64>();
        TopologyReport {
            flows,
            groups,
            background: self.background.reports(&self.world),
            hosts,
            ports,
            goodput_gbps,
            completion_times: self.all.clone(),
            tx_packets,
            retransmitted_packets,
            marks_received,
            cnps_sent,
            cnps_handled,
            lost_before_switches,
            discarded,
            stalled: self.stalled,
            interrupted: self.interrupted,
            virtual_ms: (end - begin) as f64 / 1e6,
            digest: self.world.sim.digest(),
        }
    }
}
