//! The link, network and UDP layers held against etherparse, in both directions.

mod common;

use common::*;
use etherparse::{
    EtherType, IpAuthHeader, IpFragOffset, IpHeaders, IpNumber, Ipv4Extensions, Ipv4Header, Ipv4Options,
    Ipv6Extensions, Ipv6FlowLabel, Ipv6FragmentHeader, Ipv6Header, Ipv6RawExtHeader, Ipv6RoutingExtensions,
    LinkExtSlice, LinkSlice, NetSlice, PacketBuilder, SlicedPacket, TransportSlice, VlanId, ether_type,
};
use proptest::prelude::*;
use softnic_wire::ethernet::ethertype;
use softnic_wire::grh::Grh;
use softnic_wire::{Addresses, Carrier, Error, Layout, NotRoce, RocePacket, icrc};

/// An acknowledgement, BTH to AETH, with room for the ICRC: what the frames that etherparse builds carry.
const ACK: [u8; 20] = [0x11, 0x40, 0xff, 0xff, 0, 0, 1, 2, 0, 0, 0, 9, 0x1f, 0, 0, 7, 0, 0, 0, 0];
const MACS: ([u8; 6], [u8; 6]) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);

proptest! {
    #[test]
    fn etherparse_reads_our_frames_as_we_meant_them(c in any_case(1500)) {
        let frame = c.frame();
        let p = SlicedPacket::from_ethernet(&frame).unwrap();
        let Some(LinkSlice::Ethernet2(eth)) = &p.link else { panic!("no Ethernet header") };
        prop_assert_eq!((eth.source(), eth.destination()), (c.path.src_mac.0, c.path.dst_mac.0));
        let tags: Vec<_> = c.path.tags.iter().flatten().collect();
        prop_assert_eq!(p.link_exts.len(), tags.len());
        for (theirs, ours) in p.link_exts.iter().zip(&tags) {
            let LinkExtSlice::Vlan(theirs) = theirs else { panic!("not a VLAN tag") };
            prop_assert_eq!(theirs.vlan_identifier().value(), ours.id());
            prop_assert_eq!(theirs.priority_code_point().value(), ours.priority());
            prop_assert_eq!(theirs.drop_eligible_indicator(), ours.tci & 0x1000 != 0);
        }
        if let Some(outer) = tags.first() {
            prop_assert_eq!(eth.ether_type(), EtherType(outer.tpid));
        }
        match (p.net.as_ref().unwrap(), c.path.addresses) {
            (NetSlice::Ipv4(ip), Addresses::V4 { src, dst }) => {
                let h = ip.header();
                prop_assert_eq!((h.source_addr(), h.destination_addr()), (src, dst));
                prop_assert_eq!((h.ttl(), h.dcp().value() << 2 | h.ecn().value()), (c.path.hop_limit, c.path.traffic_class));
                prop_assert_eq!((h.dont_fragment(), h.is_fragmenting_payload(), h.identification()), (true, false, 0));
                prop_assert_eq!(usize::from(h.total_len()), frame.len() - c.network());
                prop_assert_eq!(h.header_checksum(), h.to_header().calc_header_checksum());
            }
            (NetSlice::Ipv6(ip), Addresses::V6 { src, dst }) => {
                let h = ip.header();
                prop_assert_eq!((h.source_addr(), h.destination_addr()), (src, dst));
                prop_assert_eq!((h.hop_limit(), h.traffic_class()), (c.path.hop_limit, c.path.traffic_class));
                prop_assert_eq!(h.flow_label().value(), c.path.flow_label);
                prop_assert_eq!(usize::from(h.payload_length()), frame.len() - c.udp());
            }
            other => panic!("not the address family that was asked for: {other:?}"),
        }
        let Some(TransportSlice::Udp(udp)) = &p.transport else { panic!("no UDP header") };
        prop_assert_eq!((udp.source_port(), udp.destination_port()), (c.path.src_port, 4791));
        prop_assert_eq!((usize::from(udp.length()), udp.checksum()), (frame.len() - c.udp(), 0));
        prop_assert_eq!(udp.payload(), &frame[c.udp() + 8..]);
    }
}

/// Puts the ICRC that the rule asks for behind a frame whose IP header and UDP header begin at these offsets.
fn seal(frame: &mut [u8], network: usize, udp: usize) {
    let end = frame.len() - 4;
    let crc = slow_icrc(&frame[network..end], Some(udp - network), udp + 8 - network);
    frame[end..].copy_from_slice(&crc);
}

