//! Fuzz bodies: each takes any bytes, feeds them to a parser, and panics when what comes out contradicts itself.
//!
//! Plain functions, so that the same bodies run under `cargo test` on seeds and under cargo-fuzz on what it finds.

use core::fmt::{self, Display, Write};

use crate::lowar::RepairHeader;
use crate::segment::{MAX_MESSAGE, MessageKind, Reassembly, Segmentation};
use crate::template::Addresses;
use crate::{
    Carrier, Error, ExtHeaders, Layout, Opcode, PacketFields, Path, PathMtu, Psn, RocePacket, Template, TxFrame, bth,
    ethernet, grh, icrc, ipv4, ipv6, opcode, udp,
};

/// Bytes of input that [`frame`] looks at: a jumbo frame and more.
const MAX_FRAME: usize = 10_000;

/// Counts what is printed: a place for `Display` without an allocator.
struct Count(usize);

impl Write for Count {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        self.0 += s.len();
        Ok(())
    }
}

/// Prints to nowhere: says how many bytes, fails on an error of `Display`.
fn printed(v: &dyn Display) -> usize {
    let mut n = Count(0);
    assert!(write!(n, "{v}").is_ok(), "Display failed");
    n.0
}

/// A frame as it comes off the wire.
pub fn frame(data: &[u8]) {
    views(data);
    let data = &data[..data.len().min(MAX_FRAME)];
    let mut room = [0; MAX_FRAME];
    let frame = &mut room[..data.len()];
    frame.copy_from_slice(data);
    let layout = match Layout::locate(frame) {
        Ok(layout) => layout,
        Err(e) => {
            assert!(printed(&e) > 0);
            assert_eq!(RocePacket::parse(frame), Err(e));
            return;
        }
    };
    assert!(layout.network < layout.bth && layout.udp <= layout.bth && layout.bth <= frame.len());
    assert!(layout.addresses(frame).is_some() && layout.traffic_class(frame).is_some());
    assert_eq!(layout.src_port(frame).is_none(), layout.carrier == Carrier::RoceV1);
    assert!(printed(&layout.carrier) > 0);
    let checked = layout.check(frame.len());
    let verdict = icrc::verify(frame, &layout);
    assert_eq!(frame, data, "verify restores the frame");
    assert_eq!(icrc::verify_shared(frame, &layout), verdict);
    if let Ok(b) = grh::Grh::of_frame(frame, &layout) {
        grh(&b);
    }
    let parsed = RocePacket::parse(frame);
    match (checked, &parsed) {
        (Err(e), _) => {
            assert_eq!(verdict, Err(e));
            assert_eq!(parsed, Err(e));
        }
        (Ok(()), Err(e)) => assert!(printed(e) > 0),
        (Ok(()), Ok(p)) => {
            assert!(printed(p) > 0);
            assert!(p.payload.start <= p.payload.end && p.payload.end <= layout.end - icrc::LEN);
            assert_eq!(layout.end - icrc::LEN - p.payload.end, usize::from(p.bth.pad));
            rewritten(frame, p);
            rebuilt(frame, p);
        }
    }
}

/// What is behind the BTH of a packet of LoWAR: what was understood is written again to the same bytes, but for flags without a meaning.
pub fn repair_header(data: &[u8]) {
    let Some(b) = data.first_chunk::<{ RepairHeader::LEN }>() else { return };
    let Some(header) = RepairHeader::parse(b) else {
        assert!(!(1..=3).contains(&b[0]), "a type that there is");
        return;
    };
    let mut again = [0xa5; RepairHeader::LEN];
    header.emit(&mut again);
    let mut known = *b;
    known[1] &= 0xe0;
    assert_eq!(again, known);
    assert_eq!(RepairHeader::parse(&again), Some(header));
    assert!(printed(&header) > 0);
}

