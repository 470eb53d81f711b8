//! Neighbours: answers ARP, NDP and echo requests for a NIC whose packets bypass the kernel, and resolves MAC addresses of peers.
//!
//! Free of IO and clocks: [`Neighbours`] is a [`Node`] beside the NIC on the same port.

mod announce;
mod frames;
mod fuzz;
mod links;
mod table;

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetFrame, EthernetProtocol, Icmpv4Packet, Icmpv4Repr, Icmpv6Packet,
    Icmpv6Repr, IpProtocol, Ipv4Packet, Ipv4Repr, Ipv6Packet, Ipv6Repr, NdiscNeighborFlags, NdiscRepr,
    RawHardwareAddress,
};
use softnic_nic::Port;
use softnic_wire::{Instant, MacAddr, Node, TxFrame};

pub use announce::Conflict;
use announce::{Announcer, Message};
use frames::checksums;
pub use fuzz::fuzz_neighbours;
pub use links::Links;
use table::{Lookup, TRIES, Table, Weight};

/// The number of frames that wait to be sent. Further ones are dropped, because any host can send requests.
const QUEUE: usize = 64;

/// Why a neighbour's MAC address is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NeighbourError {
    /// The neighbour did not answer.
    #[error("{0} does not answer: asked {TRIES} times for its MAC address")]
    NoAnswer(IpAddr),
    /// The port has no source address of that IP version.
    #[error("the port has no address to ask from for {0}")]
    NoSource(IpAddr),
    /// The address is not on the link, and there is no gateway.
    #[error("{0} is on no subnet of the port, and the port has no gateway")]
    NoGateway(IpAddr),
}

/// The responder of a port, and its table of neighbours.
#[derive(Debug)]
pub struct Neighbours {
    mac: MacAddr,
    addresses: Vec<IpAddr>,
    links: Links,
    table: Table,
    announcer: Announcer,
    out: VecDeque<Vec<u8>>,
}

/// The link-local address that belongs to a MAC address (RFC 4291, appendix A).
pub fn link_local(mac: MacAddr) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.0;
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

impl Neighbours {
    /// Answers for the addresses of `port`, and for the link-local address of its MAC address.
    pub fn new(port: &Port) -> Neighbours {
        let mut addresses = port.addresses.clone();
        addresses.push(link_local(port.mac).into());
        Neighbours::answering(port.mac, addresses)
    }

    /// As [`Neighbours::new`], with subnets and gateways. The addresses in `links` belong to the port as well.
    pub fn with_links(port: &Port, links: Links) -> Neighbours {
        let mut neighbours = Neighbours::new(port);
        for &(address, _) in &links.addresses {
            if !neighbours.is_ours(address) {
                neighbours.addresses.push(address);
            }
        }
        neighbours.links = links;
        neighbours
    }

    /// Answers for these addresses and no others.
    pub(crate) fn answering(mac: MacAddr, addresses: Vec<IpAddr>) -> Neighbours {
        Neighbours {
            mac,
            addresses,
            links: Links::default(),
            table: Table::default(),
            announcer: Announcer::default(),
            out: VecDeque::new(),
        }
    }

    /// The port came up: probes and announces its addresses. [`Neighbours::poll_conflict`] reports those that another host has.
    pub fn announce(&mut self, now: Instant) {
        for &address in &self.addresses {
            self.announcer.begin(now, address);
        }
        self.ask(now);
    }

    /// Replaces the port's addresses by these and its link-local one. Probes and announces the new ones.
    pub fn set_links(&mut self, now: Instant, links: Links) {
        let mut addresses: Vec<_> = links.addresses.iter().map(|&(address, _)| address).collect();
        addresses.push(link_local(self.mac).into());
        self.announcer.retain(&addresses);
        let old = std::mem::replace(&mut self.addresses, addresses);
        for &address in self.addresses.iter().filter(|address| !old.contains(address)) {
            self.announcer.begin(now, address);
        }
        self.links = links;
        self.ask(now);
    }

    /// The next address of the port that another host has as well.
    pub fn poll_conflict(&mut self) -> Option<Conflict> {
        self.announcer.poll_conflict()
    }

