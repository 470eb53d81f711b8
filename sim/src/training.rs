//! Data-parallel training on two hosts: steps of compute, and an all-reduce of the gradients by a ring, while a NIC fails (SHIFT, §5.2).
//!
//! Gradients go as NCCL's Simple protocol has it: WRITEs, and a WRITE with immediate behind which the peer looks at them. In a ring of two
//! each host sends half of them twice: to be added up, and added up.

mod other_traffic;

use std::sync::Arc;
use std::time::Duration;

use softnic_fault_injector::Spec;
use softnic_nic::Buffer;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::Caps;
use softnic_nic::transports::{Data, PostError, RecvWr, SendFlags, SendOp, SendWr, Sge, Status};
use softnic_shift::{FailoverCounters, Times};
use softnic_wire::{PathMtu, Qpn};

use crate::dual_pair::{DualPair, DualPairConfig};
use crate::link::LinkConfig;
use crate::pair::{A, B};
use crate::{Outage, SimError, Time, Transport};
use other_traffic::OtherTraffic;

/// A job.
#[derive(Debug, Clone)]
pub struct Training {
    /// Steps to do.
    pub steps: u64,
    /// The compute of a step.
    pub compute: Duration,
    /// Bytes that a step reduces: a multiple of two chunks.
    pub gradients: u32,
    /// Bytes of a WRITE.
    pub chunk: u32,
    /// Bits a second of each link, of the default NICs and of the backups.
    pub rate: u64,
    /// Round trip of each.
    pub rtt: Duration,
    /// Local ACK timeout code; there are seven retries.
    pub timeout: u8,
    /// What the hosts have beside their NICs.
    pub backup: TrainingBackup,
    /// Time between two probes, and until a fence of our own.
    pub probe: Duration,
    /// The default NIC of a host fails.
    pub outage: Option<Outage>,
    /// Seed of keys and PSNs: nothing else is random.
    pub seed: u64,
}

/// The second NICs of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrainingBackup {
    /// There are none.
    None,
    /// They have nothing else to do.
    Idle,
    /// Something else sends by them all the time, as much as it can, from the host whose NIC fails to the other.
    Busy,
}

/// What became of a job.
#[derive(Debug, Clone, Default)]
pub struct Trained {
    /// When each step was done at both hosts, from the beginning of the job.
    pub steps: Vec<Duration>,
    /// When the first error was seen: that is the end of the job.
    pub failed: Option<Duration>,
    /// What failover did at the host whose NIC fails.
    pub failover: Option<FailoverCounters>,
    /// Chunks that were not what the peer had sent.
    pub wrong: u64,
}

/// Receives that wait for the peer.
const RECEIVES: u64 = 4;
/// Exchanges of a step: to add up, and added up.
const EXCHANGES: u64 = 2;

/// One host's part. What it counts are exchanges, from the beginning of the job.
struct Rank {
    buffer: Arc<Buffer>,
    key: u32,
    qpn: Qpn,
    /// Receives that were posted, and exchanges of the peer that have come.
    posted: u64,
    received: u64,
    /// Exchanges that were sent, chunks of the next one, and exchanges that have completed.
    sent: u64,
    chunk: u32,
    completed: u64,
    /// When the compute of this step ends.
    computed: Time,
}

impl Rank {
    /// Steps that are done.
    fn steps(&self) -> u64 {
        self.received.min(self.completed) / EXCHANGES
    }

    /// Whether the next exchange may be sent: gradients are there when they are computed, their sum when the peer's have come.
    fn may_send(&self, now: Time, steps: u64) -> bool {
        match self.sent % EXCHANGES {
            0 => self.sent / EXCHANGES == self.steps() && self.steps() < steps && now >= self.computed,
            _ => self.received >= self.sent,
        }
    }
}

/// What a host's gradients are in a step, in a few bytes.
fn gradient(step: u64, host: usize) -> u64 {
    (step + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(host as u32 * 17) ^ host as u64
}

struct Job<'t> {
    training: &'t Training,
    pair: DualPair<'static>,
    ranks: [Rank; 2],
    other: Option<OtherTraffic>,
    began: Time,
    trained: Trained,
}

