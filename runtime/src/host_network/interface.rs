//! An interface as the kernel knows it: names, MAC address, MTU, whether it is up, and the VLAN that it is.

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoData, InfoVlan, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage, VlanProtocol,
};
use rustix::io::Errno;
use softnic_wire::MacAddr;
use softnic_wire::ethernet::{MAX_TAGS, VlanTag, ethertype};

use super::error::HostNetworkError;
use super::netlink::Netlink;

/// An interface of this network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its MAC address.
    pub mac: MacAddr,
    /// The longest IP packet that it takes.
    pub mtu: u32,
    /// Whether it was switched on (`ip link set … up`).
    pub admin_up: bool,
    /// Whether there is a signal: somebody at the other end.
    pub carrier: bool,
    /// Whether packets can pass: switched on, with a signal, and nothing above holds it back.
    pub up: bool,
    /// The VLAN that it is, if it is one.
    pub vlan: Option<Vlan>,
}

/// What makes a VLAN interface of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vlan {
    /// The tag that its frames carry.
    pub tag: VlanTag,
    /// The interface below it, whose queues send the tagged frames; `None` if that is in another network namespace.
    pub parent: Option<u32>,
}

impl Interface {
    /// The interface with this name.
    pub fn find(name: &str) -> Result<Interface, HostNetworkError> {
        let mut netlink = Netlink::open().map_err(HostNetworkError::netlink("about interfaces"))?;
        Interface::ask_name(&mut netlink, name)
    }

    /// The interface with this number.
    pub fn by_index(index: u32) -> Result<Interface, HostNetworkError> {
        let mut netlink = Netlink::open().map_err(HostNetworkError::netlink("about interfaces"))?;
        Interface::ask_index(&mut netlink, index)
    }

    /// The names of all interfaces of this network namespace, those that are not Ethernet too.
    pub fn names() -> Result<Vec<String>, HostNetworkError> {
        let mut netlink = Netlink::open().map_err(HostNetworkError::netlink("about interfaces"))?;
        names(&mut netlink)
    }

    pub(super) fn ask_name(netlink: &mut Netlink, name: &str) -> Result<Interface, HostNetworkError> {
        let mut question = LinkMessage::default();
        question.attributes.push(LinkAttribute::IfName(name.into()));
        Interface::ask(netlink, question, name)
    }

    pub(super) fn ask_index(netlink: &mut Netlink, index: u32) -> Result<Interface, HostNetworkError> {
        let mut question = LinkMessage::default();
        question.header.index = index;
        Interface::ask(netlink, question, &index.to_string())
    }

    fn ask(netlink: &mut Netlink, question: LinkMessage, wanted: &str) -> Result<Interface, HostNetworkError> {
        match netlink.ask(RouteNetlinkMessage::GetLink(question), 0) {
            Ok(answers) => answers
                .iter()
                .find_map(|answer| match answer {
                    RouteNetlinkMessage::NewLink(link) => Some(Interface::from_message(link)),
                    _ => None,
                })
                .unwrap_or(Err(HostNetworkError::Netlink { what: "about an interface", error: Errno::BADMSG })),
            // A name that is empty or too long is no interface's.
            Err(Errno::NODEV | Errno::INVAL | Errno::RANGE) => {
                Err(HostNetworkError::NoSuchInterface { wanted: wanted.into(), existing: names(netlink)? })
            }
            Err(error) => Err(HostNetworkError::Netlink { what: "about an interface", error }),
        }
    }

    pub(super) fn from_message(message: &LinkMessage) -> Result<Interface, HostNetworkError> {
        let flags = message.header.flags;
        let mut interface = Interface {
            index: message.header.index,
            name: name_of(message).unwrap_or_default(),
            mac: MacAddr([0; 6]),
            mtu: 0,
            admin_up: flags.contains(LinkFlags::Up),
            carrier: flags.contains(LinkFlags::LowerUp),
            up: flags.contains(LinkFlags::Up | LinkFlags::LowerUp | LinkFlags::Running),
            vlan: None,
        };
        let (mut tag, mut parent, mut elsewhere) = (None, None, false);
        let mut mac = None;
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::Address(bytes) => mac = bytes.as_slice().try_into().ok().map(MacAddr),
                LinkAttribute::Mtu(mtu) => interface.mtu = *mtu,
                LinkAttribute::Link(index) => parent = Some(*index),
                LinkAttribute::LinkNetNsId(_) => elsewhere = true,
                LinkAttribute::LinkInfo(info) => tag = info.iter().find_map(vlan_tag),
                _ => {}
            }
        }
        match mac {
            Some(mac) if message.header.link_layer_type == LinkLayerType::Ether => interface.mac = mac,
            _ => return Err(HostNetworkError::NotEthernet(interface.name)),
        }
        interface.vlan = tag.map(|tag| Vlan { tag, parent: parent.filter(|_| !elsewhere) });
        Ok(interface)
    }

    /// The interface at the bottom of its VLANs, itself if it is none, and the tags of its frames from outside in.
    /// `find` knows the interfaces by their numbers.
    pub(super) fn bottom(
        &self,
        mut find: impl FnMut(u32) -> Result<Interface, HostNetworkError>,
    ) -> Result<(Interface, [Option<VlanTag>; MAX_TAGS]), HostNetworkError> {
        let (mut at, mut tags) = (self.clone(), [None; MAX_TAGS]);
        while let Some(vlan) = at.vlan {
            if tags[MAX_TAGS - 1].is_some() {
                return Err(HostNetworkError::TooManyTags(self.name.clone()));
            }
            // The tag of the lower interface is put on later, so it stands further outside.
            tags.rotate_right(1);
            tags[0] = Some(vlan.tag);
            at = find(vlan.parent.ok_or(HostNetworkError::ParentElsewhere(at.name))?)?;
        }
        Ok((at, tags))
    }
}

