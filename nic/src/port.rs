//! The wire ports of a NIC: their network addresses and their links.

use std::net::IpAddr;

use softnic_wire::{MacAddr, PathMtu};

/// The network addresses of a NIC's port.
#[derive(Debug, Clone)]
pub struct Port {
    /// Its MAC address.
    pub mac: MacAddr,
    /// Its addresses, in the order of its GID table.
    pub addresses: Vec<IpAddr>,
    /// The longest payload of its frames; datagrams are no longer than this.
    pub mtu: PathMtu,
}

/// The default rate of a link: 10 Gbit/s.
pub(crate) const DEFAULT_LINK_RATE: u64 = 10_000_000_000;

/// A port with its link.
#[derive(Debug)]
pub(crate) struct WirePort {
    pub(crate) port: Port,
    /// The MTU of the link; `None` if it carries packets of any length.
    pub(crate) link_mtu: Option<u32>,
    /// The rate of the link in bits per second.
    pub(crate) link_rate: u64,
}

impl WirePort {
    pub(crate) fn new(port: Port) -> WirePort {
        WirePort { port, link_mtu: None, link_rate: DEFAULT_LINK_RATE }
    }

    /// Whether an address belongs to this port; mostly it is the first.
    #[inline(always)]
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.port.addresses.first() == Some(&address) || self.has_further(address)
    }

    #[inline(never)]
    fn has_further(&self, address: IpAddr) -> bool {
        self.port.addresses.contains(&address)
    }
}
