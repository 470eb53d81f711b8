//! The wire ports of a NIC: where each is on the network, and what its link is like.

use std::net::IpAddr;

use softnic_wire::{MacAddr, PathMtu};

/// A port of a NIC: where it is on the network.
#[derive(Debug, Clone)]
pub struct Port {
    /// Its MAC address.
    pub mac: MacAddr,
    /// Its addresses, in the order of its GID table.
    pub addresses: Vec<IpAddr>,
    /// The longest payload that its frames carry; datagrams are no longer than this.
    pub mtu: PathMtu,
}

/// The rate of a link that nobody told: 10 Gbit/s.
pub(crate) const DEFAULT_LINK_RATE: u64 = 10_000_000_000;

/// A port with its link.
#[derive(Debug)]
pub(crate) struct WirePort {
    pub(crate) port: Port,
    /// The MTU of the link; `None` where it carries packets of any length.
    pub(crate) link_mtu: Option<u32>,
    /// The rate of the link in bits a second.
    pub(crate) link_rate: u64,
}

impl WirePort {
    pub(crate) fn new(port: Port) -> WirePort {
        WirePort { port, link_mtu: None, link_rate: DEFAULT_LINK_RATE }
    }

    /// Whether an address is one of this port's; mostly it is the first.
    #[inline(always)]
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.port.addresses.first() == Some(&address) || self.has_further(address)
    }

    #[inline(never)]
    fn has_further(&self, address: IpAddr) -> bool {
        self.port.addresses.contains(&address)
    }
}
