//! Swarm testing: a seed makes a world and a workload, and everything that must hold is checked while it runs.
//!
//! Safety: memory is byte for byte what was sent, at the moment a completion says so; completions come once and in order;
//! nothing but the ranges of messages is touched. Liveness, apart from it: once faults stop, all work completes.

use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use softnic_fault_injector::random::Random;
use softnic_fault_injector::{Fault, Spec};
use softnic_nic::Buffer;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::{Caps, PayloadMode};
use softnic_nic::transports::wr::Data;
use softnic_nic::transports::{Completion, Counters, RecvWr, SendFlags, SendOp, SendWr, Sge, Status, WcOpcode};
use softnic_wire::{PathMtu, Psn, Qpn};

use crate::link::LinkConfig;
use crate::pair::{Pair, PairConfig, timeout_code};
use crate::time::Time;

/// What a seed came up with.
#[derive(Debug, Clone)]
pub struct World {
    /// The seed.
    pub seed: u64,
    mtu: PathMtu,
    rate: u64,
    rtt: Duration,
    faults: Spec,
    /// Faults stop then.
    faults_until: Duration,
    depth: u32,
    qps: usize,
    messages: u32,
    max_len: u32,
    first_psn: Option<Psn>,
    min_rnr_timer: u8,
    max_rd_atomic: u8,
    /// What the ACK timer allows for beside the round trip: on slow links all retries would be over before an answer can
    /// come, on fast ones it may do without.
    patience: Duration,
    /// Receives are posted late with this chance at each look.
    lazy_receiver: f64,
}

/// What went wrong, and in which world.
#[derive(Debug)]
pub struct Broken {
    world: World,
    at: Time,
    what: String,
    /// What the two NICs had counted by then.
    counters: [Counters; 2],
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} at {} ps: {}\n{:#?}", self.world.seed, self.at.0, self.what, self.world)?;
        write!(f, "{:?}\n{:?}", self.counters[0], self.counters[1])
    }
}

/// What a seed that went well did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passed {
    /// Messages delivered.
    pub messages: u64,
    /// Packets sent again.
    pub retransmitted: u64,
    /// RNR NAKs received.
    pub rnr_naks: u64,
    /// Hash of the run.
    pub digest: u64,
}

const BUFFER: usize = 3 << 20;
const GUARD: usize = 16;
/// Where atomics work, in each buffer.
const COUNTER: usize = 8;
const UNTOUCHED: u8 = 0xa5;
/// Far beyond what any of these worlds takes: a run that gets here hangs.
const MAX_EVENTS: u64 = 20_000_000;

impl World {
    /// The world of a seed.
    pub fn new(seed: u64) -> World {
        let mut r = Random::stream(seed, 50);
        let mtu = PathMtu::ALL[r.below(5) as usize];
        let rtt = Duration::from_nanos([2_000, 10_000, 100_000, 2_000_000][r.below(4) as usize] + r.below(1000));
        // Near the wrap half of the time.
        let first_psn = r.chance(0.5).then(|| Psn::MAX.sub(r.below(300) as u32));
        let rate = [100_000_000, 1_000_000_000, 10_000_000_000, 400_000_000_000][r.below(4) as usize];
        let loss = [0.0, 0.001, 0.01, 0.03, 0.06][r.below(5) as usize];
        // Beside loss, each of the others in some of the worlds.
        let mut others = Random::stream(seed, 52);
        let mut pick = || if others.chance(0.3) { [0.001, 0.01, 0.05][others.below(3) as usize] } else { 0.0 };
        let mut faults = vec![Fault::Loss(loss), Fault::Duplicate(pick()), Fault::Corrupt(pick())];
        faults.push(Fault::Reorder { chance: pick(), behind: 1 + r.below(6) as u32 });
        let queued = Duration::from_nanos(300 * 8_000_000_000_000 / rate);
        World {
            seed,
            mtu,
            rate,
            rtt,
            faults: Spec { faults, ..Spec::default() },
            faults_until: rtt * (20 + r.below(2000) as u32),
            depth: 1 + r.below(24) as u32,
            qps: 1 + r.below(3) as usize,
            messages: 1 + r.below(60) as u32,
            max_len: [1, 64, mtu.bytes() * 2 + 1, 20_000][r.below(4) as usize],
            first_psn,
            min_rnr_timer: 1 + r.below(12) as u8,
            max_rd_atomic: 1 + r.below(8) as u8,
            patience: if rate < 10_000_000_000 || r.chance(0.5) { queued } else { Duration::ZERO },
            lazy_receiver: [0.0, 0.5, 0.95][r.below(3) as usize],
        }
    }
}

