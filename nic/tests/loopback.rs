//! Queue pairs of one NIC connected to each other: by its second port, never on the wire, with every fault in between.

use crate::common::*;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{Datagram, SendOp, Status};
use softnic_nic::{AddressAttr, Nic, QpKind, WindowType};
use softnic_wire::{Node, Qpn};

const OK: Status = Status::Success;

/// Two connected queue pairs of A, and the world around them.
fn looped(options: Options) -> (World, [Qpn; 2]) {
    let mut w = World::new(options);
    let pair = w.another_pair(options.kind, [A, A]);
    (w, pair)
}

/// Carries A's frames to itself until there is none; the wire stays empty.
fn spin(w: &mut World) {
    while w.hosts[A].nic.loop_back(w.now) {
        assert!(w.transmit_one(A, Nic::WIRE).is_none(), "nothing of it reaches the wire");
    }
    assert!(w.transmit_one(A, Nic::WIRE).is_none());
}

/// All frames of A for itself, as they leave.
fn looping(w: &mut World) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| w.transmit_one(A, Nic::LOOPBACK)).collect()
}

fn hand_back(w: &mut World, frames: &[Vec<u8>]) {
    for frame in frames {
        w.hosts[A].nic.handle_frame(w.now, Nic::LOOPBACK, &mut frame.clone());
    }
}

#[test]
fn every_operation_works_between_two_queue_pairs_of_one_nic() {
    for ipv6 in [false, true] {
        let (mut w, [x, y]) = looped(Options { ipv6, ..Options::default() });
        w.fill(A, 0, &pattern(1, 1000));
        w.fill(A, 50_000, &7u64.to_ne_bytes());
        w.recv_on(A, y, 50, 10_000, 1000);
        w.recv_on(A, y, 51, 0, 0);
        let add = w.add_to(A, 50_000, 5);
        let SendOp::FetchAdd { remote_addr, rkey, .. } = add else { unreachable!() };
        let (write, with_imm, read) = (w.write_to(A, 20_000), w.write_imm_to(A, 30_000, 9), w.read_from(A, 0));
        for (id, op, offset, len) in [
            (1, SendOp::SendImm { imm: 3 }, 0, 1000),
            (2, write, 0, 1000),
            (3, with_imm, 0, 300),
            (4, read, 40_000, 1000),
            (5, add, 60_000, 8),
            (6, SendOp::CompareSwap { remote_addr, rkey, compare: 12, swap: 99 }, 60_008, 8),
        ] {
            w.send_on(A, x, id, op, offset, len);
        }
        spin(&mut w);
        let done: Vec<_> = (1..=6).map(|id| (x, id, OK)).collect();
        assert_eq!(w.all_sent(A), done);
        assert_eq!(w.all_received(A), [(y, 50, OK), (y, 51, OK)]);
        for (at, len) in [(10_000, 1000), (20_000, 1000), (30_000, 300), (40_000, 1000)] {
            assert_eq!(w.read(A, at, len), pattern(1, 1000)[..len], "at {at}");
        }
        assert_eq!(w.read(A, 50_000, 8), 99u64.to_ne_bytes());
        assert_eq!(
            [w.read(A, 60_000, 8), w.read(A, 60_008, 8)].concat(),
            [7u64.to_ne_bytes(), 12u64.to_ne_bytes()].concat()
        );
        assert!(w.hosts[B].nic.counters().rcvd_pkts == 0);
    }
}

#[test]
fn a_queue_pair_may_be_connected_to_itself() {
    let mut w = World::new(Options::default());
    let qpn = w.another_qp(A, QpKind::Rc);
    w.connect((A, qpn), QpKind::Rc, (A, qpn));
    w.recv_on(A, qpn, 50, 1000, 600);
    w.fill(A, 0, &pattern(2, 600));
    w.send_on(A, qpn, 1, SendOp::Send, 0, 600);
    spin(&mut w);
    assert_eq!((w.all_sent(A), w.all_received(A)), (vec![(qpn, 1, OK)], vec![(qpn, 50, OK)]));
    assert_eq!(w.read(A, 1000, 600), pattern(2, 600));
}

