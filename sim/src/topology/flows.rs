//! Runs the flows and groups of a topology to their end.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use softnic_fault_injector::random::Random;
use softnic_nic::transports::Status;
use softnic_wire::mad::vendor::Extensions;

use super::Topology;
use super::background::Traffic;
use super::hooks::{Capture, Hooks, Sample};
use super::report::TopologyReport;
use super::running::Running;
use super::world::World;
use crate::Time;
use crate::report::CompletionTimes;
use crate::workload::SimError;

/// Runs to the end; the same topology and seed give the same run.
pub fn run(topology: &Topology, seed: u64, hooks: Hooks<'_>) -> Result<TopologyReport, SimError> {
    let Hooks { mut progress, stop, observe, capture, host, switch } = hooks;
    if topology.work().next().is_none() && topology.background_end().is_none() {
        return Err(SimError::Options("without flows every background needs a stop: such a run has no end"));
    }
    let world = World::new(topology, seed, host, switch);
    let mut run = Run::new(world, seed)?;
    let written = capture.map(|capture| run.capture(capture)).transpose()?;
    let is_written = || written.as_ref().is_none_or(|written| written.borrow().is_ok());
    let mut progress = |done| {
        if let Some(tell) = &mut progress {
            tell(done);
        }
        is_written() && !stop.is_some_and(|stop| stop())
    };
    let outcome = run.drive(&mut progress, observe).and_then(|()| run.flows.iter().try_for_each(Running::verify));
    let report = outcome.map(|()| run.report());
    if let Some(written) = written {
        written.replace(Ok(())).map_err(SimError::Capture)?;
    }
    report
}

/// How often somebody wants to see how things stand.
type Observer<'o> = Option<(Duration, &'o mut dyn FnMut(Sample))>;

pub(super) struct Run<'t> {
    pub(super) world: World<'t>,
    /// Flows, then groups.
    pub(super) flows: Vec<Running>,
    /// Which of them each host is the requester of.
    of_host: Vec<Vec<usize>>,
    /// Flows of reliable messages over SDR to each host.
    reliable_to: Vec<Vec<usize>>,
    pub(super) background: Traffic<'t>,
    /// When the background is over, where there are no flows to wait for.
    until: Option<Time>,
    /// When a work request ended last, or the last flow starts; and how long the next one may take then.
    progress: Time,
    patience: Duration,
    /// Route changes that have happened.
    changes: usize,
    /// Work requests of all flows, and those of them that have ended.
    total: u64,
    ended: u64,
    /// Completion times of all flows.
    pub(super) all: CompletionTimes,
    pub(super) stalled: bool,
    pub(super) interrupted: bool,
}

