//! The kernel's view of the interface below a NIC: link, addresses, routes, neighbours, multicast groups.
//!
//! For backends that share an interface with the kernel, as AF_XDP does: the kernel keeps answering ARP and NDP there,
//! and its tables say how to reach a peer. [`HostNetwork`] is for a control thread, beside the one that moves packets:
//! it polls the file descriptor, takes the events, and tells the NIC. Its calls are questions to the kernel, tens of
//! microseconds each; none waits for the network. A socket belongs to the network namespace of the thread that opens
//! it, so one and the same namespace must hold for all calls.

mod addresses;
mod error;
mod interface;
mod membership;
mod monitor;
pub(crate) mod netlink;
mod path;
mod resolver;
mod route;
pub(crate) mod rtnetlink;

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use softnic_nic::Port;
use softnic_wire::ethernet::{MAX_TAGS, VlanTag};
use softnic_wire::{Instant, MacAddr};

pub use error::HostNetworkError;
pub use interface::{Interface, Vlan};
pub use membership::Membership;
pub use path::{HostPath, PathState, path_mtu};
pub use resolver::{Patience, State};
pub use route::{Hop, Route};

use monitor::{Change, Monitor};
use netlink::Netlink;
use resolver::Resolver;
use rtnetlink::link::LinkMessage;

/// A change of the interface or its network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Packets can pass.
    LinkUp,
    /// No longer.
    LinkDown,
    /// The interface is gone: deleted, or moved to another network namespace. Nothing more will come.
    Gone,
    /// It has another MTU.
    MtuChanged(u32),
    /// It has another MAC address.
    MacChanged(MacAddr),
    /// It has other addresses, or in another order.
    AddressesChanged,
    /// A neighbour in use has another MAC address; or none, because it is silent: paths by it are worth asking for
    /// again.
    NeighbourChanged {
        /// The neighbour.
        ip: IpAddr,
        /// Its MAC address.
        mac: Option<MacAddr>,
    },
    /// Routes changed: paths are worth asking for again.
    RoutesChanged,
}

/// The kernel's view of one interface.
#[derive(Debug)]
pub struct HostNetwork {
    netlink: Netlink,
    monitor: Monitor,
    interface: Interface,
    bottom: Interface,
    tags: [Option<VlanTag>; MAX_TAGS],
    addresses: Vec<IpAddr>,
    resolver: Resolver,
    events: VecDeque<Event>,
    overruns: u64,
}

impl HostNetwork {
    /// The network at the interface with this name.
    pub fn open(name: &str) -> Result<HostNetwork, HostNetworkError> {
        let failed = HostNetworkError::netlink("about the network");
        let mut netlink = Netlink::open().map_err(&failed)?;
        let index = Interface::ask_name(&mut netlink, name)?.index;
        // First listen, then read: a change in between is heard of.
        let monitor = Monitor::open(index).map_err(&failed)?;
        let interface = Interface::ask_index(&mut netlink, index)?;
        let (bottom, tags) = interface.bottom(|index| Interface::ask_index(&mut netlink, index))?;
        let addresses = addresses::read(&mut netlink, index).map_err(&failed)?;
        let resolver = Resolver::new(index);
        let events = VecDeque::new();
        Ok(HostNetwork { netlink, monitor, interface, bottom, tags, addresses, resolver, events, overruns: 0 })
    }

    /// All frames of ours carry the tag of a VLAN, of which the interface knows nothing: whoever carries its own puts that on.
    #[cfg(feature = "dpdk")]
    pub(crate) fn in_vlan(mut self, id: u16) -> HostNetwork {
        self.tags = [Some(VlanTag::new(id, 0)), None];
        self
    }

    /// How long neighbours are asked, and how often.
    pub fn set_patience(&mut self, patience: Patience) {
        self.resolver.patience = patience;
    }

    /// The interface, as of the events so far.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// The interface whose queues send and receive: ours, or the one below if ours is a VLAN, as it was at the
    /// beginning.
    pub fn bottom(&self) -> &Interface {
        &self.bottom
    }

    /// The tags that our frames carry there, from outside in.
    pub fn tags(&self) -> [Option<VlanTag>; MAX_TAGS] {
        self.tags
    }

