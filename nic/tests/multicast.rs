//! Multicast groups: every member hears a datagram once, wherever it is, the sender too; nobody else does.

use std::net::IpAddr;

use crate::common::*;
use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{Datagram, SendOp, Status};
use softnic_nic::{AddressAttr, Nic, ObjectError, QpKind};
use softnic_wire::ext::Deth;
use softnic_wire::grh::{self, Grh};
use softnic_wire::{ExtHeaders, MacAddr, Node, Qpn, Template, bth};

const OK: Status = Status::Success;
/// IPv4 and IPv6.
const GROUPS: [&str; 2] = ["239.1.2.3", "ff0e::1:203:405"];

fn ud() -> Options {
    Options { kind: QpKind::Ud, ..Options::default() }
}

fn group(n: usize) -> IpAddr {
    GROUPS[n].parse().unwrap()
}

/// The way of `h` to a group; the MAC address follows from the group, whatever the program says.
fn to_group(w: &mut World, h: usize, n: usize) -> Datagram {
    let attr = AddressAttr::new(group(n), MacAddr([9; 6]), n, 7);
    let pd = w.hosts[h].pd;
    let ah = w.hosts[h].nic.create_ah(pd, &attr).unwrap();
    Datagram { ah, dest_qp: Qpn::MULTICAST, qkey: QKEY }
}

fn join(w: &mut World, h: usize, qpn: Qpn, n: usize) {
    w.hosts[h].nic.attach_multicast(qpn, group(n)).unwrap();
}

/// Who received, with which receive.
fn heard(w: &mut World, h: usize) -> Vec<(Qpn, u64)> {
    let got = w.all_received(h);
    assert!(got.iter().all(|&(.., status)| status == OK));
    got.iter().map(|&(qpn, id, _)| (qpn, id)).collect()
}

#[test]
fn all_members_hear_it_once_wherever_they_are_and_the_sender_is_one_of_them() {
    for n in 0..2 {
        let mut w = World::new(Options { ipv6: n == 1, ..ud() });
        let (mate, stranger, far, far_stranger) = (w.another_ud(A), w.another_ud(A), w.another_ud(B), w.hosts[B].qpn);
        let sender = w.hosts[A].qpn;
        for (h, qpn) in [(A, sender), (A, mate), (B, far)] {
            join(&mut w, h, qpn, n);
        }
        for (h, qpn) in [(A, sender), (A, mate), (A, stranger), (B, far), (B, far_stranger)] {
            w.recv_on(h, qpn, 1, 0, 200);
            w.recv_on(h, qpn, 2, 1000, 200);
        }
        w.fill(A, 5000, &pattern(3, 60));
        let to = to_group(&mut w, A, n);
        w.send_to(A, 7, SendOp::SendImm { imm: 5 }, to, 5000, 60);
        let frames = w.transmit(A);
        assert_eq!(frames.len(), 1, "one copy on the wire");
        let p = w.parse(&frames[0]);
        assert_eq!(p.bth.dest_qp, Qpn::MULTICAST);
        let mac = [[0x01, 0x00, 0x5e, 1, 2, 3], [0x33, 0x33, 2, 3, 4, 5]][n];
        assert_eq!(frames[0][..6], mac, "the group's address");
        assert_eq!(frames[0][6..12], address(A).1.0);
        w.deliver_all(B, &frames);
        assert_eq!(heard(&mut w, A), [(sender, 1), (mate, 1)]);
        assert_eq!(heard(&mut w, B), [(far, 1)]);
        assert_eq!(w.all_sent(A), [(sender, 7, OK)]);
        for h in [A, B] {
            let header: [u8; grh::LEN] = w.read(h, 0, grh::LEN).try_into().unwrap();
            let header = Grh::parse(&header).unwrap();
            let src = if n == 1 { address_v6(A) } else { address(A).0 };
            assert_eq!((header.src(), header.dst()), (src, group(n)));
            assert_eq!(w.read(h, grh::LEN, 60), pattern(3, 60));
        }
        assert!(w.shown(B).is_empty() && !w.hosts[A].nic.loop_back(w.now));
    }
}

#[test]
fn a_sender_that_is_no_member_hears_nothing_of_its_own() {
    let mut w = World::new(ud());
    let (mate, far) = (w.another_ud(A), w.hosts[B].qpn);
    for (h, qpn) in [(A, mate), (B, far)] {
        join(&mut w, h, qpn, 0);
        w.recv_on(h, qpn, 1, 0, 200);
    }
    w.recv(A, 1, 0, 200);
    let to = to_group(&mut w, A, 0);
    w.send_to(A, 7, SendOp::Send, to, 0, 10);
    let frames = w.transmit(A);
    w.deliver_all(B, &frames);
    assert_eq!((heard(&mut w, A), heard(&mut w, B)), (vec![(mate, 1)], vec![(far, 1)]));
}

