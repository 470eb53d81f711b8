//! Flows that share one bottleneck: they join one after another, stay together for a while, and leave one after another. How fair the
//! shares are, and how long the queue.

mod incast;

use std::time::Duration;

use softnic_fault_injector::{Policy, Red, Spec};
use softnic_nic::transports::Transport;
use softnic_nic::transports::qp::PayloadMode;
use softnic_wire::PathMtu;

pub use incast::{Burst, Incast};

use crate::topology::{Flow, Hooks, Kind, Link, Topology, run};
use crate::{Cc, Op, SimError};

/// What is to be found out.
#[derive(Debug, Clone)]
pub struct Fairness {
    /// Flows, each from a host of its own to the same receiver.
    pub flows: usize,
    /// What decides how fast each sends.
    pub cc: Cc,
    /// What each sends by.
    pub transport: Transport,
    /// Of every link, the bottleneck's among them: it is the one to the receiver.
    pub rate: u64,
    /// Of every link, one way.
    pub delay: Duration,
    /// How the switch's queues are run.
    pub policy: Policy,
    /// Path MTU.
    pub mtu: PathMtu,
    /// Bytes of a message, and how many are outstanding.
    pub size: u32,
    /// See above.
    pub depth: u32,
    /// What the flows do: WRITEs to the receiver, or READs from the senders, whose responses go the same way.
    pub read: bool,
    /// When the first flow starts.
    pub begin: Duration,
    /// Faults of the receiver's link: `ab` is what the receiver sends.
    pub faults: Spec,
    /// From the start of one flow to that of the next, and from the end of one to that of the next.
    pub apart: Duration,
    /// How long all are there together. The second half of it is what counts as settled.
    pub together: Duration,
    /// Rates and queue are looked at once in this time.
    pub every: Duration,
    /// Seed of everything random.
    pub seed: u64,
}

impl Fairness {
    /// As DCQCN's paper has it: 40 Gbit/s, marks from 5 to 200 KB with up to 1 %, packets of 1 KB.
    pub fn new(flows: usize, cc: Cc) -> Fairness {
        Fairness {
            flows,
            cc,
            transport: Transport::Rc,
            rate: 40_000_000_000,
            delay: Duration::from_micros(1),
            policy: Policy { limit: 4 << 20, red: Some(Red { min: 5_000, max: 200_000, chance: 0.01 }) },
            mtu: PathMtu::B1024,
            size: 64 << 10,
            depth: 16,
            read: false,
            begin: Duration::ZERO,
            faults: Spec::default(),
            apart: Duration::from_millis(10),
            together: Duration::from_millis(60),
            every: Duration::from_micros(500),
            seed: 1,
        }
    }

    fn topology(&self) -> Topology {
        let receiver = self.flows;
        let n = self.flows as u32;
        let first_leaves = self.begin + self.apart * n.saturating_sub(1) + self.together;
        let flow = |i: u32| {
            let sender = i as usize;
            // A READ is asked for by who gets the data.
            let (from, to, op) = match self.read {
                false => (sender, receiver, Op::Write),
                true => (receiver, sender, Op::Read),
            };
            Flow {
                from,
                to,
                transport: self.transport,
                scheme: None,
                chunk: None,
                op,
                size: self.size,
                count: 1 << 40,
                depth: self.depth,
                start: self.begin + self.apart * i,
                stop: Some(first_leaves + self.apart * i),
                cc: self.cc,
                dscp: 0,
                deadline: None,
                stride: 1,
            }
        };
        let star = Star { senders: self.flows, rate: self.rate, delay: self.delay, faults: &self.faults };
        Topology { policy: self.policy, mtu: self.mtu, flows: (0..n).map(flow).collect(), ..star.topology() }
    }

    /// When all flows are there and have had time to settle, until the first leaves.
    fn settled(&self) -> [Duration; 2] {
        let all_there = self.begin + self.apart * (self.flows as u32).saturating_sub(1);
        [all_there + self.together / 2, all_there + self.together]
    }

