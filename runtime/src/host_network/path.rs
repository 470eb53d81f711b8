//! The path to a peer, as a NIC needs it: source address, next hop, tags and MTU.

use std::net::IpAddr;

use softnic_nic::AddressAttr;
use softnic_wire::ethernet::{MAX_TAGS, VlanTag};
use softnic_wire::{MacAddr, PathMtu};

/// The longest headers of an IP packet: IPv6 and UDP headers, BTH, the longest extension headers, ICRC. Linux
/// counts the same for every device, so both ends come to the same path MTU.
const OVERHEAD: u32 = 40 + 8 + 12 + 4 + 28 + 4;

/// The path to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostPath {
    /// The peer.
    pub dst: IpAddr,
    /// Our address towards it.
    pub source: IpAddr,
    /// The place of that address in the port's GID table.
    pub source_index: usize,
    /// The owner of the MAC address: a router, or the peer itself.
    pub next_hop: IpAddr,
    /// The MAC address to send to.
    pub mac: MacAddr,
    /// VLAN tags from outside in.
    pub tags: [Option<VlanTag>; MAX_TAGS],
    /// The longest payload that every link we know of carries.
    pub mtu: PathMtu,
    /// Whether the peer is this interface itself.
    pub local: bool,
}

impl HostPath {
    /// As an address handle or a queue pair wants it. `entropy` differs from flow to flow.
    pub fn attr(&self, entropy: u32) -> AddressAttr {
        AddressAttr { tags: self.tags, ..AddressAttr::new(self.dst, self.mac, self.source_index, entropy) }
    }
}

/// Whether the path to a peer is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathState {
    /// It is.
    Ready(HostPath),
    /// The next hop is being asked for its MAC address. Ask again when something changed, or at the next timeout.
    Pending {
        /// The next hop.
        next_hop: IpAddr,
    },
}

/// The longest payload of RoCE packets where IP packets have at most `mtu` bytes.
pub fn path_mtu(mtu: u32) -> Option<PathMtu> {
    PathMtu::ALL.into_iter().rev().find(|payload| payload.bytes() + OVERHEAD <= mtu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_mtu_is_the_one_that_linux_takes() {
        let at = [
            (351, None),
            (352, Some(256)),
            (1500, Some(1024)),
            (4191, Some(2048)),
            (4192, Some(4096)),
            (9000, Some(4096)),
        ];
        for (mtu, bytes) in at {
            assert_eq!(path_mtu(mtu).map(PathMtu::bytes), bytes, "{mtu}");
        }
    }
}