#[test]
fn joining_twice_is_joining_once_and_leaving_is_leaving() {
    let mut w = World::new(ud());
    let far = w.hosts[B].qpn;
    join(&mut w, B, far, 0);
    join(&mut w, B, far, 0);
    assert_eq!(w.hosts[B].nic.multicast_groups().collect::<Vec<_>>(), [group(0)]);
    w.recv(B, 1, 0, 200);
    w.recv(B, 2, 0, 200);
    let to = to_group(&mut w, A, 0);
    w.send_to(A, 7, SendOp::Send, to, 0, 10);
    let frames = w.transmit(A);
    w.deliver_all(B, &frames);
    assert_eq!(heard(&mut w, B), [(far, 1)]);
    w.hosts[B].nic.detach_multicast(far, group(0)).unwrap();
    assert_eq!(w.hosts[B].nic.detach_multicast(far, group(0)), Err(ObjectError::NotMember));
    assert_eq!(w.hosts[B].nic.multicast_groups().count(), 0);
    w.deliver_all(B, &frames);
    assert_eq!((heard(&mut w, B), w.counters(B).rx_no_group), (vec![], 1));
}

#[test]
fn leaving_a_group_of_which_others_are_members_leaves_them_in_it() {
    let mut w = World::new(ud());
    let (first, second) = (w.hosts[B].qpn, w.another_ud(B));
    join(&mut w, B, first, 0);
    assert_eq!(w.hosts[B].nic.detach_multicast(second, group(0)), Err(ObjectError::NotMember));
    join(&mut w, B, second, 0);
    w.hosts[B].nic.detach_multicast(first, group(0)).unwrap();
    w.recv(B, 1, 0, 200);
    w.recv_on(B, second, 2, 0, 200);
    let to = to_group(&mut w, A, 0);
    w.send_to(A, 7, SendOp::Send, to, 0, 10);
    let frames = w.transmit(A);
    w.deliver_all(B, &frames);
    assert_eq!(heard(&mut w, B), [(second, 2)]);
}

#[test]
fn a_destroyed_queue_pair_is_in_no_group_and_its_successor_neither() {
    let mut w = World::new(ud());
    let old = w.another_ud(B);
    join(&mut w, B, old, 0);
    join(&mut w, B, old, 1);
    w.hosts[B].nic.destroy_qp(old).unwrap();
    assert_eq!(w.hosts[B].nic.multicast_groups().count(), 0);
    let new = w.another_ud(B);
    w.recv_on(B, new, 1, 0, 200);
    let to = to_group(&mut w, A, 0);
    w.send_to(A, 7, SendOp::Send, to, 0, 10);
    let frames = w.transmit(A);
    w.deliver_all(B, &frames);
    assert_eq!((heard(&mut w, B), w.counters(B).rx_no_group), (vec![], 1));
}

#[test]
fn a_datagram_to_another_group_is_for_nobody() {
    let mut w = World::new(ud());
    let far = w.hosts[B].qpn;
    join(&mut w, B, far, 1);
    w.recv(B, 1, 0, 200);
    let to = to_group(&mut w, A, 0);
    w.send_to(A, 7, SendOp::Send, to, 0, 10);
    let frames = w.transmit(A);
    w.deliver_all(B, &frames);
    assert_eq!((heard(&mut w, B), w.counters(B).rx_no_group), (vec![], 1));
}

#[test]
fn only_the_number_of_all_is_right_for_a_group() {
    let mut w = World::new(ud());
    let far = w.hosts[B].qpn;
    join(&mut w, B, far, 0);
    w.recv(B, 1, 0, 200);
    let to = to_group(&mut w, A, 0);
    w.send_to(A, 7, SendOp::Send, Datagram { dest_qp: far, ..to }, 0, 10);
    // And that number is right for a group alone.
    let direct = Datagram { dest_qp: Qpn::MULTICAST, ..w.datagram(A, B) };
    w.send_to(A, 8, SendOp::Send, direct, 0, 10);
    let frames = w.transmit(A);
    w.deliver_all(B, &frames);
    assert_eq!((heard(&mut w, B), w.counters(B).rx_bad_qp), (vec![], 2));
}

#[test]
fn a_member_without_receive_or_with_another_key_misses_it_alone() {
    let mut w = World::new(ud());
    let [none, good, other] = [w.hosts[B].qpn, w.another_ud(B), w.another_ud(B)];
    for qpn in [none, good, other] {
        join(&mut w, B, qpn, 0);
    }
    let attr = softnic_nic::QpAttr { qkey: Some(3), ..to_state(QpState::ReadyToSend) };
    w.hosts[B].nic.modify_qp(other, &attr).unwrap();
    w.recv_on(B, good, 1, 0, 200);
    w.recv_on(B, other, 1, 0, 200);
    let to = to_group(&mut w, A, 0);
    w.send_to(A, 7, SendOp::Send, to, 0, 10);
    let frames = w.transmit(A);
    w.deliver_all(B, &frames);
    let c = w.counters(B);
    assert_eq!((heard(&mut w, B), c.out_of_buffer, c.rx_bad_qkey), (vec![(good, 1)], 1, 1));
}

