//! Swarm testing: a seed makes a world and a workload, and everything that must hold is checked while it runs.
//!
//! Safety: memory is byte for byte what was sent, at the moment a completion says so; completions come once and in order,
//! with their events; nothing but the ranges of messages is touched; a key that was taken away gives no access. What is not
//! reliable brings each message whole or not at all. Liveness, apart from it: once faults stop, all work completes.

mod completions;
mod congestion;
mod ground;
mod lives;
mod lowar;
mod receiving;
mod selective;
mod sending;
mod setup;
mod windows;
mod world;

use std::collections::VecDeque;
use std::fmt;

use ground::{AreaId, Ground};
use lowar::Changing;
use receiving::Queue;
use sending::Message;
use softnic_fault_injector::random::Random;
use softnic_nic::transports::{AhId, Counters, CqId, Transport};
use softnic_nic::{Notify, QpKind};
use softnic_sim::Time;
use softnic_sim::pair::Pair;
use softnic_trace::Trace;
use softnic_wire::Qpn;
use windows::Window;
pub use world::World;

/// What went wrong, and in which world.
#[derive(Debug)]
pub struct Broken {
    world: World,
    at: Time,
    what: String,
    /// What the NICs had counted by then.
    counters: Vec<Counters>,
}

impl Broken {
    /// What went wrong, in a line.
    pub fn what(&self) -> &str {
        &self.what
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seed = self.world.seed;
        writeln!(f, "seed {seed} at {} ps: {}\n{:#?}", self.at.0, self.what, self.world)?;
        self.counters.iter().try_for_each(|counters| writeln!(f, "{counters:?}"))?;
        write!(f, "again: SOFTNIC_SEED={seed} cargo test --release -p softnic-swarm --test swarm")
    }
}

/// What a seed that went well did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Passed {
    /// Work requests completed well.
    pub messages: u64,
    /// Work requests that failed as they had to.
    pub failed: u64,
    /// Messages that unreliable connections brought.
    pub uc: u64,
    /// Ends of connections whose requests went by Selective Repeat.
    pub selective: u64,
    /// Ends of connections with LoWAR below them.
    pub lowar: u64,
    /// Those that offered one of them in vain.
    pub fallen_back: u64,
    /// Bytes of credit that were granted.
    pub credited: u64,
    /// Packets that LoWAR recovered.
    pub recovered: u64,
    /// Blocks that it could not repair.
    pub failed_blocks: u64,
    /// Blocks that it had no unit for.
    pub unprotected_blocks: u64,
    /// Packets of its reordering ring that others overran.
    pub overrun: u64,
    /// READs of memory that changed while they were under way.
    pub changing: u64,
    /// Datagrams received.
    pub ud: u64,
    /// Windows bound or taken away.
    pub windows: u64,
    /// Connections that ran out of retries at a full queue.
    pub gave_up: u64,
    /// Times that all connections were made anew.
    pub revived: u64,
    /// Send queues drained.
    pub drained: u64,
    /// Limits of shared receive queues reached.
    pub srq_limits: u64,
    /// Completion events.
    pub completion_events: u64,
    /// Packets sent again.
    pub retransmitted: u64,
    /// RNR NAKs received.
    pub rnr_naks: u64,
    /// Messages for memory that ended a byte too early.
    pub beyond: u64,
    /// NICs of both hosts; those of a host are behind one port.
    pub nics: usize,
    /// Frames between NICs behind one port.
    pub local: u64,
    /// Frames to groups that NICs behind a shared port got.
    pub to_members: u64,
    /// Links between the two hosts.
    pub hops: usize,
    /// Over IPv6.
    pub ipv6: bool,
    /// Frames that links lost.
    pub lost: u64,
    /// Those among them that found a queue full.
    pub tail_dropped: u64,
    /// Frames that were marked.
    pub marked: u64,
    /// Congestion notifications sent, and heeded.
    pub cnps: u64,
    /// See above.
    pub cnps_heeded: u64,
    /// Hash of the run.
    pub digest: u64,
}

