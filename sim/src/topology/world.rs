//! A topology come alive: NICs, switches with their routes, links, and connected queue pairs.

use std::time::Duration;

use softnic_fault_injector::Direction;
use softnic_fault_injector::random::Random;
use softnic_nic::transports::Datagram;
use softnic_nic::transports::qp::{Caps, PayloadMode};
use softnic_nic::{AddressAttr, Connection, ModifyError, Nic, NicConfig, Port, QpInit};
use softnic_wire::{PathMtu, Psn, Qpn};

use super::{Flow, Kind, Place, Topology};
use crate::link::{End, LinkConfig};
use crate::node::SimNode;
use crate::pair::{QKEY, Side, timeout_code};
use crate::simulator::Simulator;
use crate::workload::{Cc, SimError};
use softnic_switch::{NextHop, Prefix, Switch, SwitchConfig};

/// Room for headers.
const HEADERS: usize = 128;
/// Frames that a switch holds in all its queues.
const SWITCH_FRAMES: usize = 1 << 20;

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
        let max_frame = topology.mtu.bytes() as usize + HEADERS;
        let mut world = World {
            topology,
            sim: Simulator::new(max_frame),
            sides: Vec::new(),
            ports: Vec::new(),
            random: Random::stream(seed, 3),
        };
        for host in 0..topology.hosts.len() {
            let nic = world.add_side(host, seed);
            world.sim.add_node(match &mut make_host {
                Some(make) => make(host, nic),
                None => Box::new(nic),
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
        if let Kind::LeafSpine { leaves, .. } = topology.kind {
            world.add_routes(leaves);
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
        let outstanding =
            |of: fn(&Flow) -> usize| t.flows.iter().filter(|f| of(f) == host).map(|f| f.depth as usize * 3).sum();
        let (sends, receives): (usize, usize) = (outstanding(|f| f.from), outstanding(|f| f.to));
        let (send_cq, recv_cq) = (nic.create_cq(sends.max(1)), nic.create_cq(receives.max(1)));
        self.sides.push(Side { pd, send_cq, recv_cq });
        nic
    }

    fn add_links(&mut self, seed: u64) {
        let t = self.topology;
        for (i, l) in t.links.iter().enumerate() {
            let config = LinkConfig { rate: l.rate, delay: l.delay, faults: l.faults.clone() };
            let ends = [l.a, l.b].map(|place| self.end(place));
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
    fn end(&mut self, place: Place) -> End {
        let policy = self.topology.policy;
        match place {
            Place::Host(node) => End { node, port: Nic::WIRE },
            Place::Switch(s) => {
                let node = self.topology.hosts.len() + s;
                let port = self.switch(s).map_or(0, |switch| switch.add_port(policy));
                End { node, port }
            }
        }
    }

    /// Tells switches where hosts are, as the ARP exchange before every connection would have.
    fn add_macs(&mut self) {
        let kind = self.topology.kind;
        for p in self.ports.clone() {
            let behind = match (p.to, kind) {
                (Place::Host(host), _) => host..host + 1,
                // The other side of a dumbbell; packets to other leaves are routed.
                (Place::Switch(other), Kind::Dumbbell { hosts }) => other * hosts..(other + 1) * hosts,
                (Place::Switch(_), _) => 0..0,
            };
            let Some(switch) = self.switch(p.switch) else { continue };
            behind.for_each(|host| switch.add_mac(kind.address(host).1, p.port));
        }
    }

    /// Within a leaf frames are switched; what is addressed to the leaf itself is routed, up over any spine and down again.
    fn add_routes(&mut self, leaves: usize) {
        let kind = self.topology.kind;
        let ports = self.ports.clone();
        for s in 0..self.topology.switches.len() {
            let mut up = Vec::new();
            let mut routes = Vec::new();
            for p in ports.iter().filter(|p| p.switch == s) {
                match p.to {
                    Place::Host(host) => {
                        let (addr, mac) = kind.address(host);
                        routes.push((Prefix { addr, len: 32 }, NextHop::Fixed { port: p.port, mac }));
                    }
                    Place::Switch(other) if other >= leaves => {
                        up.push(NextHop::Fixed { port: p.port, mac: Kind::switch_mac(other) })
                    }
                    Place::Switch(leaf) => {
                        routes.push((Kind::subnet(leaf), NextHop::Fixed { port: p.port, mac: Kind::switch_mac(leaf) }));
                    }
                }
            }
            let Some(switch) = self.switch(s) else { continue };
            for (prefix, next) in routes {
                switch.add_route(prefix, vec![next]);
            }
            if !up.is_empty() {
                switch.add_route(Prefix { len: 8, ..Kind::subnet(0) }, up);
            }
        }
    }

    pub(super) fn switch(&mut self, switch: usize) -> Option<&mut Switch> {
        self.sim.switch(self.topology.hosts.len() + switch)
    }

    /// Makes the queue pairs of a flow and connects them.
    pub(super) fn connect(&mut self, flow: &Flow) -> Result<Ends, SimError> {
        let (t, timeout) = (self.topology, self.timeout());
        let caps = Caps {
            max_send_wr: flow.depth,
            max_recv_wr: flow.depth * 2,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline: 0,
        };
        let hosts = [flow.from, flow.to];
        let mut qpns = [Qpn::new(0); 2];
        for (qpn, host) in qpns.iter_mut().zip(hosts) {
            let Side { pd, send_cq, recv_cq } = self.sides[host];
            let transport = flow.transport;
            let limit_flight = flow.cc == Cc::Window;
            let usual = QpInit::new(transport.kind(), pd, send_cq, recv_cq, caps);
            let init = QpInit { transport, limit_flight, ..usual };
            *qpn = self.sim.nic(host).create_qp(&init).map_err(|_| ModifyError::NoSuchQp)?;
        }
        let psns = [0; 2].map(|_: u32| Psn::new(self.random.next_u32()));
        for side in 0..2 {
            let peer = 1 - side;
            let (ip, next_hop) = (t.kind.address(hosts[peer]).0, t.kind.next_hop(hosts[side], hosts[peer]));
            let rate = self.line_rate(hosts[side]);
            let nic = self.sim.nic(hosts[side]);
            let connection = Connection {
                path: nic.path_to(ip, next_hop, qpns[side].value()),
                dest_qp: qpns[peer],
                qkey: (!flow.transport.kind().is_connected()).then_some(QKEY),
                mtu: t.mtu,
                sq_psn: psns[side],
                rq_psn: psns[peer],
                timeout,
                retry_cnt: t.retry,
                ..Connection::default()
            };
            nic.connect(qpns[side], &connection)?;
            // A reliable connection takes one; others were refused one.
            let _ = nic.set_congestion_control(qpns[side], flow.cc.make(rate, Duration::ZERO));
        }
        let datagram = if !flow.transport.kind().is_connected() { Some(self.datagram(flow, qpns)?) } else { None };
        Ok(Ends { qpns, datagram })
    }

    /// The address of a flow's datagrams.
    fn datagram(&mut self, flow: &Flow, qpns: [Qpn; 2]) -> Result<Datagram, SimError> {
        let kind = self.topology.kind;
        let attr = AddressAttr::new(kind.address(flow.to).0, kind.next_hop(flow.from, flow.to), 0, qpns[0].value());
        let ah = self.sim.nic(flow.from).create_ah(self.sides[flow.from].pd, &attr)?;
        Ok(Datagram { ah, dest_qp: qpns[1], qkey: QKEY })
    }

    /// The rate of a host's link.
    pub(super) fn line_rate(&self, host: usize) -> u64 {
        let of_host = |l: &&super::Link| l.a == Place::Host(host) || l.b == Place::Host(host);
        self.topology.links.iter().find(of_host).map_or(u64::MAX, |l| l.rate)
    }

    /// The link by which a host sends.
    pub(super) fn uplink(&self, host: usize) -> Option<usize> {
        let way = |(i, l): (usize, &super::Link)| match Place::Host(host) {
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

    /// A round trip with every queue on the way full and every link the slowest.
    pub(super) fn longest_round_trip(&self) -> Duration {
        let t = self.topology;
        let queue = t.links.iter().map(|l| {
            let ns = u128::from(t.policy.limit) * 8_000_000_000 / u128::from(l.rate.max(1));
            Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
        });
        self.round_trip(queue.max().unwrap_or_default())
    }

    /// A round trip with every link the slowest, and so much time in every queue on the way.
    pub(super) fn round_trip(&self, queue: Duration) -> Duration {
        let t = self.topology;
        let hops = match t.kind {
            Kind::Star { .. } => 1,
            Kind::Dumbbell { .. } => 2,
            Kind::LeafSpine { .. } => 3,
        };
        let link = t.links.iter().map(|l| {
            let [ab, ba] = [Direction::Ab, Direction::Ba].map(|d| l.faults.shape(d).longest());
            l.delay.saturating_add(ab.max(ba))
        });
        let link = link.max().unwrap_or_default();
        let one_way = link.saturating_mul(hops + 1).saturating_add(queue.saturating_mul(hops));
        one_way.saturating_mul(2)
    }
}
