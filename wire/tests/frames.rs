//! Whole frames: built, located, checked, parsed, and damaged in every way.

mod common;

use std::net::IpAddr;

use common::*;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use softnic_wire::ethernet::ethertype;
use softnic_wire::{Carrier, Error, Layout, PacketFields, RocePacket, TxFrame, icrc, ipv4};

/// What a NIC does with a frame before it believes it.
fn receive(frame: &mut [u8]) -> Result<RocePacket, Error> {
    let layout = Layout::locate(frame)?;
    let before = frame.to_vec();
    let verdict = icrc::verify(frame, &layout);
    assert_eq!(frame, before, "verify restores the frame");
    assert_eq!(icrc::verify_shared(frame, &layout), verdict, "both ways to check agree");
    verdict?;
    RocePacket::parse_at(frame, layout)
}

/// Whether the ICRC leaves out the bit: `at` counts bytes from the IP header, `udp` is the UDP header's offset from it.
fn is_variant(v4: bool, udp: usize, at: usize, bit: usize) -> bool {
    let network = if v4 { matches!(at, 1 | 8 | 10 | 11) } else { at == 0 && bit < 4 || matches!(at, 1..=3 | 7) };
    network || at == udp + 6 || at == udp + 7 || at == udp + 8 + 4
}

proptest! {
    #[test]
    fn what_is_put_in_comes_out(c in any_case(4096)) {
        let mut frame = c.frame();
        prop_assert_eq!(frame.len(), c.template().frame_len(c.fields.opcode.headers_len(), c.payload.len()));
        let p = receive(&mut frame).unwrap();
        prop_assert_eq!(&RocePacket::parse(&frame).unwrap(), &p);
        prop_assert_eq!((p.layout.network, p.layout.udp, p.layout.bth), (c.network(), c.udp(), c.udp() + 8));
        prop_assert_eq!((p.layout.end, p.layout.udp_end), (frame.len(), frame.len()));
        prop_assert_eq!(p.layout.carrier, if c.is_v4() { Carrier::Ipv4 } else { Carrier::Ipv6 });
        prop_assert_eq!(p.layout.addresses(&frame), Some((c.path.addresses.src(), c.path.addresses.dst())));
        prop_assert_eq!(p.layout.src_port(&frame), Some(c.path.src_port));
        prop_assert_eq!(p.layout.traffic_class(&frame), Some(c.path.traffic_class));
        prop_assert_eq!(p.bth.opcode, c.fields.opcode);
        prop_assert_eq!((p.bth.dest_qp, p.bth.pkey, p.bth.psn), (c.dest_qp, c.pkey, c.fields.psn));
        prop_assert_eq!((p.bth.ack_req, p.bth.solicited), (c.fields.ack_req, c.fields.solicited));
        let becn = c.fields.becn;
        prop_assert_eq!((p.bth.fecn, p.bth.becn, p.bth.mig_req, p.bth.tver), (false, becn, !becn, 0));
        prop_assert_eq!(p.ext, c.ext);
        prop_assert_eq!(&frame[p.payload.clone()], &c.payload[..]);
        let pad = &frame[p.payload.end..frame.len() - 4];
        prop_assert_eq!((pad.len(), pad.iter().all(|&b| b == 0)), (usize::from(p.bth.pad), true));
        prop_assert_eq!((p.payload.len() + pad.len()) % 4, 0);
        if c.is_v4() {
            prop_assert!(ipv4::Packet::new_checked(&frame[c.network()..]).unwrap().verify_checksum());
        }
        prop_assert_eq!(&frame[c.udp() + 6..c.udp() + 8], &[0, 0], "UDP checksum is 0");
    }

    #[test]
    fn another_traffic_class_gives_the_frame_of_a_path_that_has_it(c in any_case(100), class: u8) {
        let build = |t: softnic_wire::Template| {
            let mut room = vec![0; 1000];
            let mut tx = TxFrame::new(&mut room);
            t.build(&mut tx, &c.fields, &c.ext, &c.payload).unwrap();
            tx.segments().0.to_vec()
        };
        let path = softnic_wire::Path { traffic_class: class, ..c.path };
        let expected = build(softnic_wire::Template::new(&path, c.dest_qp, c.pkey));
        prop_assert_eq!(build(c.template().with_traffic_class(class)), expected);
    }

    #[test]
    fn the_icrc_is_what_the_rule_says(c in any_case(600)) {
        let frame = c.frame();
        let (network, end) = (c.network(), frame.len() - 4);
        let udp = c.udp() - network;
        prop_assert_eq!(slow_icrc(&frame[network..end], Some(udp), udp + 8), &frame[end..]);
    }

    #[test]
    fn two_segments_give_the_same_frame_as_one(c in any_case(4096), random in prop::array::uniform4(any::<usize>())) {
        let whole = c.frame();
        let end = whole.len();
        // Each end of payload, padding and ICRC, every cut through the ICRC, the least first segment, all in the first.
        let near_end = end.saturating_sub(9)..=end + 3;
        let somewhere = random.map(|r| TxFrame::MIN_FIRST + r % end);
        let header_end = end - 4 - c.payload.len().next_multiple_of(4);
        let cuts = near_end.chain(somewhere).chain([TxFrame::MIN_FIRST, TxFrame::MIN_FIRST + 1, header_end]);
        for cut in cuts.filter(|&cut| cut >= TxFrame::MIN_FIRST) {
            let (mut a, mut b) = (vec![0x5a; cut], vec![0x5a; end.saturating_sub(cut)]);
            let mut tx = TxFrame::new_split(&mut a, &mut b);
            c.template().build(&mut tx, &c.fields, &c.ext, &c.payload).unwrap();
            let (x, y) = tx.segments();
            prop_assert_eq!(x.len(), cut.min(end));
            prop_assert_eq!([x, y].concat(), &whole[..], "cut at {}", cut);
        }
    }

    #[test]
    fn too_little_room_is_an_error(c in any_case(4096), short in 1usize..64) {
        let end = c.frame().len();
        let mut tiny = [0; TxFrame::MIN_FIRST - 1];
        let mut rest = vec![0; 4400];
        let mut tx = TxFrame::new_split(&mut tiny, &mut rest);
        let truncated = |r| matches!(r, Err(Error::Truncated { .. }));
        prop_assert!(truncated(c.template().build(&mut tx, &c.fields, &c.ext, &c.payload)));
        let mut room = vec![0; end - short];
        let mut tx = TxFrame::new(&mut room);
        prop_assert!(truncated(c.template().build(&mut tx, &c.fields, &c.ext, &c.payload)));
    }

    #[test]
    fn padding_behind_the_frame_does_not_matter(c in any_case(100), extra in 1usize..70, seed: u64) {
        let mut frame = c.frame();
        let bare = receive(&mut frame).unwrap();
        frame.extend(noise(extra, seed));
        prop_assert_eq!(receive(&mut frame), Ok(bare));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn every_flipped_bit_is_found_where_the_icrc_covers_it(c in any_case(64)) {
        let mut frame = c.frame();
        let (network, udp) = (c.network(), c.udp() - c.network());
        let sent = receive(&mut frame).unwrap();
        for bit in 0..(frame.len() - network) * 8 {
            let (at, bit) = (bit / 8, bit % 8);
            frame[network + at] ^= 1 << bit;
            let got = receive(&mut frame);
            if is_variant(c.is_v4(), udp, at, bit) {
                let got = got.map(|p| (p.ext, p.payload, p.bth.psn));
                prop_assert_eq!(got, Ok((sent.ext, sent.payload.clone(), sent.bth.psn)), "byte {} bit {}", at, bit);
            } else {
                prop_assert!(got.is_err(), "byte {} bit {}", at, bit);
            }
            frame[network + at] ^= 1 << bit;
        }
    }

    #[test]
    fn every_truncation_is_found(c in any_case(300)) {
        let frame = c.frame();
        for len in 0..frame.len() {
            let mut cut = frame[..len].to_vec();
            let truncated = |r: Result<(), Error>| matches!(r, Err(Error::Truncated { .. }));
            match Layout::locate(&cut) {
                Ok(layout) => {
                    prop_assert!(truncated(layout.check(len)), "{} bytes", len);
                    prop_assert!(truncated(icrc::verify(&mut cut, &layout)), "{} bytes", len);
                    prop_assert!(truncated(icrc::verify_shared(&cut, &layout)), "{} bytes", len);
                }
                Err(e) => prop_assert!(truncated(Err(e)), "{} bytes: {}", len, e),
            }
            prop_assert!(truncated(RocePacket::parse(&cut).map(|_| ())), "{} bytes", len);
        }
    }

    #[test]
    fn a_wrong_length_field_is_refused(c in any_case(300)) {
        let frame = c.frame();
        let ip_len_at = c.network() + if c.is_v4() { 2 } else { 4 };
        let udp_len_at = c.udp() + 4;
        let patch = |fields: &[usize], by: i32| {
            let mut f = frame.clone();
            for &at in fields {
                let v = i32::from(u16::from_be_bytes([f[at], f[at + 1]])) + by;
                f[at..at + 2].copy_from_slice(&(v as u16).to_be_bytes());
            }
            receive(&mut f)
        };
        for by in [1, 2, 3, 4, 8, 100, 1000, 40_000] {
            for by in [by, -by] {
                for field in [ip_len_at, udp_len_at] {
                    let refused = matches!(patch(&[field], by), Err(Error::Malformed { .. }));
                    prop_assert!(refused, "field at {} by {}", field, by);
                }
                let both = patch(&[ip_len_at, udp_len_at], by);
                prop_assert!(both.is_err(), "both by {}", by);
            }
        }
    }
}

/// Lengths that no packet can have: the sum of lengths must not wrap into one that fits.
#[test]
fn an_impossible_payload_length_is_an_error() {
    let c = any_case(0).new_tree(&mut TestRunner::deterministic()).unwrap().current();
    for payload_len in [65_536, usize::MAX / 2, usize::MAX - 200, usize::MAX - 60, usize::MAX - 3, usize::MAX] {
        let mut room = vec![0; 70_000];
        let mut tx = TxFrame::new(&mut room);
        let fields = PacketFields { payload_len, ..c.fields };
        let refused = c.template().start(&mut tx, &fields, &c.ext);
        assert!(matches!(refused, Err(Error::Malformed { .. })), "{payload_len}: {refused:?}");
    }
}

/// The longest frame there is, cut at every place.
#[test]
fn every_cut_of_a_long_frame() {
    let mut c = any_case(0).new_tree(&mut TestRunner::deterministic()).unwrap().current();
    c.payload = noise(4095, 1);
    let whole = c.frame();
    for cut in TxFrame::MIN_FIRST..whole.len() {
        let (mut a, mut b) = (vec![0x5a; cut], vec![0x5a; whole.len() - cut]);
        let mut tx = TxFrame::new_split(&mut a, &mut b);
        c.template().build(&mut tx, &c.fields, &c.ext, &c.payload).unwrap();
        assert!(a == whole[..cut] && b == whole[cut..], "cut at {cut}");
    }
}

/// A RoCEv1 frame by hand: Ethernet, GRH (its length from BTH to ICRC), BTH, AETH, ICRC.
fn roce_v1() -> Vec<u8> {
    let mut f = vec![0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2];
    f.extend(ethertype::ROCE_V1.to_be_bytes());
    f.extend([0x61, 0x23, 0x45, 0x67, 0, 20, 0x1b, 64]); // class 0x12, flow 0x34567, 20 bytes, next header BTH, hop limit
    f.extend("fe80::1".parse::<std::net::Ipv6Addr>().unwrap().octets());
    f.extend("fe80::2".parse::<std::net::Ipv6Addr>().unwrap().octets());
    f.extend([0x11, 0x40, 0xff, 0xff, 0x80, 0x00, 0x01, 0x02, 0x00, 0x00, 0x00, 0x09]);
    f.extend([0x1f, 0x00, 0x00, 0x07]);
    let crc = slow_icrc(&f[14..], None, 40);
    f.extend(crc);
    f
}

#[test]
fn roce_v1_is_located_and_checked() {
    let mut f = roce_v1();
    let p = receive(&mut f).unwrap();
    assert_eq!((p.layout.carrier, p.layout.carrier.roce_version()), (Carrier::RoceV1, 1));
    assert_eq!((p.layout.network, p.layout.bth, p.layout.end), (14, 54, f.len()));
    assert_eq!((p.bth.dest_qp.value(), p.bth.psn.value(), p.bth.fecn), (0x102, 9, true));
    assert_eq!((p.ext.aeth.unwrap().msn, p.payload.len()), (7, 0));
    assert_eq!(p.layout.src_port(&f), None);
    assert_eq!(p.layout.traffic_class(&f), Some(0x12));
    assert_eq!(p.layout.addresses(&f).unwrap().0, "fe80::1".parse::<IpAddr>().unwrap());
}

#[test]
fn roce_v1_flips_truncations_and_padding() {
    let frame = roce_v1();
    for bit in 14 * 8..frame.len() * 8 {
        let (at, bit) = (bit / 8 - 14, bit % 8);
        let mut f = frame.clone();
        f[14 + at] ^= 1 << bit;
        let variant = at == 0 && bit < 4 || matches!(at, 1..=3 | 7) || at == 40 + 4;
        assert_eq!(receive(&mut f).is_ok(), variant, "byte {at} bit {bit}");
    }
    for len in 0..frame.len() {
        let refused = receive(&mut frame[..len].to_vec());
        assert!(matches!(refused, Err(Error::Truncated { .. })), "{len} bytes: {refused:?}");
    }
    let mut padded = frame.clone();
    padded.extend([0; 6]);
    assert!(receive(&mut padded).is_ok());
}