/// Trains until all steps are done, or an error is seen.
///
/// # Errors
/// When the hosts cannot be made so, or the job stands still.
pub fn train(training: &Training) -> Result<Trained, SimError> {
    let mut job = Job::new(training)?;
    let mut changes: Vec<(Time, bool)> = match training.outage {
        None => Vec::new(),
        Some(Outage { from, lasts, .. }) => {
            vec![(job.began.after(from.saturating_add(lasts)), true), (job.began.after(from), false)]
        }
    };
    let failing = training.outage.map_or(A, |outage| outage.host);
    for &(at, _) in &changes {
        job.pair.sim.wake_at(at, failing);
    }
    for host in [A, B] {
        job.compute(host);
    }
    while job.trained.failed.is_none() && job.trained.steps.len() < training.steps as usize {
        let node = job.pair.sim.step().ok_or(SimError::Options("the job stands still"))?;
        while changes.last().is_some_and(|&(at, _)| at <= job.pair.sim.now())
            && let Some((_, up)) = changes.pop()
        {
            job.pair.sim.nic(failing).set_link(up);
            job.pair.sim.touch(failing);
        }
        job.pair.attend(node);
        job.advance(node)?;
    }
    job.trained.failover = job.pair.host(failing).failover_counters().cloned();
    Ok(job.trained)
}

