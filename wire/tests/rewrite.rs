//! Frames changed in place: equal to those built with the new fields, and as damaged as they were before.

mod common;

use std::net::IpAddr;

use common::*;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use softnic_wire::rewrite::{Passing, Patch, RethRewrite, Rewrite, RewriteError, Stencil};
use softnic_wire::{Addresses, Aeth, Carrier, Layout, Path, PathMtu, Psn, Qpn, RocePacket, TxFrame, icrc, ipv4};

/// Some fields of a rewrite, of one IP version.
fn any_rewrite(v4: bool) -> impl Strategy<Value = Rewrite> {
    let address = move || {
        let v6 = any::<[u8; 16]>().prop_map(IpAddr::from);
        let v4_address = any::<[u8; 4]>().prop_map(IpAddr::from);
        prop::option::of(if v4 { v4_address.boxed() } else { v6.boxed() })
    };
    let link = (prop::option::of(any_mac()), prop::option::of(any_mac()));
    let network = (address(), address(), any::<bool>());
    let transport = (prop::option::of(any::<u32>()), prop::option::of(any::<u32>()));
    let headers = (prop::option::of(any::<(u64, u32)>()), prop::option::of(any::<u32>()), prop::option::of(any_aeth()));
    (link, network, transport, headers).prop_map(|(link, network, transport, headers)| Rewrite {
        dst_mac: link.0,
        src_mac: link.1,
        src_ip: network.0,
        dst_ip: network.1,
        take_hop: network.2,
        dest_qp: transport.0.map(Qpn::new),
        psn: transport.1.map(Psn::new),
        reth: headers.0.map(|(offset, rkey)| RethRewrite { offset, rkey }),
        ieth: headers.1,
        aeth: headers.2,
    })
}

/// A packet that has hops left, and a rewrite for it.
fn any_pair(max: usize) -> impl Strategy<Value = (Case, Rewrite)> {
    any_case(max).prop_flat_map(|mut c| {
        c.path.hop_limit = c.path.hop_limit.max(2);
        let v4 = c.is_v4();
        (Just(c), any_rewrite(v4))
    })
}

/// The packet with the new fields, to be built from nothing.
fn changed(c: &Case, r: &Rewrite) -> Case {
    let mut c = c.clone();
    let Path { src_mac, dst_mac, addresses, hop_limit, .. } = &mut c.path;
    *src_mac = r.src_mac.unwrap_or(*src_mac);
    *dst_mac = r.dst_mac.unwrap_or(*dst_mac);
    let (src, dst) = (r.src_ip.unwrap_or(addresses.src()), r.dst_ip.unwrap_or(addresses.dst()));
    *addresses = Addresses::new(src, dst).expect("addresses of one version");
    *hop_limit -= u8::from(r.take_hop);
    c.dest_qp = r.dest_qp.unwrap_or(c.dest_qp);
    c.fields.psn = r.psn.unwrap_or(c.fields.psn);
    if let (Some(reth), Some(to)) = (&mut c.ext.reth, r.reth) {
        (reth.va, reth.rkey) = (reth.va.wrapping_add(to.offset), to.rkey);
    }
    c.ext.ieth = c.ext.ieth.map(|rkey| r.ieth.unwrap_or(rkey));
    c.ext.aeth = c.ext.aeth.map(|aeth| r.aeth.unwrap_or(aeth));
    c
}

/// The ones' complement sum of bytes that begin at an even offset.
fn sum(bytes: &[u8]) -> u64 {
    bytes.chunks(2).map(|c| u64::from(c[0]) << 8 | c.get(1).map_or(0, |&b| u64::from(b))).sum()
}

