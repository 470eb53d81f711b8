//! Posts background traffic while a network runs: queue pairs from each sender to each receiver, and what is due when.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use softnic_fault_injector::random::Random;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::{Caps, PayloadMode};
use softnic_nic::transports::{CqId, Data, SendFlags, SendOp, SendWr, Sge, Status};
use softnic_nic::{Buffer, ModifyError, QpInit};
use softnic_wire::mad::vendor::Extensions;
use softnic_wire::{Psn, Qpn};

use super::draw::{exponential, weighted};
use super::{Background, BackgroundReport, MAX_WRITE, Pattern, on_the_wire, payload_of};
use crate::Time;
use crate::topology::world::{Connecting, World};
use crate::workload::{Cc, SimError};

/// Work requests that a queue pair has outstanding; more wait.
const DEPTH: u32 = 64;
/// Where the memory of background traffic lies at every host: behind that of all flows.
const ADDRESS: u64 = 0x4000_0000_0000;
/// The streams of random numbers of sources, one each.
const STREAM: u64 = 1 << 32;

/// A queue pair of a sender, to a receiver.
struct Connection {
    background: usize,
    host: usize,
    qpn: Qpn,
    /// The key of the sender's memory, and the receiver's.
    keys: [u32; 2],
    outstanding: u32,
    /// Bytes of WRITEs that are due, and have no room.
    waiting: VecDeque<u32>,
}

/// What posts by itself: a sender, or an incast.
struct Source {
    background: usize,
    /// The host at which it is woken: the sender.
    host: usize,
    random: Random,
    /// When it posts next.
    next: Time,
}

/// Where the connections of a background are.
struct Pairs {
    /// The first of them, and how many receivers each sender has.
    first: usize,
    /// For each sender the receivers that it has connections to.
    receivers: Vec<Vec<usize>>,
}

/// All background traffic of a network.
pub(in crate::topology) struct Traffic<'t> {
    backgrounds: &'t [Background],
    connections: Vec<Connection>,
    pairs: Vec<Pairs>,
    sources: Vec<Source>,
    /// For each host its sources, and the queue in which its work completes.
    of_host: Vec<(Vec<usize>, Option<CqId>)>,
    reports: Vec<BackgroundReport>,
    /// Nothing more is posted.
    silent: bool,
}

