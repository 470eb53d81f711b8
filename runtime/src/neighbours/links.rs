//! The subnets of a port, its gateways, and the choice of source addresses.

use std::net::IpAddr;

use super::NeighbourError;

/// The subnets of a port, and its gateways.
///
/// Without prefixes every address counts as on the link, as on wires that connect NICs only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Links {
    /// The port's own addresses, each with the length of its subnet's prefix.
    pub addresses: Vec<(IpAddr, u8)>,
    /// The routers. The first of each IP version is used.
    pub gateways: Vec<IpAddr>,
}

/// The number of leading bits that two addresses have in common; `None` if their IP versions differ.
fn common_bits(a: IpAddr, b: IpAddr) -> Option<u32> {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => Some((u32::from(a) ^ u32::from(b)).leading_zeros()),
        (IpAddr::V6(a), IpAddr::V6(b)) => Some((u128::from(a) ^ u128::from(b)).leading_zeros()),
        _ => None,
    }
}

/// Whether an address is valid on one link only. No IPv4 address counts as such: 169.254/16 has a prefix like all others.
fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

impl Links {
    /// The length of the longest prefix of the port that contains `address`.
    fn prefix_of(&self, address: IpAddr) -> Option<u8> {
        let within = |&&(own, len): &&(IpAddr, u8)| common_bits(own, address).is_some_and(|n| n >= u32::from(len));
        self.addresses.iter().filter(within).map(|&(_, len)| len).max()
    }

    /// The next hop for packets to `address`.
    pub(crate) fn next_hop(&self, address: IpAddr) -> Result<IpAddr, NeighbourError> {
        // A link-local address is on the link, whatever the prefixes (RFC 4861, 5.2).
        let on_link = self.addresses.is_empty() || is_link_local(address) || self.prefix_of(address).is_some();
        // The gateway may be outside of all prefixes: that of a port with a /32 is.
        if on_link || self.gateways.contains(&address) {
            return Ok(address);
        }
        let gateway = self.gateways.iter().find(|gateway| gateway.is_ipv4() == address.is_ipv4());
        gateway.copied().ok_or(NeighbourError::NoGateway(address))
    }

    /// The source address among `own` for packets to `address`. It has the same scope. Preferred are an address of the same subnet, then one
    /// of the gateway's subnet, then the one with the longest common prefix; the first among equals.
    pub(super) fn source_for(&self, own: &[IpAddr], address: IpAddr) -> Option<IpAddr> {
        let hop = self.next_hop(address).unwrap_or(address);
        let within = |own: IpAddr, other: IpAddr| {
            let same = self.addresses.iter().filter(|(address, _)| *address == own);
            let lens = same.filter(|&&(own, len)| common_bits(own, other).is_some_and(|n| n >= u32::from(len)));
            lens.map(|&(_, len)| len).max()
        };
        let usable = own
            .iter()
            .rev()
            .copied()
            .filter(|&own| own.is_ipv4() == address.is_ipv4() && is_link_local(own) == is_link_local(address));
        usable.max_by_key(|&own| (within(own, address), within(own, hop), common_bits(own, address)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn links(addresses: &[(&str, u8)], gateways: &[&str]) -> Links {
        Links {
            addresses: addresses.iter().map(|&(address, len)| (ip(address), len)).collect(),
            gateways: gateways.iter().map(|gateway| ip(gateway)).collect(),
        }
    }

    #[test]
    fn who_is_in_a_prefix_is_asked_for_itself_and_others_by_the_gateway_of_their_version() {
        let links = links(&[("10.0.0.1", 24), ("fd00::1", 64)], &["fe80::9", "10.0.0.254"]);
        let hop = |address| links.next_hop(ip(address));
        assert_eq!(hop("10.0.0.7"), Ok(ip("10.0.0.7")));
        assert_eq!(hop("10.0.1.7"), Ok(ip("10.0.0.254")));
        assert_eq!(hop("fd00::7"), Ok(ip("fd00::7")));
        assert_eq!(hop("fd01::7"), Ok(ip("fe80::9")));
        assert_eq!(hop("fe80::7"), Ok(ip("fe80::7")), "the scope is the link");
    }

    #[test]
    fn without_a_gateway_who_is_elsewhere_is_an_error_and_without_prefixes_nobody_is_elsewhere() {
        let refused = links(&[("10.0.0.1", 24)], &["fd00::9"]).next_hop(ip("10.0.1.7")).unwrap_err();
        assert_eq!(refused.to_string(), "10.0.1.7 is on no subnet of the port, and the port has no gateway");
        assert_eq!(Links::default().next_hop(ip("192.0.2.1")), Ok(ip("192.0.2.1")));
        let narrow = links(&[("10.0.0.1", 32)], &["10.9.9.9"]);
        assert_eq!(narrow.next_hop(ip("10.9.9.9")), Ok(ip("10.9.9.9")), "a gateway is on the link");
        let all = links(&[("10.0.0.1", 0), ("10.0.0.2", 99)], &[]);
        assert_eq!(
            all.next_hop(ip("192.0.2.1")),
            Ok(ip("192.0.2.1")),
            "a prefix may be empty, or longer than an address"
        );
    }

    #[test]
    fn the_source_is_of_the_subnet_then_of_the_gateways_then_the_most_alike() {
        let links =
            links(&[("10.0.0.1", 8), ("10.1.0.1", 16), ("192.168.1.1", 24), ("fd00::1", 64)], &["192.168.1.254"]);
        let own: Vec<_> = ["10.0.0.1", "10.1.0.1", "192.168.1.1", "fd00::1", "fe80::1"].map(ip).into();
        let source = |address| links.source_for(&own, ip(address));
        assert_eq!(source("10.1.2.3"), Some(ip("10.1.0.1")), "the longest prefix");
        assert_eq!(source("10.2.2.3"), Some(ip("10.0.0.1")));
        assert_eq!(source("172.16.0.1"), Some(ip("192.168.1.1")), "it goes by the gateway there");
        assert_eq!((source("fd00::2"), source("fe80::2")), (Some(ip("fd00::1")), Some(ip("fe80::1"))));
        assert_eq!(Links::default().source_for(&own, ip("192.168.9.9")), Some(ip("192.168.1.1")));
        assert_eq!(links.source_for(&own[..3], ip("fd00::2")), None);
    }
}
