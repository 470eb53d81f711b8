//! Link types, and where the network layer begins in a frame of each.

use softnic_wire::ethernet::{TAG_LEN, ethertype, is_tag};
use softnic_wire::{Error, NotRoce};

/// What the bytes of a frame begin with; the numbers are those of the pcap link-type registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LinkType {
    /// Ethernet II / 802.3, without preamble (1).
    Ethernet,
    /// An IPv4 or IPv6 header, told apart by its version (101; also 12 and 14, which some systems write).
    RawIp,
    /// An IPv4 header (228).
    Ipv4,
    /// An IPv6 header (229).
    Ipv6,
    /// Linux "cooked" capture, version 1 (113): what tcpdump takes from `-i any`.
    LinuxSll,
    /// Linux "cooked" capture, version 2 (276).
    LinuxSll2,
    /// Any other, by number.
    Other(u16),
}

impl LinkType {
    /// From the number in a file.
    pub const fn from_value(v: u16) -> LinkType {
        match v {
            1 => LinkType::Ethernet,
            12 | 14 | 101 => LinkType::RawIp,
            113 => LinkType::LinuxSll,
            228 => LinkType::Ipv4,
            229 => LinkType::Ipv6,
            276 => LinkType::LinuxSll2,
            other => LinkType::Other(other),
        }
    }

    /// The number for a file.
    pub const fn value(self) -> u16 {
        match self {
            LinkType::Ethernet => 1,
            LinkType::RawIp => 101,
            LinkType::LinuxSll => 113,
            LinkType::Ipv4 => 228,
            LinkType::Ipv6 => 229,
            LinkType::LinuxSll2 => 276,
            LinkType::Other(v) => v,
        }
    }
}

/// What a frame carries, seen from its link type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload<'a> {
    /// A whole Ethernet frame, VLAN tags and all.
    Ethernet(&'a [u8]),
    /// A network layer without an Ethernet header before it.
    Network {
        /// Its ethertype. Cooked captures also put numbers below 0x0600 here, for what is not Ethernet II.
        ethertype: u16,
        /// Where it begins in the frame; at most the frame's length.
        offset: usize,
    },
    /// A link type whose frames are not understood here.
    Unsupported(LinkType),
}

/// Finds the network layer in `data`, a frame of link type `link`.
pub fn payload(link: LinkType, data: &[u8]) -> Result<Payload<'_>, Error> {
    match link {
        LinkType::Ethernet => Ok(Payload::Ethernet(data)),
        LinkType::RawIp => raw_ip(data, &[4, 6]),
        LinkType::Ipv4 => raw_ip(data, &[4]),
        LinkType::Ipv6 => raw_ip(data, &[6]),
        LinkType::LinuxSll => cooked("Linux cooked header", data, 14, 16),
        LinkType::LinuxSll2 => cooked("Linux cooked header v2", data, 0, 20),
        LinkType::Other(_) => Ok(Payload::Unsupported(link)),
    }
}

fn raw_ip<'a>(data: &'a [u8], versions: &[u8]) -> Result<Payload<'a>, Error> {
    let first = data.first().ok_or(Error::Truncated { what: "IP header", need: 1, have: 0 })?;
    let version = first >> 4;
    if !versions.contains(&version) {
        return Err(Error::NotRoce(NotRoce::IpVersion(version)));
    }
    let ethertype = if version == 4 { ethertype::IPV4 } else { ethertype::IPV6 };
    Ok(Payload::Network { ethertype, offset: 0 })
}

/// A header of `len` bytes with the protocol at `protocol_at`, then VLAN tags if the protocol says so.
fn cooked<'a>(what: &'static str, data: &'a [u8], protocol_at: usize, len: usize) -> Result<Payload<'a>, Error> {
    if data.len() < len {
        return Err(Error::Truncated { what, need: len, have: data.len() });
    }
    let (mut ethertype, mut offset) = (be16(what, data, protocol_at)?, len);
    while is_tag(ethertype) {
        // A tag here is its control field, then the ethertype of what follows.
        ethertype = be16("VLAN tag", data, offset + 2)?;
        offset += TAG_LEN;
    }
    Ok(Payload::Network { ethertype, offset })
}