/// The checksum that UDP ought to have, from the rule in words: over addresses, protocol, length, header and payload.
fn udp_checksum(frame: &[u8]) -> u16 {
    let l = Layout::locate(frame).expect("RoCE");
    let addresses = match l.carrier {
        Carrier::Ipv4 => l.network + 12..l.network + 20,
        _ => l.network + 8..l.network + 40,
    };
    let mut datagram = frame[l.udp..l.end].to_vec();
    datagram[6..8].fill(0);
    let mut s = sum(&frame[addresses]) + 17 + datagram.len() as u64 + sum(&datagram);
    while s > 0xffff {
        s = (s & 0xffff) + (s >> 16);
    }
    if s == 0xffff { 0xffff } else { !(s as u16) }
}

/// A frame as another sender has it: options behind the IPv4 header, and a UDP checksum.
fn dressed(mut frame: Vec<u8>, options: &[u8], with_checksum: bool) -> Vec<u8> {
    let l = Layout::locate(&frame).expect("RoCE");
    if l.carrier == Carrier::Ipv4 && !options.is_empty() {
        frame.splice(l.udp..l.udp, options.iter().copied());
        let header = &mut frame[l.network..l.udp + options.len()];
        header[0] = 0x40 | (header.len() / 4) as u8;
        let total = (l.end - l.network + options.len()) as u16;
        header[2..4].copy_from_slice(&total.to_be_bytes());
        header[10..12].fill(0);
        let mut s = sum(header);
        while s > 0xffff {
            s = (s & 0xffff) + (s >> 16);
        }
        header[10..12].copy_from_slice(&(!(s as u16)).to_be_bytes());
        let l = Layout::locate(&frame).expect("RoCE");
        icrc::write(&mut frame, &l).expect("whole");
    }
    let l = Layout::locate(&frame).expect("RoCE");
    if with_checksum {
        let checksum = udp_checksum(&frame);
        frame[l.udp + 6..l.udp + 8].copy_from_slice(&checksum.to_be_bytes());
    }
    frame
}

fn rewritten(frame: &[u8], r: &Rewrite) -> Vec<u8> {
    let mut frame = frame.to_vec();
    Passing::parse(&frame).expect("a whole frame").apply(r, &mut frame).expect("nothing speaks against it");
    frame
}

/// What the ICRC found differs by from the right one.
fn wrong_by(frame: &[u8]) -> u32 {
    match icrc::verify_shared(frame, &Layout::locate(frame).expect("RoCE")) {
        Ok(()) => 0,
        Err(softnic_wire::Error::Icrc { found, expected }) => found ^ expected,
        Err(e) => panic!("{e}"),
    }
}

fn draw<S: Strategy>(runner: &mut TestRunner, s: &S) -> S::Value {
    s.new_tree(runner).expect("a value").current()
}

/// Every opcode over every path MTU, IP version and number of tags, with and without a UDP checksum.
#[test]
fn every_opcode_and_path_mtu_gives_the_frame_that_is_built_with_the_new_fields() {
    let mut runner = TestRunner::deterministic();
    let (cases, seeds) = (any_case(0), any::<u64>());
    let rewrites = [any_rewrite(false).boxed(), any_rewrite(true).boxed()];
    let (tag, v4, v6) = (any_tag(), any::<[[u8; 4]; 2]>(), any::<[[u8; 16]; 2]>());
    let mut kinds = [0; 4];
    for opcode in known_opcodes() {
        for mtu in PathMtu::ALL {
            for (is_v4, tags) in (0..6).map(|i| (i % 2 == 0, i / 2)) {
                let mut c = draw(&mut runner, &cases);
                c.fields.opcode = opcode;
                c.ext = only(opcode, &draw(&mut runner, &all_headers()));
                c.path.hop_limit = c.path.hop_limit.max(2);
                c.path.tags = [0, 1].map(|i| (i < tags).then(|| draw(&mut runner, &tag)));
                c.path.addresses = if is_v4 {
                    let [src, dst] = draw(&mut runner, &v4);
                    Addresses::V4 { src: src.into(), dst: dst.into() }
                } else {
                    let [src, dst] = draw(&mut runner, &v6);
                    Addresses::V6 { src: src.into(), dst: dst.into() }
                };
                let seed = draw(&mut runner, &seeds);
                c.payload = noise(mtu.bytes() as usize - seed as usize % 5, seed);
                c.fields.payload_len = c.payload.len();
                let mut r = draw(&mut runner, &rewrites[usize::from(is_v4)]);
                // Never left to chance in this test, so that each header that there is changes with each opcode.
                r.reth = r.reth.or(Some(RethRewrite { offset: seed, rkey: 7 }));
                (r.ieth, r.aeth) = (Some(seed as u32), Some(Aeth::parse(&(seed as u32).to_be_bytes())));
                kinds[0] += usize::from(c.ext.reth.is_some());
                kinds[1] += usize::from(c.ext.aeth.is_some());
                kinds[2] += usize::from(c.ext.ieth.is_some());
                kinds[3] += usize::from(c.ext.reth.is_none() && c.ext.aeth.is_none() && c.ext.ieth.is_none());
                for with_checksum in [false, true] {
                    let before = dressed(c.frame(), &[], with_checksum);
                    let expected = dressed(changed(&c, &r).frame(), &[], with_checksum);
                    assert_eq!(wrong_by(&expected), 0);
                    assert_eq!(rewritten(&before, &r), expected, "{opcode} with {} bytes: {r:?}", c.payload.len());
                }
            }
        }
    }
    assert!(kinds.iter().all(|&n| n > 50), "RETH, AETH, IETH and none of them: {kinds:?}");
}

