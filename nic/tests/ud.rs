//! Datagrams: behind 40 bytes that say where they came from, checked by Q_Key, dropped in silence where nobody waits; QP1.

use std::time::Duration;

use crate::common::*;
use softnic_nic::transports::qp::{Caps, QpState};
use softnic_nic::transports::{Data, Datagram, PostError, QKEY_GSI, SendFlags, SendOp, SendWr, Status, WcOpcode};
use softnic_nic::{AddressAttr, AddressError, Nic, ObjectError, QpAttr, QpInit, QpKind};
use softnic_wire::ext::Deth;
use softnic_wire::grh::{self, Grh};
use softnic_wire::{ExtHeaders, Node, PathMtu, Qpn};

const OK: Status = Status::Success;
const FLUSHED: Status = Status::WrFlushErr;

fn ud() -> Options {
    Options { kind: QpKind::Ud, ..Options::default() }
}

/// Sends all that waits, delivers it, and wants no answer.
fn carry(w: &mut World) {
    let frames = w.transmit(A);
    w.deliver_all(B, &frames);
    assert!(w.shown(B).is_empty(), "nobody answers a datagram");
}

/// The 40 bytes at `offset` of B's buffer.
fn grh_at(w: &World, offset: usize) -> Grh {
    Grh::parse(&w.read(B, offset, grh::LEN).try_into().unwrap()).unwrap()
}

#[test]
fn a_datagram_lies_behind_the_network_header_and_says_who_sent_it() {
    for ipv6 in [false, true] {
        for len in [0, 1, 3, 100, 255, 4096] {
            let mut w = World::new(Options { ipv6, ..ud() });
            let to = w.datagram(A, B);
            w.fill(A, 0, &pattern(5, len));
            w.recv(B, 9, 1000, len + grh::LEN);
            w.send_to(A, 1, SendOp::Send, to, 0, len);
            let frames = w.transmit(A);
            assert_eq!(w.show(&frames), ["UD_SEND_ONLY +0"]);
            let deth = w.parse(&frames[0]).ext.deth.unwrap();
            assert_eq!((deth.qkey, deth.src_qp), (QKEY, w.hosts[A].qpn));
            w.deliver_all(B, &frames);
            assert_eq!(w.sent_status(A), [(1, OK)], "done when it has left");
            let got = w.received(B);
            let c = got[0];
            assert_eq!((got.len(), c.wr_id, c.status, c.opcode), (1, 9, OK, WcOpcode::Recv));
            assert_eq!(c.byte_len as usize, len + grh::LEN, "the header counts");
            assert_eq!((c.src_qp, c.imm, c.solicited), (Some(w.hosts[A].qpn), None, false));
            let expected = if ipv6 { (address_v6(A), address_v6(B)) } else { (address(A).0, address(B).0) };
            let header = grh_at(&w, 1000);
            assert_eq!((header.src(), header.dst()), expected);
            assert_eq!(matches!(header, Grh::Ipv6(_)), ipv6);
            assert_eq!(w.read(B, 1000 + grh::LEN, len), pattern(5, len), "{len} bytes");
            assert_eq!(w.read(B, 1000 + grh::LEN + len, 8), [UNTOUCHED; 8]);
        }
    }
}

#[test]
fn immediate_and_solicited_come_with_it() {
    let mut w = World::new(ud());
    let to = Some(w.datagram(A, B));
    let flags = SendFlags { solicited: true, ..SendFlags::default() };
    w.recv(B, 9, 0, 100);
    w.post(A, &SendWr { to, flags, ..wr(1, SendOp::SendImm { imm: 0xdead_beef }, Data::Inline(b"hello")) }).unwrap();
    let frames = w.transmit(A);
    assert_eq!(w.show(&frames), ["UD_SEND_ONLY_WITH_IMMEDIATE +0 S"]);
    w.deliver_all(B, &frames);
    let c = w.received(B)[0];
    assert_eq!((c.imm, c.solicited, c.byte_len), (Some(0xdead_beef), true, 45));
    assert_eq!(w.read(B, 40, 5), b"hello");
    assert!(w.sent(A).is_empty(), "not signaled");
}