fn be16(what: &'static str, data: &[u8], at: usize) -> Result<u16, Error> {
    match data.get(at..).and_then(<[u8]>::first_chunk) {
        Some(bytes) => Ok(u16::from_be_bytes(*bytes)),
        None => Err(Error::Truncated { what, need: at + 2, have: data.len() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(ethertype: u16, offset: usize) -> Result<Payload<'static>, Error> {
        Ok(Payload::Network { ethertype, offset })
    }

    #[test]
    fn numbers_stay_what_they_were() {
        for v in 0..=u16::MAX {
            let back = LinkType::from_value(v).value();
            assert_eq!(back, if v == 12 || v == 14 { 101 } else { v });
        }
    }

    #[test]
    fn ethernet_is_handed_on_whole() {
        assert_eq!(payload(LinkType::Ethernet, &[]), Ok(Payload::Ethernet(&[])));
        assert_eq!(payload(LinkType::Ethernet, &[1, 2]), Ok(Payload::Ethernet(&[1, 2])));
    }

    #[test]
    fn raw_ip_goes_by_the_version() {
        assert_eq!(payload(LinkType::RawIp, &[0x45]), network(0x0800, 0));
        assert_eq!(payload(LinkType::RawIp, &[0x60]), network(0x86dd, 0));
        assert_eq!(payload(LinkType::RawIp, &[0x50]), Err(Error::NotRoce(NotRoce::IpVersion(5))));
        assert_eq!(payload(LinkType::Ipv4, &[0x45]), network(0x0800, 0));
        assert_eq!(payload(LinkType::Ipv6, &[0x60]), network(0x86dd, 0));
        assert_eq!(payload(LinkType::Ipv4, &[0x60]), Err(Error::NotRoce(NotRoce::IpVersion(6))));
        assert!(matches!(payload(LinkType::RawIp, &[]), Err(Error::Truncated { .. })));
    }

    #[test]
    fn cooked_v1() {
        let mut frame = vec![0, 4, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 0x08, 0x00];
        assert_eq!(payload(LinkType::LinuxSll, &frame), network(0x0800, 16));
        assert!(matches!(payload(LinkType::LinuxSll, &frame[..15]), Err(Error::Truncated { need: 16, have: 15, .. })));
        frame[14..16].copy_from_slice(&[0x81, 0x00]);
        frame.extend([0, 100, 0x88, 0xa8, 0, 7, 0x86, 0xdd]);
        assert_eq!(payload(LinkType::LinuxSll, &frame), network(0x86dd, 24));
        assert!(matches!(payload(LinkType::LinuxSll, &frame[..23]), Err(Error::Truncated { what: "VLAN tag", .. })));
    }

    #[test]
    fn cooked_v2() {
        let mut frame = vec![0x86, 0xdd, 0, 0, 0, 0, 0, 3, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0];
        assert_eq!(payload(LinkType::LinuxSll2, &frame), network(0x86dd, 20));
        assert!(matches!(payload(LinkType::LinuxSll2, &frame[..19]), Err(Error::Truncated { need: 20, .. })));
        frame[..2].copy_from_slice(&[0x81, 0x00]);
        frame.extend([0, 100, 0x08, 0x00]);
        assert_eq!(payload(LinkType::LinuxSll2, &frame), network(0x0800, 24));
    }

    #[test]
    fn others_are_named() {
        assert_eq!(payload(LinkType::Other(127), &[0]), Ok(Payload::Unsupported(LinkType::Other(127))));
    }

    proptest::proptest! {
        #[test]
        fn offsets_stay_within_the_frame(link: u16, vlan: bool, mut data: Vec<u8>) {
            let link = if vlan { LinkType::LinuxSll2 } else { LinkType::from_value(link) };
            if vlan && data.len() > 1 {
                data[..2].copy_from_slice(&[0x81, 0x00]);
            }
            if let Ok(Payload::Network { offset, .. }) = payload(link, &data) {
                proptest::prop_assert!(offset <= data.len());
            }
        }
    }
}
