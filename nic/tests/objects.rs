//! The objects of a NIC: protection domains, memory regions, completion queues, queue pairs and their numbers.

use std::collections::HashSet;

use crate::common::*;
use softnic_nic::transports::memory::{Access, PdId};
use softnic_nic::transports::qp::{Caps, PayloadMode, QpState};
use softnic_nic::transports::{CqId, Data, RecvWr, SendOp, Sge, Status};
use softnic_nic::{AddressAttr, Buffer, CqError, MrError, ObjectError, QpInit, QpKind};
use softnic_wire::{MacAddr, Node, PathMtu, Qpn};

const REMOTE: Access = Access::REMOTE_WRITE;

fn qp_init(w: &World, h: usize) -> QpInit {
    let Host { pd, send_cq, recv_cq, .. } = w.hosts[h];
    QpInit::new(QpKind::Rc, pd, send_cq, recv_cq, w.options.caps)
}

#[test]
fn a_domain_is_busy_while_regions_or_queue_pairs_use_it() {
    let mut w = World::new(Options::default());
    let Host { nic, pd, qpn, key, .. } = &mut w.hosts[A];
    assert_eq!(nic.dealloc_pd(*pd), Err(ObjectError::Busy));
    nic.destroy_qp(*qpn).unwrap();
    assert_eq!(nic.dealloc_pd(*pd), Err(ObjectError::Busy));
    nic.dereg_mr(*key).unwrap();
    assert_eq!(nic.dealloc_pd(*pd), Ok(()));
    assert_eq!(nic.dealloc_pd(*pd), Err(ObjectError::NoSuchPd));
    assert_eq!(nic.reg_mr(*pd, &Buffer::new(0, 1), Access::NONE), Err(MrError::NoSuchPd));
    assert_eq!(nic.alloc_null_mr(PdId(99), Access::NONE), Err(MrError::NoSuchPd));
    assert_ne!(nic.alloc_pd(), *pd, "a number is not used again: whoever still holds it must not get in");
}

#[test]
fn queues_and_address_handles_that_come_and_go_use_their_places_again() {
    let mut w = World::new(Options::default());
    let attr = AddressAttr::new(address(B).0, MacAddr([2, 0, 0, 0, 0, 9]), 0, 1);
    let Host { nic, pd, .. } = &mut w.hosts[A];
    let (cq, srq) = (nic.create_cq(1), nic.create_srq(*pd, 1, 1).unwrap());
    nic.destroy_cq(cq).unwrap();
    nic.destroy_srq(srq).unwrap();
    let mut names = Vec::new();
    for _ in 0..100 {
        assert_eq!((nic.create_cq(1), nic.create_srq(*pd, 1, 1)), (cq, Ok(srq)));
        nic.destroy_cq(cq).unwrap();
        nic.destroy_srq(srq).unwrap();
        let ah = nic.create_ah(*pd, &attr).unwrap();
        assert!(!names.contains(&ah), "a datagram that waits for a destroyed handle goes nowhere else");
        names.push(ah);
        nic.destroy_ah(ah).unwrap();
        assert_eq!(nic.destroy_cq(cq), Err(CqError::NoSuchCq));
    }
}

#[test]
fn a_completion_queue_is_busy_while_queue_pairs_use_it() {
    let mut w = World::new(Options::default());
    let init = qp_init(&w, A);
    let Host { nic, send_cq, recv_cq, qpn, .. } = &mut w.hosts[A];
    for cq in [*send_cq, *recv_cq] {
        assert_eq!(nic.destroy_cq(cq), Err(CqError::Busy));
    }
    nic.destroy_qp(*qpn).unwrap();
    for cq in [*send_cq, *recv_cq] {
        assert_eq!(nic.destroy_cq(cq), Ok(()));
        assert_eq!(nic.destroy_cq(cq), Err(CqError::NoSuchCq));
        assert_eq!(nic.poll_cq(cq), Err(CqError::NoSuchCq));
    }
    assert_eq!(nic.create_qp(&init), Err(ObjectError::NoSuchCq));
    let init = QpInit { pd: PdId(77), send_cq: CqId(0), ..init };
    assert_eq!(nic.create_qp(&init), Err(ObjectError::NoSuchPd));
}

