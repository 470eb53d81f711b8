//! The calls about ports: how many there are, their links and their addresses.

use std::net::IpAddr;

use softnic_transports::Event;
use softnic_transports::congestion::CreditPacer;
use softnic_transports::qp::PathProps;
use softnic_wire::{MacAddr, Path, PathMtu, bth};

use super::{Nic, Turns};
use crate::address::AddressAttr;
use crate::port::{DEFAULT_LINK_RATE, Port, WirePort};

impl Nic {
    /// The port to the NIC itself: for queue pairs that are connected to others of the same NIC.
    pub const LOOPBACK: usize = 0;
    /// The first wire port. Further ones ([`Nic::add_port`]) have the next numbers, as in verbs.
    pub const WIRE: usize = 1;

    /// Adds a wire port; its number, by which queue pairs ([`QpAttr::port`](crate::QpAttr::port)) and drivers name it.
    pub fn add_port(&mut self, port: Port) -> usize {
        self.ports.push(WirePort::new(port));
        self.turns.push(Turns::new());
        self.shared.credit_pacers.push(CreditPacer::new(DEFAULT_LINK_RATE));
        for turns in &mut self.turns {
            turns.ready.reserve(self.slots.len());
        }
        self.ports.len()
    }

    /// How many wire ports there are; their numbers begin with 1.
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

    /// Where a port is on the network.
    pub fn port_at(&self, number: usize) -> Option<&Port> {
        self.wire(number).map(|wire| &wire.port)
    }

    /// Where the first port is on the network.
    pub fn port(&self) -> &Port {
        &self.ports[0].port
    }

    /// Whether frames pass by this port of the Node now; loopback always carries them.
    #[inline(always)]
    pub(super) fn carries(&self, number: usize) -> bool {
        self.turns.get(number).is_some_and(|turns| turns.up)
    }

    /// Whether an address is one of this NIC's, of whichever port.
    #[inline(never)] // no packet of a connection asks
    pub(super) fn is_ours(&self, address: IpAddr) -> bool {
        self.ports.iter().any(|wire| wire.has(address))
    }

    /// The number of the wire port that has an address.
    pub(super) fn port_with(&self, address: IpAddr) -> Option<usize> {
        Some(self.ports.iter().position(|wire| wire.has(address))? + 1)
    }

    /// Other NICs have its addresses, too, and their queue pairs other numbers ([`Nic::set_owner`]): what goes to them leaves by the wire, and so
    /// does what goes to this NIC itself. Whoever carries its frames looks for whom they are ([`crate::sharing`]). For queue pairs that are
    /// connected after this.
    pub fn share_addresses(&mut self) {
        self.shares_addresses = true;
    }

    /// Whether frames from an address cannot have come by a wire: nobody else has it.
    pub(super) fn is_ours_alone(&self, address: IpAddr) -> bool {
        !self.shares_addresses && self.is_ours(address)
    }

    /// Whether the link of the first port is up.
    pub fn is_up(&self) -> bool {
        self.carries(Nic::WIRE)
    }

    /// The link of the first port is up or down ([`Nic::set_link_of`]).
    pub fn set_link(&mut self, up: bool) {
        self.set_link_of(Nic::WIRE, up);
    }

    /// The link of a port is up or down: then no frame leaves or comes in there, and lost packets are retried as ever.
    pub fn set_link_of(&mut self, number: usize, up: bool) {
        if self.wire(number).is_none() || self.turns[number].up == up {
            return;
        }
        self.turns[number].up = up;
        self.shared.events.push_back(if up { Event::PortActive } else { Event::PortErr });
    }

    /// The addresses of the first port changed ([`Nic::set_addresses_of`]).
    pub fn set_addresses(&mut self, addresses: Vec<IpAddr>) {
        self.set_addresses_of(Nic::WIRE, addresses);
    }

    /// The addresses of a port changed. Queue pairs that are connected keep theirs.
    pub fn set_addresses_of(&mut self, number: usize, addresses: Vec<IpAddr>) {
        let Some(wire) = self.wire_mut(number).filter(|wire| wire.port.addresses != addresses) else { return };
        wire.port.addresses = addresses;
        self.shared.events.push_back(Event::GidChange);
    }

    /// The longest payload of the first port's packets changed. Queue pairs that are connected keep theirs.
    pub fn set_mtu(&mut self, mtu: PathMtu) {
        self.ports[0].port.mtu = mtu;
    }

    /// The links of all ports carry IP packets of up to so many bytes; without a word they carry packets of any length.
    pub fn set_link_mtu(&mut self, mtu: u32) {
        self.ports.iter_mut().for_each(|wire| wire.link_mtu = Some(mtu));
    }

    /// The longest IP packet that the link of the first port carries; `None` where that is any.
    pub fn link_mtu(&self) -> Option<u32> {
        self.ports[0].link_mtu
    }

    /// The links of all ports carry so many bits a second; unless told, 10 Gbit/s are taken for it. For connections that are made
    /// after this.
    pub fn set_link_rate(&mut self, rate: u64) {
        self.ports.iter_mut().for_each(|wire| wire.link_rate = rate);
        self.shared.credit_pacers.iter_mut().for_each(|pacer| pacer.set_rate(rate));
    }

    /// The peers of connected queue pairs, as far as their packets leave the NIC; one that several are connected to is there as often.
    pub fn peers(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let away = self.slots.iter().flatten().filter(|slot| slot.port != Nic::LOOPBACK);
        away.filter_map(|slot| slot.endpoint.attributes().path).map(|path| path.addresses.dst())
    }

    /// Next hops have other MAC addresses: `moved` has the new one of a peer, where that is known. Connected queue pairs and address handles
    /// send there from now on; what was sent to the old one is lost, and is recovered as ever.
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

    /// A path from the first port to `dst`, whose next hop has the MAC address `dst_mac`, with the usual settings: ECN-capable,
    /// 64 hops. `None` when the port has no address of that IP version.
    pub fn path_to(&self, dst: IpAddr, dst_mac: MacAddr, entropy: u32) -> Option<Path> {
        self.path_from(Nic::WIRE, dst, dst_mac, entropy)
    }

    /// A path from a port to `dst`, as [`Nic::path_to`] has it.
    pub fn path_from(&self, number: usize, dst: IpAddr, dst_mac: MacAddr, entropy: u32) -> Option<Path> {
        let port = self.port_at(number)?;
        let sgid_index = port.addresses.iter().position(|a| a.is_ipv4() == dst.is_ipv4())?;
        AddressAttr { port: number, ..AddressAttr::new(dst, dst_mac, sgid_index, entropy) }.path(port).ok()
    }

    /// The port of the Node by which frames to `dst` leave that a queue pair sends by the wire port `number`.
    pub(super) fn port_to(&self, number: usize, dst: IpAddr) -> usize {
        if self.is_ours_alone(dst) { Nic::LOOPBACK } else { number }
    }

    /// The link of a port and the peer, as far as they are known.
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