#[test]
fn the_frames_are_whole_with_our_own_address_on_both_ends() {
    let (mut w, [x, y]) = looped(Options::default());
    let op = w.write_to(A, 5000);
    w.send_on(A, x, 1, op, 0, 600);
    let frames = looping(&mut w);
    assert_eq!(w.show(&frames), ["RDMA_WRITE_FIRST +0", "RDMA_WRITE_MIDDLE +1", "RDMA_WRITE_LAST +2 A"]);
    let (ip, mac) = address(A);
    for f in &frames {
        let p = w.parse(f);
        assert_eq!((p.bth.dest_qp, p.layout.addresses(f)), (y, Some((ip, ip))));
        assert_eq!((&f[..6], &f[6..12]), (&mac.0[..], &mac.0[..]));
    }
    hand_back(&mut w, &frames);
    spin(&mut w);
    assert_eq!(w.all_sent(A), [(x, 1, OK)]);
}

#[test]
fn faults_between_the_two_ports_are_recovered() {
    for lost in 0..4 {
        for psn in FIRST_PSNS {
            let (mut w, [x, y]) = looped(Options { psn, ..Options::default() });
            w.fill(A, 0, &pattern(4, 700));
            w.recv_on(A, y, 50, 5000, 700);
            w.send_on(A, x, 1, SendOp::Send, 0, 700);
            let mut frames = looping(&mut w);
            if lost < 3 {
                frames.remove(lost);
            }
            hand_back(&mut w, &frames);
            if lost == 3 {
                let answers = looping(&mut w);
                assert_eq!(answers.len(), 1);
            }
            spin(&mut w);
            while w.wait_for_timer(A).is_some() {
                spin(&mut w);
            }
            assert_eq!((w.all_sent(A), w.all_received(A)), (vec![(x, 1, OK)], vec![(y, 50, OK)]), "{lost} lost");
            assert_eq!(w.read(A, 5000, 700), pattern(4, 700));
        }
    }
}

#[test]
fn a_flipped_bit_on_the_way_to_oneself_is_found() {
    let (mut w, [x, _]) = looped(Options::default());
    let op = w.write_to(A, 5000);
    w.send_on(A, x, 1, op, 0, 100);
    let mut frames = looping(&mut w);
    let at = frames[0].len() - 10;
    frames[0][at] ^= 4;
    hand_back(&mut w, &frames);
    assert_eq!((w.counters(A).rx_icrc_encapsulated, w.read(A, 5000, 100)), (1, vec![UNTOUCHED; 100]));
}

#[test]
fn unreliable_connections_and_datagrams_to_oneself() {
    let (mut w, [x, y]) = looped(Options { kind: QpKind::Uc, ..Options::default() });
    w.recv_on(A, y, 50, 5000, 700);
    w.fill(A, 0, &pattern(5, 700));
    w.send_on(A, x, 1, SendOp::Send, 0, 700);
    spin(&mut w);
    assert_eq!((w.all_sent(A), w.all_received(A)), (vec![(x, 1, OK)], vec![(y, 50, OK)]));
    assert_eq!(w.read(A, 5000, 700), pattern(5, 700));

    for ipv6 in [false, true] {
        let mut w = World::new(Options { kind: QpKind::Ud, ipv6, ..Options::default() });
        let to = w.datagram(A, A);
        w.recv(A, 50, 5000, 140);
        w.fill(A, 0, &pattern(6, 100));
        w.send_to(A, 1, SendOp::Send, to, 0, 100);
        spin(&mut w);
        assert_eq!((w.sent_status(A), w.received_status(A)), (vec![(1, OK)], vec![(50, OK)]));
        assert_eq!(w.read(A, 5040, 100), pattern(6, 100));
    }
}

#[test]
fn while_the_wire_is_down_a_nic_still_reaches_itself() {
    let (mut w, [x, y]) = looped(Options::default());
    w.hosts[A].nic.set_link(false);
    w.recv_on(A, y, 50, 5000, 700);
    w.send_on(A, x, 1, SendOp::Send, 0, 700);
    spin(&mut w);
    assert_eq!((w.all_sent(A), w.all_received(A)), (vec![(x, 1, OK)], vec![(y, 50, OK)]));
}

