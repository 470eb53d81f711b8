//! The calls about ports: their number, their links and their addresses.

use std::net::IpAddr;

use softnic_transports::Event;
use softnic_transports::congestion::CreditPacer;
use softnic_transports::qp::PathProps;
use softnic_wire::{MacAddr, Path, PathMtu, bth};

use super::{Nic, Turns};
use crate::address::AddressAttr;
use crate::port::{DEFAULT_LINK_RATE, Port, WirePort};

impl Nic {
    /// The loopback port, for queue pairs that are connected to others of the same NIC.
    pub const LOOPBACK: usize = 0;
    /// The first wire port. Further ports ([`Nic::add_port`]) have the following numbers, as in verbs.
    pub const WIRE: usize = 1;

    /// Adds a wire port; returns the number by which queue pairs ([`QpAttr::port`](crate::QpAttr::port)) and drivers name it.
    pub fn add_port(&mut self, port: Port) -> usize {
        self.ports.push(WirePort::new(port));
        self.turns.push(Turns::new());
        self.shared.credit_pacers.push(CreditPacer::new(DEFAULT_LINK_RATE));
        for turns in &mut self.turns {
            turns.ready.reserve(self.slots.len());
        }
        self.ports.len()
    }

    /// Number of wire ports; their numbers start with 1.
    pub fn ports(&self) -> usize {
        self.ports.len()
    }

    /// The wire port with a number.
    #[inline(always)]
    pub(super) fn wire(&self, number: usize) -> Option<&WirePort> {
        self.ports.get(number.checked_sub(1)?)
    }

    fn wire_mut(&mut self, number: usize) -> Option<&mut WirePort> {
        self.ports.get_mut(number.checked_sub(1)?)
    }

    /// The network addresses of a port.
    pub fn port_at(&self, number: usize) -> Option<&Port> {
        self.wire(number).map(|wire| &wire.port)
    }

    /// The network addresses of the first port.
    pub fn port(&self) -> &Port {
        &self.ports[0].port
    }

    /// Whether frames pass by this port of the Node now; loopback always carries frames.
    #[inline(always)]
    pub(super) fn carries(&self, number: usize) -> bool {
        self.turns.get(number).is_some_and(|turns| turns.up)
    }

    /// Whether an address belongs to this NIC, at any port.
    #[inline(never)] // not called for packets of a connection
    pub(super) fn is_ours(&self, address: IpAddr) -> bool {
        self.ports.iter().any(|wire| wire.has(address))
    }

    /// The number of the wire port that has an address.
    pub(super) fn port_with(&self, address: IpAddr) -> Option<usize> {
        Some(self.ports.iter().position(|wire| wire.has(address))? + 1)
    }

    /// Other NICs have the same addresses, and their queue pairs have other numbers ([`Nic::set_owner`]). So packets to these addresses
    /// leave by the wire, including those to this NIC itself. The carrier of the frames determines their addressee ([`crate::sharing`]).
    /// Applies to queue pairs that are connected after this call.
    pub fn share_addresses(&mut self) {
        self.shares_addresses = true;
    }

    /// Whether frames from an address cannot have arrived by a wire, because no other NIC has the address.
    pub(super) fn is_ours_alone(&self, address: IpAddr) -> bool {
        !self.shares_addresses && self.is_ours(address)
    }

    /// Whether the link of the first port is up.
    pub fn is_up(&self) -> bool {
        self.carries(Nic::WIRE)
    }

    /// Sets the link of the first port up or down ([`Nic::set_link_of`]).
    pub fn set_link(&mut self, up: bool) {
        self.set_link_of(Nic::WIRE, up);
    }

    /// Sets the link of a port up or down. While it is down no frame leaves or arrives there, and lost packets are retried as usual.
    pub fn set_link_of(&mut self, number: usize, up: bool) {
        if self.wire(number).is_none() || self.turns[number].up == up {
            return;
        }
        self.turns[number].up = up;
        self.shared.events.push_back(if up { Event::PortActive } else { Event::PortErr });
    }

    /// Changes the addresses of the first port ([`Nic::set_addresses_of`]).
    pub fn set_addresses(&mut self, addresses: Vec<IpAddr>) {
        self.set_addresses_of(Nic::WIRE, addresses);
    }