/// Far beyond what any of these worlds takes: a run that gets here hangs.
const MAX_EVENTS: u64 = 20_000_000;

/// Where a send queue stands with draining.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Drain {
    No,
    /// The event is awaited.
    Asked,
    /// The event came; so many looks later it goes on.
    Done(u32),
}

/// A queue pair: what it sends, and what it knows of what it was sent.
struct Qp {
    kind: QpKind,
    offers: Transport,
    /// It offers its peer credit.
    credit: bool,
    /// The number of its NIC, which is that of its host where each host has one NIC.
    host: usize,
    qpn: Qpn,
    /// The other end; a datagram queue pair has itself.
    peer: usize,
    ground: usize,
    queue: usize,
    send_cq: CqId,
    /// What the peer's atomics make of the counter here, if all posted so far are carried out once and in order.
    counter: u64,
    counter_area: AreaId,
    messages: Vec<Message>,
    /// All before this one are known to be complete.
    completed: usize,
    /// The peer's messages that use up a receive here, in order, for reliable connections.
    receiving: VecDeque<usize>,
    /// The last message of the peer that came, for unreliable ones.
    last: Option<usize>,
    drain: Drain,
    /// Somebody used a key that is good for nothing: the connection will stop.
    dying: bool,
    /// Because one of the two ends ran out of retries.
    gave_up: bool,
    /// Where the messages of this life begin, and whether it is not the first.
    life_start: usize,
    reborn: bool,
    /// A send failed: all behind it are flushed.
    failed: bool,
    dead: bool,
}

/// A completion queue, and whether its events are used.
struct Cq {
    /// The number of its NIC.
    host: usize,
    id: CqId,
    armed: Option<Notify>,
    event: bool,
}

struct Swarm {
    world: World,
    pair: Pair<'static>,
    random: Random,
    /// What has to do with Selective Repeat is drawn from here.
    sr_random: Random,
    /// The same for LoWAR.
    lowar_random: Random,
    /// READs under way whose memory changes.
    changing: Vec<Changing>,
    /// And from here what has to do with congestion control.
    cc_random: Random,
    /// And with credit.
    credit_random: Random,
    qps: Vec<Qp>,
    grounds: Vec<Ground>,
    queues: Vec<Queue>,
    cqs: Vec<Cq>,
    windows: Vec<Window>,
    /// From here which of the NICs behind a port has a queue pair.
    sharing_random: Random,
    /// Address handles of each NIC: of both hosts, then of the groups.
    ahs: Vec<Vec<AhId>>,
    /// Queue pairs in each group.
    members: [Vec<usize>; 2],
    /// Counted from 1.
    life: u32,
    done: Passed,
}

/// Runs the world of a seed to its end.
pub fn run_seed(seed: u64) -> Result<Passed, Box<Broken>> {
    run_seed_watched(seed, None)
}

/// The same, and all that happens at its hosts, `a` and `b`, is in the trace; but for a host of several NICs.
pub fn run_seed_watched(seed: u64, trace: Option<&Trace>) -> Result<Passed, Box<Broken>> {
    let world = World::new(seed);
    let broken = |world, at, what, counters| Box::new(Broken { world, at, what, counters });
    let mut swarm = Swarm::new(world.clone()).map_err(|what| broken(world, Time::default(), what, Vec::new()))?;
    if let Some(trace) = trace {
        for (host, name) in ["a", "b"].into_iter().enumerate() {
            swarm.pair.sim.watch(host, trace.observer(name, 0));
        }
    }
    let outcome = swarm.run();
    let counters = swarm.counters();
    let at = swarm.pair.sim.now();
    outcome.map_err(|what| broken(swarm.world, at, what, counters))
}