#[test]
fn members_that_cannot_receive_are_passed_over() {
    let mut w = World::new(ud());
    let far = w.hosts[B].qpn;
    let (reset, failed) = (w.another_qp(B, QpKind::Ud), w.another_ud(B));
    for qpn in [reset, failed, far] {
        join(&mut w, B, qpn, 0);
    }
    w.hosts[B].nic.modify_qp(failed, &to_state(QpState::Error)).unwrap();
    w.recv(B, 1, 0, 200);
    let to = to_group(&mut w, A, 0);
    w.send_to(A, 7, SendOp::Send, to, 0, 10);
    let frames = w.transmit(A);
    w.deliver_all(B, &frames);
    assert_eq!(heard(&mut w, B), [(far, 1)]);
}

#[test]
fn only_datagram_queue_pairs_join_and_only_groups() {
    let mut w = World::new(ud());
    let far = w.hosts[B].qpn;
    for kind in [QpKind::Rc, QpKind::Uc, QpKind::Gsi] {
        let qpn = w.another_qp(B, kind);
        assert_eq!(w.hosts[B].nic.attach_multicast(qpn, group(0)), Err(ObjectError::WrongKind), "{kind:?}");
    }
    assert_eq!(w.hosts[B].nic.attach_multicast(far, address(A).0), Err(ObjectError::NotMulticast));
    assert_eq!(w.hosts[B].nic.attach_multicast(Qpn::new(5), group(0)), Err(ObjectError::NoSuchQp));
    assert_eq!(w.hosts[B].nic.multicast_groups().count(), 0);
}

#[test]
fn a_frame_for_a_group_is_checked_like_any_other() {
    let mut w = World::new(ud());
    let far = w.hosts[B].qpn;
    join(&mut w, B, far, 0);
    w.recv(B, 1, 0, 200);
    let path = AddressAttr::new(group(0), MacAddr([0; 6]), 0, 7).path(w.hosts[A].nic.port()).unwrap();
    let ext = ExtHeaders { deth: Some(Deth { qkey: QKEY, src_qp: Qpn::new(9) }), ..ExtHeaders::default() };
    let template = |pkey| Template::new(&path, Qpn::MULTICAST, pkey);
    let right = w.forge_with(&template(bth::DEFAULT_PKEY), 0x64, 0, false, ext, b"12345678");
    let mut flipped = right.clone();
    let at = flipped.len() - 6;
    flipped[at] ^= 1;
    let foreign = w.forge_with(&template(0x1234), 0x64, 0, false, ext, b"12345678");
    let reliable = w.forge_with(&template(bth::DEFAULT_PKEY), 0x04, 0, true, ExtHeaders::default(), b"12345678");
    w.deliver_all(B, &[flipped, foreign, reliable]);
    let c = w.counters(B);
    assert_eq!((c.rx_icrc_encapsulated, c.rx_bad_pkey, c.rx_malformed), (1, 1, 1));
    assert_eq!((heard(&mut w, B), w.shown(B).len()), (vec![], 0));
    w.deliver(B, &right);
    assert_eq!(heard(&mut w, B), [(far, 1)]);
}

#[test]
fn members_here_and_there_hear_the_same_when_frames_come_in_two_segments() {
    let mut w = World::new(ud());
    let [sender, far] = [A, B].map(|h| w.hosts[h].qpn);
    for (h, qpn) in [(A, sender), (B, far)] {
        join(&mut w, h, qpn, 0);
        w.recv_on(h, qpn, 1, 0, 5000);
    }
    w.fill(A, 10_000, &pattern(8, 4096));
    let to = to_group(&mut w, A, 0);
    w.send_to(A, 7, SendOp::Send, to, 10_000, 4096);
    let frames = w.transmit_split(A);
    w.deliver_all(B, &frames);
    for h in [A, B] {
        assert_eq!(w.read(h, grh::LEN, 4096), pattern(8, 4096));
    }
    assert_eq!((heard(&mut w, A).len(), heard(&mut w, B).len()), (1, 1));
}

#[test]
fn a_group_is_on_the_wire_and_not_on_the_loopback_port() {
    let mut w = World::new(ud());
    let sender = w.hosts[A].qpn;
    join(&mut w, A, sender, 0);
    w.recv(A, 1, 0, 100);
    let to = to_group(&mut w, A, 0);
    w.send_to(A, 7, SendOp::Send, to, 0, 10);
    assert!(w.transmit_one(A, Nic::LOOPBACK).is_none() && heard(&mut w, A).is_empty());
    w.hosts[A].nic.set_link(false);
    assert!(w.transmit_one(A, Nic::WIRE).is_none() && heard(&mut w, A).is_empty());
    w.hosts[A].nic.set_link(true);
    assert!(w.transmit_one(A, Nic::WIRE).is_some());
    assert_eq!(heard(&mut w, A), [(sender, 1)]);
    assert!(w.hosts[A].nic.poll_timeout().is_none());
}