/// A message from posting to completion.
struct Message {
    op: SendOp,
    data: Vec<u8>,
    /// Where a WRITE goes, a SEND went, or a READ comes from, in the receiver's buffer.
    target: Option<usize>,
    /// Where the bytes come from, or a READ or atomic puts them, in the sender's buffer; inline messages have none.
    local: Vec<(usize, usize)>,
    signaled: bool,
}

/// One direction of one connection.
struct Flow {
    from: usize,
    qpns: [Qpn; 2],
    keys: [u32; 2],
    buffers: [Rc<Buffer>; 2],
    /// Next free byte on each side.
    used: [usize; 2],
    messages: Vec<Message>,
    /// Messages that use up a receive, in order.
    receiving: VecDeque<usize>,
    /// What atomics have made of the receiver's counter, if all posted so far are carried out once and in order.
    counter: u64,
    /// Posted receives: their ranges.
    receives: VecDeque<(u64, usize, usize)>,
    next_receive: u64,
    /// All before this one are known to be complete at the sender.
    completed: usize,
    received: u64,
}

/// Runs the world of a seed to its end.
pub fn run_seed(seed: u64) -> Result<Passed, Box<Broken>> {
    let mut swarm = Swarm::new(World::new(seed));
    let outcome = swarm.run();
    let counters = [0, 1].map(|host| *swarm.pair.sim.node(host).counters());
    let at = swarm.pair.sim.now();
    outcome.map_err(|what| Box::new(Broken { world: swarm.world, at, what, counters }))
}

struct Swarm {
    world: World,
    pair: Pair<'static>,
    flows: Vec<Flow>,
    random: Random,
}

impl Swarm {
    fn new(world: World) -> Swarm {
        let mut pair = Pair::new(PairConfig {
            link: LinkConfig { rate: world.rate, delay: world.rtt / 2, faults: world.faults.clone() },
            payload: PayloadMode::Real,
            mtu: world.mtu,
            timeout: timeout_code(world.rtt * 4 + world.patience),
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: world.min_rnr_timer,
            max_rd_atomic: world.max_rd_atomic,
            caps: Caps {
                max_send_wr: world.depth,
                max_recv_wr: 16,
                max_send_sge: 16,
                max_recv_sge: 16,
                max_inline: 64,
            },
            cq_capacity: 1024,
            seed: world.seed,
            first_psn: world.first_psn,
        });
        let mut flows = Vec::new();
        for _ in 0..world.qps {
            let qpns = pair.connect().unwrap_or_default();
            for from in [0, 1] {
                let mut keys = [0; 2];
                let buffers = [0, 1].map(|host| {
                    let base = 0x1_0000_0000 * (1 + flows.len() as u64 * 2 + host as u64);
                    let buffer = Buffer::new(base, BUFFER);
                    buffer.write_at(0, &vec![UNTOUCHED; BUFFER]);
                    buffer.write_at(COUNTER, &[0; 8]);
                    let remote = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
                    let access = Access::LOCAL_WRITE | remote;
                    keys[host] = pair.sim.node(host).reg_mr(pair.sides[host].pd, &buffer, access).unwrap_or(0);
                    buffer
                });
                flows.push(Flow {
                    from,
                    qpns,
                    keys,
                    buffers,
                    used: [COUNTER + 8; 2],
                    counter: 0,
                    messages: Vec::new(),
                    receiving: VecDeque::new(),
                    receives: VecDeque::new(),
                    next_receive: 0,
                    completed: 0,
                    received: 0,
                });
            }
        }
        let random = Random::stream(world.seed, 51);
        Swarm { world, pair, flows, random }
    }

