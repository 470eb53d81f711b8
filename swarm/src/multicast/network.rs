//! The network of a world with a group: hosts, switches with their routes and groups, and links.

use softnic_fault_injector::random::Random;
use softnic_fault_injector::{Direction, Policy};
use softnic_nic::Nic;
use softnic_sim::{End, LinkConfig, Simulator};
use softnic_switch::group::{GroupSpec, MergeSpec, Range, Receiver};
use softnic_switch::{NextHop, Prefix, Switch, SwitchConfig};
use softnic_wire::{MacAddr, Qpn};

use super::watched::{SENDER, Watch, Watched};
use super::world::{Between, Place, World};

/// Frames that a switch holds.
const MAX_FRAMES: usize = 1 << 16;

/// What is known of hosts when the network is made.
pub(super) struct Group {
    pub(super) mc_id: Qpn,
    pub(super) sender: Qpn,
    /// Of receivers.
    pub(super) qpns: Vec<Qpn>,
    /// With the targets of all receivers.
    pub(super) ranges: Vec<Range>,
}

/// A switch while it is made.
struct Made {
    switch: Switch,
    mac: MacAddr,
    ports: usize,
}

/// Makes switches and links around the hosts: sender, receivers, and one more that is nobody's receiver.
pub(super) struct Network<'w> {
    world: &'w World,
    group: &'w Group,
    switches: Vec<Made>,
    /// Links: ends, and the place for faults.
    links: Vec<(End, End, Place)>,
    hosts: usize,
}

/// The MAC address of a switch; the sender's own is number 0.
pub(super) fn switch_mac(switch: usize) -> MacAddr {
    MacAddr([2, 1, 0, 0, 0, switch as u8])
}

fn only(addr: std::net::IpAddr) -> Prefix {
    Prefix { addr, len: if addr.is_ipv4() { 32 } else { 128 } }
}

