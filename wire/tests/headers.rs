//! Every header: what is emitted is what is parsed.

mod common;

use common::*;
use proptest::prelude::*;
use softnic_wire::aeth::{self, Aeth};
use softnic_wire::ext::{AtomicEth, Deth, Feth, Reth, XrcEth};
use softnic_wire::grh::{self, Grh};
use softnic_wire::sr::SrEth;
use softnic_wire::{Error, ExtHeaders, Opcode, Psn, Qpn, bth, ethernet, ipv4, ipv6, udp};

prop_compose! {
    fn any_ipv4()(
        (src, dst) in any::<([u8; 4], [u8; 4])>(), tos: u8, ttl: u8, id: u16, dont_fragment: bool, protocol: u8,
        payload_len in 0..=u16::MAX - 20,
    ) -> ipv4::Repr {
        ipv4::Repr { src: src.into(), dst: dst.into(), tos, ttl, id, dont_fragment, protocol, payload_len }
    }
}

prop_compose! {
    fn any_ipv6()(
        (src, dst) in any::<([u8; 16], [u8; 16])>(), traffic_class: u8, flow_label in 0u32..1 << 20, hop_limit: u8,
        next_header: u8, payload_len: u16,
    ) -> ipv6::Repr {
        ipv6::Repr {
            src: src.into(), dst: dst.into(), traffic_class, flow_label, hop_limit, next_header, payload_len,
        }
    }
}

prop_compose! {
    fn any_bth()(
        opcode: u8, (solicited, mig_req, fecn, becn, ack_req) in any::<(bool, bool, bool, bool, bool)>(),
        pad in 0u8..4, tver in 0u8..16, pkey: u16, dest_qp: u32, psn: u32,
    ) -> bth::Repr {
        bth::Repr {
            opcode: Opcode(opcode), solicited, mig_req, pad, tver, pkey, fecn, becn, dest_qp: Qpn::new(dest_qp),
            ack_req, psn: Psn::new(psn),
        }
    }
}

/// Ones' complement sum of 16-bit words as RFC 1071 has it, word by word.
fn header_sum(b: &[u8]) -> u16 {
    b.chunks(2).fold(0u16, |s, w| {
        let (s, carry) = s.overflowing_add(u16::from_be_bytes([w[0], w[1]]));
        s + u16::from(carry)
    })
}