    fn run(&mut self) -> Result<Passed, String> {
        let (mut faults, mut quiet) = (true, 0);
        self.post_everything()?;
        for _ in 0..MAX_EVENTS {
            if faults && self.pair.sim.now() > Time(0).after(self.world.faults_until) {
                faults = false;
                self.pair.sim.set_faults_enabled(false);
            }
            let stepped = self.pair.sim.step();
            for host in [0, 1] {
                self.collect(host)?;
            }
            self.post_everything()?;
            if self.flows.iter().all(|f| self.is_done(f)) {
                return self.finish();
            }
            quiet = if stepped.is_some() { 0 } else { quiet + 1 };
            match quiet {
                0 => {}
                // What was written without a doorbell needs one now.
                1..100 => self.ring_all(),
                _ => return Err(format!("liveness: nothing more happens, and {}", self.progress())),
            }
        }
        Err(format!("liveness: {MAX_EVENTS} events, and {}", self.progress()))
    }

    fn progress(&self) -> String {
        let each = self.flows.iter().map(|f| format!("{} of {}", f.completed, f.messages.len()));
        format!("completed: {}", each.collect::<Vec<_>>().join(", "))
    }

    /// Unsignaled messages at the end never complete by themselves, so a flow's last message is signaled.
    fn is_done(&self, f: &Flow) -> bool {
        f.messages.len() == self.world.messages as usize && f.completed == f.messages.len() && f.receiving.is_empty()
    }

    // ---- posting ----

    fn post_everything(&mut self) -> Result<(), String> {
        for i in 0..self.flows.len() {
            if !self.random.chance(self.world.lazy_receiver) {
                self.post_receive(i)?;
            }
            let flow = &self.flows[i];
            let outstanding = flow.messages.len() - flow.completed;
            if flow.messages.len() < self.world.messages as usize && outstanding < self.world.depth as usize {
                self.post_message(i)?;
            }
        }
        Ok(())
    }

    /// Room for `len` bytes on a side, with untouched bytes before and behind.
    fn room(flow: &mut Flow, host: usize, len: usize) -> Result<usize, String> {
        let at = flow.used[host] + GUARD;
        flow.used[host] = at + len;
        if at + len + GUARD > BUFFER { Err("the test's buffer is too small".into()) } else { Ok(at) }
    }

    fn post_receive(&mut self, i: usize) -> Result<(), String> {
        let (max_len, flow) = (self.world.max_len as usize, &mut self.flows[i]);
        let to = 1 - flow.from;
        // Only as many as will be used, so that the end is quiet; the receive queue holds 16.
        if flow.receives.len() >= 16 || flow.next_receive >= flow.received + flow.receiving.len() as u64 {
            return Ok(());
        }
        let at = Self::room(flow, to, max_len)?;
        let pieces = cut(&mut self.random, max_len, 16);
        let mut next = flow.buffers[to].addr() + at as u64;
        let sges: Vec<Sge> = pieces
            .iter()
            .map(|&len| {
                let addr = next;
                next += len as u64;
                Sge { addr, len: len as u32, lkey: flow.keys[to] }
            })
            .collect();
        let wr_id = ((i as u64) << 32) | flow.next_receive;
        flow.receives.push_back((wr_id, at, max_len));
        flow.next_receive += 1;
        let qpn = flow.qpns[to];
        let posted = self.pair.sim.node(to).post_recv(qpn, &RecvWr { wr_id, sges: &sges, deadline: None });
        posted.map_err(|e| format!("post_recv: {e}"))
    }