#[test]
fn the_header_and_the_message_are_scattered_as_one() {
    let mut w = World::new(ud());
    let to = w.datagram(A, B);
    w.fill(A, 0, &pattern(5, 60));
    let sges = [w.sge(B, 0, 30), w.sge(B, 1000, 30), w.sge(B, 2000, 100)];
    w.post_recv(B, &softnic_nic::transports::RecvWr { wr_id: 9, sges: &sges, best_effort: None }).unwrap();
    w.send_to(A, 1, SendOp::Send, to, 0, 60);
    carry(&mut w);
    assert_eq!(w.received(B)[0].byte_len, 100);
    assert_eq!(
        (w.read(B, 1010, 20), w.read(B, 2000, 40)),
        (pattern(5, 60)[..20].to_vec(), pattern(5, 60)[20..].to_vec())
    );
    assert_eq!((w.read(B, 30, 1), w.read(B, 1030, 1), w.read(B, 2040, 1)), (vec![0xa5], vec![0xa5], vec![0xa5]));
}

#[test]
fn a_wrong_q_key_is_counted_and_takes_no_receive() {
    let mut w = World::new(ud());
    let to = w.datagram(A, B);
    w.recv(B, 9, 0, 100);
    w.send_to(A, 1, SendOp::Send, Datagram { qkey: QKEY ^ 1, ..to }, 0, 10);
    carry(&mut w);
    assert_eq!((w.counters(B).rx_bad_qkey, w.received(B).len()), (1, 0));
    assert_eq!((w.sent_status(A), w.read(B, 0, 100)), (vec![(1, OK)], vec![UNTOUCHED; 100]));
    w.send_to(A, 2, SendOp::Send, to, 0, 10);
    carry(&mut w);
    assert_eq!(w.received_status(B), [(9, OK)]);
}

#[test]
fn a_q_key_with_the_highest_bit_stands_for_the_queue_pairs_own() {
    let mut w = World::new(ud());
    let to = w.datagram(A, B);
    w.send_to(A, 1, SendOp::Send, Datagram { qkey: QKEY_GSI, ..to }, 0, 10);
    let frames = w.transmit(A);
    assert_eq!(w.parse(&frames[0]).ext.deth.unwrap().qkey, QKEY, "nobody speaks to QP1 like that");
    // It is a privileged key of the queue pair itself, if it has one.
    w.modify(A, &QpAttr { qkey: Some(0x8000_0007), ..to_state(QpState::ReadyToSend) });
    for qkey in [0x8000_0000, 0xffff_ffff] {
        w.send_to(A, 2, SendOp::Send, Datagram { qkey, ..to }, 0, 10);
        let frames = w.transmit(A);
        assert_eq!(w.parse(&frames[0]).ext.deth.unwrap().qkey, 0x8000_0007);
    }
}

#[test]
fn the_q_key_of_a_queue_pair_can_change_while_it_works() {
    let mut w = World::new(ud());
    let to = w.datagram(A, B);
    w.recv(B, 9, 0, 100);
    w.modify(B, &QpAttr { qkey: Some(5), ..to_state(QpState::ReadyToSend) });
    w.send_to(A, 1, SendOp::Send, to, 0, 10);
    w.send_to(A, 2, SendOp::SendImm { imm: 2 }, Datagram { qkey: 5, ..to }, 0, 10);
    carry(&mut w);
    assert_eq!((w.counters(B).rx_bad_qkey, w.received(B)[0].imm), (1, Some(2)));
}

