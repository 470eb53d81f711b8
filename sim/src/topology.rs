//! Networks of hosts and switches, and the flows and groups in them, as data. Their shapes are in `shape`, reading them in `parse`,
//! making them in `world`, running them in `flows`.

mod background;
mod bifurcation;
mod flows;
mod fuzz;
mod groups;
mod hooks;
mod network;
mod parse;
mod reliable;
mod report;
mod running;
mod shape;
mod world;

use std::time::Duration;

use softnic_fault_injector::bottleneck::wire_bytes;
use softnic_fault_injector::{Direction, Policy, Spec};
use softnic_nic::transports::Transport;
use softnic_nic::transports::qp::PayloadMode;
use softnic_sdr::reliable::Scheme;
use softnic_wire::{MacAddr, PathMtu, pause};

use crate::workload::{Cc, Op};

pub use background::{Background, BackgroundReport, Pattern};
pub use flows::run;
pub use fuzz::fuzz_topology;
pub use hooks::{Capture, Hooks, Sample};
pub use network::Network;
pub use parse::TopologyError;
pub use report::{FlowReport, GroupReport, HostReport, MemberReport, PortReport, TopologyReport};
pub use shape::{Kind, Place};
pub use world::Connecting;

/// Room for the headers of a frame.
const HEADERS: u64 = 128;

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
    /// Of its packets, and of their answers.
    pub dscp: u8,
    /// The time that each message has from when it is posted, over a transport of best effort.
    pub deadline: Option<Duration>,
    /// Blocks that each packet has a part of, over such a transport; 1 is plain.
    pub stride: u16,
}

impl Flow {
    /// Its transport as a file has it.
    pub fn spoken(&self) -> String {
        self.scheme.map_or_else(|| self.transport.to_string(), |scheme| scheme.to_string())
    }
}

/// Work requests from one host to several, by one queue pair (MC-RDMA): switches copy each packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// What the sender does; to the first receiver, as far as the sender knows.
    pub work: Flow,
    /// All receivers.
    pub receivers: Vec<usize>,
}

/// A route that changes while flows run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteChange {
    /// When.
    pub at: Duration,
    /// Whose route.
    pub switch: usize,
    /// To a host, or to all hosts of a switch.
    pub to: Place,
    /// Neighbours that lead there from then on, any of them; without one packets are discarded.
    pub via: Vec<usize>,
}

/// Priority-based flow control of all switches and hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pfc {
    /// Bytes of a priority that came in at a port of a switch: above this its peer is paused.
    pub xoff: u64,
    /// At or below this the peer may go on.
    pub xon: u64,
    /// Bytes above `xoff`; by default as many as the port's link needs.
    pub headroom: Option<u64>,
}

/// A network with its flows and groups.
#[derive(Debug, Clone, PartialEq)]
pub struct Topology {
    /// Its shape.
    pub kind: Kind,
    /// Names of the hosts.
    pub hosts: Vec<String>,
    /// Names of the switches.
    pub switches: Vec<String>,
    /// All links; two switches may have several.
    pub links: Vec<Link>,
    /// Whether packets between switches are routed; else their frames go by MAC address.
    pub routed: bool,
    /// Routes that change, in the order in which they do.
    pub changes: Vec<RouteChange>,
    /// How the queue before each port of a switch is run.
    pub policy: Policy,
    /// Flow control, if any; queues drop nothing then.
    pub pfc: Option<Pfc>,
    /// Path MTU.
    pub mtu: PathMtu,
    /// Whether frames carry their payload.
    pub payload: PayloadMode,
    /// Local ACK timeout code; by default the smallest of at least four of the longest round trips.
    pub timeout: Option<u8>,
    /// Retries.
    pub retry: u8,
    /// For each switch whether it copies the packets of groups, and merges their acknowledgements.
    pub programmable: Vec<bool>,
    /// Who sends to whom.
    pub flows: Vec<Flow>,
    /// Who sends to several at once.
    pub groups: Vec<Group>,
    /// What else is on the network.
    pub background: Vec<Background>,
}

impl Pfc {
    /// Headroom at an end of a link for frames of up to `max_frame` bytes: what arrives behind the byte that crosses `xoff`. That byte's
    /// frame; a frame that our port is sending, the pause frame, and the time to the peer and back; a frame that the peer is sending.
    pub fn headroom_of(&self, link: &Link, max_frame: u64) -> u64 {
        let delays = [Direction::Ab, Direction::Ba].map(|d| link.delay.saturating_add(link.faults.shape(d).longest()));
        // Points in time that Nodes see are whole nanoseconds.
        let round_trip = delays[0].saturating_add(delays[1]).saturating_add(Duration::from_nanos(4));
        let on_the_way = u128::from(link.rate) * round_trip.as_nanos() / 8_000_000_000;
        let frames = 3 * wire_bytes(max_frame) + wire_bytes(pause::LEN as u64);
        self.headroom.unwrap_or_else(|| u64::try_from(on_the_way).unwrap_or(u64::MAX).saturating_add(frames))
    }
}