    /// Runs it; the same options give the same outcome.
    pub fn run(&self) -> Result<Outcome, SimError> {
        if self.flows == 0 || self.flows > 1000 {
            return Err(SimError::Options("the number of flows must be from 1 to 1000"));
        }
        let topology = self.topology();
        let mut samples = Vec::new();
        let mut observe = |sample| samples.push(sample);
        let hooks = Hooks { observe: Some((self.every, &mut observe)), ..Hooks::default() };
        let report = run(&topology, self.seed, hooks)?;
        // The port to the receiver, which is the last host.
        let bottleneck = report.ports.iter().position(|p| p.to == topology.hosts[self.flows]).unwrap_or(0);
        let (mut times, mut queue, mut rates) = (Vec::new(), Vec::new(), vec![Vec::new(); self.flows]);
        let mut before = vec![0; self.flows];
        let seconds = self.every.as_secs_f64();
        for sample in &samples {
            times.push(Duration::from_nanos(sample.at.instant().as_nanos()));
            queue.push(sample.queues[bottleneck]);
            for (i, rate) in rates.iter_mut().enumerate() {
                rate.push((sample.sent[i] - before[i]) as f64 * 8.0 / seconds / 1e9);
                before[i] = sample.sent[i];
            }
        }
        let [from, to] = self.settled();
        let settled: Vec<usize> = (0..times.len()).filter(|&s| times[s] > from && times[s] <= to).collect();
        let mean = |of: &[f64]| settled.iter().map(|&s| of[s]).sum::<f64>() / settled.len().max(1) as f64;
        let shares: Vec<f64> = rates.iter().map(|r| mean(r)).collect();
        let lengths: Vec<f64> = queue.iter().map(|&q| q as f64).collect();
        Ok(Outcome {
            jain: jain(&shares),
            utilization: shares.iter().sum::<f64>() * 1e9 / self.rate as f64,
            mean_queue: mean(&lengths),
            shares,
            times,
            rates,
            queue,
            max_queue: report.ports[bottleneck].stats.max_queue,
            marked: report.ports.iter().map(|p| p.stats.marked).sum(),
            dropped: report.ports.iter().map(|p| p.stats.dropped).sum(),
            retransmitted: report.retransmitted_packets,
            cnps_sent: report.cnps_sent,
            cnps_handled: report.cnps_handled,
            failed: report.flows.iter().map(|f| f.failed).sum(),
            digest: report.digest,
        })
    }
}

/// Senders with a link each to one switch, and one receiver, the last host.
struct Star<'f> {
    senders: usize,
    rate: u64,
    delay: Duration,
    /// Of the receiver's link.
    faults: &'f Spec,
}

impl Star<'_> {
    /// The network, without flows.
    fn topology(&self) -> Topology {
        let kind = Kind::Star { hosts: self.senders + 1 };
        let link = |(i, (a, b))| {
            let faults = if i == self.senders { self.faults.clone() } else { Spec::default() };
            Link { a, b, rate: self.rate, delay: self.delay, faults }
        };
        Topology {
            links: kind.links().into_iter().enumerate().map(link).collect(),
            payload: PayloadMode::Elided,
            ..Topology::new(kind)
        }
    }
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// When each sample was taken.
    pub times: Vec<Duration>,
    /// For each flow its rate before each sample, in Gbit/s, everything on the wire counted.
    pub rates: Vec<Vec<f64>>,
    /// Bytes that waited for the bottleneck at each sample.
    pub queue: Vec<u64>,
    /// Each flow's rate once settled, in Gbit/s.
    pub shares: Vec<f64>,
    /// Jain's index of these: 1 when all are equal, 1/n when one has all.
    pub jain: f64,
    /// Their sum, as a part of the bottleneck's rate; what is dropped at its queue is counted too.
    pub utilization: f64,
    /// Bytes that waited for the bottleneck once settled, on average.
    pub mean_queue: f64,
    /// The most that ever did.
    pub max_queue: u64,
    /// Frames that the switch marked.
    pub marked: u64,
    /// Frames that found a queue full.
    pub dropped: u64,
    /// Packets sent again.
    pub retransmitted: u64,
    /// Congestion notifications sent.
    pub cnps_sent: u64,
    /// Congestion notifications that were heeded.
    pub cnps_handled: u64,
    /// Work requests that failed.
    pub failed: u64,
    /// Hash of the run.
    pub digest: u64,
}

/// Jain's index of fairness: (Σ x)² / (n · Σ x²).
pub fn jain(shares: &[f64]) -> f64 {
    let (sum, squares) = shares.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    if squares > 0.0 { sum * sum / (shares.len() as f64 * squares) } else { 1.0 }
}