impl Swarm {
    fn run(&mut self) -> Result<Passed, String> {
        let (mut faults, mut quiet) = (true, 0);
        for _ in 0..MAX_EVENTS {
            let hurry = quiet > 0;
            self.collect(hurry)?;
            self.drain(hurry)?;
            self.post_receives(hurry)?;
            self.post_sends()?;
            self.change_memory();
            if faults && self.pair.sim.now() > Time(0).after(self.world.faults_until) {
                faults = false;
                self.pair.sim.set_faults_enabled(false);
            }
            let stepped = self.pair.sim.step().is_some();
            quiet = if stepped { 0 } else { quiet + 1 };
            match quiet {
                // What is on the way still comes, and may be seen late; then nothing more happens.
                2.. if self.qps.iter().all(|qp| self.is_done(qp)) => {
                    if self.life == self.world.lives {
                        return self.finish();
                    }
                    self.revive()?;
                    quiet = 0;
                }
                0 => {}
                // What was written without a doorbell needs one now.
                1..100 => (0..self.qps.len()).for_each(|q| self.ring(q)),
                _ => return Err(format!("liveness: nothing more happens, and {}", self.progress())),
            }
        }
        Err(format!("liveness: {MAX_EVENTS} events, and {}", self.progress()))
    }

    fn counters(&mut self) -> Vec<Counters> {
        (0..self.pair.nics()).map(|nic| *self.pair.nic(nic).counters()).collect()
    }

    fn progress(&self) -> String {
        let each = self.qps.iter().map(|qp| {
            let Qp { kind, host, qpn, completed, drain, dying, .. } = qp;
            let (posted, waiting) = (qp.messages.len(), qp.receiving.len());
            let oldest = qp.messages.get(*completed).map(|m| m.op);
            format!("{kind:?} {qpn:?} of host {host}: {completed} of {posted} completed, next {oldest:?}, {waiting} to be received, drain {drain:?}, dying {dying}")
        });
        each.collect::<Vec<_>>().join("; ")
    }

    /// Unsignaled messages at the end never complete by themselves, so a queue pair's last message is signaled.
    fn is_done(&self, qp: &Qp) -> bool {
        let posted = qp.dead || qp.messages.len() == self.total();
        let received = qp.dead || qp.receiving.is_empty();
        posted && received && qp.completed == qp.messages.len() && qp.drain == Drain::No
    }

    /// When all is done: every byte is what messages put there, or untouched.
    fn finish(&mut self) -> Result<Passed, String> {
        self.check_choices()?;
        self.check_credit()?;
        if self.world.is_perfect() {
            self.check_all_arrived()?;
        }
        self.settle_receives();
        self.forget_counters();
        for ground in &mut self.grounds {
            ground.check()?;
        }
        self.check_none_lost()?;
        self.check_all_given_back()?;
        let counters = self.counters();
        let [a, b] = [0, 1].map(|host| self.pair.shared_port(host));
        let links: Vec<_> = (0..self.pair.sim.links()).map(|link| self.pair.sim.link_stats(link)).collect();
        Ok(Passed {
            nics: self.pair.nics(),
            local: a.local + b.local,
            to_members: a.to_members + b.to_members,
            hops: self.world.network.between.hops(),
            ipv6: self.world.network.ipv6,
            lost: links.iter().map(|l| l.lost).sum(),
            tail_dropped: links.iter().map(|l| l.tail_dropped).sum(),
            marked: links.iter().map(|l| l.marked).sum(),
            cnps: counters.iter().map(|c| c.np_cnp_sent).sum(),
            cnps_heeded: counters.iter().map(|c| c.rp_cnp_handled).sum(),
            retransmitted: counters.iter().map(|c| c.retransmitted_packets).sum(),
            rnr_naks: counters.iter().map(|c| c.rnr_naks_received).sum(),
            recovered: counters.iter().map(|c| c.lowar_recovered_packets).sum(),
            failed_blocks: counters.iter().map(|c| c.lowar_failed_blocks).sum(),
            unprotected_blocks: counters.iter().map(|c| c.lowar_unprotected_blocks).sum(),
            overrun: counters.iter().map(|c| c.lowar_ring_overruns).sum(),
            digest: self.pair.sim.digest(),
            ..self.done
        })
    }
}