    fn post_message(&mut self, i: usize) -> Result<(), String> {
        let r = &mut self.random;
        let flow = &mut self.flows[i];
        let (from, to) = (flow.from, 1 - flow.from);
        let len = r.below(u64::from(self.world.max_len) + 1) as usize;
        let mut data: Vec<u8> = (0..len).map(|_| r.next_u32() as u8).collect();
        let kind = r.below(7);
        let target = if (2..=4).contains(&kind) { Some(Self::room(flow, to, len)?) } else { None };
        let remote_addr = flow.buffers[to].addr() + target.unwrap_or(0) as u64;
        let (rkey, imm) = (flow.keys[to], r.next_u32());
        let op = match kind {
            0 => SendOp::Send,
            1 => SendOp::SendImm { imm },
            2 => SendOp::Write { remote_addr, rkey },
            3 => SendOp::WriteImm { remote_addr, rkey, imm },
            4 => {
                flow.buffers[to].write_at(target.unwrap_or(0), &data);
                SendOp::Read { remote_addr, rkey }
            }
            _ => {
                data = flow.counter.to_ne_bytes().to_vec();
                let remote_addr = flow.buffers[to].addr() + COUNTER as u64;
                let (add, swap) = (r.next_u64(), r.next_u64());
                if kind == 5 {
                    flow.counter = flow.counter.wrapping_add(add);
                    SendOp::FetchAdd { remote_addr, rkey, add }
                } else {
                    let hit = r.chance(0.7);
                    let compare = flow.counter ^ u64::from(!hit);
                    flow.counter = if hit { swap } else { flow.counter };
                    SendOp::CompareSwap { remote_addr, rkey, compare, swap }
                }
            }
        };
        let (len, takes_data) = (data.len(), kind >= 4);
        let last = flow.messages.len() + 1 == self.world.messages as usize;
        let full = flow.messages.len() - flow.completed + 1 == self.world.depth as usize;
        let signaled = last || full || r.chance(0.7);
        let mut local = Vec::new();
        let inline = len <= 64 && r.chance(0.5) && !takes_data;
        if !inline {
            let mut rest = &data[..];
            for n in cut(r, len, 16) {
                let at = Self::room(flow, from, n)?;
                if !takes_data {
                    flow.buffers[from].write_at(at, &rest[..n]);
                }
                rest = &rest[n..];
                local.push((at, n));
            }
        }
        let base = flow.buffers[from].addr();
        let sges: Vec<Sge> =
            local.iter().map(|&(at, n)| Sge { addr: base + at as u64, len: n as u32, lkey: flow.keys[from] }).collect();
        let wr = SendWr {
            wr_id: ((i as u64) << 32) | flow.messages.len() as u64,
            op,
            data: if inline { Data::Inline(&data) } else { Data::Gather(&sges) },
            flags: SendFlags { signaled, solicited: r.chance(0.2), fence: r.chance(0.2) },
            deadline: None,
            to: None,
        };
        let qpn = flow.qpns[from];
        if matches!(op, SendOp::Send | SendOp::SendImm { .. } | SendOp::WriteImm { .. }) {
            flow.receiving.push_back(flow.messages.len());
        }
        let written = self.pair.sim.node(from).write_send(qpn, &wr);
        written.map_err(|e| format!("post_send: {e}"))?;
        flow.messages.push(Message { op, data, target, local, signaled });
        // Several work requests may share a doorbell; the last must have one.
        if last || full || self.random.chance(0.6) {
            let now = self.pair.sim.now().instant();
            self.pair.sim.node(from).ring_doorbell(now, qpn);
            self.pair.sim.touch(from);
        }
        Ok(())
    }

    fn ring_all(&mut self) {
        let now = self.pair.sim.now().instant();
        for i in 0..self.flows.len() {
            let Flow { from, qpns, .. } = self.flows[i];
            self.pair.sim.node(from).ring_doorbell(now, qpns[from]);
            self.pair.sim.touch(from);
        }
    }

    // ---- completions ----

    fn collect(&mut self, host: usize) -> Result<(), String> {
        let side = self.pair.sides[host];
        while let Some(c) = self.pair.sim.node(host).poll_cq(side.recv_cq).map_err(|e| e.to_string())? {
            self.on_receive(host, c)?;
        }
        while let Some(c) = self.pair.sim.node(host).poll_cq(side.send_cq).map_err(|e| e.to_string())? {
            self.on_send(host, c)?;
        }
        Ok(())
    }

    fn flow_of(&mut self, wr_id: u64) -> Result<&mut Flow, String> {
        self.flows.get_mut((wr_id >> 32) as usize).ok_or_else(|| format!("completion of an unknown wr_id {wr_id:#x}"))
    }

    fn on_send(&mut self, host: usize, c: Completion) -> Result<(), String> {
        let flow = self.flow_of(c.wr_id)?;
        let index = (c.wr_id & 0xffff_ffff) as usize;
        if c.status != Status::Success {
            return Err(format!("message {index} failed: {}", c.status));
        }
        if host != flow.from || index < flow.completed {
            return Err(format!("message {index} completed twice, or at the wrong host"));
        }
        for i in flow.completed..=index {
            let m = flow.messages.get(i).ok_or("completion of a message that was not posted")?;
            if m.signaled != (i == index) {
                return Err(format!("message {i}: its completion is missing, or was not asked for"));
            }
            if let (Some(at), SendOp::Write { .. } | SendOp::WriteImm { .. }) = (m.target, m.op) {
                expect_bytes(&flow.buffers[1 - flow.from], at, &m.data, "a completed WRITE")?;
            }
            if matches!(m.op, SendOp::Read { .. } | SendOp::FetchAdd { .. } | SendOp::CompareSwap { .. }) {
                let mut rest = &m.data[..];
                for &(at, n) in &m.local {
                    expect_bytes(&flow.buffers[flow.from], at, &rest[..n], "what a READ or atomic brought")?;
                    rest = &rest[n..];
                }
            }
            // From now on the bytes are the program's again: what is sent of them later would be wrong.
            for &(at, n) in &m.local {
                flow.buffers[flow.from].write_at(at, &vec![0xee; n]);
            }
        }
        flow.completed = index + 1;
        Ok(())
    }

