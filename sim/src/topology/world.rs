//! A topology come alive: NICs, switches with their routes, links, and connected queue pairs.

use std::time::Duration;

use softnic_fault_injector::Direction;
use softnic_fault_injector::random::Random;
use softnic_nic::transports::Datagram;
use softnic_nic::transports::qp::{Caps, PayloadMode};
use softnic_nic::{AddressAttr, Connection, ModifyError, Nic, NicConfig, Port, QpInit};
use softnic_wire::transit::CE;
use softnic_wire::{Path, PathMtu, Psn, Qpn};

use super::{Flow, HEADERS, Kind, Link, Place, RouteChange, Topology};
use crate::bounded::Bounds;
use crate::link::{End, LinkConfig};
use crate::node::SimNode;
use crate::pair::{QKEY, Side, timeout_code};
use crate::paused_host::PausedHost;
use crate::simulator::Simulator;
use crate::workload::{Cc, Op, SimError};
use softnic_switch::pfc::PfcConfig;
use softnic_switch::{NextHop, Prefix, Switch, SwitchConfig};

/// Frames that a switch holds in all its queues.
const SWITCH_FRAMES: usize = 1 << 20;

/// How long flows may stand still, at least, before background traffic ends: READs of XP may take a second.
const LEAST_PATIENCE: Duration = Duration::from_secs(4);

/// Bytes of the longest frame.
fn max_frame(topology: &Topology) -> u64 {
    u64::from(topology.mtu.bytes()) + HEADERS
}

/// A port of a switch, and the link that leaves it.
#[derive(Clone, Copy)]
pub(super) struct SwitchPort {
    pub(super) switch: usize,
    pub(super) port: usize,
    pub(super) to: Place,
    pub(super) link: usize,
    pub(super) rate: u64,
}

/// The queue pairs of a flow.
#[derive(Default)]
pub(super) struct Ends {
    /// Of the requester and of the responder.
    pub(super) qpns: [Qpn; 2],
    /// Where datagrams go.
    pub(super) datagram: Option<Datagram>,
}

/// How two queue pairs are connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Connecting {
    /// Congestion control at both ends.
    pub cc: Cc,
    /// Of the packets of both; the upper three bits are their priority.
    pub dscp: u8,
    /// Local ACK timeout code; `None` for the topology's.
    pub timeout: Option<u8>,
    /// Retries; `None` for the topology's.
    pub retry: Option<u8>,
    /// The key of datagrams, of such queue pairs.
    pub qkey: Option<u32>,
}

impl Connecting {
    /// As a flow is connected.
    pub(super) fn of(flow: &Flow) -> Connecting {
        let qkey = (!flow.transport.kind().is_connected()).then_some(QKEY);
        Connecting { cc: flow.cc, dscp: flow.dscp, qkey, ..Connecting::default() }
    }
}

/// Makes the Node of a host from its NIC.
type HostMaker<'h> = Option<&'h mut dyn FnMut(usize, Nic) -> Box<dyn SimNode>>;

/// Makes the Node of a switch from a plain one.
type SwitchMaker<'h> = Option<&'h mut dyn FnMut(usize, Switch) -> Box<dyn SimNode>>;

pub(super) struct World<'t> {
    pub(super) topology: &'t Topology,
    /// Hosts first, then switches.
    pub(super) sim: Simulator<'t>,
    pub(super) sides: Vec<Side>,
    pub(super) ports: Vec<SwitchPort>,
    random: Random,
}

