//! Runs of reliable messages over SDR: the client posts WRITEs, the server receives, and a message is over when its scheme says so.
//!
//! Beside the reliable queue pair there is one of RC: it is used instead where the peer has no such messages, and the client measures by it the
//! round trip that both ends begin with.

mod client;
mod server;

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use softnic_fault_injector::{Direction, Spec};
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::{Data, SendFlags, SendOp, SendWr};
use softnic_runtime::api::sdr::{Fallback, ReliableQueuePair, SdrContext, SdrError, Shortfall};
use softnic_runtime::api::{MemoryRegion, PeerPath};
use softnic_wire::PathMtu;

use super::control::{Control, Hello};
use super::meeting::{self, cannot_meet};
use super::plan::{Plan, ReliablePlan};

use super::side::Side;

pub(crate) use client::{agree, run};
pub(crate) use server::{accept, serve};

/// Round trips that are measured; the shortest counts.
const ROUND_TRIPS: u32 = 20;

/// What both ends did to carry the messages of a size, those before that do not count included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ReliableOutcome {
    /// Bytes of a chunk.
    pub chunk: u32,
    /// Packets that were sent again.
    pub retransmitted_packets: u64,
    /// Chunks that were sent again because their time was over.
    pub chunk_timeouts: u64,
    /// Packets of parity.
    pub repair_packets: u64,
    /// Further rows of it that the receiver asked for.
    #[serde(default)]
    pub rows_asked_for: u64,
    /// Packets that did not come and were computed.
    pub recovered_packets: u64,
    /// Reports of what has come.
    pub acks_sent: u64,
    /// Reports of what is missing.
    pub nacks_sent: u64,
    /// Messages of which parity did not repair all.
    pub fallbacks: u64,
    /// The submessages of these that it did not.
    pub failed_submessages: u64,
    /// Submessages for whose parity there was no memory, at either end.
    pub unprotected: u64,
    /// Nanoseconds that computing lost chunks took.
    pub decode_ns: u64,
}

impl ReliableOutcome {
    /// What an end counted.
    fn of(qp: &ReliableQueuePair, chunk: u32) -> Result<ReliableOutcome, String> {
        let counters = qp.reliable_counters().map_err(|e| e.to_string())?;
        Ok(ReliableOutcome {
            chunk,
            retransmitted_packets: counters.packets_repeated,
            chunk_timeouts: counters.timeouts,
            repair_packets: counters.parity_packets,
            rows_asked_for: counters.rows_asked_for,
            recovered_packets: counters.packets_recovered,
            acks_sent: counters.acks_sent,
            nacks_sent: counters.nacks_sent,
            fallbacks: counters.fallbacks,
            failed_submessages: counters.failed_submessages,
            unprotected: counters.unprotected,
            decode_ns: counters.decode_ns,
        })
    }

    /// Of the sender's end, with what its receiver counted.
    fn with_receiver(self, receiver: &ReliableOutcome) -> ReliableOutcome {
        ReliableOutcome {
            recovered_packets: receiver.recovered_packets,
            acks_sent: receiver.acks_sent,
            nacks_sent: receiver.nacks_sent,
            fallbacks: receiver.fallbacks,
            failed_submessages: receiver.failed_submessages,
            unprotected: self.unprotected.saturating_add(receiver.unprotected),
            decode_ns: receiver.decode_ns,
            ..self
        }
    }
}

/// The reliable part of an end that has agreed with its peer.
pub(crate) struct Reliable {
    sdr: SdrContext,
    plan: ReliablePlan,
    path: PeerPath,
    memory: MemoryRegion,
    rtt: Duration,
    /// The queue pair of the first size: by that the two ends agreed.
    first: Option<ReliableQueuePair>,
}