#[test]
fn without_a_receive_a_datagram_is_dropped_and_nobody_hears_of_it() {
    let mut w = World::new(ud());
    let to = w.datagram(A, B);
    w.send_to(A, 1, SendOp::SendImm { imm: 1 }, to, 0, 10);
    carry(&mut w);
    w.recv(B, 9, 0, 100);
    w.send_to(A, 2, SendOp::SendImm { imm: 2 }, to, 0, 10);
    carry(&mut w);
    let got = w.received(B);
    assert_eq!((got.len(), got[0].imm, w.counters(B).out_of_buffer), (1, Some(2), 1));
    assert_eq!((w.sent_status(A), w.state(B)), (vec![(1, OK), (2, OK)], QpState::ReadyToSend));
    assert!(w.events(A).is_empty() && w.events(B).is_empty());
}

#[test]
fn a_receive_without_room_for_header_and_message_ends_with_an_error_and_the_queue_pair_goes_on() {
    let mut w = World::new(ud());
    let to = w.datagram(A, B);
    w.recv(B, 8, 0, 49);
    w.recv(B, 9, 0, 49);
    w.send_to(A, 1, SendOp::Send, to, 0, 10);
    carry(&mut w);
    assert_eq!((w.counters(B).resp_local_length_error, w.counters(B).resp_cqe_error), (1, 1));
    assert_eq!(w.received_status(B), [(8, Status::LocLenErr)]);
    assert_eq!(w.read(B, 0, 100), [UNTOUCHED; 100]);
    w.send_to(A, 2, SendOp::Send, to, 0, 9);
    carry(&mut w);
    assert_eq!((w.received_status(B), w.state(B)), (vec![(9, OK)], QpState::ReadyToSend));
}

#[test]
fn a_receive_into_memory_that_is_not_there_stops_the_queue_pair() {
    let mut w = World::new(ud());
    let to = w.datagram(A, B);
    w.recv(B, 9, BUFFER - 50, 100);
    w.recv(B, 10, 0, 100);
    w.send_to(A, 1, SendOp::Send, to, 0, 20);
    carry(&mut w);
    assert_eq!(w.received_status(B), [(9, Status::LocProtErr), (10, FLUSHED)]);
    assert_eq!(w.state(B), QpState::Error);
}

#[test]
fn what_a_datagram_cannot_be_is_refused_when_it_is_posted() {
    let mut w = World::new(ud());
    let to = Some(w.datagram(A, B));
    let sges = [w.sge(A, 0, 8)];
    let data = Data::Gather(&sges);
    let rkey = 1;
    for op in [
        w.write_to(B, 0),
        w.write_imm_to(B, 0, 1),
        w.read_from(B, 0),
        w.add_to(B, 0, 1),
        SendOp::CompareSwap { remote_addr: 0, rkey, compare: 0, swap: 0 },
        SendOp::SendInv { rkey },
        SendOp::LocalInv { rkey },
    ] {
        assert_eq!(w.post(A, &SendWr { to, ..wr(1, op, data) }), Err(PostError::NoSuchOperation), "{op:?}");
    }
    assert_eq!(w.post(A, &wr(1, SendOp::Send, data)), Err(PostError::Address));
    let sges = [w.sge(A, 0, 4097)];
    let long = wr(1, SendOp::Send, Data::Gather(&sges));
    assert_eq!(w.post(A, &SendWr { to, ..long }), Err(PostError::MessageTooLong));
    assert!(w.shown(A).is_empty() && w.sent(A).is_empty());
}