impl<'t> World<'t> {
    pub(super) fn new(
        topology: &'t Topology,
        seed: u64,
        mut make_host: HostMaker<'_>,
        mut make_switch: SwitchMaker<'_>,
    ) -> World<'t> {
        let max_frame = max_frame(topology) as usize;
        let mut world = World {
            topology,
            sim: Simulator::new(max_frame),
            sides: Vec::new(),
            ports: Vec::new(),
            random: Random::stream(seed, 3),
        };
        for host in 0..topology.hosts.len() {
            let nic = world.add_side(host, seed);
            let node = match &mut make_host {
                Some(make) => make(host, nic),
                None => Box::new(nic),
            };
            world.sim.add_node(match topology.pfc {
                Some(_) => Box::new(PausedHost::new(node, world.line_rate(host))),
                None => node,
            });
        }
        for switch in 0..topology.switches.len() {
            let config = SwitchConfig {
                mac: Kind::switch_mac(switch),
                max_frame,
                max_frames: SWITCH_FRAMES,
                elided: topology.payload == PayloadMode::Elided,
                seed: Random::stream(seed, 1 << 16 | switch as u64).next_u64(),
            };
            let plain = Switch::new(config);
            world.sim.add_node(match &mut make_switch {
                Some(make) => make(switch, plain),
                None => Box::new(plain),
            });
        }
        world.add_links(seed);
        world.add_macs();
        if topology.routed {
            world.add_routes();
        }
        world
    }

    /// The NIC of a host, with what all its flows share.
    fn add_side(&mut self, host: usize, seed: u64) -> Nic {
        let t = self.topology;
        let (ip, mac) = t.kind.address(host);
        let config = NicConfig { port: Port { mac, addresses: vec![ip], mtu: PathMtu::B4096 }, payload: t.payload };
        let mut keys = Random::stream(seed, 100 + host as u64);
        let mut nic = Nic::new(config, Box::new(move || keys.next_u32()));
        nic.set_link_rate(self.line_rate(host));
        let pd = nic.alloc_pd();
        // Every flow may have all that it may have outstanding complete at once.
        let here = |is_here: &dyn Fn(&Flow, &[usize]) -> bool, most: &dyn Fn(&Flow) -> u32| {
            let here = t.work().filter(|(work, to)| is_here(work, to));
            here.map(|(work, _)| (most(work) + work.depth) as usize).sum::<usize>()
        };
        let sends = here(&|work, _| work.from == host, &|work| work.depth * 2);
        let receives = here(&|_, to| to.contains(&host), &|work| self.receives(work));
        let (send_cq, recv_cq) = (nic.create_cq(sends.max(1)), nic.create_cq(receives.max(1)));
        self.sides.push(Side { pd, send_cq, recv_cq });
        nic
    }

    fn add_links(&mut self, seed: u64) {
        let t = self.topology;
        for (i, l) in t.links.iter().enumerate() {
            let config = LinkConfig { rate: l.rate, delay: l.delay, faults: l.faults.clone() };
            let ends = [l.a, l.b].map(|place| self.end(place, l));
            if let (true, Place::Switch(a), Place::Switch(b)) = (self.topology.routed, l.a, l.b) {
                for (switch, end) in [a, b].into_iter().zip(&ends) {
                    self.switch(switch).into_iter().for_each(|switch| switch.set_routed(end.port));
                }
            }
            for (way, direction) in [Direction::Ab, Direction::Ba].into_iter().enumerate() {
                let stream = Random::stream(seed, 1 << 20 | (2 * i + way) as u64).next_u64();
                let link = self.sim.add_link(ends[way], ends[1 - way], &config, direction, stream);
                if let Place::Switch(switch) = [l.a, l.b][way] {
                    let (port, to) = (ends[way].port, [l.b, l.a][way]);
                    self.ports.push(SwitchPort { switch, port, to, link, rate: l.rate });
                }
            }
        }
        self.ports.sort_by_key(|p| (p.switch, p.port));
    }

    /// The end of a link at a place: a host has one port, a switch gets another.
    fn end(&mut self, place: Place, link: &Link) -> End {
        let t = self.topology;
        match place {
            Place::Host(node) => End { node, port: Nic::WIRE },
            Place::Switch(s) => {
                let node = t.hosts.len() + s;
                let Some(switch) = self.switch(s) else { return End { node, port: 0 } };
                let port = switch.add_port(t.policy);
                if let Some(pfc) = t.pfc {
                    let headroom = pfc.headroom_of(link, max_frame(t));
                    switch.set_pfc(port, PfcConfig { xoff: pfc.xoff, xon: pfc.xon, headroom, rate: link.rate });
                }
                End { node, port }
            }
        }
    }

    /// Tells switches where hosts are, as the ARP exchange before every connection would have.
    fn add_macs(&mut self) {
        let kind = self.topology.kind;
        for p in self.ports.clone() {
            let behind = match p.to {
                Place::Host(host) => host..host + 1,
                // Packets to the hosts of other switches are routed.
                Place::Switch(_) if self.topology.routed => 0..0,
                Place::Switch(other) => kind.hosts_of(other),
            };
            let Some(switch) = self.switch(p.switch) else { continue };
            behind.for_each(|host| switch.add_mac(kind.address(host).1, p.port));
        }
    }

    /// Within a subnet frames are switched; what is addressed to a switch itself is routed, up by any switch and down again.
    fn add_routes(&mut self) {
        let kind = self.topology.kind;
        for s in 0..self.topology.switches.len() {
            let mut routes = Vec::new();
            for host in kind.hosts_of(s) {
                routes.push((Prefix { addr: kind.address(host).0, len: 32 }, self.next_hops(s, &[Place::Host(host)])));
            }
            let ways = kind.ways(s);
            for &(tor, via) in &ways.down {
                routes.push((Kind::subnet(tor), self.next_hops(s, &[Place::Switch(via)])));
            }
            if !ways.up.is_empty() {
                let up: Vec<Place> = ways.up.into_iter().map(Place::Switch).collect();
                routes.push((Prefix { len: 8, ..Kind::subnet(0) }, self.next_hops(s, &up)));
            }
            let Some(switch) = self.switch(s) else { continue };
            for (prefix, next_hops) in routes {
                switch.add_route(prefix, next_hops);
            }
        }
    }

    /// Changes a route.
    pub(super) fn change_route(&mut self, change: &RouteChange) {
        let kind = self.topology.kind;
        let prefix = match change.to {
            Place::Host(host) => Prefix { addr: kind.address(host).0, len: 32 },
            Place::Switch(tor) => Kind::subnet(tor),
        };
        let via: Vec<Place> = change.via.iter().copied().map(Place::Switch).collect();
        let next_hops = self.next_hops(change.switch, &via);
        if let Some(switch) = self.switch(change.switch) {
            switch.set_route(prefix, next_hops);
        }
    }

    /// The ports of a switch that lead to any of these places.
    fn next_hops(&self, switch: usize, to: &[Place]) -> Vec<NextHop> {
        let leading = self.ports.iter().filter(|p| p.switch == switch && to.contains(&p.to));
        leading.map(|p| NextHop::Fixed { port: p.port, mac: self.topology.mac(p.to) }).collect()
    }

    pub(super) fn switch(&mut self, switch: usize) -> Option<&mut Switch> {
        self.sim.switch(self.topology.hosts.len() + switch)
    }

    /// A number of the run's own.
    pub(super) fn draw(&mut self) -> u32 {
        self.random.next_u32()
    }

    /// Makes the queue pairs of a flow and connects them.
    pub(super) fn connect(&mut self, flow: &Flow) -> Result<Ends, SimError> {
        let hosts = [flow.from, flow.to];
        let qpns = [self.create_qp(hosts[0], flow)?, self.create_qp(hosts[1], flow)?];
        let psns = [0; 2].map(|_: u32| Psn::new(self.draw()));
        let how = Connecting::of(flow);
        for side in 0..2 {
            let peer = 1 - side;
            self.connect_qp([hosts[side], hosts[peer]], &how, [qpns[side], qpns[peer]], [psns[side], psns[peer]])?;
        }
        let datagram = if !flow.transport.kind().is_connected() { Some(self.datagram(flow, qpns)?) } else { None };
        Ok(Ends { qpns, datagram })
    }

    /// Makes a queue pair of a flow at a host.
    pub(super) fn create_qp(&mut self, host: usize, flow: &Flow) -> Result<Qpn, SimError> {
        let caps = Caps {
            max_send_wr: flow.depth,
            max_recv_wr: self.receives(flow),
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline: 0,
        };
        let Side { pd, send_cq, recv_cq } = self.sides[host];
        let transport = flow.transport;
        let limit_flight = flow.cc.limits_flight();
        let usual = QpInit::new(transport.kind(), pd, send_cq, recv_cq, caps);
        let init = QpInit { transport, limit_flight, ..usual };
        let nic = self.sim.nic(host);
        let qpn = nic.create_qp(&init).map_err(|_| ModifyError::NoSuchQp)?;
        if let credit @ Some(_) = flow.cc.credit(Duration::ZERO) {
            nic.use_credit(qpn, credit).map_err(|_| ModifyError::NoSuchQp)?;
        }
        Ok(qpn)
    }

    /// What messages of a flow have in common, where its transport is one of best effort.
    pub(super) fn bounds(&self, flow: &Flow) -> Option<Bounds> {
        let &Flow { transport, op, size, deadline, stride, .. } = flow;
        transport.is_bounded().then_some(Bounds {
            reads: op == Op::Read,
            size,
            mtu: self.topology.mtu,
            deadline,
            stride,
        })
    }

    /// Receives that a queue pair of a flow may have posted.
    pub(super) fn receives(&self, flow: &Flow) -> u32 {
        let bounded = self.bounds(flow).filter(|_| flow.op.uses_receives(false));
        bounded.map_or(flow.depth * 2, |bounds| {
            bounds.receives(flow.depth, self.line_rate(flow.from), self.longest_round_trip())
        })
    }

    /// Connects a queue pair; hosts, queue pairs and PSNs are its own and its peer's.
    pub(super) fn connect_qp(
        &mut self,
        [host, peer]: [usize; 2],
        how: &Connecting,
        [qpn, dest_qp]: [Qpn; 2],
        [sq_psn, rq_psn]: [Psn; 2],
    ) -> Result<(), SimError> {
        let (t, timeout) = (self.topology, self.timeout());
        let rate = self.line_rate(host);
        let path = self.path(host, peer, qpn.value(), how.dscp);
        let nic = self.sim.nic(host);
        let connection = Connection {
            path,
            dest_qp,
            qkey: how.qkey,
            mtu: t.mtu,
            sq_psn,
            rq_psn,
            timeout: how.timeout.unwrap_or(timeout),
            retry_cnt: how.retry.unwrap_or(t.retry),
            ..Connection::default()
        };
        nic.connect(qpn, &connection)?;
        // A reliable connection takes one; others were refused one.
        let _ = nic.set_congestion_control(qpn, how.cc.make(rate, Duration::ZERO));
        Ok(())
    }

    /// The path from a host to another.
    pub(super) fn path(&mut self, host: usize, peer: usize, entropy: u32, dscp: u8) -> Option<Path> {
        let (ip, next_hop) = (self.topology.kind.address(peer).0, self.topology.next_hop(host, peer));
        let path = self.sim.nic(host).path_to(ip, next_hop, entropy)?;
        Some(Path { traffic_class: path.traffic_class & CE | dscp << 2, ..path })
    }

    /// The address of a flow's datagrams.
    fn datagram(&mut self, flow: &Flow, qpns: [Qpn; 2]) -> Result<Datagram, SimError> {
        let t = self.topology;
        let attr = AddressAttr::new(t.kind.address(flow.to).0, t.next_hop(flow.from, flow.to), 0, qpns[0].value());
        let attr = AddressAttr { traffic_class: flow.dscp << 2, ..attr };
        let ah = self.sim.nic(flow.from).create_ah(self.sides[flow.from].pd, &attr)?;
        Ok(Datagram { ah, dest_qp: qpns[1], qkey: QKEY })
    }

    /// The rate of a host's link.
    pub(super) fn line_rate(&self, host: usize) -> u64 {
        self.topology.line_rate(host)
    }

    /// The link by which a host sends.
    pub(super) fn uplink(&self, host: usize) -> Option<usize> {
        let way = |(i, l): (usize, &Link)| match Place::Host(host) {
            end if l.a == end => Some(2 * i),
            end if l.b == end => Some(2 * i + 1),
            _ => None,
        };
        self.topology.links.iter().enumerate().find_map(way)
    }

    /// By default four of the longest round trips.
    fn timeout(&self) -> u8 {
        self.topology.timeout.unwrap_or_else(|| timeout_code(self.longest_round_trip().saturating_mul(4)))
    }

    /// How long a work request of a flow may take, whatever is lost: its retries, and ten times all that is outstanding on the slowest link.
    pub(super) fn patience(&self) -> Duration {
        let t = self.topology;
        let code = u32::from(self.timeout());
        let timeouts =
            Duration::from_nanos(4096).saturating_mul(1 << code).saturating_mul(4 * (u32::from(t.retry) + 2));
        let slowest = t.links.iter().map(|l| l.rate).min().unwrap_or(u64::MAX).max(1);
        let seconds = u128::from(t.outstanding()) * 80 / u128::from(slowest);
        let sent = Duration::from_secs(u64::try_from(seconds).unwrap_or(u64::MAX));
        let deadlines = t.flows.iter().filter_map(|flow| flow.deadline).max().unwrap_or_default();
        timeouts.saturating_add(sent).saturating_add(deadlines).saturating_add(LEAST_PATIENCE)
    }

    /// A round trip with every queue on the way full and every link the slowest.
    pub(super) fn longest_round_trip(&self) -> Duration {
        let t = self.topology;
        let waits = |bytes: u64, l: &Link| {
            let ns = u128::from(bytes) * 8_000_000_000 / u128::from(l.rate.max(1));
            Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
        };
        let longest = |bytes: u64| t.links.iter().map(|l| waits(bytes, l)).max().unwrap_or_default();
        self.round_trip(match t.pfc {
            None => longest(t.policy.limit).saturating_mul(t.kind.hops()),
            // Nothing is dropped: all that is outstanding may wait for one link.
            Some(_) => longest(t.outstanding()),
        })
    }

    /// A round trip with every link the slowest, and so much time in queues each way.
    pub(super) fn round_trip(&self, queues: Duration) -> Duration {
        let t = self.topology;
        let link = t.links.iter().map(|l| {
            let [ab, ba] = [Direction::Ab, Direction::Ba].map(|d| l.faults.shape(d).longest());
            l.delay.saturating_add(ab.max(ba))
        });
        let link = link.max().unwrap_or_default();
        let one_way = link.saturating_mul(t.kind.hops() + 1).saturating_add(queues);
        one_way.saturating_mul(2)
    }
}