    /// The next neighbour in use whose MAC address has changed: its paths are to be updated.
    pub fn poll_moved(&mut self) -> Option<(IpAddr, MacAddr)> {
        self.table.poll_moved()
    }

    /// Whether [`Neighbours::poll_conflict`] or [`Neighbours::poll_moved`] has an item.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        self.announcer.has_conflict() || self.table.has_moved()
    }

    /// The port's subnets and gateways.
    pub(crate) fn links(&self) -> &Links {
        &self.links
    }

    /// Handles a conflict: another host has an address of the port, or probes for it.
    fn conflict(&mut self, now: Instant, address: IpAddr, mac: MacAddr) {
        if mac != self.mac && self.announcer.conflict(now, Conflict { address, mac }) {
            self.push(self.about(address, Message::Announcement));
        }
    }

    /// A message about an address of the port.
    fn about(&self, address: IpAddr, message: Message) -> Vec<u8> {
        match (address, message) {
            (IpAddr::V4(own), Message::Probe) => frames::arp_request(self.mac, None, Ipv4Addr::UNSPECIFIED, own),
            (IpAddr::V4(own), Message::Announcement) => frames::arp_request(self.mac, None, own, own),
            (IpAddr::V6(own), Message::Probe) => frames::solicitation(self.mac, None, Ipv6Addr::UNSPECIFIED, own),
            (IpAddr::V6(own), Message::Announcement) => {
                let (all, to) = (frames::ALL_NODES, frames::multicast_mac(frames::ALL_NODES));
                frames::advertisement(self.mac, to, own, all, NdiscNeighborFlags::OVERRIDE)
            }
        }
    }

    /// The MAC address for packets to `address`: that of the neighbour, or of the gateway. Starts address resolution if necessary; `None` until
    /// it is complete.
    pub fn mac_of(&mut self, now: Instant, address: IpAddr) -> Result<Option<MacAddr>, NeighbourError> {
        let address = self.links.next_hop(address)?;
        let found = match self.table.use_of(now, address) {
            Lookup::Known(mac) => Ok(Some(mac)),
            Lookup::Asked => Ok(None),
            Lookup::Silent => Err(NeighbourError::NoAnswer(address)),
            Lookup::Unknown => {
                self.source_for(address).ok_or(NeighbourError::NoSource(address))?;
                self.table.ask_for(now, address);
                Ok(None)
            }
        };
        self.ask(now);
        found
    }

    /// The MAC address of the port.
    pub(crate) fn mac(&self) -> MacAddr {
        self.mac
    }

    /// The solicited-node groups of the port's IPv6 addresses.
    pub(crate) fn solicited_groups(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.addresses.iter().filter_map(|address| match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => Some(frames::solicited_node(*address).into()),
        })
    }

    /// The source addresses of reports about multicast groups: one IPv4 address, and the IPv6 link-local address.
    pub(crate) fn report_sources(&self) -> (Option<Ipv4Addr>, Option<Ipv6Addr>) {
        let four = self.addresses.iter().find_map(|address| match address {
            IpAddr::V4(address) => Some(*address),
            IpAddr::V6(_) => None,
        });
        let six = self.addresses.iter().find_map(|address| match address {
            IpAddr::V6(address) if address.is_unicast_link_local() => Some(*address),
            _ => None,
        });
        (four, six)
    }

    /// The next hop for packets to `address`.
    pub(crate) fn next_hop(&self, address: IpAddr) -> Result<IpAddr, NeighbourError> {
        self.links.next_hop(address)
    }

    /// Sends an IP packet to a MAC address.
    pub(crate) fn push_ip(&mut self, to: MacAddr, packet: &[u8]) {
        self.push(frames::ip(self.mac, to, packet));
    }

    /// The port's source address for packets to `address`.
    pub(crate) fn source_for(&self, address: IpAddr) -> Option<IpAddr> {
        self.links.source_for(&self.addresses, address)
    }

    /// The request for an address, to the neighbour's last known MAC address or to all.
    fn question(&self, address: IpAddr, to: Option<MacAddr>) -> Option<Vec<u8>> {
        match (self.source_for(address)?, address) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Some(frames::arp_request(self.mac, to, src, dst)),
            (IpAddr::V6(src), IpAddr::V6(dst)) => Some(frames::solicitation(self.mac, to, src, dst)),
            _ => None,
        }
    }

    fn push(&mut self, frame: Vec<u8>) {
        if self.out.len() < QUEUE {
            self.out.push_back(frame);
        }
    }

    /// Whether an address belongs to the port.
    pub(crate) fn is_ours(&self, address: impl Into<IpAddr>) -> bool {
        self.addresses.contains(&address.into())
    }

    /// Handles a frame; `None` if there is nothing to do.
    fn frame(&mut self, now: Instant, frame: &[u8]) -> Option<()> {
        let eth = EthernetFrame::new_checked(frame).ok()?;
        // Only frames to this port, or to a broadcast or multicast address: the port does not forward.
        if eth.dst_addr().0 != self.mac.0 && eth.dst_addr().is_unicast() {
            return None;
        }
        let from = MacAddr(eth.src_addr().0);
        match eth.ethertype() {
            EthernetProtocol::Arp => self.arp(now, eth.payload()),
            EthernetProtocol::Ipv4 => self.ipv4(from, eth.payload()),
            EthernetProtocol::Ipv6 => self.ipv6(now, from, eth.payload()),
            _ => None,
        }
    }

    fn arp(&mut self, now: Instant, packet: &[u8]) -> Option<()> {
        let ArpRepr::EthernetIpv4 {
            operation, source_hardware_addr, source_protocol_addr, target_protocol_addr, ..
        } = ArpRepr::parse(&ArpPacket::new_checked(packet).ok()?).ok()?
        else {
            return None;
        };
        let from = MacAddr(source_hardware_addr.0);
        let to_us = self.is_ours(target_protocol_addr);
        if self.is_ours(source_protocol_addr) {
            self.conflict(now, source_protocol_addr.into(), from);
        } else if source_protocol_addr.is_unspecified() && self.announcer.is_probing(target_protocol_addr.into()) {
            self.conflict(now, target_protocol_addr.into(), from);
        }
        // Every ARP message tells the sender's addresses, whatever its operation (RFC 826).
        let weight = Weight { overrides: true, confirms: to_us && operation == ArpOperation::Reply };
        self.table.learn(now, source_protocol_addr.into(), from, weight);
        if to_us && operation == ArpOperation::Request {
            self.push(frames::arp_reply(self.mac, target_protocol_addr, from, source_protocol_addr));
        }
        Some(())
    }

    fn ipv4(&mut self, from: MacAddr, packet: &[u8]) -> Option<()> {
        let packet = Ipv4Packet::new_checked(packet).ok()?;
        let ip = Ipv4Repr::parse(&packet, &checksums()).ok()?;
        if !self.is_ours(ip.dst_addr) || ip.next_header != IpProtocol::Icmp || packet.more_frags() {
            return None;
        }
        let icmp = Icmpv4Packet::new_checked(packet.payload()).ok()?;
        let Icmpv4Repr::EchoRequest { ident, seq_no, data } = Icmpv4Repr::parse(&icmp, &checksums()).ok()? else {
            return None;
        };
        let reply = Icmpv4Repr::EchoReply { ident, seq_no, data };
        self.push(frames::icmpv4(self.mac, from, ip.dst_addr, ip.src_addr, &reply));
        Some(())
    }

    fn ipv6(&mut self, now: Instant, from: MacAddr, packet: &[u8]) -> Option<()> {
        let packet = Ipv6Packet::new_checked(packet).ok()?;
        let ip = Ipv6Repr::parse(&packet).ok()?;
        if ip.next_header != IpProtocol::Icmpv6 {
            return None;
        }
        let icmp = Icmpv6Packet::new_checked(packet.payload()).ok()?;
        match Icmpv6Repr::parse(&ip.src_addr, &ip.dst_addr, &icmp, &checksums()).ok()? {
            Icmpv6Repr::EchoRequest { ident, seq_no, data } if self.is_ours(ip.dst_addr) => {
                let reply = Icmpv6Repr::EchoReply { ident, seq_no, data };
                self.push(frames::icmpv6(self.mac, from, ip.dst_addr, ip.src_addr, 64, &reply));
            }
            // A hop limit of 255 proves that no router forwarded the packet (RFC 4861, 7.1).
            Icmpv6Repr::Ndisc(message) if ip.hop_limit == 255 => self.ndp(now, from, &ip, &message)?,
            _ => {}
        }
        Some(())
    }

    fn ndp(&mut self, now: Instant, from: MacAddr, ip: &Ipv6Repr, message: &NdiscRepr<'_>) -> Option<()> {
        match *message {
            NdiscRepr::NeighborSolicit { target_addr, lladdr } if self.is_ours(target_addr) => {
                if let Some(mac) = lladdr.and_then(mac_in) {
                    let weight = Weight { overrides: true, confirms: false };
                    self.table.learn(now, ip.src_addr.into(), mac, weight);
                }
                if ip.src_addr.is_unspecified() && self.announcer.is_probing(target_addr.into()) {
                    self.conflict(now, target_addr.into(), from);
                }
                // A solicitation without a source address is a probe for duplicates: the answer goes to all nodes (RFC 4861, 7.2.4).
                let (dst, flags) = match ip.src_addr.is_unspecified() {
                    true => (frames::ALL_NODES, NdiscNeighborFlags::OVERRIDE),
                    false => (ip.src_addr, NdiscNeighborFlags::OVERRIDE | NdiscNeighborFlags::SOLICITED),
                };
                let mac = if ip.src_addr.is_unspecified() { frames::multicast_mac(dst) } else { from };
                self.push(frames::advertisement(self.mac, mac, target_addr, dst, flags));
            }
            NdiscRepr::NeighborAdvert { target_addr, lladdr, flags } => {
                let mac = lladdr.and_then(mac_in).unwrap_or(from);
                if self.is_ours(target_addr) {
                    self.conflict(now, target_addr.into(), mac);
                }
                let weight = Weight {
                    overrides: flags.contains(NdiscNeighborFlags::OVERRIDE),
                    // An advertisement to all nodes is not solicited (RFC 4861, 7.1.2).
                    confirms: flags.contains(NdiscNeighborFlags::SOLICITED) && !ip.dst_addr.is_multicast(),
                };
                self.table.learn(now, target_addr.into(), mac, weight);
            }
            _ => {}
        }
        Some(())
    }
}

