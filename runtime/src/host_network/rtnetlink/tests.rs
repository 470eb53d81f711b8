//! Messages of rtnetlink, byte by byte as the kernel's headers lay them out, and what is no message. For little-endian machines.
#![cfg(target_endian = "little")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use softnic_wire::MacAddr;

use super::address::IFA_F_DEPRECATED;
use super::filter::{Place, TCA_KIND};
use super::link::{ARPHRD_ETHER, IFF_LOWER_UP, IFF_RUNNING, IFF_UP, IFLA_IFNAME, IFLA_LINKINFO, VlanInfo, of_link};
use super::neighbour::{NTF_EXT_LEARNED, NTF_EXT_MANAGED, NTF_USE, NUD_STALE, about};
use super::route::{RTA_DST, RTM_F_FIB_MATCH, RTN_UNICAST, question};
use super::*;

/// eth0.7, a VLAN with the id 7 on the link with the number 2, which is up.
const VLAN_LINK: &[u8] = &[
    124, 0, 0, 0, 16, 0, 2, 0, 5, 0, 0, 0, 9, 0, 0, 0, // nlmsghdr: length, RTM_NEWLINK, flags, sequence, port
    0, 0, 1, 0, 3, 0, 0, 0, 0x43, 0, 1, 0, 0, 0, 0, 0, // ifinfomsg: family, ARPHRD_ETHER, index, flags, change
    11, 0, 3, 0, b'e', b't', b'h', b'0', b'.', b'7', 0, 0, // IFLA_IFNAME
    5, 0, 16, 0, 6, 0, 0, 0, // IFLA_OPERSTATE, which is not used
    8, 0, 4, 0, 0xdc, 5, 0, 0, // IFLA_MTU: 1500
    10, 0, 1, 0, 2, 0, 0, 0, 0, 1, 0, 0, // IFLA_ADDRESS
    8, 0, 5, 0, 2, 0, 0, 0, // IFLA_LINK
    44, 0, 18, 0, // IFLA_LINKINFO
    9, 0, 1, 0, b'v', b'l', b'a', b'n', 0, 0, 0, 0, // IFLA_INFO_KIND
    28, 0, 2, 0x80, // IFLA_INFO_DATA, with the mark of nested attributes
    6, 0, 1, 0, 7, 0, 0, 0, // IFLA_VLAN_ID
    6, 0, 5, 0, 0x88, 0xa8, 0, 0, // IFLA_VLAN_PROTOCOL, in the order of the network
    8, 0, 2, 0, 1, 0, 0, 0, // IFLA_VLAN_FLAGS, which is not used
];

/// A point-to-point address on the link with the number 3.
const ADDRESS: &[u8] = &[
    48, 0, 0, 0, 20, 0, 2, 0, 5, 0, 0, 0, 9, 0, 0, 0, // RTM_NEWADDR
    2, 32, 0x80, 0, 3, 0, 0, 0, // ifaddrmsg: AF_INET, bits, flags, scope, index
    8, 0, 1, 0, 10, 0, 0, 2, // IFA_ADDRESS: the peer's
    8, 0, 2, 0, 10, 0, 0, 1, // IFA_LOCAL
    8, 0, 8, 0, 0xa0, 2, 0, 0, // IFA_FLAGS: permanent, deprecated, and one that the byte has no room for
];

/// An IPv4 route by an IPv6 router.
const ROUTE: &[u8] = &[
    86, 0, 0, 0, 24, 0, 0, 0, 5, 0, 0, 0, 9, 0, 0, 0, // RTM_NEWROUTE
    2, 24, 0, 0, 254, 3, 0, 1, 0, 0, 0,
    0, // rtmsg: AF_INET, bits, source bits, TOS, table, protocol, scope, RTN_UNICAST, flags
    8, 0, 1, 0, 10, 1, 0, 0, // RTA_DST
    12, 0, 8, 0, 8, 0, 2, 0, 0x78, 5, 0, 0, // RTA_METRICS with RTAX_MTU: 1400
    8, 0, 4, 0, 3, 0, 0, 0, // RTA_OIF
    8, 0, 7, 0, 10, 0, 0, 1, // RTA_PREFSRC
    22, 0, 18, 0, 10, 0, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    1, // RTA_VIA: family, address; no padding behind
];

/// A neighbour with an IPv6 address that the kernel manages.
const NEIGHBOUR: &[u8] = &[
    68, 0, 0, 0, 28, 0, 0, 0, 5, 0, 0, 0, 9, 0, 0, 0, // RTM_NEWNEIGH
    10, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0x10, 1, // ndmsg: AF_INET6, index, NUD_STALE, NTF_EXT_LEARNED, type
    20, 0, 1, 0, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, // NDA_DST
    10, 0, 2, 0, 2, 0, 0, 0, 0, 2, 0, 0, // NDA_LLADDR
    8, 0, 15, 0, 1, 0, 0, 0, // NDA_FLAGS_EXT
];