    /// Its addresses in the order of the GID table: IPv4, global IPv6, link-local.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// How often changes came faster than they were taken, or could not be understood, so that everything was read
    /// again.
    pub fn overruns(&self) -> u64 {
        self.overruns
    }

    /// The port of a NIC on this interface.
    pub fn port(&self) -> Result<Port, HostNetworkError> {
        let mtu = self.payload(self.interface.mtu)?;
        Ok(Port { mac: self.interface.mac, addresses: self.addresses.clone(), mtu })
    }

    /// The next thing that changed; to be called until there is none whenever the file descriptor is readable, and
    /// after [`HostNetwork::handle_timeout`].
    pub fn poll_event(&mut self) -> Result<Option<Event>, HostNetworkError> {
        if self.events.is_empty() {
            self.take_changes()?;
        }
        Ok(self.events.pop_front())
    }

    /// Takes in what changed so far without an event: for whoever changed it, as an interface that is opened may lose its link for a moment.
    pub fn forget_changes(&mut self) -> Result<(), HostNetworkError> {
        while self.poll_event()?.is_some() {}
        Ok(())
    }

    /// When to call [`HostNetwork::handle_timeout`]; to be asked after every other call.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.resolver.poll_timeout()
    }

    /// Asks silent neighbours again, and keeps those in use fresh.
    pub fn handle_timeout(&mut self, now: Instant) {
        let failed = self.resolver.handle_timeout(&mut self.netlink, now);
        self.events.extend(failed.into_iter().map(|ip| Event::NeighbourChanged { ip, mac: None }));
    }

    /// By which route packets to `dst` leave, from a given address if there is one.
    pub fn route(&mut self, dst: IpAddr, from: Option<IpAddr>) -> Result<Route, HostNetworkError> {
        route::look_up(&mut self.netlink, &self.interface, dst, from)
    }

    /// The MAC address of a neighbour on the link; asked for if it is not known, and kept fresh from then on.
    pub fn resolve(&mut self, now: Instant, ip: IpAddr) -> Result<State, HostNetworkError> {
        self.resolver.resolve(&mut self.netlink, now, ip)
    }

    /// A neighbour is no longer used, and need not be kept fresh.
    pub fn release(&mut self, ip: IpAddr) {
        self.resolver.release(ip);
    }

    /// The descriptors that it holds.
    pub fn descriptors(&self) -> [RawFd; 2] {
        [self.netlink.fd().as_raw_fd(), self.monitor.socket.fd.as_raw_fd()]
    }

    /// Joins a multicast group on this interface.
    pub fn join(&self, group: IpAddr) -> Result<Membership, HostNetworkError> {
        Membership::join(self.interface.index, group)
    }

    /// The path to `dst`, from a given address if there is one. The next hop is kept fresh from then on, until
    /// [`HostNetwork::release`].
    pub fn path(&mut self, now: Instant, dst: IpAddr, from: Option<IpAddr>) -> Result<PathState, HostNetworkError> {
        // GIDs have IPv4 addresses as IPv6 ones.
        let (dst, from) = (dst.to_canonical(), from.map(|from| from.to_canonical()));
        match from {
            _ if dst.is_unspecified() => return Err(HostNetworkError::NotAPeer(dst)),
            Some(from) if !self.addresses.contains(&from) => {
                return Err(HostNetworkError::NotOurs { name: self.interface.name.clone(), from });
            }
            Some(from) if from.is_ipv4() != dst.is_ipv4() => return Err(HostNetworkError::Versions { from, dst }),
            _ => {}
        }
        let hop = match dst {
            ip if self.addresses.contains(&ip) || ip.is_multicast() => Hop { gateway: None, source: None, mtu: None },
            _ => match self.route(dst, from)? {
                Route::Out(hop) => hop,
                Route::Local => {
                    let name = self.interface.name.clone();
                    return Err(HostNetworkError::LocalElsewhere { name, dst });
                }
            },
        };
        let (source_index, source) = self.source(dst, from.or(hop.source))?;
        let mtu = self.payload(hop.mtu.unwrap_or(u32::MAX).min(self.interface.mtu))?;
        let next_hop = hop.gateway.unwrap_or(dst);
        let local = self.addresses.contains(&dst);
        let mac = match local {
            true => self.interface.mac,
            false => match self.resolve(now, next_hop)? {
                State::Known(mac) => mac,
                State::Asked => return Ok(PathState::Pending { next_hop }),
                State::Failed => return Err(HostNetworkError::NoAnswer(next_hop)),
            },
        };
        let tags = self.tags;
        Ok(PathState::Ready(HostPath { dst, source, source_index, next_hop, mac, tags, mtu, local }))
    }

    /// Our address towards `dst`, with its place: the kernel's choice if the table has it, as it has no temporary
    /// ones; else the first that reaches as far.
    fn source(&self, dst: IpAddr, chosen: Option<IpAddr>) -> Result<(usize, IpAddr), HostNetworkError> {
        let own = || self.addresses.iter().copied().enumerate().filter(|(_, ip)| ip.is_ipv4() == dst.is_ipv4());
        let chosen = chosen.or(self.addresses.contains(&dst).then_some(dst));
        own()
            .find(|&(_, ip)| Some(ip) == chosen)
            .or_else(|| own().find(|&(_, ip)| stays_on_link(ip) == stays_on_link(dst)))
            .ok_or_else(|| HostNetworkError::NoSource { name: self.interface.name.clone(), dst })
    }

    fn payload(&self, mtu: u32) -> Result<softnic_wire::PathMtu, HostNetworkError> {
        path_mtu(mtu).ok_or_else(|| HostNetworkError::MtuTooSmall { name: self.interface.name.clone(), mtu })
    }

    /// Turns the kernel's notifications into events.
    fn take_changes(&mut self) -> Result<(), HostNetworkError> {
        let failed = HostNetworkError::netlink("what changed");
        let (mut addresses, mut routes, mut lost) = (false, false, false);
        for change in self.monitor.drain().map_err(&failed)? {
            match change {
                Change::Link(message) => self.link_changed(&message),
                Change::Gone => self.gone(),
                Change::Addresses => addresses = true,
                Change::Neighbour(ip, mac) => {
                    if self.resolver.learn(ip, mac) {
                        self.events.push_back(Event::NeighbourChanged { ip, mac });
                    }
                }
                Change::Routes => routes = true,
                Change::Lost => lost = true,
            }
        }
        if lost {
            self.overruns += 1;
            match Interface::ask_index(&mut self.netlink, self.interface.index) {
                Ok(interface) => self.update(interface),
                Err(HostNetworkError::NoSuchInterface { .. }) => self.gone(),
                Err(error) => return Err(error),
            }
            let news = self.resolver.reread(&mut self.netlink)?;
            self.events.extend(news.into_iter().map(|(ip, mac)| Event::NeighbourChanged { ip, mac }));
        }
        // What an address message says is not used: the order needs all of them.
        if addresses || lost {
            let new = addresses::read(&mut self.netlink, self.interface.index).map_err(&failed)?;
            if self.addresses != new {
                self.addresses = new;
                self.events.push_back(Event::AddressesChanged);
            }
        }
        if routes || lost {
            self.events.push_back(Event::RoutesChanged);
        }
        Ok(())
    }

    fn link_changed(&mut self, message: &LinkMessage) {
        // Messages about one aspect only have no MTU in them.
        if let Ok(interface) = Interface::from_message(message)
            && interface.mtu != 0
        {
            self.update(interface);
        }
    }

    fn update(&mut self, new: Interface) {
        let old = std::mem::replace(&mut self.interface, new);
        let new = &self.interface;
        if old.mac != new.mac {
            self.events.push_back(Event::MacChanged(new.mac));
        }
        if old.mtu != new.mtu {
            self.events.push_back(Event::MtuChanged(new.mtu));
        }
        if old.up != new.up {
            self.events.push_back(if new.up { Event::LinkUp } else { Event::LinkDown });
        }
        if new.index == self.bottom.index {
            self.bottom = new.clone();
        }
    }

    fn gone(&mut self) {
        self.update(Interface { up: false, carrier: false, admin_up: false, ..self.interface.clone() });
        self.events.push_back(Event::Gone);
    }
}

impl AsFd for HostNetwork {
    /// Readable when there are changes.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.monitor.socket.fd.as_fd()
    }
}

/// Addresses, and groups, that are good for one link only.
fn stays_on_link(ip: IpAddr) -> bool {
    let group = |ip: Ipv6Addr| ip.is_multicast() && ip.octets()[1] & 0xf <= 2;
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local() || group(ip))
}