impl Node for Neighbours {
    fn handle_frame(&mut self, now: Instant, _port: usize, frame: &mut [u8]) {
        // Frames that are not for the port, or malformed, are ignored.
        let _ = self.frame(now, frame);
    }

    fn poll_transmit(&mut self, _now: Instant, _port: usize, tx: &mut TxFrame<'_>) -> bool {
        // An echo reply that is longer than the driver's frames is dropped.
        std::iter::from_fn(|| self.out.pop_front()).any(|frame| tx.put_frame(&frame).is_ok())
    }

    #[inline]
    fn may_transmit(&self, _port: usize) -> bool {
        !self.out.is_empty()
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Instant> {
        [self.table.next(), self.announcer.next()].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.ask(now);
    }
}

impl Neighbours {
    /// Queues the requests, probes and announcements that are due.
    fn ask(&mut self, now: Instant) {
        let room = QUEUE.saturating_sub(self.out.len());
        for (address, to) in self.table.due(now, room) {
            if let Some(frame) = self.question(address, to) {
                self.push(frame);
            }
        }
        let room = QUEUE.saturating_sub(self.out.len());
        for (address, message) in self.announcer.due(now, room) {
            self.push(self.about(address, message));
        }
    }
}

/// The MAC address in an option of NDP.
fn mac_in(option: RawHardwareAddress) -> Option<MacAddr> {
    option.as_bytes().first_chunk().copied().map(MacAddr)
}

#[cfg(test)]
mod tests;
