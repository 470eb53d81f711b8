//! A switch as a Node: store and forward, by MAC addresses and by routes.

use std::net::IpAddr;

use softnic_fault_injector::random::Random;
use softnic_fault_injector::{Policy, QueueDecision};
use softnic_wire::ethernet::{self, ethertype};
use softnic_wire::transit::{Hop, take_hop};
use softnic_wire::{Instant, Layout, MacAddr, Node, Qpn, TxFrame, ipv4, ipv6, pause};

use crate::group::{GroupError, GroupSpec, Groups};
use crate::held::{Held, Unsent};
use crate::neighbours::Neighbours;
use crate::pfc::{Pfc, PfcConfig, PfcStats};
use crate::port::{Port, PortStats};
use crate::tables::{self, FlowKey, MacTable, NextHop, Prefix, Routes};

/// What a switch is made with.
#[derive(Debug, Clone, Copy)]
pub struct SwitchConfig {
    /// Frames to this address are routed, all others switched.
    pub mac: MacAddr,
    /// The longest frame that it takes.
    pub max_frame: usize,
    /// Frames that it holds in all; and as many again that are short.
    pub max_frames: usize,
    /// Frames come without their payload: their length on the wire is that of the IP header.
    pub elided: bool,
    /// Seed of marks, of the choice among equal routes, and of tables.
    pub seed: u64,
}

/// What became of frames that no port's queue ever saw.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SwitchCounters {
    /// Sent out of all ports, for want of a better idea or because they were for all.
    pub flooded: u64,
    /// Not sent back where they came from.
    pub filtered: u64,
    /// No route, or no IP packet where one was to be routed.
    pub unroutable: u64,
    /// No hop left.
    pub hops_exceeded: u64,
    /// No memory, or too long for it.
    pub no_buffer: u64,
    /// The next hop's MAC address is not known.
    pub unresolved: u64,
}

/// A switch.
#[derive(Debug)]
pub struct Switch {
    pub(crate) config: SwitchConfig,
    pub(crate) ports: Vec<Port>,
    pub(crate) macs: MacTable,
    routes: Routes,
    pub(crate) neighbours: Neighbours,
    pub(crate) groups: Groups,
    pub(crate) held: Held,
    pub(crate) random: Random,
    pub(crate) counters: SwitchCounters,
    pub(crate) pfc: Pfc,
    /// Changes with every table that says where frames go.
    pub(crate) epoch: u64,
}

impl Switch {
    /// Without ports and routes.
    pub fn new(config: SwitchConfig) -> Switch {
        Switch {
            config,
            ports: Vec::new(),
            macs: MacTable::new(config.seed),
            routes: Routes::default(),
            neighbours: Neighbours::new(config.seed),
            groups: Groups::default(),
            held: Held::bounded(config.max_frame, config.max_frames),
            random: Random::stream(config.seed, 1),
            counters: SwitchCounters::default(),
            pfc: Pfc::default(),
            epoch: 0,
        }
    }

    /// Other hashes in tables of what anybody may send, for a switch that is made and has learned nothing yet: without it they follow from
    /// the seed.
    pub fn hide_hashes(&mut self, secret: u64) {
        (self.macs, self.neighbours) = (MacTable::new(secret), Neighbours::new(secret));
    }

    /// Adds a port whose output queue is run like this, and says its number.
    pub fn add_port(&mut self, policy: Policy) -> usize {
        self.ports.push(Port::new(policy));
        self.ports.len() - 1
    }

    /// Makes a port lossless: its peer is paused before there is no room for what it sends, and pauses of the peer are obeyed.
    pub fn set_pfc(&mut self, port: usize, config: PfcConfig) {
        if let Some(p) = self.ports.get_mut(port) {
            p.make_lossless();
            self.pfc.set(port, config);
        }
    }

    /// What flow control did at a port.
    pub fn pfc_stats(&self, port: usize) -> PfcStats {
        self.pfc.stats(port)
    }

    /// So many frames wait before a port at most, however short they are, so that all ports have a share of the memory.
    pub fn set_most_frames(&mut self, port: usize, most: usize) {
        if let Some(port) = self.ports.get_mut(port) {
            port.most_frames = most;
        }
    }

    /// Packets are routed through this port: it leads to another switch, and frames for all stay on this side. Where links form a circle, they
    /// would go round for ever.
    pub fn set_routed(&mut self, port: usize) {
        if let Some(port) = self.ports.get_mut(port) {
            port.floods = false;
        }
    }

    /// Fixes the port of a MAC address; others are learned.
    pub fn add_mac(&mut self, mac: MacAddr, port: usize) {
        self.macs.fix(mac, port);
        self.epoch += 1;
    }