/// Located where it should be, right ICRC accepted, wrong one refused, headers read.
fn assert_received(mut frame: Vec<u8>, carrier: Carrier, network: usize, udp: usize) {
    seal(&mut frame, network, udp);
    let layout = Layout::locate(&frame).unwrap();
    assert_eq!((layout.carrier, layout.network, layout.udp, layout.bth), (carrier, network, udp, udp + 8));
    assert_eq!(layout.end, frame.len());
    assert_eq!(icrc::verify(&mut frame, &layout), Ok(()));
    assert_eq!(icrc::verify_shared(&frame, &layout), Ok(()));
    let p = RocePacket::parse_at(&frame, layout).unwrap();
    assert_eq!((p.bth.dest_qp.value(), p.bth.psn.value(), p.ext.aeth.unwrap().msn), (0x102, 9, 7));
    let (src, dst) = layout.addresses(&frame).unwrap();
    let grh = Grh::parse(&Grh::of_frame(&frame, &layout).unwrap()).unwrap();
    assert_eq!((grh.src(), grh.dst()), (src, dst));
    for at in network + 12..udp {
        frame[at] ^= 0x10; // addresses, options and extension headers are all covered
        let found = Layout::locate(&frame).and_then(|l| icrc::verify(&mut frame, &l));
        assert!(found.is_err(), "byte {at}");
        frame[at] ^= 0x10;
    }
}

fn udp4(ip: Ipv4Header) -> Vec<u8> {
    let b = PacketBuilder::ethernet2(MACS.0, MACS.1).ip(IpHeaders::Ipv4(ip, Ipv4Extensions::default()));
    let mut out = Vec::new();
    b.udp(0xc001, 4791).write(&mut out, &ACK).unwrap();
    out
}

fn ipv4_header(options: &[u8]) -> Ipv4Header {
    let mut h = Ipv4Header::new(0, 64, IpNumber::UDP, [10, 0, 0, 1], [10, 0, 0, 2]).unwrap();
    h.options = Ipv4Options::try_from(options).unwrap();
    h
}

fn udp6(exts: Ipv6Extensions) -> Vec<u8> {
    let ip = Ipv6Header {
        traffic_class: 0x62,
        flow_label: Ipv6FlowLabel::try_new(0x12345).unwrap(),
        hop_limit: 64,
        source: [0xfd; 16],
        destination: [0xfc; 16],
        ..Default::default()
    };
    let b = PacketBuilder::ethernet2(MACS.0, MACS.1).ip(IpHeaders::Ipv6(ip, exts));
    let mut out = Vec::new();
    b.udp(0xc001, 4791).write(&mut out, &ACK).unwrap();
    out
}

/// An extension header of `len` bytes.
fn raw_ext(len: usize) -> Ipv6RawExtHeader {
    Ipv6RawExtHeader::new_raw(IpNumber::UDP, &vec![0x33; len - 2]).unwrap()
}

#[test]
fn ipv4_with_options_of_every_length() {
    for len in (0..=40).step_by(4) {
        let frame = udp4(ipv4_header(&vec![1; len]));
        assert_received(frame, Carrier::Ipv4, 14, 34 + len);
    }
}

#[test]
fn ipv6_with_extension_headers() {
    assert_received(udp6(Ipv6Extensions::default()), Carrier::Ipv6, 14, 54);
    for len in [8, 16, 64, 256, 2048] {
        let hop_by_hop = Ipv6Extensions { hop_by_hop_options: Some(raw_ext(len)), ..Default::default() };
        assert_received(udp6(hop_by_hop), Carrier::Ipv6, 14, 54 + len);
        let destination = Ipv6Extensions { destination_options: Some(raw_ext(len)), ..Default::default() };
        assert_received(udp6(destination), Carrier::Ipv6, 14, 54 + len);
    }
    let routing = Ipv6RoutingExtensions { routing: raw_ext(24), final_destination_options: Some(raw_ext(16)) };
    let all = Ipv6Extensions {
        hop_by_hop_options: Some(raw_ext(8)),
        destination_options: Some(raw_ext(32)),
        routing: Some(routing),
        auth: Some(IpAuthHeader::new(IpNumber::UDP, 1, 2, &[0x44; 12]).unwrap()),
        fragment: None,
    };
    assert_received(udp6(all), Carrier::Ipv6, 14, 54 + 8 + 32 + 24 + 16 + 24);
}