proptest! {
    #[test]
    fn ethernet_with_and_without_tags(
        dst in any_mac(), src in any_mac(), tags in any_tags(), ethertype in any::<u16>(),
    ) {
        prop_assume!(!ethernet::is_tag(ethertype));
        let r = ethernet::Repr { dst, src, tags, ethertype };
        let mut b = vec![0xa5; r.buffer_len()];
        r.emit(&mut ethernet::Packet::new_unchecked(&mut b)).unwrap();
        prop_assert_eq!(ethernet::Repr::parse(&ethernet::Packet::new_checked(&b).unwrap()), Ok(r));
        prop_assert_eq!(ethernet::network_layer(&b), Ok((ethertype, b.len())));
        for cut in 0..b.len() {
            prop_assert!(ethernet::Packet::new_checked(&b[..cut]).is_err());
            let short = r.emit(&mut ethernet::Packet::new_unchecked(&mut b.clone()[..cut]));
            prop_assert!(short.is_err());
        }
    }

    #[test]
    fn ipv4_and_its_checksum(r in any_ipv4()) {
        let mut b = [0xa5; ipv4::LEN];
        r.emit(&mut ipv4::Packet::new_unchecked(&mut b)).unwrap();
        let p = ipv4::Packet::new_checked(&b).unwrap();
        prop_assert_eq!(ipv4::Repr::parse(&p), Ok(r));
        prop_assert!(p.verify_checksum());
        prop_assert_eq!(header_sum(&b), 0xffff);
        for bit in 0..8 * ipv4::LEN {
            let mut bad = b;
            bad[bit / 8] ^= 1 << (bit % 8);
            // A view whose length nibble is broken is refused before its checksum can be asked for.
            if let Ok(p) = ipv4::Packet::new_checked(&bad) {
                prop_assert!(!p.verify_checksum());
            }
        }
    }

    #[test]
    fn an_ipv4_payload_beyond_the_length_field_is_refused(r in any_ipv4(), over in u16::MAX - 19..=u16::MAX) {
        let r = ipv4::Repr { payload_len: over, ..r };
        let refused = matches!(
            r.emit(&mut ipv4::Packet::new_unchecked(&mut [0; ipv4::LEN])),
            Err(Error::Malformed { .. })
        );
        prop_assert!(refused);
    }

    #[test]
    fn ipv6(r in any_ipv6()) {
        let mut b = [0xa5; ipv6::LEN];
        r.emit(&mut ipv6::Packet::new_unchecked(&mut b)).unwrap();
        prop_assert_eq!(ipv6::Repr::parse(&ipv6::Packet::new_checked(&b).unwrap()), Ok(r));
    }

    #[test]
    fn udp(src_port: u16, dst_port: u16, payload_len in 0..=u16::MAX - 8) {
        let r = udp::Repr { src_port, dst_port, payload_len };
        let mut b = [0xa5; udp::LEN];
        r.emit(&mut udp::Packet::new_unchecked(&mut b)).unwrap();
        let p = udp::Packet::new_checked(&b).unwrap();
        prop_assert_eq!(udp::Repr::parse(&p), Ok(r));
        prop_assert_eq!((p.checksum(), p.is_empty()), (0, payload_len == 0));
    }

    #[test]
    fn bth(r in any_bth(), before in any::<[u8; bth::LEN]>()) {
        let mut b = before;
        r.emit(&mut bth::Packet::new_unchecked(&mut b)).unwrap();
        prop_assert_eq!(bth::Repr::parse(&bth::Packet::new_checked(&b).unwrap()), Ok(r));
        prop_assert_eq!((b[4] & 0x3f, b[8] & 0x7f), (0, 0), "reserved bits are sent as 0");
    }

    #[test]
    fn fixed_extension_headers(
        reth in any_reth(), atomic in any_atomic(), deth in any_deth(), feth in any_feth(), aeth in any_aeth(),
        srq in 0u32..1 << 24, sr in any_sr(),
    ) {
        let mut b = [0xa5; Reth::LEN];
        reth.emit(&mut b);
        prop_assert_eq!(Reth::parse(&b), reth);
        let mut b = [0xa5; AtomicEth::LEN];
        atomic.emit(&mut b);
        prop_assert_eq!(AtomicEth::parse(&b), atomic);
        let mut b = [0xa5; Deth::LEN];
        deth.emit(&mut b);
        prop_assert_eq!(Deth::parse(&b), deth);
        let mut b = [0xa5; Feth::LEN];
        feth.emit(&mut b);
        prop_assert_eq!(Feth::parse(&b), feth);
        let mut b = [0xa5; aeth::LEN];
        aeth.emit(&mut b);
        prop_assert_eq!(Aeth::parse(&b), aeth);
        let mut b = [0xa5; SrEth::LEN];
        sr.emit(&mut b);
        prop_assert_eq!(SrEth::parse(&b), sr);
        let mut b = [0xa5; XrcEth::LEN];
        XrcEth { srq }.emit(&mut b);
        prop_assert_eq!(XrcEth::parse(&b), XrcEth { srq });
    }

    #[test]
    fn extension_headers_of_every_opcode(all in all_headers(), tail in any::<[u8; 7]>()) {
        for op in (0..=255).map(Opcode) {
            let ext = only(op, &all);
            let mut b = [0xa5; 80];
            let n = ext.emit(&mut b).unwrap();
            prop_assert_eq!((n, n, ext.set()), (op.headers_len(), op.headers().len(), op.headers()), "{:?}", op);
            prop_assert!(b[n..].iter().all(|&x| x == 0xa5), "{:?} writes no more than it says", op);
            b[n..n + 7].copy_from_slice(&tail);
            prop_assert_eq!(ExtHeaders::parse(op, &b[..n + 7]), Ok(ext));
            for cut in 0..n {
                let truncated = matches!(ExtHeaders::parse(op, &b[..cut]), Err(Error::Truncated { .. }));
                prop_assert!(truncated, "{:?} cut to {}", op, cut);
                let no_room = matches!(ext.emit(&mut { b }[..cut]), Err(Error::Truncated { .. }));
                prop_assert!(no_room, "{:?} into {}", op, cut);
            }
        }
    }

    #[test]
    fn grh_over_ipv4(r in any_ipv4()) {
        let mut b = [0xa5; grh::LEN];
        Grh::Ipv4(r).emit(&mut b).unwrap();
        prop_assert_eq!(Grh::parse(&b), Ok(Grh::Ipv4(r)));
        // What the first 20 bytes hold is undefined: it must not matter, even when it looks like IPv6.
        b[..20].fill(0x66);
        prop_assert_eq!(Grh::parse(&b), Ok(Grh::Ipv4(r)));
    }

    #[test]
    fn grh_over_ipv6(r in any_ipv6()) {
        // 20 bytes of addresses that are a valid IPv4 header cannot be told from one.
        prop_assume!(r.src.octets()[12] != 0x45);
        let mut b = [0xa5; grh::LEN];
        Grh::Ipv6(r).emit(&mut b).unwrap();
        prop_assert_eq!(Grh::parse(&b), Ok(Grh::Ipv6(r)));
    }
}

