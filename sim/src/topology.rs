//! Networks of hosts and switches, and the flows between them, as data. Reading them is in `parse`, making them in `world`,
//! running them in `flows`.

mod flows;
mod fuzz;
mod hooks;
mod parse;
mod reliable;
mod report;
mod running;
mod world;

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use softnic_fault_injector::{Policy, Spec};
use softnic_nic::transports::Transport;
use softnic_nic::transports::qp::PayloadMode;
use softnic_sdr::reliable::Scheme;
use softnic_wire::{MacAddr, PathMtu};

use crate::workload::{Cc, Op};
use softnic_switch::Prefix;

pub use flows::run;
pub use fuzz::fuzz_topology;
pub use hooks::{Capture, Hooks, Sample};
pub use parse::TopologyError;
pub use report::{FlowReport, PortReport, TopologyReport};

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
}

/// A place in the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A host, by its index.
    Host(usize),
    /// A switch.
    Switch(usize),
}

/// A link between two places.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// One end, from which `ab` goes.
    pub a: Place,
    /// The other.
    pub b: Place,
    /// Bits a second.
    pub rate: u64,
    /// One way.
    pub delay: Duration,
    /// What goes wrong on it.
    pub faults: Spec,
}

/// Work requests from one host to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    /// The requester, by its index.
    pub from: usize,
    /// The responder.
    pub to: usize,
    /// The transport of its queue pairs.
    pub transport: Transport,
    /// What makes messages over SDR reliable, where they go by that: the transport is `rc` then, as what such a flow is like.
    pub scheme: Option<Scheme>,
    /// Bytes of a chunk of such messages; `None` for a packet.
    pub chunk: Option<u32>,
    /// What they do.
    pub op: Op,
    /// Bytes of each.
    pub size: u32,
    /// How many.
    pub count: u64,
    /// How many are outstanding.
    pub depth: u32,
    /// When the first is posted.
    pub start: Duration,
    /// Nothing more is posted from then on, however many are left.
    pub stop: Option<Duration>,
    /// Congestion control at both ends.
    pub cc: Cc,
}

impl Flow {
    /// Its transport as a file has it.
    pub fn spoken(&self) -> String {
        self.scheme.map_or_else(|| self.transport.to_string(), |scheme| scheme.to_string())
    }
}

/// A network with its flows.
#[derive(Debug, Clone, PartialEq)]
pub struct Topology {
    /// Its shape.
    pub kind: Kind,
    /// Names of the hosts.
    pub hosts: Vec<String>,
    /// Names of the switches.
    pub switches: Vec<String>,
    /// All links.
    pub links: Vec<Link>,
    /// How the queue before each port of a switch is run.
    pub policy: Policy,
    /// Path MTU.
    pub mtu: PathMtu,
    /// Whether frames carry their payload.
    pub payload: PayloadMode,
    /// Local ACK timeout code; by default the smallest of at least four of the longest round trips.
    pub timeout: Option<u8>,
    /// Retries.
    pub retry: u8,
    /// Who sends to whom.
    pub flows: Vec<Flow>,
}

impl Kind {
    pub(crate) fn hosts(self) -> usize {
        match self {
            Kind::Dumbbell { hosts } => 2 * hosts,
            Kind::Star { hosts } => hosts,
            Kind::LeafSpine { leaves, hosts, .. } => leaves * hosts,
        }
    }

    /// The names of the switches.
    pub fn switches(self) -> Vec<String> {
        match self {
            Kind::Dumbbell { .. } => vec!["s0".into(), "s1".into()],
            Kind::Star { .. } => vec!["s0".into()],
            Kind::LeafSpine { leaves, spines, .. } => {
                let names = |kind: &'static str, n| (0..n).map(move |i| format!("{kind}{i}"));
                names("leaf", leaves).chain(names("spine", spines)).collect()
            }
        }
    }

    /// The switch that a host is on, and its place there.
    pub(crate) fn attached(self, host: usize) -> (usize, usize) {
        match self {
            Kind::Star { .. } => (0, host),
            Kind::Dumbbell { hosts } | Kind::LeafSpine { hosts, .. } => (host / hosts, host % hosts),
        }
    }

    /// The two ends of every link, those of the hosts first.
    pub fn links(self) -> Vec<(Place, Place)> {
        let hosts = (0..self.hosts()).map(|h| (Place::Host(h), Place::Switch(self.attached(h).0)));
        let between = match self {
            Kind::Star { .. } => vec![],
            Kind::Dumbbell { .. } => vec![(Place::Switch(0), Place::Switch(1))],
            Kind::LeafSpine { leaves, spines, .. } => {
                let pairs = (0..leaves).flat_map(|l| (0..spines).map(move |s| (l, leaves + s)));
                pairs.map(|(leaf, spine)| (Place::Switch(leaf), Place::Switch(spine))).collect()
            }
        };
        hosts.chain(between).collect()
    }

    /// The addresses of a host: 10, its switch, its place there.
    pub(crate) fn address(self, host: usize) -> (IpAddr, MacAddr) {
        let (switch, place) = self.attached(host);
        let (s, [high, low]) = (switch as u8, (place as u16 + 1).to_be_bytes());
        (Ipv4Addr::new(10, s, high, low).into(), MacAddr([2, 0, 0, s, high, low]))
    }

    /// Where a host sends frames for another: out of its subnet to its leaf, which routes them.
    pub(crate) fn next_hop(self, from: usize, to: usize) -> MacAddr {
        let [own, other] = [from, to].map(|host| self.attached(host).0);
        let routed = own != other && matches!(self, Kind::LeafSpine { .. });
        if routed { Kind::switch_mac(own) } else { self.address(to).1 }
    }

    /// All hosts of a switch.
    pub(crate) fn subnet(switch: usize) -> Prefix {
        Prefix { addr: Ipv4Addr::new(10, switch as u8, 0, 0).into(), len: 16 }
    }

    pub(crate) fn switch_mac(switch: usize) -> MacAddr {
        MacAddr([2, 1, 0, 0, 0, switch as u8])
    }
}

impl Topology {
    /// The link of two places and whether it was named the other way round.
    pub(crate) fn link_between(&mut self, a: Place, b: Place) -> Option<&mut Link> {
        self.links.iter_mut().find(|l| (l.a, l.b) == (a, b) || (l.b, l.a) == (a, b))
    }

    /// What a link is called: by its two ends, as in `h0-s0`.
    pub fn link_name(&self, link: usize) -> String {
        let Link { a, b, .. } = self.links[link];
        format!("{}-{}", self.name(a), self.name(b))
    }

    /// The index of the link with that name, from whichever of its ends.
    pub fn find_link(&self, name: &str) -> Option<usize> {
        let is_named = |l: &Link| {
            [(l.a, l.b), (l.b, l.a)]
                .iter()
                .any(|(a, b)| name.strip_prefix(self.name(*a)).and_then(|n| n.strip_prefix('-')) == Some(self.name(*b)))
        };
        self.links.iter().position(is_named)
    }

    /// What a place is called.
    pub fn name(&self, place: Place) -> &str {
        match place {
            Place::Host(i) => &self.hosts[i],
            Place::Switch(i) => &self.switches[i],
        }
    }
}
