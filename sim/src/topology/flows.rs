//! Runs the flows of a topology to their end.

use std::sync::Arc;
use std::time::Duration;

use softnic_fault_injector::random::Random;
use softnic_nic::Buffer;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::PayloadMode;
use softnic_nic::transports::wr::Data;
use softnic_nic::transports::{Completion, RecvWr, SendFlags, SendOp, SendWr, Sge, Status};
use softnic_wire::Qpn;

use super::report::{FlowReport, PortReport, TopologyReport};
use super::world::World;
use super::{Flow, Topology};
use crate::report::CompletionTimes;
use crate::time::Time;
use crate::workload::{Op, SimError};

/// Where the memory of the two sides begins; every flow has its own.
const ADDRESS: [u64; 2] = [0x10_0000_0000, 0x1000_0000_0000];
/// Addresses between two flows: more than either side has.
const APART: u64 = 1 << 31;
/// Payload that a flow keeps on each side, if a message is not larger; with more outstanding, messages share memory.
const MAX_BUFFER: u64 = 8 << 20;

/// A flow under way.
struct Running {
    flow: Flow,
    start: Time,
    qpns: [Qpn; 2],
    keys: [u32; 2],
    base: [u64; 2],
    buffers: Option<[Arc<Buffer>; 2]>,
    /// Messages that the buffers hold.
    slots: u64,
    posted: u64,
    outstanding: u32,
    posted_at: Vec<u64>,
    receives: u64,
    done: u64,
    failed: u64,
    first_failure: Option<Status>,
    last: u64,
    times: CompletionTimes,
}

/// How things stand at a point in time.
#[derive(Debug, Clone)]
pub struct Sample {
    /// When.
    pub at: Time,
    /// Bytes that each host has sent so far, everything on the wire counted.
    pub sent: Vec<u64>,
    /// Bytes that wait before each port of the switches, in the order of [`TopologyReport::ports`].
    pub queues: Vec<u64>,
}

/// Runs to the end; the same topology and seed give the same run. `progress` is told now and then how many work requests are done.
pub fn run(topology: &Topology, seed: u64, progress: &mut dyn FnMut(u64)) -> Result<TopologyReport, SimError> {
    run_with(topology, seed, progress, None)
}

/// The same, and `observe` is shown how things stand once in each `every`; it changes nothing.
pub fn run_observed(
    topology: &Topology,
    seed: u64,
    every: Duration,
    observe: &mut dyn FnMut(Sample),
) -> Result<TopologyReport, SimError> {
    run_with(topology, seed, &mut |_| {}, Some((every.max(Duration::from_nanos(1)), observe)))
}

/// How often somebody wants to see how things stand.
type Observer<'o> = Option<(Duration, &'o mut dyn FnMut(Sample))>;

fn run_with(
    topology: &Topology,
    seed: u64,
    progress: &mut dyn FnMut(u64),
    observer: Observer<'_>,
) -> Result<TopologyReport, SimError> {
    let mut world = World::new(topology, seed);
    let mut flows = Vec::new();
    let mut fill = Random::stream(seed, 4);
    for (i, flow) in topology.flows.iter().enumerate() {
        flows.push(Running::new(&mut world, flow, i as u64, &mut fill)?);
    }
    let mut of_host = vec![Vec::new(); topology.hosts.len()];
    for (i, flow) in topology.flows.iter().enumerate() {
        of_host[flow.from].push(i);
    }
    let mut run = Run { world, flows, of_host, all: CompletionTimes::default(), stalled: false };
    run.drive(progress, observer);
    run.verify()?;
    Ok(run.report())
}