#[test]
fn the_ports_mtu_bounds_what_is_sent_and_what_is_taken() {
    let mut w = World::new(ud());
    let (ip, mac) = address(B);
    let port = softnic_nic::Port { mac, addresses: vec![ip], mtu: PathMtu::B1024 };
    let config = softnic_nic::NicConfig { port, payload: softnic_nic::transports::qp::PayloadMode::Real };
    let mut small = Nic::new(config, Box::new(generator(3)));
    let (pd, cq) = (small.alloc_pd(), small.create_cq(10));
    let qpn = small.create_qp(&QpInit::new(QpKind::Ud, pd, cq, cq, ud().caps)).unwrap();
    for attr in [init_attr(&ud()), to_state(QpState::ReadyToReceive), rts_attr(&ud())] {
        small.modify_qp(qpn, &attr).unwrap();
    }
    let key = small.reg_mr(pd, &w.hosts[B].buffer, LOCAL).unwrap();
    let sges = [softnic_nic::transports::Sge { lkey: key, ..w.sge(B, 0, 5000) }];
    small.post_recv(qpn, &softnic_nic::transports::RecvWr { wr_id: 9, sges: &sges, best_effort: None }).unwrap();
    let to = Datagram { dest_qp: qpn, ..w.datagram(A, B) };
    for (len, taken) in [(1025, false), (1024, true)] {
        w.send_to(A, 1, SendOp::Send, to, 0, len);
        let mut frame = w.transmit_one(A, Nic::WIRE).unwrap();
        small.handle_frame(w.now, Nic::WIRE, &mut frame);
        assert_eq!(small.poll_cq(cq).unwrap().is_some(), taken, "{len}");
    }
}

#[test]
fn each_datagram_goes_its_own_way() {
    let mut w = World::new(ud());
    let (v4, mac) = address(B);
    let pd = w.hosts[A].pd;
    let mut attrs =
        [AddressAttr::new(v4, mac, 0, 1), AddressAttr::new(address_v6(B), mac, 1, 2), AddressAttr::new(v4, mac, 0, 3)];
    (attrs[0].traffic_class, attrs[0].hop_limit) = (0x60, 7);
    (attrs[1].flow_label, attrs[1].hop_limit) = (0x12345, 9);
    let ahs = attrs.map(|a| w.hosts[A].nic.create_ah(pd, &a).unwrap());
    let second = w.another_ud(B);
    let dests = [w.hosts[B].qpn, second, second];
    for n in 0..9 {
        let to = Datagram { ah: ahs[n % 3], dest_qp: dests[n % 3], qkey: QKEY };
        w.send_to(A, n as u64, SendOp::SendImm { imm: n as u32 }, to, 0, 10);
    }
    let frames = w.transmit(A);
    for (n, frame) in frames.iter().enumerate() {
        let p = w.parse(frame);
        assert_eq!((p.bth.dest_qp, p.ext.imm, p.bth.psn.value()), (dests[n % 3], Some(n as u32), 100 + n as u32));
        let (hops, src_port) = match n % 3 {
            1 => (frame[14 + 7], [frame[54], frame[55]]),
            _ => (frame[14 + 8], [frame[34], frame[35]]),
        };
        let (expected_hops, expected_port) = [(7, 0xc001), (9, 0xe341), (64, 0xc003)][n % 3];
        assert_eq!((hops, u16::from_be_bytes(src_port)), (expected_hops, expected_port), "datagram {n}");
    }
    for n in 0..3 {
        w.recv(B, n, 0, 100);
    }
    for n in 0..6 {
        w.recv_on(B, second, n, 0, 100);
    }
    w.deliver_all(B, &frames);
    assert_eq!(w.all_received(B).len(), 9);
}

#[test]
fn a_datagram_whose_address_handle_is_gone_fails_and_goes_nowhere_else() {
    let mut w = World::new(ud());
    let to = w.datagram(A, B);
    w.send_to(A, 1, SendOp::Send, to, 0, 10);
    w.send_to(A, 2, SendOp::Send, to, 0, 10);
    w.hosts[A].nic.destroy_ah(to.ah).unwrap();
    assert_eq!(w.hosts[A].nic.destroy_ah(to.ah), Err(AddressError::NoSuchAh));
    // Another one takes its place, but not its name.
    let other = w.datagram(A, A);
    assert_ne!(other.ah, to.ah);
    assert!(w.shown(A).is_empty() && !w.hosts[A].nic.loop_back(w.now));
    assert_eq!(w.sent_status(A), [(1, Status::LocQpOpErr), (2, FLUSHED)]);
    assert_eq!(w.state(A), QpState::SendQueueError);
    assert_eq!(w.hosts[A].nic.destroy_ah(other.ah), Ok(()));
}

