//! An interface as the kernel knows it: names, MAC address, MTU, whether it is up, and the VLAN that it is.

use rustix::io::Errno;
use softnic_wire::MacAddr;
use softnic_wire::ethernet::{MAX_TAGS, VlanTag, ethertype};

use super::error::HostNetworkError;
use super::netlink::Netlink;
use super::rtnetlink::attributes::Attributes;
use super::rtnetlink::link::{
    ARPHRD_ETHER, IFF_LOWER_UP, IFF_RUNNING, IFF_UP, IFLA_IFNAME, LinkMessage, VlanInfo, of_link,
};
use super::rtnetlink::{Message, RTM_GETLINK, Request};

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
        Interface::ask(netlink, of_link(0).with_text(IFLA_IFNAME, name), name)
    }

    pub(super) fn ask_index(netlink: &mut Netlink, index: u32) -> Result<Interface, HostNetworkError> {
        Interface::ask(netlink, of_link(index), &index.to_string())
    }

    fn ask(netlink: &mut Netlink, question: Attributes, wanted: &str) -> Result<Interface, HostNetworkError> {
        match netlink.ask(&Request::new(RTM_GETLINK, question), 0) {
            Ok(answers) => answers
                .iter()
                .find_map(|answer| match answer {
                    Message::NewLink(link) => Some(Interface::from_message(link)),
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
        let name = message.name.clone().unwrap_or_default();
        let Some(mac) = message.mac.filter(|_| message.layer == ARPHRD_ETHER) else {
            return Err(HostNetworkError::NotEthernet(name));
        };
        let has = |flags: u32| message.flags & flags == flags;
        let parent = message.below.filter(|_| !message.below_is_elsewhere);
        Ok(Interface {
            index: message.index,
            name,
            mac,
            mtu: message.mtu.unwrap_or(0),
            admin_up: has(IFF_UP),
            carrier: has(IFF_LOWER_UP),
            up: has(IFF_UP | IFF_LOWER_UP | IFF_RUNNING),
            vlan: message.vlan.and_then(vlan_tag).map(|tag| Vlan { tag, parent }),
        })
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

fn vlan_tag(vlan: VlanInfo) -> Option<VlanTag> {
    let tag = VlanTag::new(vlan.id?, 0);
    let outer = vlan.protocol == Some(ethertype::QINQ);
    Some(if outer { VlanTag { tpid: ethertype::QINQ, ..tag } } else { tag })
}

/// The names of all interfaces.
fn names(netlink: &mut Netlink) -> Result<Vec<String>, HostNetworkError> {
    let answers = netlink
        .dump(&Request::new(RTM_GETLINK, of_link(0)))
        .map_err(HostNetworkError::netlink("which interfaces there are"))?;
    let names = answers.into_iter().filter_map(|answer| match answer {
        Message::NewLink(link) => link.name,
        _ => None,
    });
    Ok(names.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(index: u32, name: &str, vlan: Option<(u16, u16, u32)>) -> LinkMessage {
        LinkMessage {
            index,
            layer: ARPHRD_ETHER,
            flags: IFF_UP | IFF_LOWER_UP,
            name: Some(name.into()),
            mac: Some(MacAddr([2, 0, 0, 0, 0, 1])),
            below: vlan.map(|(_, _, parent)| parent),
            vlan: vlan.map(|(id, protocol, _)| VlanInfo { id: Some(id), protocol: Some(protocol) }),
            ..LinkMessage::default()
        }
    }

    #[test]
    fn the_tags_of_stacked_vlans_stand_from_outside_in() {
        let all = [
            message(1, "eth0", None),
            message(2, "outer", Some((20, ethertype::QINQ, 1))),
            message(3, "inner", Some((30, ethertype::VLAN, 2))),
            message(4, "third", Some((40, ethertype::VLAN, 3))),
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
        let mut message = message(2, "v", Some((20, ethertype::VLAN, 1)));
        message.below_is_elsewhere = true;
        let interface = Interface::from_message(&message).unwrap();
        let error = interface.bottom(|_| unreachable!()).unwrap_err();
        assert_eq!(error, HostNetworkError::ParentElsewhere("v".into()));
        // The other end of a veth pair is told the same way, and is no parent.
        message.vlan = None;
        assert_eq!(Interface::from_message(&message).unwrap().vlan, None);
    }

    #[test]
    fn a_link_is_up_when_nothing_holds_it_back() {
        let mut message = message(1, "eth0", None);
        let seen = Interface::from_message(&message).unwrap();
        assert!(seen.admin_up && seen.carrier && !seen.up, "as a port that waits for 802.1X");
        message.flags |= IFF_RUNNING;
        assert!(Interface::from_message(&message).unwrap().up);
        message.layer = 772;
        assert_eq!(Interface::from_message(&message), Err(HostNetworkError::NotEthernet("eth0".into())));
    }
}