/// A program among the filters for what comes in.
const FILTER: &[u8] = &[
    72, 0, 0, 0, 44, 0, 2, 0, 5, 0, 0, 0, 9, 0, 0, 0, // RTM_NEWTFILTER
    0, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 0xf2, 0xff, 0xff, 0xff, 0, 3, 0xb7,
    0x12, // tcmsg: index, handle, parent, info
    8, 0, 1, 0, b'b', b'p', b'f', 0, // TCA_KIND
    28, 0, 2, 0, // TCA_OPTIONS
    12, 0, 7, 0, b's', b'o', b'f', b't', b'n', b'i', b'c', 0, // TCA_BPF_NAME
    12, 0, 11, 0, 42, 0, 0, 0, 0, 0, 0, 0, // TCA_BPF_ID, longer than it is
];

fn only(datagram: &[u8]) -> Payload {
    let mut messages = split(datagram).unwrap();
    assert_eq!(messages.len(), 1);
    messages.remove(0).payload
}

#[test]
fn a_link_is_told_with_its_vlan() {
    let link = LinkMessage {
        family: AF_UNSPEC,
        layer: ARPHRD_ETHER,
        index: 3,
        flags: IFF_UP | IFF_LOWER_UP | IFF_RUNNING | 2,
        name: Some("eth0.7".into()),
        mac: Some(MacAddr([2, 0, 0, 0, 0, 1])),
        mtu: Some(1500),
        below: Some(2),
        below_is_elsewhere: false,
        vlan: Some(VlanInfo { id: Some(7), protocol: Some(0x88a8) }),
        xdp_program: None,
    };
    let wanted = Incoming { flags: 2, sequence: 5, payload: Payload::Message(Message::NewLink(link)) };
    assert_eq!(split(VLAN_LINK), Ok(vec![wanted]));
}

#[test]
fn an_address_is_the_interfaces_own_with_all_its_flags() {
    let Payload::Message(Message::Address(address)) = only(ADDRESS) else { panic!() };
    assert_eq!((address.index, address.ip), (3, Some(IpAddr::from([10, 0, 0, 1]))));
    assert_eq!(address.flags, 0x280 | IFA_F_DEPRECATED);
    // Without the attribute, the byte says it.
    let mut shorter = ADDRESS[..40].to_vec();
    shorter[0] = 40;
    let Payload::Message(Message::Address(address)) = only(&shorter) else { panic!() };
    assert_eq!(address.flags, 0x80);
}

#[test]
fn a_route_has_its_interface_its_router_of_either_version_and_its_mtu() {
    let route = RouteMessage {
        kind: RTN_UNICAST,
        flags: 0,
        by: Some(3),
        gateway: Some("fe80::1".parse().unwrap()),
        source: Some(IpAddr::from([10, 0, 0, 1])),
        mtu: Some(1400),
    };
    assert_eq!(only(ROUTE), Payload::Message(Message::NewRoute(route)));
}

#[test]
fn a_neighbour_has_its_state_and_all_its_flags() {
    let neighbour = NeighbourMessage {
        index: 3,
        state: NUD_STALE,
        flags: NTF_EXT_LEARNED,
        more_flags: NTF_EXT_MANAGED,
        ip: Some("fd00::2".parse().unwrap()),
        mac: Some(MacAddr([2, 0, 0, 0, 0, 2])),
    };
    assert_eq!(only(NEIGHBOUR), Payload::Message(Message::NewNeighbour(neighbour)));
}

#[test]
fn a_filter_has_its_place_and_its_program() {
    assert_eq!(only(FILTER), Payload::Unreadable, "a number of eight bytes is no number");
    let mut right = FILTER[..FILTER.len() - 4].to_vec();
    (right[0], right[44], right[60]) = (68, 24, 8);
    let place = Place { index: 3, handle: 1, parent: 0xffff_fff2, info: 4791 << 16 | 0x300 };
    let filter = FilterMessage { place, program: Some(42) };
    assert_eq!(only(&right), Payload::Message(Message::NewFilter(filter)));
    // The options of others mean something else.
    right[40..43].copy_from_slice(b"u32");
    let filter = FilterMessage { place, program: None };
    assert_eq!(only(&right), Payload::Message(Message::NewFilter(filter)));
}

#[test]
fn messages_of_other_families_are_no_addresses_and_no_errors() {
    let mut mctp = ADDRESS.to_vec();
    mctp[16] = 45;
    let Payload::Message(Message::Address(address)) = only(&mctp) else { panic!() };
    assert_eq!(address.ip, None);
}