impl Running {
    fn new(world: &mut World<'_>, flow: &Flow, i: u64, fill: &mut Random) -> Result<Running, SimError> {
        let size = u64::from(flow.size).max(1);
        let slots = (MAX_BUFFER / size).clamp(1, u64::from(flow.depth));
        let base = ADDRESS.map(|a| a + i * APART);
        let bytes = (size * slots) as usize;
        let real = world.topology.payload == PayloadMode::Real;
        let buffers = real.then(|| base.map(|b| Buffer::new(b, bytes)));
        if let (Some([from, to]), op) = (&buffers, flow.op) {
            match op {
                Op::Write | Op::Send => fill_randomly(from, fill),
                Op::Read => fill_randomly(to, fill),
                Op::Atomic => {}
            }
        }
        let remote = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let access = Access::LOCAL_WRITE | remote;
        let mut keys = [0; 2];
        for (side, host) in [flow.from, flow.to].into_iter().enumerate() {
            let pd = world.sides[host].pd;
            let nic = world.sim.nic(host);
            keys[side] = match &buffers {
                Some(b) => nic.reg_mr(pd, &b[side], access)?,
                None => nic.alloc_null_mr(pd, access)?,
            };
        }
        Ok(Running {
            qpns: world.connect(flow)?,
            flow: flow.clone(),
            start: Time::default().after(flow.start),
            keys,
            base,
            buffers,
            slots,
            posted: 0,
            outstanding: 0,
            posted_at: vec![0; flow.depth as usize],
            receives: 0,
            done: 0,
            failed: 0,
            first_failure: None,
            last: 0,
            times: CompletionTimes::default(),
        })
    }

    fn offset(&self, n: u64) -> u64 {
        n % self.slots * u64::from(self.flow.size)
    }
}

struct Run<'t> {
    world: World<'t>,
    flows: Vec<Running>,
    /// Which of them each host is the requester of.
    of_host: Vec<Vec<usize>>,
    all: CompletionTimes,
    stalled: bool,
}