proptest! {
    #[test]
    fn any_packet_with_any_options(
        (c, r) in any_pair(600), words in 0usize..=10, fill: u64, with_checksum: bool, padding in 0usize..20,
    ) {
        let options = noise(4 * words, fill);
        let mut before = dressed(c.frame(), &options, with_checksum);
        let mut expected = dressed(changed(&c, &r).frame(), &options, with_checksum);
        before.extend(noise(padding, fill));
        expected.extend(noise(padding, fill));
        prop_assert_eq!(rewritten(&before, &r), expected);
    }

    /// Damage of any kind behind the IP and UDP headers: the ICRC is as wrong as it was, and the checksums too.
    #[test]
    fn damage_stays(
        (c, r) in any_pair(300), flips in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 1..5),
        with_checksum: bool,
    ) {
        let good = dressed(c.frame(), &[], with_checksum);
        let l = Layout::locate(&good).unwrap();
        let from = RocePacket::parse(&good).unwrap().payload.start;
        let mut bad = good.clone();
        for (at, bits) in flips {
            bad[from + at.index(l.end - from)] ^= bits;
        }
        let (right, wrong) = (rewritten(&good, &r), rewritten(&bad, &r));
        prop_assert_eq!((wrong_by(&right), wrong_by(&wrong)), (0, wrong_by(&bad)));
        prop_assert_eq!(&wrong[from..l.end - 4], &bad[from..l.end - 4]);
        if bad != good {
            prop_assert_ne!(wrong_by(&wrong), 0);
        }
        let agrees = |f: &[u8]| f[l.udp + 6..l.udp + 8] == udp_checksum(f).to_be_bytes();
        if with_checksum {
            prop_assert_eq!((agrees(&right), agrees(&wrong)), (true, agrees(&bad)));
        }
    }

    #[test]
    fn a_wrong_checksum_of_ipv4_stays_wrong((c, r) in any_pair(20), bits in 1u16..0xffff) {
        prop_assume!(c.is_v4());
        let mut frame = c.frame();
        let at = c.network() + 10;
        let wrong = (u16::from_be_bytes([frame[at], frame[at + 1]]) ^ bits).to_be_bytes();
        frame[at..at + 2].copy_from_slice(&wrong);
        let right = |f: &[u8]| ipv4::Packet::new_checked(&f[c.network()..]).unwrap().verify_checksum();
        prop_assert_eq!(right(&rewritten(&frame, &r)), right(&frame));
    }

    /// A frame in two segments, its ICRC wherever it falls.
    #[test]
    fn a_head_alone_and_the_icrc_elsewhere((c, r) in any_pair(300)) {
        let frame = c.frame();
        let passing = Passing::parse(&frame).unwrap();
        let (mut head, at) = (frame[..passing.head_len()].to_vec(), passing.icrc_at().unwrap());
        let address: IpAddr = if c.is_v4() { [1; 4].into() } else { [1; 16].into() };
        let all = Rewrite {
            src_ip: Some(address),
            dst_ip: Some(address),
            dest_qp: Some(Qpn::new(1)),
            psn: Some(Psn::new(1)),
            reth: Some(RethRewrite { offset: 1, rkey: 1 }),
            ieth: Some(1),
            aeth: r.aeth,
            ..Rewrite::default()
        };
        let (mut stencil, mut patch) = (Stencil::default(), Patch::default());
        // Of more fields than are changed, and a patch that was another copy's before.
        passing.stencil(&all, &frame, &mut stencil).unwrap();
        for r in [&all, &r] {
            passing.patch(&stencil, r, &mut patch).unwrap();
        }
        passing.put(&stencil, &patch, &mut head).unwrap();
        let expected = rewritten(&frame, &r);
        prop_assert_eq!((&head[..], &patch.icrc()[..]), (&expected[..head.len()], &expected[at..]));
        let (need, have) = (head.len(), head.len() - 1);
        let e = RewriteError::Truncated { need, have };
        prop_assert_eq!(passing.put(&stencil, &patch, &mut head[..have]), Err(e));
    }

    /// The simulator's frames without payload.
    #[test]
    fn a_frame_whose_payload_was_elided((c, r) in any_pair(4096)) {
        let elided = |c: &Case| {
            let mut room = vec![0; 200];
            let mut tx = TxFrame::new(&mut room);
            c.template().build_elided(&mut tx, &c.fields, &c.ext).unwrap();
            tx.segments().0.to_vec()
        };
        let (mut frame, expected) = (elided(&c), elided(&changed(&c, &r)));
        prop_assert!(Passing::parse(&frame).is_err(), "not whole");
        let passing = Passing::parse_elided(&frame).unwrap();
        prop_assert_eq!(passing.icrc_at(), None);
        passing.apply(&r, &mut frame).unwrap();
        prop_assert_eq!(frame, expected);
    }
}

