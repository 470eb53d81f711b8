//! Neighbours in rtnetlink: `struct ndmsg` and its attributes.

use std::net::IpAddr;

use softnic_wire::MacAddr;

use super::attributes::{Attributes, ip_of, read, u16_at, u32_at, u32_of};
use super::{AF_INET, AF_INET6};

const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NDA_FLAGS_EXT: u16 = 15;

/// Of a change: the neighbour is in use.
pub(crate) const NTF_USE: u8 = 1 << 0;
/// Another program, or a switch, keeps the entry.
pub(crate) const NTF_EXT_LEARNED: u8 = 1 << 4;
/// The kernel keeps the entry fresh.
pub(crate) const NTF_EXT_MANAGED: u32 = 1 << 0;

pub(crate) const NUD_REACHABLE: u16 = 0x02;
pub(crate) const NUD_STALE: u16 = 0x04;
pub(crate) const NUD_DELAY: u16 = 0x08;
pub(crate) const NUD_PROBE: u16 = 0x10;
pub(crate) const NUD_NOARP: u16 = 0x40;
pub(crate) const NUD_PERMANENT: u16 = 0x80;

/// Bytes of `struct ndmsg`.
const LEN: usize = 12;

/// `struct ndmsg` about a neighbour on an interface, with `NTF_…` flags.
pub(crate) fn about(index: u32, ip: IpAddr, flags: u8) -> Attributes {
    let mut structure = [0; LEN];
    structure[0] = if ip.is_ipv4() { AF_INET } else { AF_INET6 };
    structure[4..8].copy_from_slice(&index.to_ne_bytes());
    structure[10] = flags;
    Attributes::after(&structure).with_ip(NDA_DST, ip)
}

/// A neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NeighbourMessage {
    /// The number of the interface that it is on.
    pub(crate) index: u32,
    /// `NUD_…`
    pub(crate) state: u16,
    /// `NTF_…`
    pub(crate) flags: u8,
    /// `NTF_EXT_…`
    pub(crate) more_flags: u32,
    pub(crate) ip: Option<IpAddr>,
    /// Where its address has six bytes.
    pub(crate) mac: Option<MacAddr>,
}

impl NeighbourMessage {
    pub(super) fn read(body: &[u8]) -> Option<NeighbourMessage> {
        let family = *body.first()?;
        let (index, state, flags) = (u32_at(body, 4)?, u16_at(body, 8)?, *body.get(10)?);
        let mut neighbour = NeighbourMessage { index, state, flags, more_flags: 0, ip: None, mac: None };
        read(body.get(LEN..)?, |kind, value| {
            match kind {
                NDA_DST => neighbour.ip = ip_of(family, value)?,
                NDA_LLADDR => neighbour.mac = value.try_into().ok().map(MacAddr),
                NDA_FLAGS_EXT => neighbour.more_flags = u32_of(value)?,
                _ => {}
            }
            Some(())
        })?;
        Some(neighbour)
    }
}