impl Run<'_> {
    fn drive(&mut self, progress: &mut dyn FnMut(u64), mut observer: Observer<'_>) {
        for i in 0..self.flows.len() {
            for _ in 0..self.flows[i].flow.depth * 2 {
                self.post_receive(i);
            }
            let (start, from) = (self.flows[i].start, self.flows[i].flow.from);
            self.world.sim.wake_at(start, from);
            if let Some(stop) = self.flows[i].flow.stop {
                self.world.sim.wake_at(Time::default().after(stop), from);
            }
        }
        let mut total: u64 = self.flows.iter().map(|f| f.flow.count).sum();
        let hosts = self.world.sides.len();
        let mut next_look = observer.as_ref().map(|(every, _)| Time::default().after(*every));
        if let Some(at) = next_look {
            self.world.sim.wake_at(at, 0);
        }
        let (mut ended, mut events) = (0, 0u64);
        while ended < total {
            let Some(node) = self.world.sim.step() else {
                self.stalled = true;
                break;
            };
            if let (Some((every, observe)), Some(at)) = (&mut observer, next_look)
                && self.world.sim.now() >= at
            {
                observe(self.sample(at));
                next_look = Some(at.after(*every));
                self.world.sim.wake_at(at.after(*every), 0);
            }
            if node < hosts {
                total -= self.stop_flows(node);
                ended += self.collect(node);
            }
            events += 1;
            if events.is_multiple_of(1 << 16) {
                progress(ended);
            }
        }
        progress(ended);
    }

    fn sample(&mut self, at: Time) -> Sample {
        let hosts = 0..self.world.sides.len();
        let sent = hosts.map(|h| self.world.uplink(h).map_or(0, |l| self.world.sim.link_stats(l).wire_bytes)).collect();
        let ports = self.world.ports.clone().into_iter();
        let queues = ports.map(|p| self.world.switch(p.switch).map_or(0, |s| s.queued(p.port))).collect();
        Sample { at, sent, queues }
    }

    /// The flows of a host whose time is over post nothing more; how many work requests will not be posted.
    fn stop_flows(&mut self, host: usize) -> u64 {
        let now = self.world.sim.now();
        let mut left_out = 0;
        for &i in &self.of_host[host] {
            let f = &mut self.flows[i];
            if f.flow.stop.is_some_and(|stop| Time::default().after(stop) <= now) {
                left_out += f.flow.count - f.posted;
                f.flow.count = f.posted;
            }
        }
        left_out
    }

    /// Takes what completed at a host, posts as much again, and what is to start now. How many ended.
    fn collect(&mut self, host: usize) -> u64 {
        let side = self.world.sides[host];
        let mut ended = 0;
        loop {
            let mut more = false;
            while let Some(c) = self.world.sim.nic(host).poll_cq(side.send_cq).ok().flatten() {
                self.count(c);
                (more, ended) = (true, ended + 1);
            }
            // On a queue pair in error each post ends at once.
            if !self.post_sends(host) && !more {
                break;
            }
        }
        while let Some(c) = self.world.sim.nic(host).poll_cq(side.recv_cq).ok().flatten() {
            if c.status == Status::Success {
                self.post_receive(c.wr_id as usize);
            }
        }
        ended
    }

    /// Tops up the flows of a host that have begun, in turn; whether there was anything to post.
    fn post_sends(&mut self, host: usize) -> bool {
        let (now, mut any, mut posted) = (self.world.sim.now(), true, false);
        while any {
            any = false;
            for at in 0..self.of_host[host].len() {
                let i = self.of_host[host][at];
                let f = &self.flows[i];
                if f.start <= now && f.posted < f.flow.count && f.outstanding < f.flow.depth {
                    any |= self.post_send(i);
                }
            }
            posted |= any;
        }
        if posted {
            self.world.sim.touch(host);
        }
        posted
    }

    fn post_send(&mut self, i: usize) -> bool {
        let now = self.world.sim.now().instant();
        let f = &mut self.flows[i];
        let (offset, slot) = (f.offset(f.posted), f.posted % u64::from(f.flow.depth));
        let sges = [Sge { addr: f.base[0] + offset, len: f.flow.size, lkey: f.keys[0] }];
        let (remote_addr, rkey) = (f.base[1] + offset, f.keys[1]);
        let op = match f.flow.op {
            Op::Write => SendOp::Write { remote_addr, rkey },
            Op::Send => SendOp::Send,
            Op::Read => SendOp::Read { remote_addr, rkey },
            Op::Atomic => SendOp::FetchAdd { remote_addr, rkey, add: 1 },
        };
        let wr = SendWr {
            wr_id: (i as u64) << 40 | slot,
            op,
            data: Data::Gather(&sges),
            flags: SendFlags { signaled: true, solicited: false, fence: false },
            deadline: None,
            to: None,
        };
        let (host, qpn) = (f.flow.from, f.qpns[0]);
        if self.world.sim.nic(host).post_send(now, qpn, &wr).is_err() {
            return false;
        }
        let f = &mut self.flows[i];
        f.posted_at[slot as usize] = now.as_nanos();
        f.posted += 1;
        f.outstanding += 1;
        true
    }

    fn post_receive(&mut self, i: usize) {
        let f = &mut self.flows[i];
        if f.flow.op != Op::Send {
            return;
        }
        let sges = [Sge { addr: f.base[1] + f.offset(f.receives), len: f.flow.size, lkey: f.keys[1] }];
        f.receives += 1;
        let wr = RecvWr { wr_id: i as u64, sges: &sges, deadline: None };
        let (host, qpn) = (f.flow.to, f.qpns[1]);
        // The queue holds as many as are ever posted; on a queue pair in error they are flushed.
        let _ = self.world.sim.nic(host).post_recv(qpn, &wr);
    }

    fn count(&mut self, c: Completion) {
        let now = self.world.sim.now().instant().as_nanos();
        self.world.sim.record(c.wr_id ^ (now << 20) ^ ((c.status as u64) << 60));
        let f = &mut self.flows[(c.wr_id >> 40) as usize];
        f.outstanding -= 1;
        f.last = now;
        if c.status == Status::Success {
            f.done += 1;
            let took = now - f.posted_at[(c.wr_id & 0xff_ffff_ffff) as usize];
            f.times.record(took);
            self.all.record(took);
        } else {
            f.failed += 1;
            f.first_failure.get_or_insert(c.status);
        }
    }

    /// The receivers' memory must be what was sent, of every flow that came to its end.
    fn verify(&self) -> Result<(), SimError> {
        for (qp, f) in self.flows.iter().enumerate().filter(|(_, f)| f.done == f.flow.count) {
            let Some([from, to]) = &f.buffers else { continue };
            let size = f.flow.size as usize;
            let mut bytes = [vec![0; size], vec![0; size]];
            for slot in 0..f.slots.min(f.posted) {
                let at = f.offset(slot) as usize;
                from.read_at(at, &mut bytes[0]);
                to.read_at(at, &mut bytes[1]);
                if f.flow.op == Op::Atomic {
                    // Each slot was added to once for each work request on it.
                    bytes[0].copy_from_slice(&((f.posted - 1 - slot) / f.slots + 1).to_ne_bytes());
                }
                if bytes[0] != bytes[1] {
                    return Err(SimError::Data { qp, slot: slot as usize });
                }
            }
        }
        Ok(())
    }

    fn report(mut self) -> TopologyReport {
        let begin = self.flows.iter().map(|f| f.start.instant().as_nanos()).min().unwrap_or(0);
        let end = self.flows.iter().map(|f| f.last).max().unwrap_or(begin).max(begin);
        let per_second = |bits: f64, ns: u64| if ns > 0 { bits / (ns as f64 / 1e9) } else { 0.0 };
        let bits = |f: &Running| f.done as f64 * f64::from(f.flow.size) * 8.0;
        let flows = self.flows.iter().map(|f| {
            let took = f.last.saturating_sub(f.start.instant().as_nanos());
            FlowReport {
                goodput_gbps: per_second(bits(f), took) / 1e9,
                completion_times: f.times.clone(),
                completed: f.done,
                failed: f.failed,
                first_failure: f.first_failure,
                duration_ms: took as f64 / 1e6,
            }
        });
        let flows = flows.collect();
        let goodput_gbps = per_second(self.flows.iter().map(bits).sum(), end - begin) / 1e9;
        let t = self.world.topology;
        let (mut tx_packets, mut retransmitted_packets, mut marks_received, mut discarded) = (0, 0, 0, 0);
        let (mut cnps_sent, mut cnps_handled) = (0, 0);
        for host in 0..t.hosts.len() {
            let c = *self.world.sim.nic(host).counters();
            tx_packets += c.sent_requests + c.retransmitted_packets;
            retransmitted_packets += c.retransmitted_packets;
            marks_received += c.np_ecn_marked_roce_packets;
            cnps_sent += c.np_cnp_sent;
            cnps_handled += c.rp_cnp_handled;
        }
        for switch in 0..t.switches.len() {
            let Some(c) = self.world.switch(switch).map(|s| s.counters()) else { continue };
            discarded += c.filtered + c.unroutable + c.hops_exceeded + c.no_buffer;
        }
        let mut ports = Vec::new();
        for p in self.world.ports.clone() {
            let link = self.world.sim.link_stats(p.link);
            let stats = self.world.switch(p.switch).map(|s| s.port_stats(p.port)).unwrap_or_default();
            ports.push(PortReport {
                switch: t.switches[p.switch].clone(),
                port: p.port,
                to: t.name(p.to).to_owned(),
                stats,
                utilization: per_second(link.wire_bytes as f64 * 8.0, end - begin) / p.rate as f64,
                lost: link.lost,
            });
        }
        let all_lost: u64 = (0..2 * t.links.len()).map(|l| self.world.sim.link_stats(l).lost).sum();
        let lost_before_switches = all_lost - ports.iter().map(|p| p.lost).sum::<u64>();
        TopologyReport {
            flows,
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
            virtual_ms: (end - begin) as f64 / 1e6,
            digest: self.world.sim.digest(),
        }
    }
}

fn fill_randomly(buffer: &Buffer, random: &mut Random) {
    for at in (0..buffer.len()).step_by(8) {
        let bytes = random.next_u64().to_le_bytes();
        buffer.write_at(at, &bytes[..8.min(buffer.len() - at)]);
    }
}