/// Each bit of payload, padding and ICRC of one packet by itself.
#[test]
fn no_flipped_bit_is_made_right() {
    let mut runner = TestRunner::deterministic();
    for _ in 0..20 {
        let (c, r) = draw(&mut runner, &any_pair(60));
        let good = c.frame();
        let from = 8 * Passing::parse(&good).unwrap().head_len();
        for bit in from..8 * good.len() {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(wrong_by(&rewritten(&bad, &r)), 0, "bit {bit}");
        }
    }
}

/// Cut off anywhere; a fragment; lengths that do not agree; another port, protocol or ethertype; RoCEv1; headers that do not fit.
#[test]
fn what_is_no_whole_packet_is_not_parsed() {
    let mut runner = TestRunner::deterministic();
    for _ in 0..50 {
        let mut c = draw(&mut runner, &any_case(40));
        c.path.tags = [None; 2];
        let good = c.frame();
        for len in 0..good.len() {
            assert!(Passing::parse(&good[..len]).is_err(), "cut off at {len}");
        }
        let udp = c.udp();
        let with = |at: usize, bytes: &[u8]| {
            let mut frame = good.clone();
            frame[at..at + bytes.len()].copy_from_slice(bytes);
            frame
        };
        let ip_len = c.network() + if c.is_v4() { 2 } else { 4 };
        let less = |at: usize| (u16::from_be_bytes([good[at], good[at + 1]]) - 4).to_be_bytes();
        let mut bad = vec![with(ip_len, &less(ip_len)), with(udp + 4, &less(udp + 4)), with(udp + 2, &[0, 53])];
        bad.extend([with(12, &[8, 6]), with(12, &[0x89, 0x15])]);
        bad.push(if c.is_v4() { with(14 + 6, &[0x20, 0]) } else { with(14 + 6, &[44]) });
        bad.push(with(14 + if c.is_v4() { 9 } else { 6 }, &[6]));
        for (i, frame) in bad.iter().enumerate() {
            assert!(Passing::parse(frame).is_err(), "{i}");
        }
        // Both lengths say that the packet ends inside its headers.
        let mut short = good.clone();
        let cut = (good.len() - Passing::parse(&good).unwrap().head_len()) as u16;
        for at in [ip_len, udp + 4] {
            let len = u16::from_be_bytes([good[at], good[at + 1]]) - cut;
            short[at..at + 2].copy_from_slice(&len.to_be_bytes());
        }
        assert!(Passing::parse(&short).is_err());
    }
}