    /// Changes the addresses of a port. Connected queue pairs keep theirs.
    pub fn set_addresses_of(&mut self, number: usize, addresses: Vec<IpAddr>) {
        let Some(wire) = self.wire_mut(number).filter(|wire| wire.port.addresses != addresses) else { return };
        wire.port.addresses = addresses;
        self.shared.events.push_back(Event::GidChange);
    }

    /// Changes the longest payload of the first port's packets. Connected queue pairs keep theirs.
    pub fn set_mtu(&mut self, mtu: PathMtu) {
        self.ports[0].port.mtu = mtu;
    }

    /// Sets the longest IP packet that the links of all ports carry; without this call the length is not limited.
    pub fn set_link_mtu(&mut self, mtu: u32) {
        self.ports.iter_mut().for_each(|wire| wire.link_mtu = Some(mtu));
    }

    /// The longest IP packet that the link of the first port carries; `None` if the length is not limited.
    pub fn link_mtu(&self) -> Option<u32> {
        self.ports[0].link_mtu
    }

    /// Sets the rate of the links of all ports in bits per second; the default is 10 Gbit/s. Applies to connections made after this call.
    pub fn set_link_rate(&mut self, rate: u64) {
        self.ports.iter_mut().for_each(|wire| wire.link_rate = rate);
        self.shared.credit_pacers.iter_mut().for_each(|pacer| pacer.set_rate(rate));
    }

    /// The peers of connected queue pairs whose packets leave the NIC. A peer of several queue pairs is listed several times.
    pub fn peers(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let away = self.slots.iter().flatten().filter(|slot| slot.port != Nic::LOOPBACK);
        away.filter_map(|slot| slot.endpoint.attributes().path).map(|path| path.addresses.dst())
    }

    /// Updates the MAC addresses of next hops: `moved` returns the new address for a peer, if known. Connected queue pairs and address
    /// handles use the new address from now on; frames sent to the old one are lost and recovered as usual.
    pub fn redirect(&mut self, moved: impl Fn(IpAddr) -> Option<MacAddr>) {
        for slot in self.slots.iter_mut().flatten().filter(|slot| slot.port != Nic::LOOPBACK) {
            let peer = slot.endpoint.attributes().path.map(|path| path.addresses.dst());
            if let Some(mac) = peer.and_then(&moved) {
                slot.endpoint.redirect(mac, bth::DEFAULT_PKEY);
            }
        }
        for handle in self.shared.ahs.iter_mut().filter(|handle| !handle.multicast && handle.port != Nic::LOOPBACK) {
            if let Some(mac) = moved(handle.to) {
                handle.template.set_dst_mac(mac);
            }
        }
    }

    /// A path from the first port to `dst`, whose next hop has the MAC address `dst_mac`, with the usual settings: ECN-capable, 64 hops.
    /// `None` if the port has no address of that IP version.
    pub fn path_to(&self, dst: IpAddr, dst_mac: MacAddr, entropy: u32) -> Option<Path> {
        self.path_from(Nic::WIRE, dst, dst_mac, entropy)
    }

    /// A path from a port to `dst`, as by [`Nic::path_to`].
    pub fn path_from(&self, number: usize, dst: IpAddr, dst_mac: MacAddr, entropy: u32) -> Option<Path> {
        let port = self.port_at(number)?;
        let sgid_index = port.addresses.iter().position(|a| a.is_ipv4() == dst.is_ipv4())?;
        AddressAttr { port: number, ..AddressAttr::new(dst, dst_mac, sgid_index, entropy) }.path(port).ok()
    }

    /// The port of the Node by which frames to `dst` leave, if the queue pair sends by the wire port `number`.
    pub(super) fn port_to(&self, number: usize, dst: IpAddr) -> usize {
        if self.is_ours_alone(dst) { Nic::LOOPBACK } else { number }
    }

    /// The properties of the path: the link of a port and the peer, as far as they are known.
    pub(super) fn path_props(&self, number: usize, peer: Option<IpAddr>, nonce: [u8; 16]) -> PathProps {
        let wire = self.wire(number).unwrap_or(&self.ports[0]);
        PathProps {
            pkey: bth::DEFAULT_PKEY,
            link_mtu: wire.link_mtu,
            link_rate: wire.link_rate,
            port: peer.map_or(number, |peer| self.port_to(number, peer)),
            known_silent: peer.is_some_and(|peer| self.silent_peers.is_silent(peer)),
            known_rtt: peer.map(|peer| self.round_trips.of(peer)).unwrap_or_default(),
            nonce,
            payload: self.payload,
        }
    }
}
