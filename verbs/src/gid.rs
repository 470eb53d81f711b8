//! GIDs: addresses in verbs form.

use std::net::IpAddr;

use crate::abi::ibv_gid;

/// An address as a GID.
pub(crate) fn gid_of(address: IpAddr) -> ibv_gid {
    let v6 = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    ibv_gid { raw: v6.octets() }
}

/// A GID as an address. An IPv4 multicast group may also be written as an IPv6 group, as RoCEv1 does.
pub(crate) fn address_of(gid: &ibv_gid) -> IpAddr {
    let mut raw = gid.raw;
    if raw[..2] == [0xff, 0x0e] && raw[2..10] == [0; 8] && raw[10..12] == [0xff; 2] {
        raw[..2].fill(0);
    }
    IpAddr::from(raw).to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gids_are_addresses_and_groups_of_ipv4_have_two_ways() {
        for text in ["10.0.0.1", "fe80::1", "ff0e::1:2"] {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(address_of(&gid_of(address)), address);
        }
        let group: IpAddr = "ff0e::ffff:224.1.2.3".parse().unwrap();
        assert_eq!(address_of(&gid_of(group)), "224.1.2.3".parse::<IpAddr>().unwrap());
    }
}
