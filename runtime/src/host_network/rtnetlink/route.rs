//! Routes in rtnetlink: `struct rtmsg` and its attributes.

use std::net::IpAddr;

use super::attributes::{Attributes, ip_of, read, u16_at, u32_at, u32_of};

pub(crate) const RTA_DST: u16 = 1;
pub(crate) const RTA_SRC: u16 = 2;
pub(crate) const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTA_VIA: u16 = 18;
/// Inside of `RTA_METRICS`.
const RTAX_MTU: u16 = 2;

/// What the kernel remembers of a path.
pub(crate) const RTM_F_CLONED: u32 = 0x200;
/// Of a question: what is in the table, not what follows from it.
pub(crate) const RTM_F_FIB_MATCH: u32 = 0x2000;

/// Types of routes.
pub(crate) const RTN_UNICAST: u8 = 1;
pub(crate) const RTN_LOCAL: u8 = 2;
pub(crate) const RTN_BLACKHOLE: u8 = 6;
pub(crate) const RTN_UNREACHABLE: u8 = 7;
pub(crate) const RTN_PROHIBIT: u8 = 8;
pub(crate) const RTN_THROW: u8 = 9;

/// Bytes of `struct rtmsg`.
const LEN: usize = 12;

/// `struct rtmsg` for a question, with the bits of the destination and of the source that count.
pub(crate) fn question(family: u8, dst_bits: u8, src_bits: u8, flags: u32) -> Attributes {
    let mut structure = [0; LEN];
    (structure[0], structure[1], structure[2]) = (family, dst_bits, src_bits);
    structure[8..].copy_from_slice(&flags.to_ne_bytes());
    Attributes::after(&structure)
}

/// A route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RouteMessage {
    /// `RTN_…`
    pub(crate) kind: u8,
    /// `RTM_F_…`
    pub(crate) flags: u32,
    /// The interface that packets leave by.
    pub(crate) by: Option<u32>,
    /// That of an IPv4 route may be an IPv6 address.
    pub(crate) gateway: Option<IpAddr>,
    pub(crate) source: Option<IpAddr>,
    pub(crate) mtu: Option<u32>,
}

impl RouteMessage {
    pub(super) fn read(body: &[u8]) -> Option<RouteMessage> {
        let family = *body.first()?;
        let (kind, flags) = (*body.get(7)?, u32_at(body, 8)?);
        let mut route = RouteMessage { kind, flags, by: None, gateway: None, source: None, mtu: None };
        read(body.get(LEN..)?, |kind, value| {
            match kind {
                RTA_OIF => route.by = Some(u32_of(value)?),
                RTA_GATEWAY => route.gateway = ip_of(family, value)?,
                RTA_VIA => route.gateway = via(value)?,
                RTA_PREFSRC => route.source = ip_of(family, value)?,
                RTA_METRICS => route.mtu = mtu(value)?,
                _ => {}
            }
            Some(())
        })?;
        Some(route)
    }
}

/// `struct rtvia`: a family and an address of it.
fn via(value: &[u8]) -> Option<Option<IpAddr>> {
    match u8::try_from(u16_at(value, 0)?) {
        Ok(family) => ip_of(family, value.get(2..)?),
        Err(_) => Some(None),
    }
}

fn mtu(metrics: &[u8]) -> Option<Option<u32>> {
    let mut mtu = None;
    read(metrics, |kind, value| {
        if kind == RTAX_MTU {
            mtu = Some(u32_of(value)?);
        }
        Some(())
    })?;
    Some(mtu)
}