impl Reliable {
    /// What it takes beside the queue pair of RC, which is connected.
    fn new(side: &Side, plan: ReliablePlan, peer: &Hello, rtt: Duration) -> Result<Reliable, String> {
        let sdr = SdrContext::new(&side.context).map_err(|e| e.to_string())?;
        let mut path = side.context.path_to(peer.address, 0).map_err(|e| e.to_string())?;
        path.attr.traffic_class = side.plan.tclass;
        let memory = sdr.pd().alloc_mr(side.plan.slots() * side.plan.slot_len(), Access::LOCAL_WRITE | Access::REMOTE);
        let memory = memory.map_err(|e| format!("cannot make a memory region: {e}"))?;
        Ok(Reliable { sdr, plan, path, memory, rtt, first: None })
    }

    /// Makes the queue pair of the first size, and connects it with the peer's. `false` where the peer's NIC declined.
    fn meet_first(&mut self, side: &Side, control: &mut Control) -> Result<bool, String> {
        let size = side.plan.sizes.first().copied().unwrap_or(1);
        let qp = self.queue_pair(&side.plan, size)?;
        match meeting::meet(&qp, &self.path, control, &side.context)? {
            Ok(()) => self.first = Some(qp),
            Err(SdrError::Declined(_)) => return Ok(false),
            Err(e) => return Err(cannot_meet(e)),
        }
        Ok(true)
    }

    /// A connected queue pair for messages of this size.
    fn connected(&mut self, side: &Side, size: u32, control: &mut Control) -> Result<ReliableQueuePair, String> {
        if let Some(first) = self.first.take() {
            return Ok(first);
        }
        let qp = self.queue_pair(&side.plan, size)?;
        meeting::meet(&qp, &self.path, control, &side.context)?.map_err(cannot_meet)?;
        Ok(qp)
    }

    /// What keeps messages from filling the line, if anything does and the faults say how fast that is.
    pub(crate) fn shortfall(&self, faults: Option<&Spec>, plan: &Plan) -> Option<Shortfall> {
        let [sent, _] = faults?.for_device().ok()?;
        let (rate, _) = sent.shape(Direction::Ab).bottleneck?;
        self.plan.shortfall(rate, plan.path_mtu(), self.rtt)
    }

    fn queue_pair(&self, plan: &Plan, size: u32) -> Result<ReliableQueuePair, String> {
        let attr = self.plan.attr(size, plan.posted_ahead(), plan.path_mtu(), self.rtt)?;
        self.sdr.create_reliable(&attr).map_err(|e| format!("cannot make a reliable queue pair: {e}"))
    }
}

/// Where a message is in memory.
fn place(plan: &Plan, number: u64) -> usize {
    number as usize % plan.slots() * plan.slot_len()
}

/// The shortest round trip of some WRITEs without bytes over the queue pair of RC.
fn round_trip(side: &Side, peer: &Hello) -> Result<Duration, String> {
    let (mut shortest, mut completions) = (Duration::MAX, Vec::new());
    for _ in 0..ROUND_TRIPS {
        let begin = Instant::now();
        let wr = SendWr {
            wr_id: 0,
            op: SendOp::Write { remote_addr: peer.memory, rkey: peer.rkey },
            data: Data::Gather(&[]),
            flags: SendFlags::default(),
            best_effort: None,
            to: None,
        };
        side.qps[0].post_send(&wr).map_err(|e| format!("cannot measure the round trip: {e}"))?;
        loop {
            side.poll(&mut completions)?;
            match completions.first() {
                None => std::thread::yield_now(),
                Some(completion) => {
                    side.finished(completion)?;
                    break;
                }
            }
        }
        shortest = shortest.min(begin.elapsed());
    }
    Ok(shortest)
}

/// How a run is called in a heading.
pub(crate) fn described(plan: &ReliablePlan, mtu: PathMtu) -> String {
    let ReliablePlan { scheme, channels, alpha, fallback, .. } = plan;
    let fallback = match fallback {
        Fallback::Missing => String::new(),
        other => format!(", fallback {other}"),
    };
    let plural = if *channels == 1 { "channel" } else { "channels" };
    format!("{scheme}, chunks of {}, {channels} {plural}, alpha {alpha}{fallback}", plan.chunk(mtu))
}
