//! An incast: many senders begin to send to one receiver at once, one message each. How long the last takes beside what the link needs.

use std::time::Duration;

use softnic_fault_injector::{Policy, Spec};
use softnic_nic::transports::Transport;
use softnic_wire::PathMtu;

use super::Star;
use crate::topology::{Flow, Hooks, Topology, run};
use crate::{Cc, Op, SimError};

/// Ethernet to ICRC around the payload of a WRITE's packet, and what a frame takes beside on a wire; XP has the longer headers.
const OVERHEAD: [u64; 2] = [14 + 20 + 8 + 12 + 4 + 24, 14 + 20 + 8 + 12 + 16 + 16 + 4 + 24];

/// What is to be found out.
#[derive(Debug, Clone)]
pub struct Incast {
    /// Hosts that send, each one WRITE.
    pub senders: usize,
    /// What decides how fast each sends.
    pub cc: Cc,
    /// What each sends by.
    pub transport: Transport,
    /// Bytes of each WRITE.
    pub size: u32,
    /// Of every link.
    pub rate: u64,
    /// Of every link, one way.
    pub delay: Duration,
    /// How the switch's queues are run.
    pub policy: Policy,
    /// Path MTU.
    pub mtu: PathMtu,
    /// Faults of the receiver's link: `ab` is what the receiver sends.
    pub faults: Spec,
    /// Seed of everything random.
    pub seed: u64,
}

/// What came of an incast.
#[derive(Debug, Clone)]
pub struct Burst {
    /// Nanoseconds that each message took that came, the shortest first.
    pub times: Vec<u64>,
    /// Nanoseconds that the link to the receiver needs for all of them, and a round trip.
    pub bound: u64,
    /// Frames that found a queue full.
    pub dropped: u64,
    /// The most bytes that waited for the receiver's link.
    pub max_queue: u64,
    /// Packets sent again.
    pub retransmitted: u64,
}

impl Burst {
    /// The time of the last message as a multiple of the bound.
    pub fn slowdown(&self) -> f64 {
        self.times.last().copied().unwrap_or(u64::MAX) as f64 / self.bound as f64
    }
}

impl Incast {
    /// WRITEs of 1 MiB at 40 Gbit/s, through a queue of 4 MiB that marks from 5 to 200 KB with up to 1 %.
    pub fn new(senders: usize, cc: Cc, transport: Transport) -> Incast {
        let usual = super::Fairness::new(senders, cc);
        let super::Fairness { rate, delay, policy, mtu, seed, .. } = usual;
        Incast { senders, cc, transport, size: 1 << 20, rate, delay, policy, mtu, faults: Spec::default(), seed }
    }

    fn bound(&self) -> u64 {
        let packets = u64::from(self.size.div_ceil(self.mtu.bytes()).max(1));
        let wire = u64::from(self.size) + packets * OVERHEAD[usize::from(self.transport.is_bounded())];
        let all = u128::from(wire) * self.senders as u128 * 8_000_000_000 / u128::from(self.rate);
        all as u64 + 4 * self.delay.as_nanos() as u64
    }

    /// Runs it; the same options give the same outcome.
    pub fn run(&self) -> Result<Burst, SimError> {
        let flow = |from| Flow {
            from,
            to: self.senders,
            transport: self.transport,
            scheme: None,
            chunk: None,
            op: Op::Write,
            size: self.size,
            count: 1,
            depth: 1,
            // What is to be agreed on has been, also where some offers are lost.
            start: Duration::from_secs(1),
            stop: None,
            cc: self.cc,
            dscp: 0,
            deadline: None,
            stride: 1,
        };
        let Incast { senders, rate, delay, .. } = *self;
        let star = Star { senders, rate, delay, faults: &self.faults };
        let flows = (0..senders).map(flow).collect();
        let topology = Topology { policy: self.policy, mtu: self.mtu, flows, ..star.topology() };
        let report = run(&topology, self.seed, Hooks::default())?;
        let bottleneck = report.ports.iter().find(|p| p.to == topology.hosts[senders]);
        let mut times: Vec<u64> = report
            .flows
            .iter()
            .filter(|f| f.completed == 1)
            .map(|f| (f.completion_times.max_ms() * 1e6).round() as u64)
            .collect();
        times.sort_unstable();
        Ok(Burst {
            times,
            bound: self.bound(),
            dropped: report.ports.iter().map(|p| p.stats.dropped).sum(),
            max_queue: bottleneck.map_or(0, |p| p.stats.max_queue),
            retransmitted: report.retransmitted_packets,
        })
    }
}