impl<'w> Network<'w> {
    pub(super) fn new(world: &'w World, group: &'w Group, max_frame: usize) -> Network<'w> {
        let hosts = world.receivers + 2;
        let switches = match world.between {
            Between::Nothing { .. } => 1,
            Between::Leaves { leaves, .. } => 1 + leaves,
            Between::Spines { leaves, spines } => 1 + leaves + spines,
        };
        let switches = (0..switches).map(|n| {
            let (mac, seed) = (switch_mac(n), Random::stream(world.seed, 8500 + n as u64).next_u64());
            let config = SwitchConfig { mac, max_frame, max_frames: MAX_FRAMES, elided: false, seed };
            Made { switch: Switch::new(config), mac, ports: 0 }
        });
        let mut network = Network { world, group, switches: switches.collect(), links: Vec::new(), hosts };
        network.lay();
        network.add_groups();
        network
    }

    /// The switch of a host: the leaf of a receiver, or the sender's.
    pub(super) fn switch_of(world: &World, host: usize) -> usize {
        let leaf = host.checked_sub(1).and_then(|receiver| *world.leaf_of.get(receiver)?);
        leaf.map_or(0, |leaf| 1 + leaf)
    }

    fn port(&mut self, switch: usize, policy: Policy) -> End {
        let made = &mut self.switches[switch];
        made.ports += 1;
        End { node: self.hosts + switch, port: made.switch.add_port(policy) }
    }

    fn lay(&mut self) {
        let world = self.world;
        let unlimited = Policy { limit: u64::MAX, ..world.queue };
        for host in 0..self.hosts {
            let switch = Network::switch_of(world, host);
            let policy = if host == 0 && world.modelled { unlimited } else { world.queue };
            let end = self.port(switch, policy);
            debug_assert!(host != 0 || end.port == SENDER);
            let mac = World::mac(host);
            let made = &mut self.switches[switch].switch;
            made.add_mac(mac, end.port);
            made.add_route(only(world.ip(host)), vec![NextHop::Fixed { port: end.port, mac }]);
            self.links.push((End { node: host, port: Nic::WIRE }, end, Place::Host(host)));
        }
        match world.between {
            Between::Nothing { .. } => {}
            Between::Leaves { leaves, links } => {
                for leaf in 0..leaves {
                    let ways: Vec<_> = (0..links).map(|_| self.connect(0, 1 + leaf)).collect();
                    let down: Vec<_> = ways.iter().map(|(down, _)| *down).collect();
                    let up: Vec<_> = ways.iter().map(|(_, up)| *up).collect();
                    self.route(0, |at| at == 1 + leaf, &down);
                    self.route(1 + leaf, |at| at != 1 + leaf, &up);
                }
            }
            Between::Spines { leaves, spines } => {
                let spine = |n: usize| 1 + leaves + n;
                let first: Vec<_> = (0..spines).map(|n| self.connect(0, spine(n))).collect();
                let down: Vec<_> = first.iter().map(|(down, _)| *down).collect();
                self.route(0, |at| at != 0, &down);
                let mut ups = vec![Vec::new(); leaves];
                for (n, (_, up)) in first.iter().enumerate() {
                    self.route(spine(n), |at| at == 0, &[*up]);
                    for (leaf, ups) in ups.iter_mut().enumerate() {
                        let (down, up) = self.connect(spine(n), 1 + leaf);
                        self.route(spine(n), |at| at == 1 + leaf, &[down]);
                        ups.push(up);
                    }
                }
                for (leaf, ups) in ups.iter().enumerate() {
                    self.route(1 + leaf, |at| at != 1 + leaf, ups);
                }
            }
        }
    }

    /// Links two switches: how the upper one reaches the lower one, and the lower one the upper one.
    fn connect(&mut self, upper: usize, lower: usize) -> (NextHop, NextHop) {
        let place = Place::Between(self.links.iter().filter(|(.., p)| matches!(p, Place::Between(_))).count());
        let (a, b) = (self.port(upper, self.world.queue), self.port(lower, self.world.queue));
        let macs = [self.switches[upper].mac, self.switches[lower].mac];
        self.switches[upper].switch.add_mac(macs[1], a.port);
        self.switches[lower].switch.add_mac(macs[0], b.port);
        for (switch, end) in [(upper, a), (lower, b)] {
            self.switches[switch].switch.set_routed(end.port);
        }
        self.links.push((a, b, place));
        (NextHop::Fixed { port: a.port, mac: macs[1] }, NextHop::Fixed { port: b.port, mac: macs[0] })
    }

    /// At a switch, the way to hosts by the switch that they are at.
    fn route(&mut self, switch: usize, is_there: impl Fn(usize) -> bool, ways: &[NextHop]) {
        for host in (0..self.hosts).filter(|&host| is_there(Network::switch_of(self.world, host))) {
            self.switches[switch].switch.add_route(only(self.world.ip(host)), ways.to_vec());
        }
    }

    fn add_groups(&mut self) {
        let (world, group) = (self.world, self.group);
        let leaf_of = |receiver: usize| world.leaf_of[receiver];
        let spines = match world.between {
            Between::Spines { leaves, spines } => 1 + leaves..1 + leaves + spines,
            _ => 0..0,
        };
        let at_spines = world.spines_copy && !spines.is_empty();
        let by_leaf = |receiver: usize| leaf_of(receiver).filter(|_| world.leaves_copy).map(|leaf| leaf as u32);
        let far = |receiver: usize| leaf_of(receiver).map(|_| 0);
        let merge = Some(MergeSpec { qpn: group.sender, psn: world.first_psn });
        let own = if at_spines { self.spec(merge, |_| true, far) } else { self.spec(merge, |_| true, by_leaf) };
        let mut added = vec![(0, own)];
        for spine in spines.filter(|_| at_spines) {
            added.push((spine, self.spec(None, |receiver| leaf_of(receiver).is_some(), by_leaf)));
        }
        if world.leaves_copy {
            let leaves = world.leaf_of.iter().flatten().max().map_or(0, |last| last + 1);
            for leaf in 0..leaves {
                added.push((1 + leaf, self.spec(None, |receiver| leaf_of(receiver) == Some(leaf), |_| None)));
            }
        }
        for (switch, spec) in added {
            if spec.receivers.is_empty() {
                continue;
            }
            let added = self.switches[switch].switch.add_group(spec);
            assert_eq!(added, Ok(()), "a group that makes sense");
        }
    }

    /// The group at a switch: of those receivers that it reaches.
    fn spec(
        &self,
        merge: Option<MergeSpec>,
        is_there: impl Fn(usize) -> bool,
        branch: impl Fn(usize) -> Option<u32>,
    ) -> GroupSpec {
        let (world, group) = (self.world, self.group);
        let there: Vec<usize> = (0..world.receivers).filter(|&receiver| is_there(receiver)).collect();
        let receiver = |&i: &usize| Receiver {
            address: world.ip(i + 1),
            qpn: group.qpns[i],
            mac: (!world.is_routed()).then(|| World::mac(i + 1)),
            branch: branch(i),
        };
        let range = |range: &Range| {
            let targets = there.iter().map(|&i| range.targets[i]).collect();
            Range { targets, ..range.clone() }
        };
        GroupSpec {
            sender: world.ip(0),
            mc_id: group.mc_id,
            merge,
            receivers: there.iter().map(receiver).collect(),
            ranges: group.ranges.iter().map(range).collect(),
        }
    }

    /// Puts it into the simulator, behind the hosts; for each link whether it ends at a host, and at which.
    pub(super) fn build(self, sim: &mut Simulator<'_>) -> Vec<Option<usize>> {
        let Network { world, group, switches, links, hosts } = self;
        for (n, Made { switch, .. }) in switches.into_iter().enumerate() {
            let node = if n == 0 {
                let members = (1..=world.receivers).map(|host| world.ip(host)).collect();
                let (sender, first) = (world.ip(0), world.first_psn);
                let watch = Watch { sender, qpn: group.sender, mc_id: group.mc_id, members, first };
                sim.add_node(Box::new(Watched::new(switch, watch, world.modelled)))
            } else {
                sim.add_node(Box::new(switch))
            };
            debug_assert_eq!(node, hosts + n);
        }
        let mut ends = Vec::new();
        for (n, (a, b, place)) in links.into_iter().enumerate() {
            let slower = match place {
                Place::Host(host) if host > 0 => world.slower,
                _ => 1,
            };
            let faults = world.spec(place);
            let config = LinkConfig { rate: world.rate / slower, delay: world.delay, faults };
            for (from, to, direction) in [(a, b, Direction::Ab), (b, a, Direction::Ba)] {
                let seed = Random::stream(world.seed, 8600 + 2 * n as u64 + u64::from(direction == Direction::Ba));
                let link = sim.add_link(from, to, &config, direction, seed.clone().next_u64());
                debug_assert_eq!(link, ends.len());
                ends.push((to.node < hosts).then_some(to.node));
            }
        }
        ends
    }
}
