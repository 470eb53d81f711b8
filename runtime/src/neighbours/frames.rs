//! The frames of ARP, NDP and echo, emitted with smoltcp's representations.

use std::net::{Ipv4Addr, Ipv6Addr};

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr, Icmpv4Packet,
    Icmpv4Repr, Icmpv6Packet, Icmpv6Repr, IpProtocol, Ipv4Packet, Ipv4Repr, Ipv6Packet, Ipv6Repr, NdiscNeighborFlags,
    NdiscRepr,
};
use softnic_wire::MacAddr;

/// Checksums are computed and verified in software: there is no hardware offload.
pub(super) fn checksums() -> ChecksumCapabilities {
    ChecksumCapabilities::default()
}

/// The group of all nodes on a link.
pub(super) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// The MAC address that carries an IPv6 multicast address (RFC 2464, 7).
pub(super) fn multicast_mac(group: Ipv6Addr) -> MacAddr {
    let [.., a, b, c, d] = group.octets();
    MacAddr([0x33, 0x33, a, b, c, d])
}

/// The solicited-node group of an address, to which its owner listens (RFC 4291, 2.7.1).
pub(super) fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c])
}

/// A frame with `len` bytes of payload, which `fill` writes.
fn ethernet(
    src: MacAddr,
    dst: MacAddr,
    ethertype: EthernetProtocol,
    len: usize,
    fill: impl FnOnce(&mut [u8]),
) -> Vec<u8> {
    let mut bytes = vec![0; EthernetFrame::<&[u8]>::buffer_len(len)];
    let mut frame = EthernetFrame::new_unchecked(&mut bytes[..]);
    let header = EthernetRepr { src_addr: EthernetAddress(src.0), dst_addr: EthernetAddress(dst.0), ethertype };
    header.emit(&mut frame);
    fill(frame.payload_mut());
    bytes
}

/// A frame that carries an IP packet.
pub(super) fn ip(mac: MacAddr, to: MacAddr, packet: &[u8]) -> Vec<u8> {
    let six = packet.first().is_some_and(|first| first >> 4 == 6);
    let ethertype = if six { EthernetProtocol::Ipv6 } else { EthernetProtocol::Ipv4 };
    ethernet(mac, to, ethertype, packet.len(), |room| room.copy_from_slice(packet))
}

fn arp(dst: MacAddr, message: &ArpRepr, src: MacAddr) -> Vec<u8> {
    ethernet(src, dst, EthernetProtocol::Arp, message.buffer_len(), |room| {
        message.emit(&mut ArpPacket::new_unchecked(room));
    })
}

/// An ARP request for `target`, to one host or to all.
pub(super) fn arp_request(mac: MacAddr, to: Option<MacAddr>, own: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let message = ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Request,
        source_hardware_addr: EthernetAddress(mac.0),
        source_protocol_addr: own,
        target_hardware_addr: EthernetAddress([0; 6]),
        target_protocol_addr: target,
    };
    arp(to.unwrap_or(MacAddr([0xff; 6])), &message, mac)
}

/// An ARP reply for `own`.
pub(super) fn arp_reply(mac: MacAddr, own: Ipv4Addr, to: MacAddr, target: Ipv4Addr) -> Vec<u8> {
    let message = ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Reply,
        source_hardware_addr: EthernetAddress(mac.0),
        source_protocol_addr: own,
        target_hardware_addr: EthernetAddress(to.0),
        target_protocol_addr: target,
    };
    arp(to, &message, mac)
}

/// An ICMP message.
pub(super) fn icmpv4(mac: MacAddr, to: MacAddr, src: Ipv4Addr, dst: Ipv4Addr, message: &Icmpv4Repr<'_>) -> Vec<u8> {
    let ip = Ipv4Repr {
        src_addr: src,
        dst_addr: dst,
        next_header: IpProtocol::Icmp,
        payload_len: message.buffer_len(),
        hop_limit: 64,
    };
    ethernet(mac, to, EthernetProtocol::Ipv4, ip.buffer_len() + ip.payload_len, |room| {
        let mut packet = Ipv4Packet::new_unchecked(room);
        ip.emit(&mut packet, &checksums());
        message.emit(&mut Icmpv4Packet::new_unchecked(packet.payload_mut()), &checksums());
    })
}

/// An ICMPv6 message.
pub(super) fn icmpv6(
    mac: MacAddr,
    to: MacAddr,
    src: Ipv6Addr,
    dst: Ipv6Addr,
    hop_limit: u8,
    message: &Icmpv6Repr<'_>,
) -> Vec<u8> {
    let ip = Ipv6Repr {
        src_addr: src,
        dst_addr: dst,
        next_header: IpProtocol::Icmpv6,
        payload_len: message.buffer_len(),
        hop_limit,
    };
    ethernet(mac, to, EthernetProtocol::Ipv6, ip.buffer_len() + ip.payload_len, |room| {
        let mut packet = Ipv6Packet::new_unchecked(room);
        ip.emit(&mut packet);
        message.emit(&src, &dst, &mut Icmpv6Packet::new_unchecked(packet.payload_mut()), &checksums());
    })
}

/// A neighbour solicitation for `target`, to one host or to the solicited-node group.
pub(super) fn solicitation(mac: MacAddr, to: Option<MacAddr>, own: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    let group = solicited_node(target);
    let (to, dst) = to.map_or((multicast_mac(group), group), |to| (to, target));
    // A solicitation from the unspecified address has no link-layer address option (RFC 4861, 4.3).
    let lladdr = (!own.is_unspecified()).then(|| EthernetAddress(mac.0).into());
    let message = NdiscRepr::NeighborSolicit { target_addr: target, lladdr };
    icmpv6(mac, to, own, dst, 255, &Icmpv6Repr::Ndisc(message))
}

/// A neighbour advertisement for `own`.
pub(super) fn advertisement(
    mac: MacAddr,
    to: MacAddr,
    own: Ipv6Addr,
    dst: Ipv6Addr,
    flags: NdiscNeighborFlags,
) -> Vec<u8> {
    let lladdr = Some(EthernetAddress(mac.0).into());
    let message = NdiscRepr::NeighborAdvert { flags, target_addr: own, lladdr };
    icmpv6(mac, to, own, dst, 255, &Icmpv6Repr::Ndisc(message))
}
