//! Peer addresses as a program gives them, and the paths that result from them (IBA 11.2.2, annex A17).

use std::net::IpAddr;

use softnic_wire::ethernet::{MAX_TAGS, VlanTag};
use softnic_wire::{Addresses, MacAddr, Path};

use crate::port::Port;

/// The address of a peer, as a program gives it: for an address handle, or for a connected queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressAttr {
    /// The peer's GID, as an IP address.
    pub dgid: IpAddr,
    /// The local port, from 1.
    pub port: usize,
    /// The local GID, by its index in the port's table.
    pub sgid_index: usize,
    /// The next hop's MAC address. Not used for multicast groups and for the port itself, whose MAC addresses follow from the IP address.
    pub dst_mac: MacAddr,
    /// VLAN tags, outermost first.
    pub tags: [Option<VlanTag>; MAX_TAGS],
    /// DSCP in the upper six bits. The lower two bits, ECN, are set by the NIC.
    pub traffic_class: u8,
    /// Hop limit; 0 selects the usual 64.
    pub hop_limit: u8,
    /// Flow label, 20 bits. It also determines the UDP source port, by which switches spread flows. With 0 the port is derived from
    /// `entropy`.
    pub flow_label: u32,
    /// A value that differs between flows, as queue pair numbers do.
    pub entropy: u32,
}

/// Why an address was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The port's table has no entry with this index.
    #[error("the port has no GID with this index")]
    NoSuchGid,
    /// One GID is IPv4, the other IPv6.
    #[error("the two GIDs are of different IP versions")]
    Versions,
    /// There is no such protection domain.
    #[error("no such protection domain")]
    NoSuchPd,
    /// There is no such address handle.
    #[error("no such address handle")]
    NoSuchAh,
    /// All names for address handles are in use.
    #[error("no address handle is left")]
    TooMany,
}

const DEFAULT_HOPS: u8 = 64;
/// ECN-capable transport: hardware marks its packets with this value.
const ECT0: u8 = 0b10;

impl AddressAttr {
    /// The usual path to a peer: from port 1, with 64 hops and no tags.
    pub fn new(dgid: IpAddr, dst_mac: MacAddr, sgid_index: usize, entropy: u32) -> AddressAttr {
        AddressAttr {
            dgid,
            port: 1,
            sgid_index,
            dst_mac,
            tags: [None; MAX_TAGS],
            traffic_class: 0,
            hop_limit: 0,
            flow_label: 0,
            entropy,
        }
    }

    /// The path from `port` to the peer.
    pub fn path(&self, port: &Port) -> Result<Path, AddressError> {
        let src = *port.addresses.get(self.sgid_index).ok_or(AddressError::NoSuchGid)?;
        let label = self.flow_label & 0x000f_ffff;
        Ok(Path {
            src_mac: port.mac,
            dst_mac: self.next_hop(port),
            tags: self.tags,
            addresses: Addresses::new(src, self.dgid).ok_or(AddressError::Versions)?,
            traffic_class: self.traffic_class & !0b11 | ECT0,
            flow_label: label,
            hop_limit: if self.hop_limit == 0 { DEFAULT_HOPS } else { self.hop_limit },
            src_port: source_port(if label == 0 { self.entropy } else { label }),
        })
    }

    fn next_hop(&self, port: &Port) -> MacAddr {
        match self.dgid {
            ip if port.addresses.contains(&ip) => port.mac,
            ip if ip.is_multicast() => multicast_mac(ip),
            _ => self.dst_mac,
        }
    }
}

/// The UDP source port of a flow: a dynamic port, computed from all twenty bits of a flow label (annex A17.9.1).
fn source_port(flow: u32) -> u16 {
    0xc000 | ((flow ^ flow >> 14) & 0x3fff) as u16
}

/// The MAC address of a multicast group (RFC 1112, RFC 2464).
pub fn multicast_mac(group: IpAddr) -> MacAddr {
    match group {
        IpAddr::V4(ip) => {
            let [_, b, c, d] = ip.octets();
            MacAddr([0x01, 0x00, 0x5e, b & 0x7f, c, d])
        }
        IpAddr::V6(ip) => {
            let o = ip.octets();
            MacAddr([0x33, 0x33, o[12], o[13], o[14], o[15]])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use softnic_wire::PathMtu;

    fn port() -> Port {
        let addresses = vec![IpAddr::from([10, 0, 0, 1]), "fd33::1".parse().unwrap()];
        Port { mac: MacAddr([2, 0, 0, 0, 0, 1]), addresses, mtu: PathMtu::B4096 }
    }

    fn with(mut attr: AddressAttr, change: impl FnOnce(&mut AddressAttr)) -> Path {
        change(&mut attr);
        attr.path(&port()).unwrap()
    }

    #[test]
    fn the_flow_label_gives_the_source_port_and_every_bit_of_it_counts() {
        let peer = MacAddr([2, 0, 0, 0, 0, 2]);
        let attr = AddressAttr::new("fd33::2".parse().unwrap(), peer, 1, 0);
        let port_of = |flow_label| with(attr, |a| a.flow_label = flow_label).src_port;
        // As Linux computes it: the low fourteen bits, XORed with the high six, above 0xc000.
        assert_eq!((port_of(0x00001), port_of(0xfc001), port_of(0x12345)), (0xc001, 0xc03e, 0xe341));
        for bit in 0..20 {
            assert_ne!(port_of(0x55555), port_of(0x55555 ^ 1 << bit), "bit {bit}");
        }
        let path = AddressAttr { flow_label: 0xfff1_2345, entropy: 9, ..attr }.path(&port()).unwrap();
        assert_eq!((path.flow_label, path.src_port), (0x12345, 0xe341), "twenty bits, and the entropy is not needed");
        let path = AddressAttr { entropy: 9, ..attr }.path(&port()).unwrap();
        assert_eq!((path.flow_label, path.src_port), (0, 0xc009));
    }

    #[test]
    fn traffic_class_and_hop_limit_are_taken_and_ecn_is_ours() {
        let attr = AddressAttr::new(IpAddr::from([10, 0, 0, 2]), MacAddr([2, 0, 0, 0, 0, 2]), 0, 0);
        let path = AddressAttr { traffic_class: 0x6b, hop_limit: 3, ..attr }.path(&port()).unwrap();
        assert_eq!((path.traffic_class, path.hop_limit), (0x6a, 3));
        let path = attr.path(&port()).unwrap();
        assert_eq!((path.traffic_class, path.hop_limit), (2, 64));
    }

    #[test]
    fn wrong_indexes_and_versions_are_refused_and_groups_have_their_mac_address() {
        let attr = AddressAttr::new(IpAddr::from([10, 0, 0, 2]), MacAddr([2, 0, 0, 0, 0, 2]), 0, 0);
        assert_eq!(AddressAttr { sgid_index: 2, ..attr }.path(&port()), Err(AddressError::NoSuchGid));
        assert_eq!(AddressAttr { sgid_index: 1, ..attr }.path(&port()), Err(AddressError::Versions));
        let to = |ip: &str| with(attr, |a| a.dgid = ip.parse().unwrap()).dst_mac;
        assert_eq!(to("239.129.2.3"), MacAddr([1, 0, 0x5e, 1, 2, 3]));
        assert_eq!(to("10.0.0.1"), port().mac, "the way to oneself");
        assert_eq!(multicast_mac("ff0e::1:203:405".parse().unwrap()), MacAddr([0x33, 0x33, 2, 3, 4, 5]));
    }
}
