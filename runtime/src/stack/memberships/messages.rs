//! The messages of IGMP and MLD: parses queries, emits reports and leaves (RFC 3376, RFC 2236, RFC 3810, RFC 2710).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use softnic_nic::multicast_mac;
use softnic_wire::MacAddr;

const IGMP: u8 = 2;
const ICMPV6: u8 = 58;
const HOP_BY_HOP: u8 = 0;
/// Destinations of IGMPv3 and MLDv2 reports, and of IGMPv2 and MLDv1 leaves.
const ALL_IGMPV3_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);
const ALL_MLDV2_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
const ALL_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
const ALL_ROUTERS_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// A query of a querier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Query {
    /// The query concerns IPv4.
    pub(super) is_v4: bool,
    /// The group of a group-specific query.
    pub(super) group: Option<IpAddr>,
    /// The query is of IGMPv2 or MLDv1, and its sender understands answers of that version only.
    pub(super) is_old: bool,
    /// The maximum response time.
    pub(super) within: Duration,
}

/// The content of a report about a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Record {
    /// The port is a member.
    Member,
    /// The port has joined.
    Joined,
    /// The port has left.
    Left,
}

impl Record {
    /// The record type. A member excludes no source (RFC 3376, 4.2.12; RFC 3810, 5.2.12).
    fn kind(self) -> u8 {
        match self {
            Record::Member => 2,
            Record::Joined => 4,
            Record::Left => 3,
        }
    }
}