#[test]
fn connections_to_oneself_and_to_the_peer_do_not_mix() {
    let (mut w, [x, y]) = looped(Options::default());
    let own = w.hosts[A].qpn;
    w.recv_on(A, y, 50, 5000, 700);
    w.recv(B, 60, 5000, 700);
    w.fill(A, 0, &pattern(1, 700));
    w.fill(A, 1000, &pattern(2, 700));
    w.send_on(A, x, 1, SendOp::Send, 0, 700);
    w.send(A, 2, SendOp::Send, 1000, 700);
    let wire = w.transmit(A);
    assert!(wire.iter().all(|f| w.parse(f).bth.dest_qp == w.hosts[B].qpn) && wire.len() == 3);
    let inner = looping(&mut w);
    assert!(inner.iter().all(|f| w.parse(f).bth.dest_qp == y) && inner.len() == 3);
    hand_back(&mut w, &inner);
    spin(&mut w);
    w.deliver_all(B, &wire);
    w.run();
    assert_eq!(w.all_sent(A), [(x, 1, OK), (own, 2, OK)]);
    assert_eq!((w.read(A, 5000, 700), w.read(B, 5000, 700)), (pattern(1, 700), pattern(2, 700)));
}

#[test]
fn datagrams_that_alternate_between_here_and_there_keep_their_order() {
    let mut w = World::new(Options { kind: QpKind::Ud, ..Options::default() });
    let (here, there) = (w.datagram(A, A), w.datagram(A, B));
    let mut expected = [Vec::new(), Vec::new()];
    for n in 0..40u32 {
        let local = n.wrapping_mul(0x9e37_79b9) >> 31 == 1;
        expected[usize::from(!local)].push(n);
        w.send_to(A, u64::from(n), SendOp::SendImm { imm: n }, if local { here } else { there }, 0, 10);
        w.recv(A, 100, 0, 100);
        w.recv(B, 100, 0, 100);
    }
    assert!(expected.iter().all(|e| e.len() > 10));
    // A driver asks one port, then the other, until both are quiet.
    let mut got = [Vec::new(), Vec::new()];
    loop {
        let looped = w.hosts[A].nic.loop_back(w.now);
        let frames = w.transmit(A);
        if !looped && frames.is_empty() {
            break;
        }
        w.deliver_all(B, &frames);
    }
    for h in [A, B] {
        got[h] = w.received(h).iter().map(|c| c.imm.unwrap()).collect();
    }
    assert_eq!(got, expected);
    let all: Vec<_> = (0..40).map(|n| (n, OK)).collect();
    assert_eq!(w.sent_status(A), all);
}

#[test]
fn a_datagram_queue_pair_whose_handle_to_itself_is_gone_fails_on_the_wire_port() {
    let mut w = World::new(Options { kind: QpKind::Ud, ..Options::default() });
    let to = w.datagram(A, A);
    w.send_to(A, 1, SendOp::Send, to, 0, 10);
    w.hosts[A].nic.destroy_ah(to.ah).unwrap();
    assert!(!w.hosts[A].nic.loop_back(w.now));
    assert!(w.transmit_one(A, Nic::WIRE).is_none());
    assert_eq!((w.sent_status(A), w.state(A)), (vec![(1, Status::LocQpOpErr)], QpState::SendQueueError));
}

#[test]
fn a_queue_pair_that_moves_to_another_port_is_asked_there_also_while_the_wire_is_down() {
    let mut w = World::new(Options::default());
    let [x, y] = w.another_pair(QpKind::Rc, [A, B]);
    let op = w.write_to(B, 0);
    w.hosts[A].nic.set_link(false);
    w.send_on(A, x, 1, op, 0, 10);
    assert!(w.transmit_one(A, Nic::WIRE).is_none());
    // It waits for the wire when it is reset and connected to the NIC itself.
    let z = w.another_qp(A, QpKind::Rc);
    w.hosts[A].nic.modify_qp(x, &to_state(QpState::Reset)).unwrap();
    w.connect((A, x), QpKind::Rc, (A, z));
    w.connect((A, z), QpKind::Rc, (A, x));
    let op = w.write_to(A, 5000);
    w.send_on(A, x, 2, op, 0, 10);
    spin(&mut w);
    assert_eq!(w.all_sent(A), [(x, 2, OK)]);
    // And back.
    w.hosts[A].nic.modify_qp(x, &to_state(QpState::Reset)).unwrap();
    w.hosts[A].nic.set_link(true);
    w.connect((A, x), QpKind::Rc, (B, y));
    let op = w.write_to(B, 0);
    w.send_on(A, x, 3, op, 0, 10);
    w.run();
    assert_eq!(w.all_sent(A), [(x, 3, OK)]);
}