#[test]
fn one_completion_queue_serves_both_directions_of_a_queue_pair() {
    let mut w = World::new(Options::default());
    let cq = w.hosts[A].nic.create_cq(10);
    let init = QpInit { send_cq: cq, recv_cq: cq, ..qp_init(&w, A) };
    let nic = &mut w.hosts[A].nic;
    let qpn = nic.create_qp(&init).unwrap();
    assert_eq!(nic.destroy_cq(cq), Err(CqError::Busy));
    nic.destroy_qp(qpn).unwrap();
    assert_eq!(nic.destroy_cq(cq), Ok(()));
}

#[test]
fn remote_writing_needs_local_writing() {
    let mut w = World::new(Options::default());
    let Host { nic, pd, .. } = &mut w.hosts[A];
    let buffer = Buffer::new(0x5000, 16);
    for access in [REMOTE, Access::REMOTE_ATOMIC, REMOTE | Access::REMOTE_READ] {
        assert_eq!(nic.reg_mr(*pd, &buffer, access), Err(MrError::NeedsLocalWrite));
        assert_eq!(nic.alloc_null_mr(*pd, access), Err(MrError::NeedsLocalWrite));
    }
    assert!(nic.reg_mr(*pd, &buffer, Access::REMOTE_READ).is_ok());
}

