//! A switch as a Node: store and forward, by MAC addresses and by routes, with a queue before each port that drops and marks.

use std::collections::VecDeque;

use softnic_fault_injector::random::Random;
use softnic_fault_injector::{Policy, QueueDecision};
use softnic_wire::ethernet::{self, ethertype};
use softnic_wire::transit::{Hop, mark_ce, take_hop};
use softnic_wire::{Instant, MacAddr, Node, TxFrame, ipv4, ipv6};

use crate::tables::{FlowKey, MacTable, NextHop, Prefix, Routes};
use softnic_fault_injector::frames::{Frame, Frames};

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
    /// Seed of marks, and of the choice among equal routes.
    pub seed: u64,
}

/// What a port did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Frames that came in.
    pub received: u64,
    /// Frames that went out.
    pub sent: u64,
    /// Frames that found the queue full.
    pub dropped: u64,
    /// Frames that were marked.
    pub marked: u64,
    /// The most bytes that ever waited.
    pub max_queue: u64,
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
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    frame: Frame,
    wire_len: u32,
}

#[derive(Debug)]
struct Port {
    policy: Policy,
    queue: VecDeque<Waiting>,
    /// In the queue. What is being sent has left it.
    bytes: u64,
    stats: PortStats,
}

/// A switch.
#[derive(Debug)]
pub struct Switch {
    config: SwitchConfig,
    ports: Vec<Port>,
    macs: MacTable,
    routes: Routes,
    frames: Frames,
    random: Random,
    counters: SwitchCounters,
}

impl Switch {
    /// Without ports and routes.
    pub fn new(config: SwitchConfig) -> Switch {
        Switch {
            config,
            ports: Vec::new(),
            macs: MacTable::default(),
            routes: Routes::default(),
            frames: Frames::bounded(config.max_frame, config.max_frames),
            random: Random::stream(config.seed, 1),
            counters: SwitchCounters::default(),
        }
    }

    /// Adds a port whose output queue is run like this, and says its number.
    pub fn add_port(&mut self, policy: Policy) -> usize {
        self.ports.push(Port { policy, queue: VecDeque::new(), bytes: 0, stats: PortStats::default() });
        self.ports.len() - 1
    }

    /// Fixes the port of a MAC address; others are learned.
    pub fn add_mac(&mut self, mac: MacAddr, port: usize) {
        self.macs.fix(mac, port);
    }

    /// Adds a route; flows are spread over its next hops by a hash of addresses and UDP ports.
    pub fn add_route(&mut self, prefix: Prefix, next_hops: Vec<NextHop>) {
        self.routes.add(prefix, next_hops);
    }

    /// What a port did.
    pub fn port_stats(&self, port: usize) -> PortStats {
        self.ports.get(port).map_or_else(PortStats::default, |p| p.stats)
    }

    /// Bytes that wait before a port now.
    pub fn queued(&self, port: usize) -> u64 {
        self.ports.get(port).map_or(0, |p| p.bytes)
    }

    /// What became of frames that no queue saw.
    pub fn counters(&self) -> SwitchCounters {
        self.counters
    }

    /// How many ports it has.
    pub fn ports(&self) -> usize {
        self.ports.len()
    }

    /// Takes a hop from a packet, addresses it to the next one and says which port it leaves by.
    fn route(&mut self, frame: &mut [u8]) -> Option<usize> {
        let next = FlowKey::of(frame).and_then(|flow| self.routes.next_hop(&flow, self.config.seed));
        let Some(next) = next else {
            self.counters.unroutable += 1;
            return None;
        };
        if take_hop(frame) != Hop::Taken {
            self.counters.hops_exceeded += 1;
            return None;
        }
        let mut header = ethernet::Packet::new_unchecked(frame);
        header.set_dst(next.mac);
        header.set_src(self.config.mac);
        Some(next.port)
    }

    fn flood(&mut self, from: usize, frame: &[u8]) {
        self.counters.flooded += 1;
        for port in (0..self.ports.len()).filter(|p| *p != from) {
            self.enqueue(port, frame);
        }
    }

    fn enqueue(&mut self, port: usize, frame: &[u8]) {
        let wire_len = self.wire_len(frame);
        let Some(port) = self.ports.get_mut(port) else {
            self.counters.unroutable += 1;
            return;
        };
        let decision = port.policy.decide(port.bytes, wire_len as u64, &mut self.random);
        if decision == QueueDecision::Drop {
            port.stats.dropped += 1;
            return;
        }
        let Some(frame) = self.frames.keep(frame) else {
            self.counters.no_buffer += 1;
            return;
        };
        if decision == QueueDecision::Mark {
            port.stats.marked += u64::from(mark_ce(self.frames.bytes(frame)));
        }
        port.bytes += wire_len as u64;
        port.stats.max_queue = port.stats.max_queue.max(port.bytes);
        port.queue.push_back(Waiting { frame, wire_len: wire_len as u32 });
    }

    /// Bytes that a frame takes from Ethernet on.
    fn wire_len(&self, frame: &[u8]) -> usize {
        if !self.config.elided {
            return frame.len();
        }
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
}

impl Node for Switch {
    fn handle_frame(&mut self, _now: Instant, port: usize, frame: &mut [u8]) {
        if let Some(p) = self.ports.get_mut(port) {
            p.stats.received += 1;
        }
        let Ok(header) = ethernet::Packet::new_checked(&*frame) else {
            self.counters.unroutable += 1;
            return;
        };
        let (src, dst) = (header.src(), header.dst());
        self.macs.learn(src, port);
        if dst == self.config.mac {
            if let Some(out) = self.route(frame) {
                self.enqueue(out, frame);
            }
            return;
        }
        match self.macs.port(dst) {
            Some(out) if out == port => self.counters.filtered += 1,
            Some(out) => self.enqueue(out, frame),
            None => self.flood(port, frame),
        }
    }

    fn poll_transmit(&mut self, _now: Instant, port: usize, tx: &mut TxFrame<'_>) -> bool {
        let Some(port) = self.ports.get_mut(port) else { return false };
        while let Some(Waiting { frame, wire_len }) = port.queue.pop_front() {
            port.bytes -= u64::from(wire_len);
            let put = tx.put_frame_elided(self.frames.bytes(frame), wire_len as usize);
            self.frames.give_back(frame);
            if put.is_ok() {
                port.stats.sent += 1;
                return true;
            }
            self.counters.no_buffer += 1; // the driver's frames are shorter than ours
        }
        false
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _now: Instant) {}
}