    fn on_receive(&mut self, host: usize, c: Completion) -> Result<(), String> {
        let flow = self.flow_of(c.wr_id)?;
        if c.status != Status::Success || host == flow.from {
            return Err(format!("receive {:#x}: {}", c.wr_id, c.status));
        }
        let (wr_id, at, capacity) = flow.receives.pop_front().ok_or("a receive completed that was not posted")?;
        let index = flow.receiving.pop_front().ok_or("a receive completed without a message for it")?;
        flow.received += 1;
        let m = &mut flow.messages[index];
        let (opcode, imm) = match m.op {
            SendOp::Send => (WcOpcode::Recv, None),
            SendOp::SendImm { imm } => (WcOpcode::Recv, Some(imm)),
            SendOp::WriteImm { imm, .. } => (WcOpcode::RecvWriteImm, Some(imm)),
            _ => return Err(format!("{:?} used up a receive", m.op)),
        };
        let expected = (wr_id, opcode, m.data.len() as u32, imm);
        if (c.wr_id, c.opcode, c.byte_len, c.imm) != expected {
            return Err(format!("receive completion {c:?}, expected {expected:?}"));
        }
        match (opcode, m.target) {
            (WcOpcode::RecvWriteImm, Some(target)) => {
                expect_bytes(&flow.buffers[host], target, &m.data, "a WRITE with immediate")?;
                expect_bytes(
                    &flow.buffers[host],
                    at,
                    &vec![UNTOUCHED; capacity],
                    "the receive of a WRITE with immediate",
                )
            }
            _ => {
                m.target = Some(at);
                expect_bytes(&flow.buffers[host], at, &m.data, "a received SEND")
            }
        }
    }

    /// When all is done: every byte of every receiver is what messages put there, or untouched.
    fn finish(&mut self) -> Result<Passed, String> {
        let mut messages = 0;
        for flow in &self.flows {
            let to = 1 - flow.from;
            let mut expected = vec![UNTOUCHED; BUFFER];
            for m in &flow.messages {
                if let Some(at) = m.target {
                    expected[at..at + m.data.len()].copy_from_slice(&m.data);
                }
            }
            expected[COUNTER..COUNTER + 8].copy_from_slice(&flow.counter.to_ne_bytes());
            expect_bytes(&flow.buffers[to], 0, &expected, "the receiver's whole memory")?;
            messages += flow.messages.len() as u64;
        }
        let counters = [0, 1].map(|host| *self.pair.sim.node(host).counters());
        Ok(Passed {
            messages,
            retransmitted: counters.iter().map(|c| c.retransmitted_packets).sum(),
            rnr_naks: counters.iter().map(|c| c.rnr_naks_received).sum(),
            digest: self.pair.sim.digest(),
        })
    }
}

fn expect_bytes(buffer: &Buffer, at: usize, expected: &[u8], what: &str) -> Result<(), String> {
    let mut found = vec![0; expected.len()];
    buffer.read_at(at, &mut found);
    match found.iter().zip(expected).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(i) => Err(format!("safety: {what}: byte {i} at {at:#x} is {:#04x}, not {:#04x}", found[i], expected[i])),
    }
}

/// Cuts `len` bytes into one to `most` pieces, some of them empty.
fn cut(r: &mut Random, len: usize, most: u64) -> Vec<usize> {
    let mut rest = len;
    let mut pieces: Vec<usize> = (0..r.below(most))
        .map(|_| {
            let n = r.below(rest as u64 + 1) as usize;
            rest -= n;
            n
        })
        .collect();
    pieces.push(rest);
    pieces
}