#[test]
fn the_number_of_a_queue_pair_that_went_rests_as_long_as_there_are_others() {
    let (_, mac) = address(A);
    let port = softnic_nic::Port { mac, addresses: vec![address(A).0], mtu: PathMtu::B4096 };
    let config = softnic_nic::NicConfig { port, payload: PayloadMode::Real };
    let mut nic = softnic_nic::Nic::new(config, Box::new(generator(1)));
    // One process of many at a port: few numbers.
    nic.set_owner(softnic_nic::Owner { index: 5, bits: 10 });
    let (pd, cq) = (nic.alloc_pd(), nic.create_cq(1));
    let caps = Caps { max_send_wr: 1, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
    let init = QpInit::new(QpKind::Rc, pd, cq, cq, caps);
    let mut given = HashSet::new();
    for _ in 0..1000 {
        let qpn = nic.create_qp(&init).unwrap();
        assert!(given.insert(qpn), "{qpn} again");
        nic.destroy_qp(qpn).unwrap();
    }
    // All can be had where they are needed.
    let all = std::iter::from_fn(|| nic.create_qp(&init).ok()).count();
    assert_eq!(all, (1 << 14) - 3);
}

#[test]
fn keys_and_numbers_come_from_the_generator_and_are_never_reserved() {
    let make = |seed| {
        let (_, mac) = address(A);
        let port = softnic_nic::Port { mac, addresses: vec![address(A).0], mtu: PathMtu::B4096 };
        let config = softnic_nic::NicConfig { port, payload: PayloadMode::Real };
        let mut nic = softnic_nic::Nic::new(config, Box::new(generator(seed)));
        let (pd, cq) = (nic.alloc_pd(), nic.create_cq(1));
        let caps = Caps { max_send_wr: 1, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
        let init = QpInit::new(QpKind::Rc, pd, cq, cq, caps);
        let buffer = Buffer::new(0, 1);
        let keys: Vec<u32> = (0..1000).map(|_| nic.reg_mr(pd, &buffer, Access::NONE).unwrap()).collect();
        let qpns: Vec<u32> = (0..1000).map(|_| nic.create_qp(&init).unwrap().value()).collect();
        (keys, qpns)
    };
    let (keys, qpns) = make(1);
    assert_eq!((&keys, &qpns), (&make(1).0, &make(1).1), "the same generator gives the same numbers");
    assert_ne!(keys, make(2).0);
    assert!(!keys.contains(&0));
    assert!(qpns.iter().all(|q| (2..Qpn::MULTICAST.value()).contains(q)), "0, 1 and the last are taken");
    assert_eq!(keys.iter().collect::<HashSet<_>>().len(), 1000);
    assert_eq!(qpns.iter().collect::<HashSet<_>>().len(), 1000);
    // Nobody who knows one number knows its neighbour.
    assert!(qpns.windows(2).all(|q| q[0].abs_diff(q[1]) > 1));
}

#[test]
fn a_zero_based_region_is_addressed_from_zero_on_both_sides() {
    let mut w = World::new(Options::default());
    let (from, to) = (Buffer::new(0x7000, 300), Buffer::new(0x8000, 300));
    from.write_at(0, &pattern(1, 300));
    let (pd_a, pd_b) = (w.hosts[A].pd, w.hosts[B].pd);
    let lkey = w.hosts[A].nic.reg_mr_zero_based(pd_a, &from, Access::NONE).unwrap();
    let rkey = w.hosts[B].nic.reg_mr_zero_based(pd_b, &to, LOCAL | REMOTE).unwrap();
    let sges = [Sge { addr: 10, len: 290, lkey }];
    w.post(A, &wr(1, SendOp::Write { remote_addr: 5, rkey }, Data::Gather(&sges))).unwrap();
    w.run();
    assert_eq!(w.sent_status(A), [(1, Status::Success)]);
    let mut out = [0; 300];
    to.read_at(0, &mut out);
    assert_eq!(out[5..295], pattern(1, 300)[10..]);
    assert_eq!((&out[..5], &out[295..]), (&[0; 5][..], &[0; 5][..]));
    // The buffer's own address means nothing to it.
    w.post(A, &wr(2, SendOp::Write { remote_addr: 0x8000, rkey }, Data::Gather(&sges))).unwrap();
    w.run();
    assert_eq!(w.sent_status(A), [(2, Status::RemAccessErr)]);
}

#[test]
fn a_null_region_reads_as_zeros_and_forgets() {
    let mut w = World::new(Options::default());
    let (pd_a, pd_b) = (w.hosts[A].pd, w.hosts[B].pd);
    let lkey = w.hosts[A].nic.alloc_null_mr(pd_a, Access::NONE).unwrap();
    let null = w.hosts[B].nic.alloc_null_mr(pd_b, LOCAL | REMOTE).unwrap();
    let sges = [Sge { addr: 0xdead_0000, len: 300, lkey }];
    let op = w.write_to(B, 0);
    w.post(A, &wr(1, op, Data::Gather(&sges))).unwrap();
    w.send(A, 2, SendOp::Write { remote_addr: 0xffff_0000_0000, rkey: null }, 0, 300);
    let into_null = [Sge { addr: 1, len: 100, lkey: null }, w.sge(B, 1000, 200)];
    w.post_recv(B, &RecvWr { wr_id: 5, sges: &into_null, best_effort: None }).unwrap();
    w.fill(A, 5000, &pattern(6, 300));
    w.send(A, 3, SendOp::Send, 5000, 300);
    w.run();
    assert_eq!(w.sent_status(A), [(1, Status::Success), (2, Status::Success), (3, Status::Success)]);
    assert_eq!(w.read(B, 0, 300), [0; 300]);
    assert_eq!(w.read(B, 1000, 200), pattern(6, 300)[100..], "a part of a message can be thrown away");
}

#[test]
fn a_key_is_refused_once_its_region_is_gone() {
    let mut w = World::new(Options::default());
    let (op, key) = (w.write_to(B, 0), w.hosts[B].key);
    w.hosts[B].nic.dereg_mr(key).unwrap();
    assert_eq!(w.hosts[B].nic.dereg_mr(key), Err(MrError::NoSuchMr));
    w.send(A, 1, op, 0, 10);
    w.run();
    assert_eq!(w.sent_status(A), [(1, Status::RemAccessErr)]);
    assert_eq!(w.read(B, 0, 10), [UNTOUCHED; 10]);
}

#[test]
fn packets_for_a_destroyed_queue_pair_are_counted_and_its_timer_is_forgotten() {
    let mut w = World::new(Options::default());
    let op = w.write_to(B, 0);
    w.send(A, 1, op, 0, 10);
    let frames = w.transmit(A);
    w.deliver_all(B, &frames);
    let answer = w.transmit(B);
    w.send(A, 2, op, 0, 10);
    let (now, qpn) = (w.now, w.hosts[A].qpn);
    w.hosts[A].nic.destroy_qp(qpn).unwrap();
    assert_eq!(w.hosts[A].nic.destroy_qp(qpn), Err(ObjectError::NoSuchQp));
    w.deliver_all(A, &answer);
    assert_eq!(w.counters(A).rx_bad_qp, 1);
    w.hosts[A].nic.ring_doorbell(now, qpn);
    // Another queue pair takes the place of the destroyed one; what was due for that one is not due for it.
    let init = qp_init(&w, A);
    let next = w.hosts[A].nic.create_qp(&init).unwrap();
    assert_ne!(next, qpn);
    w.wait(1 << 40);
    assert!(w.shown(A).is_empty());
    assert_eq!(w.counters(A).local_ack_timeout_err, 0);
    assert!(w.hosts[A].nic.poll_timeout().is_none());
}

#[test]
fn queue_pairs_of_one_nic_take_turns_by_bytes_however_long_their_packets_are() {
    let mut w = World::new(Options::default());
    let o = w.options;
    let mut qpns = [vec![w.hosts[A].qpn], vec![w.hosts[B].qpn]];
    for _ in 0..3 {
        for (h, list) in qpns.iter_mut().enumerate() {
            let init = qp_init(&w, h);
            list.push(w.hosts[h].nic.create_qp(&init).unwrap());
        }
        for h in [A, B] {
            let qpn = *qpns[h].last().unwrap();
            let rtr = rtr_attr(&o, w.path(h), *qpns[1 - h].last().unwrap());
            for attr in [init_attr(&o), rtr, rts_attr(&o)] {
                w.hosts[h].nic.modify_qp(qpn, &attr).unwrap();
            }
        }
    }
    // Packets of 1, 100, 256 and 256 bytes; the last two queue pairs have one long message each.
    let op = w.write_to(B, 0);
    for (&qpn, (len, count)) in qpns[A].iter().zip([(1, 250), (100, 250), (120_000, 1), (160_000, 1)]) {
        let sges = [w.sge(A, 0, len)];
        for _ in 0..count {
            w.hosts[A].nic.post_send(w.now, qpn, &wr(u64::from(qpn.value()), op, Data::Gather(&sges))).unwrap();
        }
    }
    let frames = w.transmit(A);
    let who = |f: &Vec<u8>| qpns[B].iter().position(|&q| q == w.parse(f).bth.dest_qp).unwrap();
    let total = |i| frames.iter().filter(|f| who(f) == i).map(Vec::len).sum::<usize>();
    let totals = [0, 1, 2, 3].map(total);
    assert!(totals.iter().all(|&t| t > 15_000) && totals[2] > 120_000, "{totals:?}: enough to compare");
    let mut sent = [0; 4];
    for f in &frames {
        sent[who(f)] += f.len();
        // Of those that still have something to send, none is a turn ahead of another.
        let busy: Vec<usize> = (0..4).filter(|&i| sent[i] < totals[i]).map(|i| sent[i]).collect();
        let (least, most) = (busy.iter().min().unwrap_or(&0), busy.iter().max().unwrap_or(&0));
        assert!(most - least <= 2 * 4 * 4352, "{sent:?}");
    }
    w.deliver_all(B, &frames);
    let answers = w.transmit(B);
    w.deliver_all(A, &answers);
    let cq = w.hosts[A].send_cq;
    let mut done = 0;
    while let Some(c) = w.hosts[A].nic.poll_cq(cq).unwrap() {
        assert_eq!((c.wr_id, c.status), (u64::from(c.qpn.value()), Status::Success));
        done += 1;
    }
    assert_eq!(done, 502);
    assert!(qpns[A].iter().all(|&q| w.hosts[A].nic.qp_state(q) == Some(QpState::ReadyToSend)));
}