impl<'t> Job<'t> {
    fn new(training: &'t Training) -> Result<Job<'t>, SimError> {
        if training.chunk < 8 || training.gradients == 0 || !training.gradients.is_multiple_of(2 * training.chunk) {
            return Err(SimError::Options(
                "gradients are whole chunks of 8 bytes or more, the same number in each half",
            ));
        }
        let chunks = training.gradients / 2 / training.chunk;
        let protected = training.backup != TrainingBackup::None;
        let mut pair = DualPair::new(DualPairConfig {
            transport: Transport::Rc,
            link: LinkConfig { rate: training.rate, delay: training.rtt / 2, faults: Spec::default() },
            backup: protected.then(Spec::default),
            mtu: PathMtu::B4096,
            timeout: training.timeout,
            retry_cnt: 7,
            rnr_retry: 7,
            caps: Caps {
                max_send_wr: 2 * chunks,
                max_recv_wr: RECEIVES as u32,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline: 0,
            },
            sig_all: false,
            cq_capacity: 2 * chunks as usize + RECEIVES as usize,
            times: Times { probe: training.probe, fence: training.probe, ..Times::default() },
            seed: training.seed,
        });
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        // Of each exchange, what goes out and what comes in.
        let len = EXCHANGES as usize * training.gradients as usize;
        let buffers = [A, B].map(|host| Buffer::new(0x1000_0000 * (1 + host as u64), len));
        let (a, b) = (pair.reg_mr(A, &buffers[A], access)?, pair.reg_mr(B, &buffers[B], access)?);
        let qpns = pair.connect()?;
        if protected && !pair.protect(qpns) {
            return Err(SimError::Options("the hosts do not meet by their backups"));
        }
        let other = match training.backup {
            TrainingBackup::Busy => {
                Some(OtherTraffic::start(&mut pair, training.outage.map_or(A, |outage| outage.host))?)
            }
            _ => None,
        };
        let began = pair.sim.now();
        let [first, second] = buffers;
        let rank = |host: usize, buffer, key| Rank {
            buffer,
            key,
            qpn: qpns[host],
            posted: 0,
            received: 0,
            sent: 0,
            chunk: 0,
            completed: 0,
            computed: began,
        };
        let ranks = [rank(A, first, a), rank(B, second, b)];
        Ok(Job { training, pair, ranks, other, began, trained: Trained::default() })
    }

    fn now(&self) -> Duration {
        self.pair.sim.now().instant() - self.began.instant()
    }

    /// The compute of the next step begins.
    fn compute(&mut self, host: usize) {
        let end = self.pair.sim.now().after(self.training.compute);
        self.ranks[host].computed = end;
        self.pair.sim.wake_at(end, host);
    }

    /// A host looks at what has completed, and does what it can.
    fn advance(&mut self, host: usize) -> Result<(), SimError> {
        if let Some(other) = &mut self.other {
            other.advance(&mut self.pair, host)?;
        }
        let steps = self.ranks[host].steps();
        let cqs = [self.pair.sides[host].send_cq, self.pair.sides[host].recv_cq];
        for (place, cq) in cqs.into_iter().enumerate() {
            while let Ok(Some(completion)) = self.pair.host(host).poll_cq(cq) {
                if completion.status != Status::Success {
                    let now = self.now();
                    self.trained.failed.get_or_insert(now);
                    return Ok(());
                }
                match place {
                    0 => self.ranks[host].completed += 1,
                    _ => self.look_at(host),
                }
            }
        }
        if self.ranks[host].steps() > steps {
            self.compute(host);
            let both = self.ranks[A].steps().min(self.ranks[B].steps());
            if both > self.trained.steps.len() as u64 {
                let now = self.now();
                self.trained.steps.push(now);
            }
        }
        while self.ranks[host].posted < self.ranks[host].received + RECEIVES {
            let rank = &self.ranks[host];
            let wr = RecvWr { wr_id: rank.posted, sges: &[], best_effort: None };
            let qpn = rank.qpn;
            let posted = self.pair.host(host).post_recv(qpn, &wr);
            if !self.is_taken(posted) {
                break;
            }
            self.ranks[host].posted += 1;
        }
        while self.ranks[host].may_send(self.pair.sim.now(), self.training.steps) && self.send(host) {}
        self.pair.sim.touch(host);
        Ok(())
    }

    /// Where a chunk of an exchange is in the buffers: what goes out, and what comes in.
    fn places(&self, exchange: u64, chunk: u32) -> [usize; 2] {
        let half = self.training.gradients as usize / 2;
        let out = (exchange % EXCHANGES) as usize * 2 * half + chunk as usize * self.training.chunk as usize;
        [out, out + half]
    }

    fn chunks(&self) -> u32 {
        self.training.gradients / 2 / self.training.chunk
    }

    /// What a host sends in an exchange: its gradients, or the sum of both.
    fn content(exchange: u64, host: usize) -> u64 {
        let step = exchange / EXCHANGES;
        match exchange % EXCHANGES {
            0 => gradient(step, host),
            _ => gradient(step, A).wrapping_add(gradient(step, B)),
        }
    }

    /// An exchange of the peer has come: is it what the peer sent?
    fn look_at(&mut self, host: usize) {
        let exchange = self.ranks[host].received;
        for chunk in 0..self.chunks() {
            let mut bytes = [0; 8];
            self.ranks[host].buffer.read_at(self.places(exchange, chunk)[1], &mut bytes);
            self.trained.wrong += u64::from(u64::from_le_bytes(bytes) != Self::content(exchange, 1 - host));
        }
        self.ranks[host].received += 1;
    }

    /// Whether work was taken. A queue pair that has just halted takes none until it is known what becomes of it; one that has failed ends the
    /// job.
    fn is_taken(&mut self, posted: Result<(), PostError>) -> bool {
        if posted.is_err_and(|error| error != PostError::QueueFull) {
            let now = self.now();
            self.trained.failed.get_or_insert(now);
        }
        posted.is_ok()
    }

    /// Sends an exchange: WRITEs, of which the last has an immediate, and is the one that is signaled. Whether all of it was taken.
    fn send(&mut self, host: usize) -> bool {
        let (exchange, now) = (self.ranks[host].sent, self.pair.sim.now().instant());
        let (rkey, remote) = (self.ranks[1 - host].key, self.ranks[1 - host].buffer.addr());
        for chunk in self.ranks[host].chunk..self.chunks() {
            let [out, into] = self.places(exchange, chunk);
            let rank = &self.ranks[host];
            rank.buffer.write_at(out, &Self::content(exchange, host).to_le_bytes());
            let remote_addr = remote + into as u64;
            let last = chunk + 1 == self.chunks();
            let op = match last {
                true => SendOp::WriteImm { remote_addr, rkey, imm: exchange as u32 },
                false => SendOp::Write { remote_addr, rkey },
            };
            let sges = [Sge { addr: rank.buffer.addr() + out as u64, len: self.training.chunk, lkey: rank.key }];
            let flags = SendFlags { signaled: last, ..SendFlags::default() };
            let wr = SendWr { wr_id: exchange, op, data: Data::Gather(&sges), flags, best_effort: None, to: None };
            let qpn = rank.qpn;
            let posted = self.pair.host(host).post_send(now, qpn, &wr);
            if !self.is_taken(posted) {
                self.ranks[host].chunk = chunk;
                return false;
            }
        }
        self.ranks[host].sent += 1;
        self.ranks[host].chunk = 0;
        true
    }
}
