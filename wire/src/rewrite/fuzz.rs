//! The fuzz body of this module: any frame, changed in any way, is exactly as right or as wrong as it was.

use core::net::IpAddr;

use super::{Passing, RethRewrite, Rewrite, RewriteError};
use crate::bytes::{array, be16, be32, be64};
use crate::{Aeth, Carrier, Error, Layout, MacAddr, Psn, Qpn, RocePacket, bth, icrc, ipv4, ipv6, udp};

/// Bytes that say what to change; the frame follows.
const CHANGES: usize = 72;
/// Bytes of a frame that are looked at: a jumbo frame and more.
const MAX_FRAME: usize = 10_000;

/// Changes to make and a frame; panics when what should stay changed, or what should change stayed.
#[doc(hidden)]
pub fn fuzz_rewrite(data: &[u8]) {
    let Some((changes, frame)) = data.split_first_chunk::<CHANGES>() else { return };
    let rewrite = rewrite_of(changes);
    let before = &frame[..frame.len().min(MAX_FRAME)];
    let mut room = [0; MAX_FRAME];
    let after = &mut room[..before.len()];
    after.copy_from_slice(before);
    elided(before, &rewrite);
    let passing = match (Passing::parse(before), RocePacket::parse(before)) {
        (Ok(passing), Ok(packet)) => {
            assert_eq!((passing.opcode(), passing.head_len()), (packet.bth.opcode, packet.payload.start));
            passing
        }
        (Err(e), Ok(packet)) => {
            assert!(packet.layout.carrier == Carrier::RoceV1 && matches!(e, Error::NotRoce(_)));
            return;
        }
        (passing, packet) => return assert_eq!(passing.err(), packet.err()),
    };
    // Too short by one byte, and by all but one header.
    for len in [passing.layout.end - 1, passing.head - 1] {
        let refused = passing.apply(&rewrite, &mut after[..len]);
        assert_eq!(refused, Err(RewriteError::Truncated { need: passing.layout.end, have: len }));
        assert_eq!(after, before);
    }
    if let Err(e) = passing.apply(&rewrite, after) {
        assert_eq!(after, before, "{e}, and changed all the same");
        let spent = rewrite.take_hop && before[passing.hops_at()] <= 1;
        assert!(if e == RewriteError::HopsSpent { spent } else { e == RewriteError::IpVersion });
        return;
    }
    assert_eq!(Passing::parse(after), Ok(passing), "every part is where it was");
    let icrc_at = passing.layout.end - icrc::LEN;
    assert_eq!(after[passing.head..icrc_at], before[passing.head..icrc_at], "the payload");
    assert_eq!(after[passing.layout.end..], before[passing.layout.end..], "what follows the packet");
    assert_eq!(wrong_by(after, &passing.layout), wrong_by(before, &passing.layout), "the ICRC");
    assert_eq!(residues(after, &passing.layout), residues(before, &passing.layout), "the checksums");
    fields(&rewrite, &passing, before, after);
}

/// A rewrite drawn from bytes: two that say which fields, then the fields.
fn rewrite_of(b: &[u8; CHANGES]) -> Rewrite {
    let chosen = be16(b, 0);
    let is = |bit: u16| chosen >> bit & 1 != 0;
    let address = |bit, at| {
        let v6 = is(15);
        let address: IpAddr = if v6 { array::<16>(b, at).into() } else { array::<4>(b, at).into() };
        is(bit).then_some(address)
    };
    Rewrite {
        dst_mac: is(0).then_some(MacAddr(array(b, 2))),
        src_mac: is(1).then_some(MacAddr(array(b, 8))),
        src_ip: address(2, 14),
        dst_ip: address(3, 30),
        take_hop: is(4),
        dest_qp: is(5).then_some(Qpn::new(be32(b, 46))),
        psn: is(6).then_some(Psn::new(be32(b, 49))),
        reth: is(7).then_some(RethRewrite { offset: be64(b, 52), rkey: be32(b, 60) }),
        ieth: is(8).then_some(be32(b, 64)),
        aeth: is(9).then_some(Aeth::parse(&array(b, 68))),
    }
}

