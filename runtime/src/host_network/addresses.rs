//! The addresses of an interface, in the order of a GID table.
//!
//! IPv4 first, as the kernel lists it: by age, and of each network the first address before all further ones. Then
//! global IPv6, then link-local IPv6, the oldest first, so that a new address does not give another number to those
//! that were there. What is left out, and why:
//! - tentative addresses, and those that another host turned out to have: they are not ours (yet);
//! - temporary ones (RFC 8981): they change every day, and a GID is for connections that stay.
//!
//! Deprecated addresses stay, behind the others of their kind: connections may still use them (RFC 4862, 5.5.4).

use std::net::IpAddr;

use rustix::io::Errno;

use super::netlink::Netlink;
use super::rtnetlink::address::{
    IFA_F_DADFAILED, IFA_F_DEPRECATED, IFA_F_OPTIMISTIC, IFA_F_SECONDARY, IFA_F_TENTATIVE, all_addresses,
};
use super::rtnetlink::{Message, RTM_GETADDR, Request};

/// An address with what the kernel says of its use.
#[derive(Debug, Clone, Copy)]
struct Address {
    ip: IpAddr,
    /// `IFA_F_…`
    flags: u32,
}

/// The addresses of the interface with this number, ordered.
pub(super) fn read(netlink: &mut Netlink, index: u32) -> Result<Vec<IpAddr>, Errno> {
    let answers = netlink.dump(&Request::new(RTM_GETADDR, all_addresses()))?;
    let addresses = answers.iter().filter_map(|answer| match answer {
        Message::Address(message) if message.index == index => Some(Address { ip: message.ip?, flags: message.flags }),
        _ => None,
    });
    Ok(order(addresses.collect()))
}

impl Address {
    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    fn is_usable(&self) -> bool {
        let waiting = self.has(IFA_F_TENTATIVE) && !self.has(IFA_F_OPTIMISTIC);
        // The same bit says "secondary" of an IPv4 address, which is as good as any.
        let temporary = self.ip.is_ipv6() && self.has(IFA_F_SECONDARY);
        !waiting && !temporary && !self.has(IFA_F_DADFAILED) && !self.ip.is_loopback()
    }

    fn rank(&self) -> (u8, bool) {
        let kind = match self.ip {
            IpAddr::V4(_) => 0,
            IpAddr::V6(ip) if !ip.is_unicast_link_local() => 1,
            IpAddr::V6(_) => 2,
        };
        (kind, self.has(IFA_F_DEPRECATED))
    }
}

/// From the order of the kernel's lists.
fn order(mut addresses: Vec<Address>) -> Vec<IpAddr> {
    addresses.retain(Address::is_usable);
    // The kernel puts a new IPv6 address before the others of its scope, a new IPv4 address behind.
    let (mut ordered, v6): (Vec<_>, Vec<_>) = addresses.into_iter().partition(|a| a.ip.is_ipv4());
    ordered.extend(v6.into_iter().rev());
    ordered.sort_by_key(Address::rank);
    ordered.into_iter().map(|a| a.ip).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(addresses: &[(&str, u32)]) -> Vec<String> {
        let addresses = addresses.iter().map(|&(ip, flags)| Address { ip: ip.parse().unwrap(), flags });
        order(addresses.collect()).iter().map(IpAddr::to_string).collect()
    }

    /// Permanent.
    const PLAIN: u32 = 0x80;

    #[test]
    fn ipv4_then_global_then_link_local_and_the_oldest_first() {
        let kernel = [
            ("fd00::2", PLAIN),
            ("2001:db8::1", PLAIN),
            ("fe80::2", PLAIN),
            ("fe80::1", PLAIN),
            ("10.0.0.1", PLAIN),
            ("10.0.0.2", IFA_F_SECONDARY),
        ];
        let wanted = ["10.0.0.1", "10.0.0.2", "2001:db8::1", "fd00::2", "fe80::1", "fe80::2"];
        assert_eq!(ordered(&kernel), wanted);
    }

    #[test]
    fn what_is_not_ours_or_will_not_stay_is_left_out_and_what_is_deprecated_stands_behind() {
        let kernel = [
            ("fd00::6", IFA_F_TENTATIVE | IFA_F_DADFAILED),
            ("fd00::5", IFA_F_TENTATIVE | IFA_F_OPTIMISTIC),
            ("fd00::4", IFA_F_SECONDARY),
            ("fd00::3", IFA_F_TENTATIVE),
            ("fd00::2", PLAIN),
            ("fd00::1", IFA_F_DEPRECATED),
            ("::1", PLAIN),
            ("fe80::1", PLAIN),
        ];
        assert_eq!(ordered(&kernel), ["fd00::2", "fd00::5", "fd00::1", "fe80::1"]);
    }
}
