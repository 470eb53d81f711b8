//! Links in rtnetlink: `struct ifinfomsg` and its attributes.

use softnic_wire::MacAddr;

use super::attributes::{Attributes, array, read, text_of, u16_at, u32_at, u32_of};

pub(crate) const IFLA_ADDRESS: u16 = 1;
pub(crate) const IFLA_IFNAME: u16 = 3;
pub(crate) const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
pub(crate) const IFLA_LINKINFO: u16 = 18;
pub(crate) const IFLA_AF_SPEC: u16 = 26;
pub(crate) const IFLA_NET_NS_FD: u16 = 28;
pub(crate) const IFLA_NUM_TX_QUEUES: u16 = 31;
pub(crate) const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_LINK_NETNSID: u16 = 37;
pub(crate) const IFLA_XDP: u16 = 43;

/// Inside of `IFLA_LINKINFO`.
pub(crate) const IFLA_INFO_KIND: u16 = 1;
pub(crate) const IFLA_INFO_DATA: u16 = 2;
/// Inside of the data of a veth pair: the other end, a whole `struct ifinfomsg` with its attributes.
pub(crate) const VETH_INFO_PEER: u16 = 1;
/// Inside of the data of a VLAN.
const IFLA_VLAN_ID: u16 = 1;
const IFLA_VLAN_PROTOCOL: u16 = 5;
/// Inside of `IFLA_AF_SPEC`, inside of an attribute with the number of IPv6: which addresses the kernel makes up itself.
pub(crate) const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
pub(crate) const IN6_ADDR_GEN_MODE_NONE: u8 = 1;
/// Inside of `IFLA_XDP`.
pub(crate) const IFLA_XDP_FD: u16 = 1;
pub(crate) const IFLA_XDP_FLAGS: u16 = 3;
const IFLA_XDP_PROG_ID: u16 = 4;

pub(crate) const IFF_UP: u32 = 1 << 0;
pub(crate) const IFF_RUNNING: u32 = 1 << 6;
pub(crate) const IFF_NOARP: u32 = 1 << 7;
pub(crate) const IFF_LOWER_UP: u32 = 1 << 16;

/// The type of an Ethernet link.
pub(crate) const ARPHRD_ETHER: u16 = 1;

/// Bytes of `struct ifinfomsg`.
const LEN: usize = 16;

/// `struct ifinfomsg` for the link with this number, 0 for one that is named otherwise.
pub(crate) fn of_link(index: u32) -> Attributes {
    with_flags(index, 0, 0)
}

/// The same, with flags to set of those in `change`.
pub(crate) fn with_flags(index: u32, flags: u32, change: u32) -> Attributes {
    let words = [0, index, flags, change];
    Attributes::after(words.map(u32::to_ne_bytes).as_flattened())
}

/// A link, as far as it is told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LinkMessage {
    /// A bridge tells of its ports in a family of its own.
    pub(crate) family: u8,
    /// `ARPHRD_…`
    pub(crate) layer: u16,
    pub(crate) index: u32,
    /// `IFF_…`
    pub(crate) flags: u32,
    pub(crate) name: Option<String>,
    /// Where its address has six bytes.
    pub(crate) mac: Option<MacAddr>,
    pub(crate) mtu: Option<u32>,
    /// The link below it, or at the other end of a pair.
    pub(crate) below: Option<u32>,
    /// That one is in another network namespace.
    pub(crate) below_is_elsewhere: bool,
    pub(crate) vlan: Option<VlanInfo>,
    /// The id of the XDP program in its driver; 0 for none.
    pub(crate) xdp_program: Option<u32>,
}

/// What is told of a VLAN.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct VlanInfo {
    pub(crate) id: Option<u16>,
    /// An EtherType.
    pub(crate) protocol: Option<u16>,
}

impl LinkMessage {
    pub(super) fn read(body: &[u8]) -> Option<LinkMessage> {
        let mut link = LinkMessage {
            family: *body.first()?,
            layer: u16_at(body, 2)?,
            index: u32_at(body, 4)?,
            flags: u32_at(body, 8)?,
            ..LinkMessage::default()
        };
        read(body.get(LEN..)?, |kind, value| {
            match kind {
                IFLA_ADDRESS => link.mac = value.try_into().ok().map(MacAddr),
                IFLA_IFNAME => link.name = Some(text_of(value)),
                IFLA_MTU => link.mtu = Some(u32_of(value)?),
                IFLA_LINK => link.below = Some(u32_of(value)?),
                IFLA_LINK_NETNSID => link.below_is_elsewhere = true,
                IFLA_LINKINFO => link.vlan = vlan(value)?,
                IFLA_XDP => link.xdp_program = xdp_program(value)?,
                _ => {}
            }
            Some(())
        })?;
        Some(link)
    }
}

/// `Some(None)` for what is no VLAN.
fn vlan(info: &[u8]) -> Option<Option<VlanInfo>> {
    let (mut is_vlan, mut data) = (false, &[][..]);
    read(info, |kind, value| {
        match kind {
            IFLA_INFO_KIND => is_vlan = text_of(value) == "vlan",
            IFLA_INFO_DATA => data = value,
            _ => {}
        }
        Some(())
    })?;
    if !is_vlan {
        return Some(None);
    }
    let mut vlan = VlanInfo::default();
    read(data, |kind, value| {
        match kind {
            IFLA_VLAN_ID => vlan.id = Some(u16::from_ne_bytes(value.try_into().ok()?)),
            IFLA_VLAN_PROTOCOL => vlan.protocol = Some(u16::from_be_bytes(array(value, 0)?)),
            _ => {}
        }
        Some(())
    })?;
    Some(Some(vlan))
}

fn xdp_program(xdp: &[u8]) -> Option<Option<u32>> {
    let mut id = None;
    read(xdp, |kind, value| {
        if kind == IFLA_XDP_PROG_ID {
            id = Some(u32_of(value)?);
        }
        Some(())
    })?;
    Some(id)
}