/// Every view at the front of the bytes: after `new_checked` no accessor may panic.
fn views(data: &[u8]) {
    if let Ok(p) = ethernet::Packet::new_checked(data) {
        let _ = (p.dst(), p.src(), p.tag(0), p.tag(1), p.tag(2));
        assert!(ethernet::Repr::parse(&p).is_ok_and(|r| printed(&r) > 0));
    }
    if let Ok(p) = ipv4::Packet::new_checked(data) {
        let _ = (p.tos(), p.total_len(), p.id(), p.dont_fragment(), p.ttl(), p.src(), p.dst(), p.verify_checksum());
        assert!(ipv4::Repr::parse(&p).map_or_else(|e| printed(&e), |r| printed(&r)) > 0);
    }
    if let Ok(p) = ipv6::Packet::new_checked(data) {
        let _ = (p.traffic_class(), p.flow_label(), p.hop_limit(), p.src(), p.dst(), p.upper_layer());
        assert!(ipv6::Repr::parse(&p).is_ok_and(|r| printed(&r) > 0));
    }
    if let Ok(p) = udp::Packet::new_checked(data) {
        let _ = (p.src_port(), p.dst_port(), p.is_empty(), p.checksum());
        assert!(udp::Repr::parse(&p).map_or_else(|e| printed(&e), |r| printed(&r)) > 0);
    }
    if let Ok(p) = bth::Packet::new_checked(data) {
        assert!(bth::Repr::parse(&p).is_ok_and(|r| printed(&r) > 0));
    }
}

/// Each header of the frame written again reads the same.
fn rewritten(frame: &[u8], p: &RocePacket) {
    let mut b = [0; ethernet::LEN + ethernet::MAX_TAGS * ethernet::TAG_LEN];
    let eth = ethernet::Repr::parse(&ethernet::Packet::new_unchecked(frame));
    let written = eth.and_then(|r| r.emit(&mut ethernet::Packet::new_unchecked(&mut b)).map(|()| r.buffer_len()));
    assert_eq!(written, Ok(p.layout.network));
    assert_eq!(b[..p.layout.network], frame[..p.layout.network]);

    let mut b = [0xa5; bth::LEN];
    assert_eq!(p.bth.emit(&mut bth::Packet::new_unchecked(&mut b)), Ok(()));
    assert_eq!(bth::Repr::parse(&bth::Packet::new_unchecked(b)), Ok(p.bth));

    let mut b = [0xa5; 64];
    assert_eq!(p.ext.emit(&mut b), Ok(p.bth.opcode.headers_len()));
    assert_eq!(p.layout.bth + bth::LEN + p.bth.opcode.headers_len(), p.payload.start);
    assert_eq!(ExtHeaders::parse(p.bth.opcode, &b), Ok(p.ext));
}

/// A frame that a template builds from the fields of this one has the same fields and a right ICRC.
fn rebuilt(frame: &[u8], p: &RocePacket) {
    let Ok(eth) = ethernet::Repr::parse(&ethernet::Packet::new_unchecked(frame)) else { return };
    let Some((src, dst)) = p.layout.addresses(frame) else { return };
    let Some(addresses) = Addresses::new(src, dst) else { panic!("addresses of two versions in one header") };
    let path = Path {
        src_mac: eth.src,
        dst_mac: eth.dst,
        tags: eth.tags,
        addresses,
        traffic_class: p.layout.traffic_class(frame).unwrap_or_default(),
        flow_label: p.bth.psn.value(),
        hop_limit: p.bth.tver,
        src_port: p.layout.src_port(frame).unwrap_or_default(),
    };
    let fields = PacketFields {
        opcode: p.bth.opcode,
        psn: p.bth.psn,
        ack_req: p.bth.ack_req,
        solicited: p.bth.solicited,
        becn: p.bth.becn,
        payload_len: p.payload.len(),
    };
    // RoCEv1 has no UDP header and IPv4 a shorter network header than what is built may take.
    let mut room = [0xa5; MAX_FRAME + ipv6::LEN];
    let mut tx = TxFrame::new(&mut room);
    let template = Template::new(&path, p.bth.dest_qp, p.bth.pkey);
    assert_eq!(template.build(&mut tx, &fields, &p.ext, &frame[p.payload.clone()]), Ok(()));
    let len = tx.len();
    let again = &mut room[..len];
    let Ok(q) = RocePacket::parse(again) else { panic!("our own frame does not parse") };
    assert_eq!(icrc::verify(again, &q.layout), Ok(()));
    assert_eq!(q.layout.addresses(again), Some((src, dst)));
    assert_eq!(q.ext, p.ext);
    assert_eq!(again[q.payload.clone()], frame[p.payload.clone()]);
    let (pad, mig_req, tver, fecn) = (q.bth.pad, !p.bth.becn, 0, false);
    assert_eq!(q.bth, bth::Repr { pad, mig_req, tver, fecn, ..p.bth });
}