#[test]
fn a_destroyed_queue_pair_leaves_no_frame_behind_on_either_port() {
    let (mut w, [x, y]) = looped(Options::default());
    let op = w.write_to(A, 5000);
    w.send_on(A, x, 1, op, 0, 600);
    w.hosts[A].nic.destroy_qp(x).unwrap();
    spin(&mut w);
    let next = w.another_qp(A, QpKind::Rc);
    w.connect((A, next), QpKind::Rc, (B, w.hosts[B].qpn));
    assert!(w.transmit_one(A, Nic::LOOPBACK).is_none() && w.transmit_one(A, Nic::WIRE).is_none());
    w.hosts[A].nic.destroy_qp(y).unwrap();
    assert!(w.hosts[A].nic.poll_timeout().is_none());
}

#[test]
fn one_call_carries_no_more_than_its_share() {
    let (mut w, [x, _]) = looped(Options::default());
    let op = w.write_to(A, 0);
    w.send_on(A, x, 1, op, 0, 256 * 600);
    let mut calls = 0;
    while w.hosts[A].nic.loop_back(w.now) {
        calls += 1;
    }
    assert!(calls >= 3, "{calls} calls for 600 packets");
    assert_eq!(w.all_sent(A), [(x, 1, OK)]);
}

#[test]
fn there_is_no_third_port() {
    let mut w = World::new(Options::default());
    let op = w.write_to(B, 0);
    w.send(A, 1, op, 0, 10);
    assert!(w.transmit_one(A, 2).is_none());
    assert!(w.transmit_one(A, Nic::WIRE).is_some());
}

#[test]
fn a_window_of_one_queue_pair_is_invalidated_by_its_peer_on_the_same_nic() {
    let (mut w, [x, y]) = looped(Options::default());
    let pd = w.hosts[A].pd;
    let window = w.hosts[A].nic.alloc_mw(pd, WindowType::Type2B).unwrap();
    let rkey = softnic_nic::next_key(window);
    let bind = softnic_nic::transports::memory::Bind {
        window,
        rkey,
        lkey: w.hosts[A].key,
        addr: w.hosts[A].buffer.addr(),
        len: 100,
        access: Access::REMOTE_WRITE,
        zero_based: true,
    };
    w.send_on(A, y, 1, SendOp::BindWindow(bind), 0, 0);
    spin(&mut w);
    w.send_on(A, x, 2, SendOp::Write { remote_addr: 0, rkey }, 500, 100);
    w.recv_on(A, y, 50, 5000, 10);
    w.send_on(A, x, 3, SendOp::SendInv { rkey }, 0, 10);
    w.send_on(A, x, 4, SendOp::Write { remote_addr: 0, rkey }, 500, 100);
    spin(&mut w);
    assert_eq!(w.all_sent(A), [(y, 1, OK), (x, 2, OK), (x, 3, OK), (x, 4, Status::RemAccessErr)]);
}

#[test]
fn an_address_of_ours_is_reached_by_its_own_mac_whatever_the_program_says() {
    let mut w = World::new(Options { kind: QpKind::Ud, ..Options::default() });
    let pd = w.hosts[A].pd;
    let wrong = softnic_wire::MacAddr([9; 6]);
    let ah = w.hosts[A].nic.create_ah(pd, &AddressAttr::new(address(A).0, wrong, 0, 1)).unwrap();
    let to = Datagram { ah, dest_qp: w.hosts[A].qpn, qkey: QKEY };
    w.send_to(A, 1, SendOp::Send, to, 0, 10);
    let frames = looping(&mut w);
    assert_eq!(frames[0][..6], address(A).1.0);
}