#[test]
fn an_address_handle_of_another_domain_fails() {
    let mut w = World::new(ud());
    let other = w.hosts[A].nic.alloc_pd();
    let (ip, mac) = address(B);
    let ah = w.hosts[A].nic.create_ah(other, &AddressAttr::new(ip, mac, 0, 1)).unwrap();
    assert_eq!(w.hosts[A].nic.dealloc_pd(other), Err(ObjectError::Busy));
    let to = Datagram { ah, dest_qp: w.hosts[B].qpn, qkey: QKEY };
    w.send_to(A, 1, SendOp::Send, to, 0, 10);
    assert!(w.shown(A).is_empty());
    assert_eq!((w.sent_status(A), w.state(A)), (vec![(1, Status::LocQpOpErr)], QpState::SendQueueError));
    w.hosts[A].nic.destroy_ah(ah).unwrap();
    assert_eq!(w.hosts[A].nic.dealloc_pd(other), Ok(()));
    let gone = w.hosts[A].nic.create_ah(other, &AddressAttr::new(ip, mac, 0, 1));
    assert_eq!(gone, Err(AddressError::NoSuchPd));
}

#[test]
fn qp1_is_one_and_speaks_with_its_own_key_both_ways() {
    let mut w = World::new(Options { kind: QpKind::Gsi, ..Options::default() });
    assert_eq!((w.hosts[A].qpn, w.hosts[B].qpn), (Qpn::GSI, Qpn::GSI));
    let Host { pd, send_cq, recv_cq, .. } = w.hosts[A];
    let init = QpInit::new(QpKind::Gsi, pd, send_cq, recv_cq, ud().caps);
    assert_eq!(w.hosts[A].nic.create_qp(&init), Err(ObjectError::NoNumbers));
    for (h, peer) in [(A, B), (B, A)] {
        let to = Datagram { qkey: QKEY_GSI, ..w.datagram(h, peer) };
        w.fill(h, 0, &pattern(h as u32, 256));
        w.recv(peer, 9, 1000, 256 + grh::LEN);
        w.send_to(h, 1, SendOp::Send, to, 0, 256);
        let frames = w.transmit(h);
        let p = w.parse(&frames[0]);
        assert_eq!((p.bth.dest_qp, p.ext.deth), (Qpn::GSI, Some(Deth { qkey: QKEY_GSI, src_qp: Qpn::GSI })));
        w.deliver_all(peer, &frames);
        let c = w.received(peer)[0];
        assert_eq!((c.byte_len, c.src_qp, c.status), (296, Some(Qpn::GSI), OK));
        assert_eq!(w.read(peer, 1040, 256), pattern(h as u32, 256));
    }
    // Once it is gone there can be another.
    w.hosts[A].nic.destroy_qp(Qpn::GSI).unwrap();
    assert_eq!(w.hosts[A].nic.create_qp(&init), Ok(Qpn::GSI));
}

#[test]
fn one_source_that_floods_qp1_takes_no_receive_from_others() {
    const RECEIVES: u32 = 4096;
    let caps = Caps { max_recv_wr: RECEIVES, ..ud().caps };
    let mut w = World::new(Options { kind: QpKind::Gsi, caps, cq: 8192, ..Options::default() });
    (0..RECEIVES).for_each(|n| w.recv(B, n.into(), 0, 296));
    let deth = Some(Deth { qkey: QKEY_GSI, src_qp: Qpn::GSI });
    let flood = w.forge(B, 0x64, 0, false, ExtHeaders { deth, ..ExtHeaders::default() }, &[7; 256]);
    (0..10 * RECEIVES).for_each(|_| w.deliver(B, &flood));
    assert_eq!(w.received(B).len(), 2048, "half of the receives");
    assert_eq!(w.counters(B).rx_source_over_rate, u64::from(10 * RECEIVES - 2048));
    // Another one is heard.
    w.options.ipv6 = true;
    let other = w.forge(B, 0x64, 0, false, ExtHeaders { deth, ..ExtHeaders::default() }, &[7; 256]);
    w.deliver(B, &other);
    assert_eq!(w.received(B).len(), 1);
    // And the first one again, as its rate allows.
    w.now = w.now + Duration::from_millis(10);
    (0..RECEIVES).for_each(|_| w.deliver(B, &flood));
    assert_eq!(w.received(B).len(), 40, "4096 a second");
}