/// An opcode and the bytes behind the BTH.
pub fn ext_headers(data: &[u8]) {
    let Some((&op, bytes)) = data.split_first() else { return };
    let op = Opcode(op);
    assert!(printed(&op) > 0);
    let ext = match ExtHeaders::parse(op, bytes) {
        Ok(ext) => ext,
        Err(e) => {
            assert_eq!(e, Error::Truncated { what: "extension headers", need: op.headers_len(), have: bytes.len() });
            return;
        }
    };
    assert_eq!(ext.set(), op.headers());
    assert_eq!(printed(&ext) == 0, op.headers().is_empty());
    let mut b = [0xa5; 64];
    assert_eq!(ext.emit(&mut b), Ok(op.headers_len()));
    assert_eq!(ExtHeaders::parse(op, &b), Ok(ext));
}

/// The 40 bytes in front of a UD message.
pub fn grh(data: &[u8]) {
    let Some(b) = data.first_chunk::<{ grh::LEN }>() else { return };
    let parsed = match grh::Grh::parse(b) {
        Ok(g) => g,
        Err(e) => {
            assert!(printed(&e) > 0);
            return;
        }
    };
    assert!(printed(&parsed) > 0 && printed(&parsed.src()) > 0 && printed(&parsed.dst()) > 0);
    let mut again = [0xa5; grh::LEN];
    assert_eq!(parsed.emit(&mut again), Ok(()));
    assert_eq!(grh::Grh::parse(&again), Ok(parsed));
    if let grh::Grh::Ipv6(_) = parsed {
        assert_eq!(again, *b);
    }
}

/// A path MTU, a message to cut, then packets in any order to put together: eight bytes each.
pub fn segmentation(data: &[u8]) {
    let Some((head, packets)) = data.split_first_chunk::<8>() else { return };
    let mtu = PathMtu::ALL[usize::from(head[0]) % PathMtu::ALL.len()];
    cut(mtu, head);
    let mut r = Reassembly::new(mtu);
    for p in packets.chunks_exact(8) {
        let before = r;
        let opcode = Opcode(p[0]);
        let len = length(mtu, p[1], [p[2], p[3], 0, 0]);
        let reth = (p[1] & 0x80 != 0).then_some(u32::from_be_bytes([p[4] & 0x80, p[5], p[6], p[7]]));
        match r.accept(opcode, len, reth) {
            Ok(placed) => {
                assert_eq!(placed.offset, before.received().unwrap_or(0));
                assert!(u64::from(placed.offset) + u64::from(len) <= u64::from(MAX_MESSAGE) && len <= mtu.bytes());
                assert_eq!(placed.complete, opcode.ends_message());
                assert_eq!(before.received().is_none(), opcode.begins_message());
                assert_eq!(r.received(), (!placed.complete).then_some(placed.offset + len));
            }
            Err(e) => {
                assert!(printed(&e) > 0);
                assert_eq!(r, before, "a refused packet changes nothing");
            }
        }
    }
}

/// A length near what matters for an MTU, or any.
fn length(mtu: PathMtu, how: u8, any: [u8; 4]) -> u32 {
    match how & 7 {
        0 | 1 => mtu.bytes(),
        2 => mtu.bytes() - 1,
        3 => mtu.bytes() + 1,
        4 => 0,
        5 => 1,
        _ => u32::from_be_bytes(any),
    }
}

/// Cuts one message and follows its ends.
fn cut(mtu: PathMtu, head: &[u8; 8]) {
    use MessageKind::*;
    use opcode::Service::*;
    let service = [Rc, Uc, Rd, Ud, Cnp, Xrc, Xp, Sr][usize::from(head[1]) % 8];
    let kind = [Send, SendImm, SendInv, Write, WriteImm, ReadResponse][usize::from(head[2]) % 6];
    let len = length(mtu, head[3], [head[4], head[5], head[6], head[7]]);
    let psn = Psn::new(u32::from_be_bytes([0, head[5], head[6], head[7]]));
    let Some(s) = Segmentation::new(service, kind, len, mtu, psn) else { return };
    assert_eq!(s.get(s.packets()), None);
    let last = s.packets() - 1;
    for i in [0, 1, last / 2, last.saturating_sub(1), last] {
        let Some(p) = s.get(i) else { continue };
        assert_eq!((p.offset, p.psn), (i * mtu.bytes(), psn.add(i)));
        assert_eq!((p.first, p.last), (i == 0, i == last));
        assert_eq!((p.opcode.begins_message(), p.opcode.ends_message()), (p.first, p.last));
        assert!(p.opcode.is_known() && p.opcode.service() == service);
        assert!(p.len <= mtu.bytes() && (p.last || p.len == mtu.bytes()));
        assert_eq!(p.last, u64::from(p.offset) + u64::from(p.len) == u64::from(len));
        assert_eq!((p.len + u32::from(p.pad)) % 4, 0);
    }
}
