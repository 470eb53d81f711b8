//! What lies between two hosts: a link, a switch, or two leaves with two spines between them.

use std::net::{IpAddr, Ipv6Addr};

use softnic_fault_injector::random::Random;
use softnic_fault_injector::{Direction, Policy, Spec};
use softnic_nic::Nic;
use softnic_nic::transports::qp::PayloadMode;
use softnic_wire::MacAddr;

use super::{A, B, PairConfig};
use crate::link::{End, LinkConfig};
use crate::simulator::Simulator;
use softnic_switch::{NextHop, Prefix, Switch, SwitchConfig};

/// What the frames of two hosts pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Between {
    /// Nothing: one link.
    #[default]
    Link,
    /// A switch.
    Switch,
    /// The leaf of one host, one of two spines, the leaf of the other. Frames are routed, and all of a flow take one way; there
    /// is no way for groups.
    LeafSpine,
}

impl Between {
    /// Links on the way from one host to the other.
    pub fn hops(self) -> usize {
        match self {
            Between::Link => 1,
            Between::Switch => 2,
            Between::LeafSpine => 4,
        }
    }
}

/// The network of two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Network {
    /// What lies between them.
    pub between: Between,
    /// The hosts have IPv6 addresses, not IPv4 ones.
    pub ipv6: bool,
    /// Which link of the way has the faults, the sender's own being 0; the others have none.
    pub faulty_hop: usize,
}

/// Frames that a switch holds.
const SWITCH_FRAMES: usize = 1 << 16;
/// Nodes: the hosts, then a switch or two leaves, then two spines.
const SWITCH: usize = 2;
const SPINES: usize = 4;

impl Network {
    /// Where a host is.
    pub fn address(self, host: usize) -> (IpAddr, MacAddr) {
        let n = host as u8 + 1;
        let v6 = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, u16::from(n));
        let ip = if self.ipv6 { IpAddr::V6(v6) } else { IpAddr::from([10, 0, 0, n]) };
        (ip, MacAddr([2, 0, 0, 0, 0, n]))
    }

    /// Where a host sends frames for another one: to itself, or to its leaf that routes them.
    pub fn next_hop(self, from: usize, to: usize) -> MacAddr {
        if self.between == Between::LeafSpine && from != to { switch_mac(SWITCH + from) } else { self.address(to).1 }
    }

    /// Adds switches and links between the hosts, which are there already.
    pub(super) fn lay(self, sim: &mut Simulator<'_>, config: &PairConfig, max_frame: usize) -> [usize; 2] {
        let host = |node| End { node, port: Nic::WIRE };
        let mut wires = Wires { network: self, config, next: 0 };
        match self.between {
            Between::Link => {
                let stream = |n| Random::stream(config.seed, n).next_u64();
                [
                    sim.add_link(host(A), host(B), &config.link, Direction::Ab, stream(1)),
                    sim.add_link(host(B), host(A), &config.link, Direction::Ba, stream(2)),
                ]
            }
            Between::Switch => {
                let mut switch = new_switch(SWITCH, 2, config, max_frame);
                for h in [A, B] {
                    switch.add_mac(self.address(h).1, h);
                }
                sim.add_node(Box::new(switch));
                [A, B].map(|h| wires.both_ways(sim, host(h), End { node: SWITCH, port: h }, h, 0))
            }
            Between::LeafSpine => {
                // Ports of a leaf: the host, then the spines. Ports of a spine: the leaves.
                for leaf in [A, B] {
                    let mut switch = new_switch(SWITCH + leaf, 3, config, max_frame);
                    let (ip, mac) = self.address(leaf);
                    switch.add_mac(mac, 0);
                    switch.add_route(only(ip), vec![NextHop::Fixed { port: 0, mac }]);
                    let up = [0, 1].map(|s| NextHop::Fixed { port: 1 + s, mac: switch_mac(SPINES + s) });
                    switch.add_route(only(self.address(1 - leaf).0), up.to_vec());
                    sim.add_node(Box::new(switch));
                }
                for spine in [0, 1] {
                    let mut switch = new_switch(SPINES + spine, 2, config, max_frame);
                    for leaf in [A, B] {
                        let down = NextHop::Fixed { port: leaf, mac: switch_mac(SWITCH + leaf) };
                        switch.add_route(only(self.address(leaf).0), vec![down]);
                    }
                    sim.add_node(Box::new(switch));
                }
                [A, B].map(|h| {
                    for s in [0, 1] {
                        let (leaf, spine) = (End { node: SWITCH + h, port: 1 + s }, End { node: SPINES + s, port: h });
                        wires.both_ways(sim, leaf, spine, h, 1);
                    }
                    wires.both_ways(sim, host(h), End { node: SWITCH + h, port: 0 }, h, 0)
                })
            }
        }
    }
}

fn switch_mac(node: usize) -> MacAddr {
    MacAddr([2, 0, 0, 1, 0, node as u8])
}

/// One address alone.
fn only(addr: IpAddr) -> Prefix {
    Prefix { addr, len: if addr.is_ipv6() { 128 } else { 32 } }
}

/// A switch whose queues take all that comes: a bottleneck is among the faults.
fn new_switch(node: usize, ports: usize, config: &PairConfig, max_frame: usize) -> Switch {
    let mut switch = Switch::new(SwitchConfig {
        mac: switch_mac(node),
        max_frame,
        max_frames: SWITCH_FRAMES,
        elided: config.payload == PayloadMode::Elided,
        seed: Random::stream(config.seed, 300 + node as u64).next_u64(),
    });
    for _ in 0..ports {
        switch.add_port(Policy { limit: u64::MAX, red: None });
    }
    switch
}

/// Links of a network, each with faults of its own.
struct Wires<'c> {
    network: Network,
    config: &'c PairConfig,
    next: u64,
}

impl Wires<'_> {
    /// A link on the side of a host: it is the way's `hop`-th for what that host sends, and the `hop`-th from the end for what
    /// it receives. The link towards the other host.
    fn both_ways(&mut self, sim: &mut Simulator<'_>, near: End, far: End, host: usize, hop: usize) -> usize {
        let last = self.network.between.hops() - 1;
        let [out, back] = if host == A { [Direction::Ab, Direction::Ba] } else { [Direction::Ba, Direction::Ab] };
        self.one_way(sim, far, near, back, last - hop);
        self.one_way(sim, near, far, out, hop)
    }

    fn one_way(&mut self, sim: &mut Simulator<'_>, from: End, to: End, direction: Direction, hop: usize) -> usize {
        let LinkConfig { rate, delay, ref faults } = self.config.link;
        let faults = if hop == self.network.faulty_hop { faults.clone() } else { Spec::default() };
        let link = LinkConfig { rate, delay: delay / self.network.between.hops() as u32, faults };
        self.next += 1;
        let seed = Random::stream(self.config.seed, 200 + self.next).next_u64();
        sim.add_link(from, to, &link, direction, seed)
    }
}