impl Topology {
    /// A network of this shape with the usual names and settings, and neither links nor flows.
    pub fn new(kind: Kind) -> Topology {
        let switches = kind.switches();
        Topology {
            kind,
            hosts: (0..kind.hosts()).map(|i| format!("h{i}")).collect(),
            programmable: vec![true; switches.len()],
            switches,
            links: Vec::new(),
            routed: kind.is_routed(),
            changes: Vec::new(),
            policy: Policy { limit: 1 << 20, red: None },
            pfc: None,
            mtu: PathMtu::B1024,
            payload: PayloadMode::Real,
            timeout: None,
            retry: 7,
            flows: Vec::new(),
            groups: Vec::new(),
            background: Vec::new(),
        }
    }

    /// What hosts do: flows, then groups, each with all its receivers.
    pub fn work(&self) -> impl Iterator<Item = (&Flow, &[usize])> {
        let flows = self.flows.iter().map(|flow| (flow, std::slice::from_ref(&flow.to)));
        flows.chain(self.groups.iter().map(|group| (&group.work, &group.receivers[..])))
    }

    /// Bytes of frames that all flows and groups together may have outstanding.
    pub(crate) fn outstanding(&self) -> u64 {
        let of = |(work, to): (&Flow, &[usize])| {
            let packets = u64::from(work.size.div_ceil(self.mtu.bytes()).max(1));
            let bytes = u64::from(work.size).saturating_add(packets * HEADERS);
            bytes.saturating_mul(work.depth.into()).saturating_mul(to.len() as u64)
        };
        let flows = self.work().map(of).fold(0, u64::saturating_add);
        flows.saturating_add(self.background.iter().map(Background::outstanding).fold(0, u64::saturating_add))
    }

    /// Where a host sends frames for another: out of its subnet to its switch, which routes them.
    pub(crate) fn next_hop(&self, from: usize, to: usize) -> MacAddr {
        let [own, other] = [from, to].map(|host| self.kind.attached(host).0);
        if own != other && self.routed { Kind::switch_mac(own) } else { self.kind.address(to).1 }
    }

    /// The places next to a switch on the way to a host when so many routes have changed; of several, packets take any.
    pub(crate) fn next_places(&self, switch: usize, host: usize, changes: usize) -> Vec<Place> {
        let tor = self.kind.attached(host).0;
        if tor == switch {
            return vec![Place::Host(host)];
        }
        let changed = |to| self.changes[..changes].iter().rev().find(|c| c.switch == switch && c.to == to);
        // The route to a host is more specific than that to its subnet.
        let via = match changed(Place::Host(host)).or_else(|| changed(Place::Switch(tor))) {
            Some(change) => change.via.clone(),
            None => self.kind.ways(switch).to(tor),
        };
        via.into_iter().map(Place::Switch).collect()
    }

    /// Whether packets to a host that leave a switch may come back to it, when so many routes have changed.
    pub(crate) fn goes_round(&self, switch: usize, host: usize, changes: usize) -> bool {
        let mut seen = vec![false; self.switches.len()];
        let mut to_do = vec![switch];
        while let Some(at) = to_do.pop() {
            for place in self.next_places(at, host, changes) {
                match place {
                    Place::Switch(next) if next == switch => return true,
                    Place::Switch(next) if !std::mem::replace(&mut seen[next], true) => to_do.push(next),
                    _ => {}
                }
            }
        }
        false
    }

    /// The rate of a host's link.
    pub(crate) fn line_rate(&self, host: usize) -> u64 {
        let of_host = |l: &&Link| l.a == Place::Host(host) || l.b == Place::Host(host);
        self.links.iter().find(of_host).map_or(u64::MAX, |l| l.rate)
    }

    /// The links of two places.
    pub(crate) fn links_between(&self, a: Place, b: Place) -> Vec<usize> {
        let ends = |l: &Link| (l.a, l.b) == (a, b) || (l.b, l.a) == (a, b);
        (0..self.links.len()).filter(|i| ends(&self.links[*i])).collect()
    }

    /// What a link is called: by its two ends, as in `h0-s0`, with a number from the second of several on: `s0-s1#2`.
    pub fn link_name(&self, link: usize) -> String {
        let Link { a, b, .. } = self.links[link];
        self.link_named(link, [a, b])
    }

    fn link_named(&self, link: usize, [a, b]: [Place; 2]) -> String {
        let name = format!("{}-{}", self.name(a), self.name(b));
        match self.links_between(a, b).iter().position(|of| *of == link) {
            Some(0) | None => name,
            Some(n) => format!("{name}#{}", n + 1),
        }
    }

    /// The index of the link with that name, from whichever of its ends.
    pub fn find_link(&self, name: &str) -> Option<usize> {
        let is_named = |i: &usize| {
            let Link { a, b, .. } = self.links[*i];
            [[a, b], [b, a]].into_iter().any(|ends| self.link_named(*i, ends) == name)
        };
        (0..self.links.len()).find(is_named)
    }

    /// The MAC address of a place.
    pub(crate) fn mac(&self, place: Place) -> MacAddr {
        match place {
            Place::Host(host) => self.kind.address(host).1,
            Place::Switch(switch) => Kind::switch_mac(switch),
        }
    }

    /// What a place is called.
    pub fn name(&self, place: Place) -> &str {
        match place {
            Place::Host(i) => &self.hosts[i],
            Place::Switch(i) => &self.switches[i],
        }
    }
}