/// Headers alone are changed as those of the whole frame are.
fn elided(frame: &[u8], rewrite: &Rewrite) {
    let Ok(passing) = Passing::parse_elided(frame) else {
        assert!(Passing::parse(frame).is_err(), "what can be parsed whole can be parsed in part");
        return;
    };
    assert_eq!(passing.icrc_at(), None);
    let mut room = [0; 2 * MAX_FRAME];
    let (whole, head) = room.split_at_mut(MAX_FRAME);
    let (whole, head) = (&mut whole[..frame.len()], &mut head[..passing.head]);
    whole.copy_from_slice(frame);
    head.copy_from_slice(&frame[..passing.head]);
    let done = passing.apply(rewrite, head);
    if let Ok(in_full) = Passing::parse(frame) {
        assert_eq!(in_full.apply(rewrite, whole), done);
        // The checksum of UDP, where there is one, covers the ICRC too.
        let at = passing.layout.udp + udp::field::CHECKSUM;
        whole[at..at + 2].copy_from_slice(&array::<2>(head, at));
        assert_eq!(whole[..passing.head], *head);
    }
}

/// What the ICRC of a packet differs by from the right one.
fn wrong_by(frame: &[u8], layout: &Layout) -> u32 {
    match icrc::verify_shared(frame, layout) {
        Ok(()) => 0,
        Err(Error::Icrc { found, expected }) => found ^ expected,
        Err(e) => panic!("the packet is not whole: {e}"),
    }
}

/// The sums of all that the checksums of IPv4 and UDP cover, modulo 0xffff; of UDP `None` where it has none.
fn residues(frame: &[u8], layout: &Layout) -> (u64, Option<u64>) {
    let sum = |bytes: &[u8]| -> u64 {
        bytes.chunks(2).map(|c| u64::from(c[0]) << 8 | c.get(1).map_or(0, |&b| u64::from(b))).sum()
    };
    let ip = &frame[layout.network..layout.udp];
    let (header, addresses) = match layout.carrier {
        Carrier::Ipv4 => (sum(ip), &ip[ipv4::field::SRC..ipv4::LEN]),
        _ => (0, &ip[ipv6::field::SRC..ipv6::LEN]),
    };
    let datagram = &frame[layout.udp..layout.end];
    let has_one = be16(datagram, udp::field::CHECKSUM) != 0;
    (header % 0xffff, has_one.then(|| (sum(addresses) + sum(datagram)) % 0xffff))
}

/// Each field is what was asked for, or what it was.
fn fields(rewrite: &Rewrite, passing: &Passing, before: &[u8], after: &[u8]) {
    let (Ok(old), Ok(new)) = (RocePacket::parse(before), RocePacket::parse(after)) else { panic!("parsed before") };
    assert_eq!(after[..6], rewrite.dst_mac.map_or(array(before, 0), |m| m.0));
    assert_eq!(after[6..12], rewrite.src_mac.map_or(array(before, 6), |m| m.0));
    let (Some((src, dst)), Some(found)) = (passing.layout.addresses(before), passing.layout.addresses(after)) else {
        panic!("no addresses")
    };
    assert_eq!(found, (rewrite.src_ip.unwrap_or(src), rewrite.dst_ip.unwrap_or(dst)));
    assert_eq!(after[passing.hops_at()] + u8::from(rewrite.take_hop), before[passing.hops_at()]);
    let (dest_qp, psn) = (rewrite.dest_qp.unwrap_or(old.bth.dest_qp), rewrite.psn.unwrap_or(old.bth.psn));
    assert_eq!(new.bth, bth::Repr { dest_qp, psn, ..old.bth });
    let mut ext = old.ext;
    if let (Some(reth), Some(to)) = (&mut ext.reth, rewrite.reth) {
        (reth.va, reth.rkey) = (reth.va.wrapping_add(to.offset), to.rkey);
    }
    ext.ieth = ext.ieth.map(|rkey| rewrite.ieth.unwrap_or(rkey));
    ext.aeth = ext.aeth.map(|aeth| rewrite.aeth.unwrap_or(aeth));
    assert_eq!(new.ext, ext);
    assert_eq!((passing.reth(after), passing.ieth(after), passing.aeth(after)), (ext.reth, ext.ieth, ext.aeth));
    assert_eq!(passing.bth(after).map(|b| (b.dest_qp(), b.psn())), Some((dest_qp, psn)));
}