/// The layouts written out by hand, so that parse and emit cannot be wrong in the same way.
#[test]
fn extension_headers_at_the_offsets_of_the_standard() {
    let b: Vec<u8> = (0x10..0x50).collect();
    let parse = |op| ExtHeaders::parse(Opcode(op), &b).unwrap();
    let write = parse(0x0b); // RC WRITE_ONLY with immediate: RETH, ImmDt
    let reth = Reth { va: 0x1011_1213_1415_1617, rkey: 0x1819_1a1b, len: 0x1c1d_1e1f };
    assert_eq!(write, ExtHeaders { reth: Some(reth), imm: Some(0x2021_2223), ..Default::default() });
    let swap = parse(0x13).atomic.unwrap(); // AtomicETH: address, key, swap, compare
    assert_eq!((swap.va, swap.rkey), (0x1011_1213_1415_1617, 0x1819_1a1b));
    assert_eq!((swap.swap_add, swap.compare), (0x1c1d_1e1f_2021_2223, 0x2425_2627_2829_2a2b));
    let ack = parse(0x12); // AETH, AtomicAckETH
    assert_eq!((ack.aeth.unwrap().msn, ack.atomic_ack), (0x11_1213, Some(0x1415_1617_1819_1a1b)));
    let ud = parse(0x65); // DETH, ImmDt
    assert_eq!(ud.deth, Some(Deth { qkey: 0x1011_1213, src_qp: Qpn::new(0x15_1617) }));
    assert_eq!(ud.imm, Some(0x1819_1a1b));
    let xrc = parse(0xaa); // XRCETH, RETH
    assert_eq!((xrc.xrceth.unwrap().srq, xrc.reth.unwrap().va), (0x11_1213, 0x1415_1617_1819_1a1b));
    let flush = parse(0x1c); // FETH, RETH
    assert_eq!(flush.feth, Some(Feth { placement: 3, selectivity: 1 }));
    assert_eq!(flush.reth.unwrap().va, 0x1415_1617_1819_1a1b);
    assert_eq!(parse(0x17).ieth, Some(0x1011_1213));
}

/// Those of Selective Repeat, at the offsets of docs/wire-formats.md.
#[test]
fn extension_headers_of_selective_repeat() {
    let b: Vec<u8> = (0x10..0x50).collect();
    let parse = |op| ExtHeaders::parse(Opcode(op), &b).unwrap();
    let sr = Some(SrEth { flags: 0x10, number: 0x11_1213, offset: 0x1415_1617 });
    let none = ExtHeaders::default();
    for send in [0xc0, 0xc1, 0xc2, 0xc4, 0xcd, 0xce, 0xcf, 0xd0] {
        assert_eq!(parse(send), ExtHeaders { sr, ..none }, "{}", Opcode(send));
    }
    for send in [0xc3, 0xc5] {
        assert_eq!(parse(send), ExtHeaders { sr, imm: Some(0x1819_1a1b), ..none });
    }
    for send in [0xd6, 0xd7] {
        assert_eq!(parse(send), ExtHeaders { sr, ieth: Some(0x1819_1a1b), ..none });
    }
    let reth = Some(Reth { va: 0x1011_1213_1415_1617, rkey: 0x1819_1a1b, len: 0x1c1d_1e1f });
    for write in [0xc6, 0xc7, 0xc8, 0xca, 0xcc] {
        assert_eq!(parse(write), ExtHeaders { reth, ..none }, "{}", Opcode(write));
    }
    let reth = Some(Reth { va: 0x1819_1a1b_1c1d_1e1f, rkey: 0x2021_2223, len: 0x2425_2627 });
    for write in [0xc9, 0xcb] {
        assert_eq!(parse(write), ExtHeaders { sr, reth, imm: Some(0x2829_2a2b), ..none });
    }
    let ack = parse(0xd1);
    assert_eq!((ack.sr, ack.aeth.unwrap().syndrome.to_byte(), ack.aeth.unwrap().msn), (sr, 0x18, 0x19_1a1b));
    assert_eq!(parse(0xd2), ExtHeaders { sr, atomic_ack: Some(0x1819_1a1b_1c1d_1e1f), ..none });
    for atomic in [0xd3, 0xd4] {
        assert_eq!(parse(atomic), ExtHeaders { atomic: parse(0x13).atomic, ..none });
    }
}