/// The checksum of IP, IGMP and ICMPv6 (RFC 1071).
fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u32;
    for part in parts {
        for pair in part.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Decodes a time code: large values are a mantissa of `bits` bits and an exponent (RFC 3376, 4.1.1; RFC 3810, 5.1.3).
fn scaled(code: u32, bits: u32) -> u32 {
    match code >> (bits + 3) {
        0 => code,
        _ => (code & ((1 << bits) - 1) | 1 << bits) << ((code >> bits & 7) + 3),
    }
}

impl Query {
    /// The query in an IP packet, if the packet is a valid query.
    pub(super) fn of(packet: &[u8]) -> Option<Query> {
        match packet.first()? >> 4 {
            4 => Query::of_igmp(packet),
            6 => Query::of_mld(packet),
            _ => None,
        }
    }

    fn of_igmp(packet: &[u8]) -> Option<Query> {
        let header = usize::from(packet[0] & 15) * 4;
        let total = usize::from(u16::from_be_bytes(*packet.get(2..)?.first_chunk()?));
        let (ip, message) = packet.get(..total)?.split_at_checked(header).filter(|_| header >= 20)?;
        let dst = Ipv4Addr::from(*ip[16..].first_chunk::<4>()?);
        let whole = ip[6] & 0x3f == 0 && ip[7] == 0;
        let [0x11, code, _, _, group @ ..] = message else { return None };
        // Routers do not forward queries: the TTL is 1 (RFC 3376, 4).
        if ip[9] != IGMP
            || !whole
            || ip[8] != 1
            || checksum(&[ip]) != 0
            || checksum(&[message]) != 0
            || !dst.is_multicast()
        {
            return None;
        }
        let group = Ipv4Addr::from(*group.first_chunk::<4>()?);
        let (is_old, code) = (message.len() < 12, u32::from(*code));
        let tenths = match (is_old, code) {
            // IGMPv1 queries have no response time (RFC 2236, 4).
            (true, 0) => 100,
            (true, code) => code,
            (false, code) => scaled(code, 4),
        };
        let group = (!group.is_unspecified()).then_some(group.into());
        Some(Query { is_v4: true, group, is_old, within: Duration::from_millis(100 * u64::from(tenths)) })
    }

    fn of_mld(packet: &[u8]) -> Option<Query> {
        let (ip, rest) = packet.split_first_chunk::<40>()?;
        let rest = rest.get(..usize::from(u16::from_be_bytes([ip[4], ip[5]])))?;
        // Queries have a hop-by-hop header with a router alert, and come from a router on the link (RFC 3810, 5, 5.1.14).
        let [ICMPV6, blocks, ..] = rest else { return None };
        let message = rest.get(8 + 8 * usize::from(*blocks)..)?;
        let src = Ipv6Addr::from(*ip[8..].first_chunk::<16>()?);
        let sum = checksum(&[&ip[8..], &(message.len() as u32).to_be_bytes(), &[0, 0, 0, ICMPV6], message]);
        if ip[6] != HOP_BY_HOP
            || ip[7] != 1
            || !src.is_unicast_link_local()
            || sum != 0
            || message.first() != Some(&130)
        {
            return None;
        }
        let code = u32::from(u16::from_be_bytes(*message.get(4..)?.first_chunk()?));
        let group = Ipv6Addr::from(*message.get(8..)?.first_chunk::<16>()?);
        let is_old = message.len() < 28;
        let milliseconds = if is_old { code } else { scaled(code, 12) };
        let group = (!group.is_unspecified()).then_some(group.into());
        Some(Query { is_v4: false, group, is_old, within: Duration::from_millis(milliseconds.into()) })
    }
}

/// A packet with its destination MAC address.
pub(super) type Packet = (MacAddr, Vec<u8>);

/// An IGMPv3 or MLDv2 report about several groups, all of the IP version of `source`.
pub(super) fn report(source: IpAddr, records: &[(IpAddr, Record)]) -> Packet {
    let head = if source.is_ipv4() { 0x22 } else { 143 };
    let mut message = vec![head, 0, 0, 0, 0, 0];
    message.extend((records.len() as u16).to_be_bytes());
    for (group, record) in records {
        message.extend([record.kind(), 0, 0, 0]);
        match group {
            IpAddr::V4(group) => message.extend(group.octets()),
            IpAddr::V6(group) => message.extend(group.octets()),
        }
    }
    match source {
        IpAddr::V4(source) => igmp(source, ALL_IGMPV3_ROUTERS, message),
        IpAddr::V6(source) => mld(source, ALL_MLDV2_ROUTERS, message),
    }
}

/// An IGMPv2 or MLDv1 report about one group. `None` if its IP version is not that of `source`.
pub(super) fn old_report(source: IpAddr, group: IpAddr, record: Record) -> Option<Packet> {
    let left = record == Record::Left;
    match (source, group) {
        (IpAddr::V4(source), IpAddr::V4(group)) => {
            let kind = if left { 0x17 } else { 0x16 };
            let message = [&[kind, 0, 0, 0][..], &group.octets()].concat();
            Some(igmp(source, if left { ALL_ROUTERS } else { group }, message))
        }
        (IpAddr::V6(source), IpAddr::V6(group)) => {
            let kind = if left { 132 } else { 131 };
            let message = [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &group.octets()].concat();
            Some(mld(source, if left { ALL_ROUTERS_V6 } else { group }, message))
        }
        _ => None,
    }
}

/// An IPv4 packet with a TTL of 1 and the router alert option (RFC 2113).
fn igmp(src: Ipv4Addr, dst: Ipv4Addr, mut message: Vec<u8>) -> Packet {
    let sum = checksum(&[&message]);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let len = (24 + message.len()) as u16;
    let mut ip = vec![0x46, 0xc0, 0, 0, 0, 0, 0x40, 0, 1, IGMP, 0, 0];
    ip[2..4].copy_from_slice(&len.to_be_bytes());
    ip.extend(src.octets());
    ip.extend(dst.octets());
    ip.extend([0x94, 4, 0, 0]);
    let sum = checksum(&[&ip]);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    ip.extend(message);
    (multicast_mac(dst.into()), ip)
}

/// An IPv6 packet with a hop limit of 1 and the router alert option (RFC 2711).
fn mld(src: Ipv6Addr, dst: Ipv6Addr, mut message: Vec<u8>) -> Packet {
    let len = message.len() as u32;
    let sum = checksum(&[&src.octets(), &dst.octets(), &len.to_be_bytes(), &[0, 0, 0, ICMPV6], &message]);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut ip = vec![0x60, 0, 0, 0, 0, 0, HOP_BY_HOP, 1];
    ip[4..6].copy_from_slice(&(8 + len as u16).to_be_bytes());
    ip.extend(src.octets());
    ip.extend(dst.octets());
    ip.extend([ICMPV6, 0, 5, 2, 0, 0, 1, 0]);
    ip.extend(message);
    (multicast_mac(dst.into()), ip)
}