    /// Adds a route; flows are spread over its next hops by a hash of addresses and UDP ports.
    pub fn add_route(&mut self, prefix: Prefix, next_hops: Vec<NextHop>) {
        self.routes.add(prefix, next_hops);
        self.epoch += 1;
    }

    /// Replaces the route to exactly these addresses, or adds it.
    pub fn set_route(&mut self, prefix: Prefix, next_hops: Vec<NextHop>) {
        self.routes.set(prefix, next_hops);
        self.epoch += 1;
    }

    /// A neighbour's MAC address was found out, or lost.
    pub fn set_neighbour(&mut self, address: IpAddr, mac: Option<MacAddr>) {
        self.epoch += u64::from(self.neighbours.set(address, mac));
    }

    /// A neighbour whose MAC address is to be found out: packets for it were dropped.
    pub fn take_wanted(&mut self) -> Option<IpAddr> {
        self.neighbours.take_wanted()
    }

    /// Adds a group.
    ///
    /// # Errors
    /// When it makes no sense, when it is there, or when a table is full: then all is as before.
    pub fn add_group(&mut self, spec: GroupSpec) -> Result<(), GroupError> {
        self.groups.add(spec)
    }

    /// Removes a group. Copies in queues still leave.
    ///
    /// # Errors
    /// When there is none.
    pub fn remove_group(&mut self, sender: IpAddr, mc_id: Qpn) -> Result<(), GroupError> {
        self.groups.remove(sender, mc_id)
    }

    /// What a port did.
    pub fn port_stats(&self, port: usize) -> PortStats {
        self.ports.get(port).map_or_else(PortStats::default, |p| p.stats)
    }

    /// Bytes that wait before a port now.
    pub fn queued(&self, port: usize) -> u64 {
        self.ports.get(port).map_or(0, Port::queued)
    }

    /// What became of frames that no queue saw.
    pub fn counters(&self) -> SwitchCounters {
        self.counters
    }

    /// How many ports it has.
    pub fn ports(&self) -> usize {
        self.ports.len()
    }

    /// Where packets to an address go, of several ways that of their flow: the port and the MAC address of the next hop, and whether that
    /// is another one than the destination itself.
    #[inline]
    pub(crate) fn next_hop(
        &mut self,
        dst: IpAddr,
        flow: impl FnOnce() -> Option<FlowKey>,
    ) -> Result<(usize, MacAddr, bool), Unreachable> {
        let hop = self.routes.next_hop(dst, self.config.seed, flow).ok_or(Unreachable::NoRoute)?;
        let address = match hop {
            NextHop::Fixed { port, mac } => return Ok((port, mac, true)),
            NextHop::Via(address) => address,
            NextHop::Direct => dst,
        };
        let mac = self.neighbours.mac(address).ok_or(Unreachable::Unresolved)?;
        let port = self.macs.port(mac).ok_or(Unreachable::Unresolved)?;
        Ok((port, mac, hop != NextHop::Direct))
    }

    /// Takes a hop from a packet, addresses it to the next one and says which port it leaves by.
    #[inline]
    fn route(&mut self, frame: &mut [u8]) -> Option<usize> {
        let next = match tables::destination(frame) {
            Some(dst) => self.next_hop(dst, || FlowKey::of(frame)),
            None => Err(Unreachable::NoRoute),
        };
        let (port, mac, _) = match next {
            Ok(next) => next,
            Err(why) => {
                match why {
                    Unreachable::NoRoute => self.counters.unroutable += 1,
                    Unreachable::Unresolved => self.counters.unresolved += 1,
                }
                return None;
            }
        };
        if take_hop(frame) != Hop::Taken {
            self.counters.hops_exceeded += 1;
            return None;
        }
        let mut header = ethernet::Packet::new_unchecked(frame);
        header.set_dst(mac);
        header.set_src(self.config.mac);
        Some(port)
    }

    fn flood(&mut self, from: usize, frame: &[u8]) {
        self.counters.flooded += 1;
        for port in 0..self.ports.len() {
            if port != from && self.ports[port].floods {
                self.enqueue(port, frame);
            }
        }
    }

    /// Puts a frame behind those that wait before a port.
    #[inline]
    pub(crate) fn enqueue(&mut self, port: usize, frame: &[u8]) {
        let wire_len = self.wire_len(frame);
        let Some(port) = self.ports.get_mut(port) else {
            self.counters.unroutable += 1;
            return;
        };
        let decision = port.decide(wire_len, &mut self.random);
        if decision == QueueDecision::Drop {
            return;
        }
        let Some((kept, marked)) = self.held.keep(frame, decision == QueueDecision::Mark) else {
            self.counters.no_buffer += 1;
            return;
        };
        port.stats.marked += u64::from(marked);
        port.push(kept, wire_len, self.pfc.tag());
    }

