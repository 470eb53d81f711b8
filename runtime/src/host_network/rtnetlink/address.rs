//! Addresses in rtnetlink: `struct ifaddrmsg` and its attributes.

use std::net::IpAddr;

use super::attributes::{Attributes, ip_of, read, u32_at, u32_of};

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;

/// Of an IPv4 address: secondary. Of an IPv6 address: temporary.
pub(crate) const IFA_F_SECONDARY: u32 = 0x01;
pub(crate) const IFA_F_OPTIMISTIC: u32 = 0x04;
pub(crate) const IFA_F_DADFAILED: u32 = 0x08;
pub(crate) const IFA_F_DEPRECATED: u32 = 0x20;
pub(crate) const IFA_F_TENTATIVE: u32 = 0x40;

/// Used at once, without asking whether somebody else has it.
#[cfg(feature = "dpdk")]
const IFA_F_NODAD: u32 = 0x02;

/// Bytes of `struct ifaddrmsg`.
const LEN: usize = 8;

/// `struct ifaddrmsg` for a question about all addresses.
pub(crate) fn all_addresses() -> Attributes {
    Attributes::after(&[0; LEN])
}

/// An address to give to the interface with this number. It is used at once.
#[cfg(feature = "dpdk")]
pub(crate) fn new_address(index: u32, ip: IpAddr, prefix: u8) -> Attributes {
    let family = if ip.is_ipv4() { super::AF_INET } else { super::AF_INET6 };
    let [a, b, c, d] = index.to_ne_bytes();
    let of = Attributes::after(&[family, prefix, 0, 0, a, b, c, d]).with_ip(IFA_LOCAL, ip).with_ip(IFA_ADDRESS, ip);
    if ip.is_ipv4() { of } else { of.with_u32(IFA_FLAGS, IFA_F_NODAD) }
}

/// An address of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AddressMessage {
    /// The number of the interface.
    pub(crate) index: u32,
    /// The interface's own; `None` where it is none of IP.
    pub(crate) ip: Option<IpAddr>,
    /// `IFA_F_…`
    pub(crate) flags: u32,
}

impl AddressMessage {
    pub(super) fn read(body: &[u8]) -> Option<AddressMessage> {
        let (family, index) = (*body.first()?, u32_at(body, 4)?);
        // The structure has room for eight flags alone.
        let mut flags = u32::from(*body.get(2)?);
        let (mut address, mut local) = (None, None);
        read(body.get(LEN..)?, |kind, value| {
            match kind {
                IFA_ADDRESS => address = ip_of(family, value)?,
                // On a link between two, the other one is the peer's.
                IFA_LOCAL => local = ip_of(family, value)?,
                IFA_FLAGS => flags = u32_of(value)?,
                _ => {}
            }
            Some(())
        })?;
        Some(AddressMessage { index, ip: local.or(address), flags })
    }
}