impl<'t> Run<'t> {
    /// The flows and groups of the world's topology, connected.
    pub(super) fn new(mut world: World<'t>, seed: u64) -> Result<Run<'t>, SimError> {
        let topology = world.topology;
        let mut flows = Vec::new();
        let mut fill = Random::stream(seed, 4);
        let mut of_host = vec![Vec::new(); topology.hosts.len()];
        for (i, work) in topology.work().enumerate() {
            flows.push(Running::new(&mut world, work, i, &mut fill)?);
            of_host[work.0.from].push(i);
        }
        let mut reliable_to = vec![Vec::new(); topology.hosts.len()];
        for (i, flow) in topology.flows.iter().enumerate().filter(|(_, flow)| flow.scheme.is_some()) {
            reliable_to[flow.to].push(i);
        }
        let total = flows.iter().map(|f| f.flow.count).sum();
        let background = Traffic::new(&mut world, seed)?;
        let until = if flows.is_empty() { topology.background_end() } else { None };
        let progress = flows.iter().map(|f| f.start).max().unwrap_or_default();
        let patience = world.patience();
        Ok(Run {
            world,
            flows,
            of_host,
            reliable_to,
            background,
            until: until.map(|until| Time::default().after(until)),
            progress,
            patience,
            changes: 0,
            total,
            ended: 0,
            all: CompletionTimes::default(),
            stalled: false,
            interrupted: false,
        })
    }

    /// Writes a capture from now on; where an error is left, after which nothing is written.
    pub(super) fn capture<'c: 't>(&mut self, capture: Capture<'c>) -> Result<Rc<RefCell<io::Result<()>>>, SimError> {
        let written = Rc::new(RefCell::new(Ok(())));
        let tap = capture.start(self.world.topology, Rc::clone(&written)).map_err(SimError::Capture)?;
        self.world.sim.set_tap(tap);
        Ok(written)
    }

    /// Steps until all work is done. `go_on` is told how many work requests have ended, and whether to go on.
    fn drive(&mut self, go_on: &mut dyn FnMut(u64) -> bool, mut observer: Observer<'_>) -> Result<(), SimError> {
        self.begin();
        let mut next_look = observer.as_mut().map(|(every, _)| {
            *every = (*every).max(Duration::from_nanos(1));
            Time::default().after(*every)
        });
        if let Some(at) = next_look {
            self.world.sim.wake_at(at, 0);
        }
        let (mut events, mut last_arrival) = (0u64, None);
        while !self.is_done() || self.may_arrive(&mut last_arrival) {
            let Some(node) = self.world.sim.step() else {
                self.stalled = !self.is_done();
                break;
            };
            self.change_routes();
            if let (Some((every, observe)), Some(at)) = (&mut observer, next_look)
                && self.world.sim.now() >= at
            {
                observe(self.sample(at));
                next_look = Some(at.after(*every));
                self.world.sim.wake_at(at.after(*every), 0);
            }
            self.attend(node)?;
            events += 1;
            if events.is_multiple_of(1 << 16) && !go_on(self.ended) {
                self.interrupted = true;
                return Ok(());
            }
        }
        go_on(self.ended);
        Ok(())
    }

    /// Receives are posted, and what happens at a known time is noted.
    pub(super) fn begin(&mut self) {
        for i in 0..self.flows.len() {
            for receiver in 0..self.flows[i].receivers.len() {
                let ahead = if self.flows[i].posts_receives_along() { 0 } else { self.flows[i].flow.depth * 2 };
                (0..ahead).for_each(|_| self.post_receive(i, receiver));
            }
            let (start, from) = (self.flows[i].start, self.flows[i].flow.from);
            self.world.sim.wake_at(start, from);
            if let Some(stop) = self.flows[i].flow.stop {
                self.world.sim.wake_at(Time::default().after(stop), from);
            }
        }
        self.negotiate();
        self.background.begin(&mut self.world);
        if let Some(until) = self.until {
            self.world.sim.wake_at(until, 0);
        }
        let hosts = self.world.sides.len();
        for change in &self.world.topology.changes {
            self.world.sim.wake_at(Time::default().after(change.at), hosts + change.switch);
        }
    }

    /// Goes to the next event and does what flows have to do then; the Node that it happened to.
    pub(super) fn step(&mut self) -> Result<Option<usize>, SimError> {
        let Some(node) = self.world.sim.step() else { return Ok(None) };
        self.change_routes();
        self.attend(node)?;
        Ok(Some(node))
    }

    /// Whether all work requests of all flows have ended; without flows, whether the background has.
    pub(super) fn is_done(&self) -> bool {
        self.ended >= self.total && self.until.is_none_or(|until| self.world.sim.now() >= until)
    }

    fn change_routes(&mut self) {
        let topology = self.world.topology;
        while let Some(change) = topology.changes.get(self.changes)
            && Time::default().after(change.at) <= self.world.sim.now()
        {
            self.world.change_route(change);
            self.changes += 1;
        }
    }

    /// Something happened to a Node.
    fn attend(&mut self, node: usize) -> Result<(), SimError> {
        if node < self.world.sides.len() {
            self.total -= self.stop_flows(node);
            let ended = self.collect_sends(node)?;
            self.ended += ended;
            self.collect_receives(node)?;
            let now = self.world.sim.now();
            if ended > 0 {
                self.progress = self.progress.max(now);
            } else if self.ended < self.total && now > self.progress.after(self.patience) {
                // Flows that stand still are found by nothing more happening.
                self.background.silence();
            }
            self.background.attend(&mut self.world, node);
        }
        Ok(())
    }

    /// Transports that the peer has to agree to are agreed on from the beginning, whenever their flows start.
    fn negotiate(&mut self) {
        for f in self.flows.iter().filter(|f| f.flow.transport.extension() != Extensions::NONE) {
            self.world.sim.touch(f.flow.from);
            self.world.sim.touch(f.flow.to);
        }
    }

    /// Whether something may still arrive that nobody acknowledges, now that all is sent. `until` is set by the first call.
    fn may_arrive(&self, until: &mut Option<Time>) -> bool {
        let now = self.world.sim.now();
        let until = *until.get_or_insert_with(|| {
            let wait = self.flows.iter().filter(|f| f.is_under_way()).map(Running::longest_wait).max();
            now.after(self.world.longest_round_trip().saturating_add(wait.unwrap_or_default()))
        });
        now < until && self.flows.iter().any(Running::is_under_way)
    }

    /// How things stand.
    pub(super) fn sample(&mut self, at: Time) -> Sample {
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

    /// Takes what completed at a requester, posts as much again, and what is to start now. How many ended.
    fn collect_sends(&mut self, host: usize) -> Result<u64, SimError> {
        let cq = self.world.sides[host].send_cq;
        let now = self.world.sim.now().instant().as_nanos();
        let mut ended = 0;
        loop {
            let mut more = false;
            while let Some(c) = self.world.sim.nic(host).poll_cq(cq).ok().flatten() {
                self.world.sim.record(c.wr_id ^ (now << 20) ^ ((c.status as u64) << 60));
                let took = self.flows[(c.wr_id >> 40) as usize].count_send(c, now)?;
                took.into_iter().for_each(|took| self.all.record(took));
                (more, ended) = (true, ended + 1);
            }
            for &i in &self.of_host[host] {
                while let Some((id, took)) = self.flows[i].take_written(self.world.sim.nic(host), now) {
                    self.world.sim.record((i as u64) << 40 ^ id ^ (now << 20));
                    took.into_iter().for_each(|took| self.all.record(took));
                    (more, ended) = (true, ended + 1);
                }
            }
            // On a queue pair in error each post ends at once.
            if !self.post_sends(host) && !more {
                return Ok(ended);
            }
        }
    }

    /// Takes what a receiver got, and posts as many receives again.
    fn collect_receives(&mut self, host: usize) -> Result<(), SimError> {
        let cq = self.world.sides[host].recv_cq;
        let now = self.world.sim.now().instant().as_nanos();
        while let Some(c) = self.world.sim.nic(host).poll_cq(cq).ok().flatten() {
            let i = (c.wr_id >> 40) as usize;
            let reliable = self.flows[i].flow.transport.is_reliable();
            if !reliable {
                self.world.sim.record(c.wr_id ^ (now << 20) ^ ((c.status as u64) << 60));
            }
            if c.status != Status::Success {
                continue;
            }
            if !reliable {
                let took = self.flows[i].count_delivery(c, now)?;
                took.into_iter().for_each(|took| self.all.record(took));
            }
            if !self.flows[i].posts_receives_along() {
                self.post_receive(i, self.flows[i].receiver_at(host));
            }
        }
        for at in 0..self.reliable_to[host].len() {
            let i = self.reliable_to[host][at];
            let nic = self.world.sim.nic(host);
            let over = self.flows[i].reliable.as_ref().map_or(0, |reliable| reliable.take_received(nic));
            (0..over).for_each(|_| self.post_receive(i, 0));
        }
        Ok(())
    }

    /// Tops up the flows of a host that have begun, in turn; whether there was anything to post.
    fn post_sends(&mut self, host: usize) -> bool {
        let (now, mut any, mut posted) = (self.world.sim.now(), true, false);
        while any {
            any = false;
            for at in 0..self.of_host[host].len() {
                let i = self.of_host[host][at];
                if self.flows[i].is_due(now) {
                    if self.flows[i].posts_receives_along() {
                        self.post_receive(i, 0);
                    }
                    any |= self.flows[i].post_send(self.world.sim.nic(host), now.instant());
                }
            }
            posted |= any;
        }
        if posted {
            self.world.sim.touch(host);
        }
        posted
    }

    fn post_receive(&mut self, i: usize, receiver: usize) {
        let now = self.world.sim.now().instant();
        let f = &mut self.flows[i];
        f.post_receive(receiver, self.world.sim.nic(f.receivers[receiver].host), now);
        if f.flow.scheme.is_some() || f.posts_receives_along() {
            // The peer is told, or a deadline is watched.
            self.world.sim.touch(f.flow.to);
        }
    }
}