    /// Bytes that a frame takes from Ethernet on.
    #[inline]
    pub(crate) fn wire_len(&self, frame: &[u8]) -> usize {
        if self.config.elided { whole_len(frame) } else { frame.len() }
    }

    /// Sends a frame where its addresses say; `from` is the port that it came in at, if any.
    pub(crate) fn forward(&mut self, from: Option<usize>, frame: &mut [u8]) {
        let dst = ethernet::Packet::new_unchecked(&*frame).dst();
        if dst == self.config.mac {
            if let Some(out) = self.route(frame) {
                self.enqueue(out, frame);
            }
            return;
        }
        match self.macs.port(dst) {
            Some(out) if Some(out) == from => self.counters.filtered += 1,
            Some(out) => self.enqueue(out, frame),
            None => self.flood(from.unwrap_or(usize::MAX), frame),
        }
    }

    /// Takes a frame that came in for the switch itself: it says where its sender is, and goes no further.
    pub fn take_own(&mut self, port: usize, frame: &[u8]) {
        if let Some(p) = self.ports.get_mut(port) {
            p.stats.received += 1;
        }
        if let Ok(header) = ethernet::Packet::new_checked(frame)
            && self.macs.learn(header.src(), port)
        {
            self.epoch += 1;
        }
    }

    /// Takes in a frame that there is room for.
    #[inline]
    fn take_in(&mut self, now: Instant, port: usize, frame: &mut [u8]) {
        let Ok(header) = ethernet::Packet::new_checked(&*frame) else {
            self.counters.unroutable += 1;
            return;
        };
        if self.macs.learn(header.src(), port) {
            self.epoch += 1;
        }
        if !self.groups.is_empty()
            && let Ok(layout) = Layout::locate(frame)
            && self.handle_group(now, port, frame, &layout)
        {
            return;
        }
        self.forward(Some(port), frame);
    }

    /// Sends a frame of the switch's own: what it asks and answers itself.
    pub fn send_own(&mut self, frame: &mut [u8]) {
        if ethernet::Packet::new_checked(&*frame).is_ok() {
            self.forward(None, frame);
        }
    }
}

/// Bytes of a frame whose payload may be elided, by its IP header.
fn whole_len(frame: &[u8]) -> usize {
    let end = ethernet::network_layer(frame).ok().and_then(|(kind, at)| {
        let packet = frame.get(at..)?;
        match kind {
            ethertype::IPV4 => ipv4::Packet::new_checked(packet).ok().map(|ip| at + ip.total_len()),
            ethertype::IPV6 => ipv6::Packet::new_checked(packet).ok().map(|ip| at + ipv6::LEN + ip.payload_len()),
            _ => None,
        }
    });
    end.map_or(frame.len(), |end| end.max(frame.len()))
}

/// Whether a frame is for the other end of its link and nobody else.
#[inline]
fn is_link_local(frame: &[u8]) -> bool {
    matches!(frame, [0x01, 0x80, 0xc2, 0, 0, 0..=0x0f, ..])
}

/// Why a packet has no next hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unreachable {
    NoRoute,
    Unresolved,
}

impl Node for Switch {
    fn handle_frame(&mut self, now: Instant, port: usize, frame: &mut [u8]) {
        if let Some(p) = self.ports.get_mut(port) {
            p.stats.received += 1;
        }
        if !self.pfc.is_on() {
            // Pause frames and others for one link alone end at it (IEEE 802.1Q, 8.6.3).
            if is_link_local(frame) {
                self.counters.filtered += 1;
                return;
            }
            return self.take_in(now, port, frame);
        }
        if pause::Repr::is_mac_control(frame) {
            return self.pfc.hear(now, port, frame);
        }
        let wire_len = self.wire_len(frame);
        if self.pfc.begin(port, frame, wire_len) {
            self.take_in(now, port, frame);
            self.pfc.end();
        }
    }

    fn poll_transmit(&mut self, now: Instant, port: usize, tx: &mut TxFrame<'_>) -> bool {
        let mut paused = 0;
        if self.pfc.is_on() {
            if let Some(pause) = self.pfc.pause_frame(now, port, self.config.mac) {
                return tx.put_frame(&pause).is_ok();
            }
            paused = self.pfc.paused(now, port);
        }
        let Some(port) = self.ports.get_mut(port) else { return false };
        while let Some(waiting) = port.pop(paused) {
            self.pfc.left(waiting.tag);
            match self.held.send(waiting.kept, waiting.wire_len as usize, tx) {
                Ok(()) => {
                    port.stats.sent += 1;
                    return true;
                }
                Err(Unsent::TooLong) => port.stats.too_long += 1,
                Err(Unsent::Unchangeable) => self.counters.hops_exceeded += 1,
            }
        }
        false
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if self.pfc.is_on() { self.pfc.poll_timeout() } else { None }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.pfc.handle_timeout(now);
    }
}