#[test]
fn errors_and_ends_are_told_apart_from_answers() {
    let error = [36, 0, 0, 0, 2, 0, 0, 0, 5, 0, 0, 0, 9, 0, 0, 0, 0xed, 0xff, 0xff, 0xff];
    let error = [&error[..], &VLAN_LINK[..16]].concat();
    assert_eq!(only(&error), Payload::End(-19));
    let done = [20, 0, 0, 0, 3, 0, 2, 0, 5, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(only(&done), Payload::End(0));
    let bare = [16, 0, 0, 0, 3, 0, 2, 0, 5, 0, 0, 0, 9, 0, 0, 0];
    assert_eq!(only(&bare), Payload::End(0));
    let nothing = [16, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 9, 0, 0, 0];
    assert_eq!(only(&nothing), Payload::Nothing);
    let rule = [16, 0, 0, 0, 32, 0, 0, 0, 5, 0, 0, 0, 9, 0, 0, 0];
    assert_eq!(only(&rule), Payload::Message(Message::Rule));
    let all = split(&[VLAN_LINK, ADDRESS, &done].concat()).unwrap();
    assert_eq!(all.len(), 3);
    assert_eq!(all[2].payload, Payload::End(0));
}

#[test]
fn what_is_not_whole_is_no_message() {
    for bytes in [&VLAN_LINK[..7], &VLAN_LINK[..15], &VLAN_LINK[..100]] {
        assert_eq!(split(bytes), Err(Errno::BADMSG));
    }
    // Shorter than its own header, which would never end.
    let mut short = VLAN_LINK.to_vec();
    short[0] = 0;
    assert_eq!(split(&short), Err(Errno::BADMSG));
    // An attribute of no length at all, and one beyond the message.
    for len in [0, 3, 200] {
        let mut wrong = VLAN_LINK.to_vec();
        wrong[32] = len;
        assert_eq!(only(&wrong), Payload::Unreadable, "{len}");
    }
}

#[test]
fn questions_are_laid_out_as_the_kernel_reads_them() {
    let bytes = Request::new(RTM_GETLINK, of_link(0).with_text(IFLA_IFNAME, "eth0")).bytes(NLM_F_ACK, 7);
    let wanted = [
        &[44, 0, 0, 0, 18, 0, 5, 0, 7, 0, 0, 0, 0, 0, 0, 0][..],
        &[0; 16],
        &[9, 0, 3, 0, b'e', b't', b'h', b'0', 0, 0, 0, 0],
    ];
    assert_eq!(bytes, wanted.concat());
    let body = about(3, Ipv4Addr::new(10, 0, 0, 2).into(), NTF_USE);
    assert_eq!(body.as_bytes(), [2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 1, 0, 8, 0, 1, 0, 10, 0, 0, 2]);
    let body = question(AF_INET6, 128, 0, RTM_F_FIB_MATCH).with_ip(RTA_DST, Ipv6Addr::LOCALHOST.into());
    let wanted = [&[10, 128, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 20, 0, 1, 0][..], &[0; 15], &[1]].concat();
    assert_eq!(body.as_bytes(), wanted);
    let place = Place { index: 3, handle: 1, parent: 0xffff_fff2, info: 4791 << 16 | 0x300 };
    assert_eq!(place.attributes().with_text(TCA_KIND, "bpf").as_bytes(), &FILTER[16..44]);
    let inner = Attributes::default().with(1, &[1, 2, 3]);
    let body = of_link(1).with_nested(IFLA_LINKINFO, &inner);
    assert_eq!(body.as_bytes()[16..], [12, 0, 18, 0, 7, 0, 1, 0, 1, 2, 3, 0]);
}

#[test]
fn a_name_longer_than_any_attribute_is_cut() {
    let body = Attributes::default().with_text(IFLA_IFNAME, &"x".repeat(100_000));
    assert_eq!((body.as_bytes().len(), &body.as_bytes()[..4]), (0x1_0000, &[255, 255, 3, 0][..]));
}

proptest! {
    /// Messages of which some bytes are others, cut anywhere: each is read, or told to be unreadable.
    #[test]
    fn no_bytes_are_too_wrong_to_be_told_so(
        which in 0..5usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
        whole in any::<bool>(),
    ) {
        let mut bytes = [VLAN_LINK, ADDRESS, ROUTE, NEIGHBOUR, FILTER][which].to_vec();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if !whole {
            bytes.truncate(cut.index(bytes.len()));
            // The header says that it is whole, or else nothing behind it is looked at.
            if bytes.len() >= 16 {
                let len = bytes.len() as u32;
                bytes[..4].copy_from_slice(&len.to_ne_bytes());
            }
        }
        let _ = split(&bytes);
    }

    #[test]
    fn any_bytes_can_be_read_as_any_message(kind in 0..128u16, body in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Message::read(kind, &body);
    }
}