#[test]
fn a_rewrite_that_cannot_be_leaves_the_frame_as_it_is() {
    let mut runner = TestRunner::deterministic();
    for _ in 0..50 {
        let (mut c, r) = draw(&mut runner, &any_pair(40));
        c.path.hop_limit %= 2;
        let frame = c.frame();
        let passing = Passing::parse(&frame).unwrap();
        let other: IpAddr = if c.is_v4() { [1; 16].into() } else { [1; 4].into() };
        let refused = |r: Rewrite, e| {
            let mut copy = frame.clone();
            assert_eq!((passing.apply(&r, &mut copy), &copy), (Err(e), &frame));
        };
        refused(Rewrite { src_ip: Some(other), ..r }, RewriteError::IpVersion);
        refused(Rewrite { dst_ip: Some(other), ..r }, RewriteError::IpVersion);
        refused(Rewrite { take_hop: true, ..r }, RewriteError::HopsSpent);
        for len in 0..frame.len() {
            let mut cut = frame[..len].to_vec();
            let e = RewriteError::Truncated { need: frame.len(), have: len };
            assert_eq!((passing.apply(&r, &mut cut), &cut[..]), (Err(e), &frame[..len]));
        }
        let mut copy = frame.clone();
        assert_eq!((passing.apply(&Rewrite::default(), &mut copy), copy), (Ok(()), frame.clone()), "nothing asked for");
    }
}

/// Lengths that no sender of ours makes but any may: the ICRC lies across the words of the UDP checksum.
#[test]
fn a_packet_of_odd_length_keeps_its_udp_checksum() {
    let mut runner = TestRunner::deterministic();
    for less in [1, 2, 3] {
        for _ in 0..50 {
            let (mut c, r) = draw(&mut runner, &any_pair(40));
            c.payload = vec![5; 8];
            let mut frame = c.frame();
            let l = Layout::locate(&frame).unwrap();
            l.set_end(&mut frame, l.end - less);
            let l = Layout::locate(&frame).unwrap();
            icrc::write(&mut frame, &l).unwrap();
            let checksum = udp_checksum(&frame);
            frame[l.udp + 6..l.udp + 8].copy_from_slice(&checksum.to_be_bytes());
            let after = rewritten(&frame, &r);
            assert_eq!(after[l.udp + 6..l.udp + 8], udp_checksum(&after).to_be_bytes());
            assert_eq!(wrong_by(&after), 0);
        }
    }
}

/// A checksum of UDP that comes out as 0 is 0xffff, and one of 0xffff becomes what it ought to be.
#[test]
fn a_udp_checksum_never_becomes_none() {
    let (c, _) = draw(&mut TestRunner::deterministic(), &any_pair(0));
    let mut frame = dressed(c.frame(), &[], true);
    let passing = Passing::parse(&frame).unwrap();
    let at = passing.layout().udp + 6;
    let mut all_ones = 0;
    for psn in 0..400_000 {
        passing.apply(&Rewrite { psn: Some(Psn::new(psn)), ..Rewrite::default() }, &mut frame).unwrap();
        assert_eq!(frame[at..at + 2], udp_checksum(&frame).to_be_bytes(), "PSN {psn}");
        all_ones += usize::from(frame[at..at + 2] == [0xff; 2]);
    }
    assert!(all_ones > 0, "not one of them");
}