impl<'t> Traffic<'t> {
    /// Makes memory and queue pairs, after those of all flows: these are as without background.
    pub(in crate::topology) fn new(world: &mut World<'t>, seed: u64) -> Result<Traffic<'t>, SimError> {
        let backgrounds = &world.topology.background[..];
        let mut traffic = Traffic {
            backgrounds,
            connections: Vec::new(),
            pairs: Vec::new(),
            sources: Vec::new(),
            of_host: world.sides.iter().map(|_| (Vec::new(), None)).collect(),
            reports: Vec::new(),
            silent: false,
        };
        let mut keys = vec![None; world.sides.len()];
        for (index, background) in backgrounds.iter().enumerate() {
            traffic.connect(world, index, background, &mut keys)?;
            let hosts = match background.pattern {
                Pattern::Incast { .. } => &background.from[..1],
                _ => &background.from[..],
            };
            for (i, &host) in hosts.iter().enumerate() {
                let random = Random::stream(seed, STREAM | (index as u64) << 16 | i as u64);
                let begin = Time::default().after(background.start);
                let mut source = Source { background: index, host, random, next: begin };
                if !matches!(background.pattern, Pattern::Incast { .. }) {
                    source.next = begin.after(source.pause(background, world));
                }
                traffic.of_host[host].0.push(traffic.sources.len());
                traffic.sources.push(source);
            }
            traffic.reports.push(BackgroundReport::default());
        }
        Ok(traffic)
    }

    fn connect(
        &mut self,
        world: &mut World<'t>,
        index: usize,
        background: &Background,
        keys: &mut [Option<u32>],
    ) -> Result<(), SimError> {
        let first = self.connections.len();
        let caps = Caps { max_send_wr: DEPTH, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
        let how = Connecting { cc: background.cc, dscp: background.dscp, ..Connecting::default() };
        for (from, to) in background.pairs() {
            let hosts = [from, to];
            let mut ends = [(Qpn::new(0), 0); 2];
            for (end, host) in ends.iter_mut().zip(hosts) {
                let cq = self.cq(world, host);
                let init = QpInit::new(background.transport.kind(), world.sides[host].pd, cq, cq, caps);
                let limit_flight = background.cc == Cc::Window;
                let init = QpInit { transport: background.transport, limit_flight, ..init };
                let qpn = world.sim.nic(host).create_qp(&init).map_err(|_| ModifyError::NoSuchQp)?;
                *end = (qpn, memory(world, host, &mut keys[host])?);
            }
            let [(qpn, key), (peer, peer_key)] = ends;
            let psns = [0; 2].map(|_: u32| Psn::new(world.draw()));
            world.connect_qp(hosts, &how, [qpn, peer], psns)?;
            world.connect_qp([to, from], &how, [peer, qpn], [psns[1], psns[0]])?;
            self.connections.push(Connection {
                background: index,
                host: from,
                qpn,
                keys: [key, peer_key],
                outstanding: 0,
                waiting: VecDeque::new(),
            });
        }
        let receivers = background.from.iter().map(|&from| background.to.iter().copied().filter(move |to| *to != from));
        self.pairs.push(Pairs { first, receivers: receivers.map(Iterator::collect).collect() });
        Ok(())
    }

    /// The completion queue of a host, with room for all that its queue pairs have outstanding.
    fn cq(&mut self, world: &mut World<'_>, host: usize) -> CqId {
        let pairs = self.backgrounds.iter().flat_map(Background::pairs).filter(|(from, _)| *from == host).count();
        *self.of_host[host].1.get_or_insert_with(|| world.sim.nic(host).create_cq((pairs * DEPTH as usize).max(1)))
    }

    /// Transports that the peer has to agree to are agreed on from the beginning; sources are woken when they are due.
    pub(in crate::topology) fn begin(&self, world: &mut World<'_>) {
        for (background, pairs) in self.backgrounds.iter().zip(&self.pairs) {
            if background.transport.extension() != Extensions::NONE {
                background.from.iter().chain(pairs.receivers.iter().flatten()).for_each(|&host| world.sim.touch(host));
            }
        }
        self.sources.iter().for_each(|source| world.sim.wake_at(source.next, source.host));
    }

    /// Ends all of it.
    pub(in crate::topology) fn silence(&mut self) {
        self.silent = true;
    }

    /// Something happened at a host: takes what completed there, and posts what is due.
    pub(in crate::topology) fn attend(&mut self, world: &mut World<'t>, host: usize) {
        let Some(cq) = self.of_host[host].1 else { return };
        let mut posted = false;
        while let Some(c) = world.sim.nic(host).poll_cq(cq).ok().flatten() {
            let connection = &mut self.connections[c.wr_id as usize];
            connection.outstanding -= 1;
            let report = &mut self.reports[connection.background];
            match c.status {
                Status::Success => report.completed += 1,
                status => {
                    report.failed += 1;
                    report.first_failure.get_or_insert(status);
                }
            }
            posted |= self.pump(world, c.wr_id as usize);
        }
        for at in 0..self.of_host[host].0.len() {
            let source = self.of_host[host].0[at];
            while !self.silent && self.sources[source].next <= world.sim.now() {
                let background = &self.backgrounds[self.sources[source].background];
                if background.stop.is_some_and(|stop| Time::default().after(stop) <= self.sources[source].next) {
                    break;
                }
                self.emit(world, source, background);
                posted = true;
                world.sim.wake_at(self.sources[source].next, host);
            }
        }
        if posted {
            world.sim.touch(host);
        }
    }

    /// Posts what a source has to post now, and draws when it does so again.
    fn emit(&mut self, world: &mut World<'t>, source: usize, background: &Background) {
        let (mtu, index) = (world.topology.mtu, self.sources[source].background);
        let random = &mut self.sources[source].random;
        match &background.pattern {
            Pattern::Bursts { on } => {
                let on = on.mul_f64(exponential(random));
                let (place, rate) = (self.place(source), world.line_rate(self.sources[source].host));
                let bytes = payload_of((rate as f64 * on.as_secs_f64() / 8.0) as u64, mtu);
                let to = self.draw_receiver(source, place);
                self.post(world, to, bytes);
                let source = &mut self.sources[source];
                source.next = source.next.after(on + source.pause(background, world));
            }
            Pattern::Poisson { sizes } => {
                let sum = sizes.iter().map(|(_, weight)| weight).sum();
                let bytes = sizes[weighted(random, sizes, sum)].0;
                let to = self.draw_receiver(source, self.place(source));
                self.post(world, to, bytes.into());
                let source = &mut self.sources[source];
                source.next = source.next.after(source.pause(background, world));
            }
            Pattern::Incast { hosts, every } => {
                let to = background.to[random.below(background.to.len() as u64) as usize];
                let bytes = background.incast_bytes(to, world.line_rate(to), mtu);
                let mut senders: Vec<usize> =
                    (0..background.from.len()).filter(|place| background.from[*place] != to).collect();
                for n in 0..(*hosts).min(senders.len()) {
                    let other = n + random.below((senders.len() - n) as u64) as usize;
                    senders.swap(n, other);
                }
                self.sources[source].next = self.sources[source].next.after(*every);
                for place in senders.into_iter().take(*hosts) {
                    let receivers = &self.pairs[index].receivers[place];
                    let Some(receiver) = receivers.iter().position(|host| *host == to) else { continue };
                    self.post(world, self.connection(index, place, receiver), bytes);
                    world.sim.touch(background.from[place]);
                }
            }
        }
    }

    /// The place of a source's host among the senders.
    fn place(&self, source: usize) -> usize {
        let Source { background, host, .. } = &self.sources[source];
        self.backgrounds[*background].from.iter().position(|from| from == host).unwrap_or(0)
    }

    /// Draws a receiver for a sender; the connection to it.
    fn draw_receiver(&mut self, source: usize, place: usize) -> usize {
        let source = &mut self.sources[source];
        let receivers = self.pairs[source.background].receivers[place].len() as u64;
        let receiver = source.random.below(receivers) as usize;
        let background = source.background;
        self.connection(background, place, receiver)
    }

    /// The connection of a background from a sender to one of its receivers, by their places.
    fn connection(&self, background: usize, sender: usize, receiver: usize) -> usize {
        let Pairs { first, receivers } = &self.pairs[background];
        first + receivers[..sender].iter().map(Vec::len).sum::<usize>() + receiver
    }

    /// Posts bytes as WRITEs, or has them wait.
    fn post(&mut self, world: &mut World<'t>, connection: usize, bytes: u64) {
        let Connection { background, waiting, .. } = &mut self.connections[connection];
        let report = &mut self.reports[*background];
        let mut left = bytes;
        while left > 0 {
            let len = left.min(MAX_WRITE);
            left -= len;
            waiting.push_back(len as u32);
            report.messages += 1;
            report.bytes += len;
            report.wire_bytes += on_the_wire(len as u32, world.topology.mtu);
        }
        self.pump(world, connection);
    }

    /// Posts WRITEs of a connection for which there is room; whether there were any.
    fn pump(&mut self, world: &mut World<'t>, index: usize) -> bool {
        let now = world.sim.now().instant();
        let c = &mut self.connections[index];
        let mut any = false;
        while c.outstanding < DEPTH
            && let Some(len) = c.waiting.pop_front()
        {
            let sges = [Sge { addr: ADDRESS, len, lkey: c.keys[0] }];
            let wr = SendWr {
                wr_id: index as u64,
                op: SendOp::Write { remote_addr: ADDRESS, rkey: c.keys[1] },
                data: Data::Gather(&sges),
                flags: SendFlags { signaled: true, solicited: false, fence: false },
                best_effort: None,
                to: None,
            };
            if world.sim.nic(c.host).post_send(now, c.qpn, &wr).is_err() {
                c.waiting.push_front(len);
                break;
            }
            (c.outstanding, any) = (c.outstanding + 1, true);
        }
        any
    }

    /// What was posted until now, and what became of it.
    pub(in crate::topology) fn reports(&self, world: &World<'_>) -> Vec<BackgroundReport> {
        let now = Duration::from_nanos(world.sim.now().instant().as_nanos());
        let mut reports = self.reports.clone();
        for (i, (background, report)) in self.backgrounds.iter().zip(&mut reports).enumerate() {
            let end = background.stop.unwrap_or(now).min(now);
            let seconds = end.saturating_sub(background.start).as_secs_f64();
            let lines = |hosts: &[usize]| hosts.iter().map(|host| world.line_rate(*host) as f64).sum::<f64>();
            let line = match background.pattern {
                Pattern::Incast { .. } => lines(&background.to) / background.to.len() as f64,
                _ => lines(&background.from),
            };
            let of = self.connections.iter().filter(|c| c.background == i);
            report.waiting = of.map(|c| c.waiting.len() as u64).sum();
            if seconds > 0.0 {
                report.offered_gbps = report.wire_bytes as f64 * 8.0 / seconds / 1e9;
                report.offered_share = report.offered_gbps * 1e9 / line;
            }
        }
        reports
    }
}

impl Source {
    /// Draws the time in which it posts nothing.
    fn pause(&mut self, background: &Background, world: &World<'_>) -> Duration {
        let mean = match &background.pattern {
            Pattern::Bursts { on } => on.mul_f64((1.0 - background.share) / background.share),
            Pattern::Poisson { sizes } => {
                let sum: f64 = sizes.iter().map(|(_, weight)| weight).sum();
                let bytes = |(size, weight): &(u32, f64)| on_the_wire(*size, world.topology.mtu) as f64 * weight / sum;
                let bits = sizes.iter().map(bytes).sum::<f64>() * 8.0;
                Duration::from_secs_f64(bits / (background.share * world.line_rate(self.host) as f64))
            }
            Pattern::Incast { every, .. } => return *every,
        };
        mean.mul_f64(exponential(&mut self.random))
    }
}

/// The key of a host's memory for background traffic, which all of it shares.
fn memory(world: &mut World<'_>, host: usize, key: &mut Option<u32>) -> Result<u32, SimError> {
    if let Some(key) = key {
        return Ok(*key);
    }
    let (pd, payload) = (world.sides[host].pd, world.topology.payload);
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let nic = world.sim.nic(host);
    let made = match payload {
        PayloadMode::Real => nic.reg_mr(pd, &Arc::clone(&Buffer::new(ADDRESS, MAX_WRITE as usize)), access)?,
        PayloadMode::Elided => nic.alloc_null_mr(pd, access)?,
    };
    Ok(*key.insert(made))
}