fn vlan_tag(info: &LinkInfo) -> Option<VlanTag> {
    let LinkInfo::Data(InfoData::Vlan(vlan)) = info else { return None };
    let id = vlan.iter().find_map(|v| if let InfoVlan::Id(id) = v { Some(*id) } else { None })?;
    let outer = vlan.iter().any(|v| matches!(v, InfoVlan::Protocol(VlanProtocol::Ieee8021Ad)));
    let tag = VlanTag::new(id, 0);
    Some(if outer { VlanTag { tpid: ethertype::QINQ, ..tag } } else { tag })
}

fn name_of(message: &LinkMessage) -> Option<String> {
    message.attributes.iter().find_map(|a| if let LinkAttribute::IfName(name) = a { Some(name.clone()) } else { None })
}

/// The names of all interfaces.
fn names(netlink: &mut Netlink) -> Result<Vec<String>, HostNetworkError> {
    let answers = netlink
        .dump(RouteNetlinkMessage::GetLink(LinkMessage::default()))
        .map_err(HostNetworkError::netlink("which interfaces there are"))?;
    let names = answers.iter().filter_map(|answer| match answer {
        RouteNetlinkMessage::NewLink(link) => name_of(link),
        _ => None,
    });
    Ok(names.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(index: u32, name: &str, vlan: Option<(u16, VlanProtocol, u32)>) -> LinkMessage {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.link_layer_type = LinkLayerType::Ether;
        message.header.flags = LinkFlags::Up | LinkFlags::LowerUp;
        message.attributes.push(LinkAttribute::IfName(name.into()));
        message.attributes.push(LinkAttribute::Address(vec![2, 0, 0, 0, 0, 1]));
        if let Some((id, protocol, parent)) = vlan {
            let data = InfoData::Vlan(vec![InfoVlan::Protocol(protocol), InfoVlan::Id(id)]);
            message.attributes.push(LinkAttribute::Link(parent));
            message.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Data(data)]));
        }
        message
    }

    #[test]
    fn the_tags_of_stacked_vlans_stand_from_outside_in() {
        let all = [
            message(1, "eth0", None),
            message(2, "outer", Some((20, VlanProtocol::Ieee8021Ad, 1))),
            message(3, "inner", Some((30, VlanProtocol::Ieee8021Q, 2))),
            message(4, "third", Some((40, VlanProtocol::Ieee8021Q, 3))),
        ];
        let find = |index: u32| Interface::from_message(&all[index as usize - 1]);
        let bottom = |index| find(index).unwrap().bottom(find).map(|(bottom, tags)| (bottom.name, tags));
        let (outer, inner) = (VlanTag { tpid: ethertype::QINQ, tci: 20 }, VlanTag::new(30, 0));
        assert_eq!(bottom(1), Ok(("eth0".into(), [None, None])));
        assert_eq!(bottom(2), Ok(("eth0".into(), [Some(outer), None])));
        assert_eq!(bottom(3), Ok(("eth0".into(), [Some(outer), Some(inner)])));
        assert_eq!(bottom(4), Err(HostNetworkError::TooManyTags("third".into())));
    }

    #[test]
    fn a_parent_in_another_namespace_is_not_taken_for_one_here() {
        let mut message = message(2, "v", Some((20, VlanProtocol::Ieee8021Q, 1)));
        message.attributes.push(LinkAttribute::LinkNetNsId(0));
        let interface = Interface::from_message(&message).unwrap();
        let error = interface.bottom(|_| unreachable!()).unwrap_err();
        assert_eq!(error, HostNetworkError::ParentElsewhere("v".into()));
        // The other end of a veth pair is told the same way, and is no parent.
        message.attributes.retain(|a| !matches!(a, LinkAttribute::LinkInfo(_)));
        assert_eq!(Interface::from_message(&message).unwrap().vlan, None);
    }

    #[test]
    fn a_link_is_up_when_nothing_holds_it_back() {
        let mut message = message(1, "eth0", None);
        let seen = Interface::from_message(&message).unwrap();
        assert!(seen.admin_up && seen.carrier && !seen.up, "as a port that waits for 802.1X");
        message.header.flags |= LinkFlags::Running;
        assert!(Interface::from_message(&message).unwrap().up);
        message.header.link_layer_type = LinkLayerType::Loopback;
        assert_eq!(Interface::from_message(&message), Err(HostNetworkError::NotEthernet("eth0".into())));
    }
}
