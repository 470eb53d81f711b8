//! The shapes of networks: which switches there are, what is linked to what, and by which of them packets go.

use std::net::{IpAddr, Ipv4Addr};

use softnic_switch::Prefix;
use softnic_wire::MacAddr;

/// The shape of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Two switches, with so many hosts each.
    Dumbbell {
        /// On each side.
        hosts: usize,
    },
    /// One switch.
    Star {
        /// On it.
        hosts: usize,
    },
    /// Every leaf is connected to every spine; packets between leaves are routed, and spread over the spines.
    LeafSpine {
        /// Switches with hosts.
        leaves: usize,
        /// Switches between them.
        spines: usize,
        /// On each leaf.
        hosts: usize,
    },
    /// Three levels of switches with `k` ports each, k³/4 hosts in k pods; packets are routed, and spread over all shortest paths.
    FatTree {
        /// Ports of a switch; even.
        k: usize,
    },
}

/// A place in the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A host, by its index.
    Host(usize),
    /// A switch.
    Switch(usize),
}

impl Kind {
    pub(crate) fn hosts(self) -> usize {
        match self {
            Kind::Dumbbell { hosts } => 2 * hosts,
            Kind::Star { hosts } => hosts,
            Kind::LeafSpine { leaves, hosts, .. } => leaves * hosts,
            Kind::FatTree { k } => k * k * k / 4,
        }
    }

    /// The names of the switches.
    pub fn switches(self) -> Vec<String> {
        let names = |kind: &'static str, n| (0..n).map(move |i| format!("{kind}{i}"));
        match self {
            Kind::Dumbbell { .. } => names("s", 2).collect(),
            Kind::Star { .. } => names("s", 1).collect(),
            Kind::LeafSpine { leaves, spines, .. } => names("leaf", leaves).chain(names("spine", spines)).collect(),
            Kind::FatTree { k } => {
                let pods = names("edge", k * k / 2).chain(names("agg", k * k / 2));
                pods.chain(names("core", k * k / 4)).collect()
            }
        }
    }

    /// The switch that a host is on, and its place there.
    pub(crate) fn attached(self, host: usize) -> (usize, usize) {
        let each = self.hosts() / self.tors();
        (host / each, host % each)
    }

    /// Switches with hosts; they come first.
    pub(crate) fn tors(self) -> usize {
        match self {
            Kind::Star { .. } => 1,
            Kind::Dumbbell { .. } => 2,
            Kind::LeafSpine { leaves, .. } => leaves,
            Kind::FatTree { k } => k * k / 2,
        }
    }

    /// The hosts on a switch.
    pub(crate) fn hosts_of(self, switch: usize) -> std::ops::Range<usize> {
        let each = self.hosts() / self.tors();
        if switch < self.tors() { switch * each..(switch + 1) * each } else { 0..0 }
    }

    /// The two ends of every link, those of the hosts first.
    pub fn links(self) -> Vec<(Place, Place)> {
        let hosts = (0..self.hosts()).map(|h| (Place::Host(h), Place::Switch(self.attached(h).0)));
        let up = (0..self.switches().len()).flat_map(|s| self.ways(s).up.into_iter().map(move |above| (s, above)));
        // The two of a dumbbell are above each other.
        let between = up.filter(|(below, above)| below < above);
        let between = between.map(|(below, above)| (Place::Switch(below), Place::Switch(above)));
        hosts.chain(between).collect()
    }

    /// The addresses of a host: 10, its switch, its place there.
    pub(crate) fn address(self, host: usize) -> (IpAddr, MacAddr) {
        let (switch, place) = self.attached(host);
        let (s, [high, low]) = (switch as u8, (place as u16 + 1).to_be_bytes());
        (Ipv4Addr::new(10, s, high, low).into(), MacAddr([2, 0, 0, s, high, low]))
    }

    /// All hosts of a switch.
    pub(crate) fn subnet(switch: usize) -> Prefix {
        Prefix { addr: Ipv4Addr::new(10, switch as u8, 0, 0).into(), len: 16 }
    }

    pub(crate) fn switch_mac(switch: usize) -> MacAddr {
        MacAddr([2, 1, 0, 0, 0, switch as u8])
    }

    /// Whether packets between switches are routed; else their frames go by MAC address.
    pub(crate) fn is_routed(self) -> bool {
        matches!(self, Kind::LeafSpine { .. } | Kind::FatTree { .. })
    }

    /// Switches that a packet passes at most.
    pub(crate) fn hops(self) -> u32 {
        match self {
            Kind::Star { .. } => 1,
            Kind::Dumbbell { .. } => 2,
            Kind::LeafSpine { .. } => 3,
            Kind::FatTree { .. } => 5,
        }
    }

    /// By which other switches a switch reaches hosts that are not its own.
    pub(crate) fn ways(self, switch: usize) -> Ways {
        match self {
            Kind::Star { .. } => Ways::default(),
            Kind::Dumbbell { .. } => Ways { up: vec![1 - switch], ..Ways::default() },
            Kind::LeafSpine { leaves, spines, .. } if switch < leaves => {
                Ways { up: (leaves..leaves + spines).collect(), ..Ways::default() }
            }
            Kind::LeafSpine { leaves, .. } => Ways { down: (0..leaves).map(|leaf| (leaf, leaf)).collect(), up: vec![] },
            Kind::FatTree { k } => fat_tree_ways(k, switch),
        }
    }
}

/// Of each level k/2 switches are in a pod. The i-th aggregation switch of every pod is connected to the i-th k/2 cores.
fn fat_tree_ways(k: usize, switch: usize) -> Ways {
    let (half, edges) = (k / 2, k * k / 2);
    let (aggregation, cores) = (edges, 2 * edges);
    if switch < aggregation {
        let pod = switch / half;
        return Ways { down: vec![], up: (0..half).map(|i| aggregation + pod * half + i).collect() };
    }
    if switch < cores {
        let (pod, i) = ((switch - aggregation) / half, (switch - aggregation) % half);
        let down = (pod * half..(pod + 1) * half).map(|edge| (edge, edge)).collect();
        return Ways { down, up: (0..half).map(|n| cores + i * half + n).collect() };
    }
    let i = (switch - cores) / half;
    Ways { down: (0..edges).map(|edge| (edge, aggregation + edge / half * half + i)).collect(), up: vec![] }
}

/// By which other switches a switch reaches hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ways {
    /// A switch with hosts, and the one that leads to it.
    pub(crate) down: Vec<(usize, usize)>,
    /// Any of them leads to all others.
    pub(crate) up: Vec<usize>,
}

impl Ways {
    /// The next switches on the way to the hosts of another switch.
    pub(crate) fn to(&self, tor: usize) -> Vec<usize> {
        match self.down.iter().find(|(below, _)| *below == tor) {
            Some((_, via)) => vec![*via],
            None => self.up.clone(),
        }
    }
}