#[test]
fn fragments_are_refused() {
    for (offset, more) in [(0, true), (1, false), (100, true)] {
        let fragment_offset = IpFragOffset::try_new(offset).unwrap();
        let ip = Ipv4Header { dont_fragment: false, more_fragments: more, fragment_offset, ..ipv4_header(&[]) };
        assert_eq!(Layout::locate(&udp4(ip)), Err(Error::Fragment));
        let fragment = Some(Ipv6FragmentHeader::new(IpNumber::UDP, fragment_offset, more, 7));
        assert_eq!(Layout::locate(&udp6(Ipv6Extensions { fragment, ..Default::default() })), Err(Error::Fragment));
    }
    let may_be_fragmented = Ipv4Header { dont_fragment: false, ..ipv4_header(&[]) };
    assert_received(udp4(may_be_fragmented), Carrier::Ipv4, 14, 34);
}

#[test]
fn one_tag_and_two_tags() {
    let id = |v| VlanId::try_new(v).unwrap();
    let mut one = Vec::new();
    let b = PacketBuilder::ethernet2(MACS.0, MACS.1).single_vlan(id(7)).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
    b.udp(1, 4791).write(&mut one, &ACK).unwrap();
    assert_received(one, Carrier::Ipv4, 18, 38);
    let mut two = Vec::new();
    let b = PacketBuilder::ethernet2(MACS.0, MACS.1).double_vlan(id(7), id(4095)).ipv6([1; 16], [2; 16], 64);
    b.udp(1, 4791).write(&mut two, &ACK).unwrap();
    assert_received(two.clone(), Carrier::Ipv6, 22, 62);
    // A third tag is one too many.
    let mut three = two[..12].to_vec();
    three.extend([0x88, 0xa8, 0, 1]);
    three.extend(&two[12..]);
    assert_eq!(Layout::locate(&three), Err(Error::NotRoce(NotRoce::EtherType(ethertype::VLAN))));
}

#[test]
fn what_is_not_roce_is_named() {
    let eth = || PacketBuilder::ethernet2(MACS.0, MACS.1);
    let v4 = || eth().ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
    let not_roce = |f: &[u8]| match Layout::locate(f) {
        Err(Error::NotRoce(why)) => why,
        other => panic!("{other:?}"),
    };
    let mut f = Vec::new();
    v4().tcp(4791, 4791, 0, 100).write(&mut f, &ACK).unwrap();
    assert_eq!(not_roce(&f), NotRoce::IpProtocol(6));
    let mut f = Vec::new();
    v4().icmpv4_echo_request(1, 2).write(&mut f, &ACK).unwrap();
    assert_eq!(not_roce(&f), NotRoce::IpProtocol(1));
    let mut f = Vec::new();
    eth().ipv6([1; 16], [2; 16], 64).icmpv6_echo_request(1, 2).write(&mut f, &ACK).unwrap();
    assert_eq!(not_roce(&f), NotRoce::IpProtocol(58));
    // Only the destination port says RoCE; the source port says nothing.
    for port in [0, 4790, 4792, 53] {
        let mut f = Vec::new();
        v4().udp(4791, port).write(&mut f, &ACK).unwrap();
        assert_eq!(not_roce(&f), NotRoce::UdpPort(port));
    }
    let mut arp = [0; 60];
    arp[12..14].copy_from_slice(&ether_type::ARP.0.to_be_bytes());
    assert_eq!(not_roce(&arp), NotRoce::EtherType(0x0806));
    // An ethertype and a version that contradict each other.
    let mut f = udp4(ipv4_header(&[]));
    f[12..14].copy_from_slice(&ethertype::IPV6.to_be_bytes());
    assert_eq!(not_roce(&f), NotRoce::IpVersion(4));
    let mut f = udp6(Ipv6Extensions::default());
    f[12..14].copy_from_slice(&ethertype::IPV4.to_be_bytes());
    assert_eq!(not_roce(&f), NotRoce::IpVersion(6));
}

#[test]
fn an_extension_header_that_runs_out_of_the_frame_is_cut_off() {
    let exts = Ipv6Extensions { hop_by_hop_options: Some(raw_ext(16)), ..Default::default() };
    let frame = udp6(exts);
    for len in 14..54 + 16 + 8 {
        assert!(matches!(Layout::locate(&frame[..len]), Err(Error::Truncated { .. })), "{len} bytes");
    }
    let mut long = frame.clone();
    long[55] = 255; // the extension header claims 2048 bytes
    assert!(matches!(Layout::locate(&long), Err(Error::Truncated { .. })));
}