#[test]
fn an_ordinary_datagram_does_not_reach_qp1() {
    let mut w = World::new(ud());
    let gsi = w.another_qp(B, QpKind::Gsi);
    w.connect((B, gsi), QpKind::Gsi, (A, gsi));
    w.recv_on(B, gsi, 9, 0, 400);
    let to = Datagram { dest_qp: gsi, ..w.datagram(A, B) };
    for qkey in [0, QKEY, QKEY_GSI] {
        w.send_to(A, 1, SendOp::Send, Datagram { qkey, ..to }, 0, 256);
    }
    carry(&mut w);
    assert_eq!((w.counters(B).rx_bad_qkey, w.all_received(B)), (3, vec![]));
}

#[test]
fn packets_of_one_service_are_dropped_by_queue_pairs_of_another() {
    let deth = Some(Deth { qkey: QKEY, src_qp: Qpn::new(5) });
    for (kind, opcode) in [
        (QpKind::Rc, 0x64),
        (QpKind::Uc, 0x64),
        (QpKind::Ud, 0x04),
        (QpKind::Ud, 0x24),
        (QpKind::Rc, 0x24),
        (QpKind::Uc, 0x04),
        (QpKind::Gsi, 0x04),
    ] {
        let mut w = World::new(Options { kind, ..Options::default() });
        w.recv(B, 9, 0, 400);
        let ext = ExtHeaders { deth: deth.filter(|_| opcode == 0x64), ..ExtHeaders::default() };
        let frame = w.forge(B, opcode, 0, true, ext, b"wrong");
        w.deliver(B, &frame);
        assert_eq!(w.counters(B).rx_malformed, 1, "{kind:?} {opcode:#x}");
        assert!(w.received(B).is_empty() && w.shown(B).is_empty());
        assert_eq!(w.read(B, 0, 100), [UNTOUCHED; 100]);
    }
}

#[test]
fn other_datagram_opcodes_are_malformed() {
    let mut w = World::new(ud());
    w.recv(B, 9, 0, 400);
    let ext = ExtHeaders { deth: Some(Deth { qkey: QKEY, src_qp: Qpn::new(5) }), ..ExtHeaders::default() };
    for opcode in [0x60, 0x61, 0x62, 0x66, 0x6a, 0x6c, 0x71] {
        let frame = w.forge(B, opcode, 0, false, ExtHeaders::default(), b"12345678");
        w.deliver(B, &frame);
    }
    assert_eq!((w.counters(B).rx_malformed, w.received(B).len()), (7, 0));
    let frame = w.forge(B, 0x64, 0, false, ext, b"right");
    w.deliver(B, &frame);
    assert_eq!(w.received(B)[0].src_qp, Some(Qpn::new(5)));
}

#[test]
fn datagrams_do_not_mind_gaps_or_repetition_in_their_psns() {
    let mut w = World::new(Options { psn: 0xff_fffe, ..ud() });
    let to = w.datagram(A, B);
    for n in 0..4 {
        w.send_to(A, n, SendOp::SendImm { imm: n as u32 }, to, 0, 10);
        w.recv(B, n, 0, 100);
    }
    let f = w.transmit(A);
    w.deliver_all(B, &[f[3].clone(), f[0].clone(), f[2].clone(), f[2].clone()]);
    let imms: Vec<_> = w.received(B).iter().map(|c| c.imm.unwrap()).collect();
    assert_eq!(imms, [3, 0, 2, 2]);
}
