//! Shared receive queues: receives in the order of arrival for whoever needs one, the limit, and what an error leaves.

use crate::common::*;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::{Caps, QpState};
use softnic_nic::transports::{BestEffort, Event, PostError, RecvRules, RecvWr, SendOp, Sge, SrqId, Status, WcOpcode};
use softnic_nic::{ObjectError, QpInit, QpKind};
use softnic_wire::Qpn;

const OK: Status = Status::Success;
const FLUSHED: Status = Status::WrFlushErr;

fn shared(kind: QpKind) -> Options {
    Options { kind, srq: true, ..Options::default() }
}

/// A world with a second pair of connected queue pairs, whose numbers it gives: of A, of B.
fn two_pairs(kind: QpKind) -> (World, [Qpn; 2]) {
    let mut w = World::new(shared(kind));
    let pair = w.another_pair(kind, [A, B]);
    (w, pair)
}

fn srq(w: &World) -> SrqId {
    w.hosts[B].srq.unwrap()
}

/// Carries what A has to B alone; B's answers are carried back.
fn carry(w: &mut World) {
    w.run();
}

#[test]
fn two_queue_pairs_take_receives_in_the_order_in_which_messages_come() {
    for kind in [QpKind::Rc, QpKind::Uc] {
        let (mut w, [a, b]) = two_pairs(kind);
        for id in 0..4 {
            w.recv(B, id, 1000 * id as usize, 100);
        }
        let first = w.hosts[B].qpn;
        for (n, second) in [false, true, true, false].into_iter().enumerate() {
            w.fill(A, 0, &pattern(n as u32, 50));
            let qpn = if second { a } else { w.hosts[A].qpn };
            w.send_on(A, qpn, 10, SendOp::Send, 0, 50);
            carry(&mut w);
            assert_eq!(w.read(B, 1000 * n, 50), pattern(n as u32, 50), "{kind:?}");
        }
        assert_eq!(w.all_received(B), [(first, 0, OK), (b, 1, OK), (b, 2, OK), (first, 3, OK)], "{kind:?}");
        assert_eq!(w.all_sent(A).len(), 4);
    }
}

#[test]
fn a_message_of_several_packets_keeps_its_receive_while_another_queue_pair_takes_the_next() {
    for kind in [QpKind::Rc, QpKind::Uc] {
        let (mut w, [a, b]) = two_pairs(kind);
        w.recv(B, 0, 0, 1000);
        w.recv(B, 1, 2000, 1000);
        w.fill(A, 0, &pattern(1, 700));
        w.fill(A, 1000, &pattern(2, 700));
        w.send(A, 10, SendOp::Send, 0, 700);
        w.send_on(A, a, 11, SendOp::Send, 1000, 700);
        let frames = w.transmit(A);
        assert_eq!(frames.len(), 6, "packet by packet in turn");
        w.deliver_all(B, &frames);
        carry(&mut w);
        let first = w.hosts[B].qpn;
        assert_eq!(w.all_received(B), [(first, 0, OK), (b, 1, OK)], "{kind:?}");
        assert_eq!((w.read(B, 0, 700), w.read(B, 2000, 700)), (pattern(1, 700), pattern(2, 700)));
    }
}

#[test]
fn an_empty_queue_is_not_ready_and_credits_are_not_promised() {
    let mut w = World::new(shared(QpKind::Rc));
    w.recv(B, 0, 0, 100);
    w.send(A, 1, SendOp::Send, 0, 10);
    let frames = w.transmit(A);
    w.deliver_all(B, &frames);
    let answers = w.transmit(B);
    assert_eq!(w.show(&answers), ["ACK +0 credits -1 msn 1"]);
    w.deliver_all(A, &answers);
    // So the next one goes although there is no receive.
    w.send(A, 2, SendOp::Send, 0, 10);
    let frames = w.transmit(A);
    w.deliver_all(B, &frames);
    let answers = w.transmit(B);
    assert_eq!(w.show(&answers), ["RNR5 +1 msn 1"]);
    w.deliver_all(A, &answers);
    w.recv(B, 1, 0, 100);
    w.wait_for_timer(A);
    w.run();
    assert_eq!((w.sent_status(A), w.received_status(B)), (vec![(1, OK), (2, OK)], vec![(0, OK), (1, OK)]));
}

#[test]
fn a_receive_posted_for_one_that_was_turned_away_may_serve_another() {
    let (mut w, [a, b]) = two_pairs(QpKind::Rc);
    w.send(A, 1, SendOp::Send, 0, 10);
    w.run();
    w.recv(B, 0, 0, 100);
    w.send_on(A, a, 2, SendOp::Send, 0, 10);
    w.run();
    assert_eq!(w.all_received(B), [(b, 0, OK)]);
    w.recv(B, 1, 0, 100);
    w.wait_for_timer(A);
    w.run();
    assert_eq!(w.all_received(B), [(w.hosts[B].qpn, 1, OK)]);
}

#[test]
fn a_write_with_immediate_takes_one_and_a_write_none() {
    for kind in [QpKind::Rc, QpKind::Uc] {
        let mut w = World::new(shared(kind));
        w.recv(B, 0, 0, 100);
        w.recv(B, 1, 0, 100);
        let (write, with_imm) = (w.write_to(B, 0), w.write_imm_to(B, 0, 7));
        w.send(A, 1, write, 0, 300);
        w.send(A, 2, with_imm, 0, 300);
        w.send(A, 3, SendOp::Send, 0, 100);
        carry(&mut w);
        let got = w.received(B);
        assert_eq!(
            got.iter().map(|c| (c.wr_id, c.opcode)).collect::<Vec<_>>(),
            [(0, WcOpcode::RecvWriteImm), (1, WcOpcode::Recv)]
        );
    }
}

#[test]
fn the_limit_raises_one_event_and_must_be_set_again() {
    let mut w = World::new(shared(QpKind::Rc));
    let id = srq(&w);
    for n in 0..6 {
        w.recv(B, n, 0, 100);
    }
    w.hosts[B].nic.set_srq_limit(id, 4).unwrap();
    let mut raised = Vec::new();
    for n in 0..6 {
        w.send(A, n, SendOp::Send, 0, 10);
        w.run();
        raised.push(w.events(B));
        if n == 3 {
            assert_eq!(w.hosts[B].nic.srq_limit(id), Ok(0), "it is disarmed");
            w.hosts[B].nic.set_srq_limit(id, 1).unwrap();
        }
    }
    let limit = vec![Event::SrqLimit(id)];
    // 5, 4, then 3 < 4; again at 0 < 1.
    assert_eq!(raised, [vec![], vec![], limit.clone(), vec![], vec![], limit]);
}

#[test]
fn a_queue_pair_in_error_flushes_only_the_receive_in_use() {
    for in_use in [false, true] {
        let (mut w, [a, b]) = two_pairs(QpKind::Rc);
        for n in 0..3 {
            w.recv(B, n, 0, 1000);
        }
        if in_use {
            w.send(A, 1, SendOp::Send, 0, 700);
            let frames = w.transmit(A);
            w.deliver(B, &frames[0]);
        }
        let first = w.hosts[B].qpn;
        w.modify(B, &to_state(QpState::Error));
        assert_eq!(w.events(B), [Event::LastWqeReached(first)]);
        let flushed = if in_use { vec![(first, 0, FLUSHED)] } else { vec![] };
        assert_eq!(w.all_received(B), flushed, "in use: {in_use}");
        let next = u64::from(in_use);
        w.send_on(A, a, 2, SendOp::Send, 0, 10);
        w.run();
        assert_eq!(w.all_received(B), [(b, next, OK)], "the rest is for the others");
        w.modify(B, &to_state(QpState::Error));
        assert!(w.events(B).is_empty(), "once");
    }
}

#[test]
fn a_message_that_is_too_long_ends_its_receive_alone() {
    let (mut w, [a, b]) = two_pairs(QpKind::Rc);
    w.recv(B, 0, 0, 10);
    w.recv(B, 1, 0, 100);
    w.send(A, 1, SendOp::Send, 0, 11);
    w.run();
    let first = w.hosts[B].qpn;
    assert_eq!(w.all_received(B), [(first, 0, Status::LocLenErr)]);
    assert_eq!(w.events(B), [Event::LastWqeReached(first)]);
    w.send_on(A, a, 2, SendOp::Send, 0, 11);
    w.run();
    assert_eq!(w.all_received(B), [(b, 1, OK)]);
}

#[test]
fn receives_are_posted_to_the_shared_queue_alone() {
    let mut w = World::new(shared(QpKind::Rc));
    let (qpn, id) = (w.hosts[B].qpn, srq(&w));
    let sges = [w.sge(B, 0, 10)];
    let wr = RecvWr { wr_id: 1, sges: &sges, best_effort: None };
    assert_eq!(w.hosts[B].nic.post_recv(qpn, &wr), Err(PostError::NoSuchOperation));
    let work = BestEffort::until(w.now);
    let late = RecvWr { best_effort: Some(&work), ..wr };
    assert_eq!(w.hosts[B].nic.post_srq_recv(id, &late), Err(PostError::NoDeadlines));
    assert_eq!(w.hosts[B].nic.post_srq_recv(SrqId(9), &wr), Err(PostError::State));
    let pd = w.hosts[B].pd;
    let small = w.hosts[B].nic.create_srq(pd, 2, 1).unwrap();
    let two = [w.sge(B, 0, 10), w.sge(B, 0, 10)];
    let wide = RecvWr { sges: &two, ..wr };
    assert_eq!(w.hosts[B].nic.post_srq_recv(small, &wide), Err(PostError::TooManySges));
    for expected in [Ok(()), Ok(()), Err(PostError::QueueFull)] {
        assert_eq!(w.hosts[B].nic.post_srq_recv(small, &wr), expected);
    }
}

#[test]
fn a_shared_queue_with_deadlines_is_for_queue_pairs_that_keep_them() {
    let mut w = World::new(shared(QpKind::Rc));
    let (&Host { send_cq, recv_cq, pd, .. }, caps) = (&w.hosts[B], w.options.caps);
    let rules = RecvRules::new(1).with_deadlines();
    let srq = w.hosts[B].nic.create_srq_of(pd, 2, rules).unwrap();
    for kind in [QpKind::Rc, QpKind::Uc, QpKind::Ud, QpKind::Gsi] {
        let init = QpInit { srq: Some(srq), ..QpInit::new(kind, pd, send_cq, recv_cq, caps) };
        assert_eq!(w.hosts[B].nic.create_qp(&init), Err(ObjectError::WrongKind), "{kind:?}");
    }
    // What was refused left no trace: the number of QP1 is free.
    w.hosts[B].nic.create_qp(&QpInit::new(QpKind::Gsi, pd, send_cq, recv_cq, caps)).unwrap();
    let work = BestEffort::until(w.now);
    let wr = RecvWr { wr_id: 1, sges: &[], best_effort: Some(&work) };
    assert_eq!(w.hosts[B].nic.post_srq_recv(srq, &wr), Ok(()));
}

#[test]
fn a_shared_queue_is_busy_while_queue_pairs_use_it_and_holds_its_domain() {
    let mut w = World::new(shared(QpKind::Rc));
    let (id, qpn, pd) = (srq(&w), w.hosts[B].qpn, w.hosts[B].pd);
    let nic = &mut w.hosts[B].nic;
    assert_eq!(nic.destroy_srq(id), Err(ObjectError::Busy));
    nic.destroy_qp(qpn).unwrap();
    nic.dereg_mr(w.hosts[B].key).unwrap();
    let nic = &mut w.hosts[B].nic;
    assert_eq!(nic.dealloc_pd(pd), Err(ObjectError::Busy));
    assert_eq!(nic.destroy_srq(id), Ok(()));
    assert_eq!(nic.destroy_srq(id), Err(ObjectError::NoSuchSrq));
    assert_eq!(nic.dealloc_pd(pd), Ok(()));
    assert_eq!(nic.create_srq(pd, 1, 1), Err(ObjectError::NoSuchPd));
}

#[test]
fn an_event_of_a_destroyed_shared_queue_is_not_told_of_its_successor() {
    let mut w = World::new(shared(QpKind::Rc));
    let (id, qpn, pd) = (srq(&w), w.hosts[B].qpn, w.hosts[B].pd);
    w.hosts[B].nic.set_srq_limit(id, 5).unwrap();
    w.recv(B, 0, 0, 100);
    w.send(A, 1, SendOp::Send, 0, 10);
    w.run();
    let nic = &mut w.hosts[B].nic;
    nic.destroy_qp(qpn).unwrap();
    nic.destroy_srq(id).unwrap();
    nic.create_srq(pd, 1, 1).unwrap();
    assert!(w.events(B).is_empty());
}

#[test]
fn receives_are_of_the_shared_queues_domain_whatever_the_queue_pairs_is() {
    for kind in [QpKind::Rc, QpKind::Uc] {
        let mut w = World::new(shared(kind));
        let Host { send_cq, recv_cq, srq, .. } = w.hosts[B];
        let other = w.hosts[B].nic.alloc_pd();
        let init = QpInit { srq, ..QpInit::new(kind, other, send_cq, recv_cq, w.options.caps) };
        let b = w.hosts[B].nic.create_qp(&init).unwrap();
        let a = w.another_qp(A, kind);
        w.connect((A, a), kind, (B, b));
        w.connect((B, b), kind, (A, a));
        w.recv(B, 0, 0, 100);
        w.fill(A, 0, &pattern(1, 50));
        w.send_on(A, a, 1, SendOp::Send, 0, 50);
        w.run();
        assert_eq!(w.all_received(B), [(b, 0, OK)], "{kind:?}");
        assert_eq!(w.read(B, 0, 50), pattern(1, 50));
        // Memory of the queue pair's own domain is not what the shared queue's receives may name.
        let key = {
            let Host { nic, buffer, .. } = &mut w.hosts[B];
            nic.reg_mr(other, buffer, LOCAL | Access::REMOTE_WRITE).unwrap()
        };
        let sges = [Sge { lkey: key, ..w.sge(B, 0, 100) }];
        w.post_recv(B, &RecvWr { wr_id: 1, sges: &sges, best_effort: None }).unwrap();
        w.send_on(A, a, 2, SendOp::Send, 0, 50);
        w.run();
        assert_eq!(w.all_received(B), [(b, 1, Status::LocProtErr)], "{kind:?}");
    }
}

#[test]
fn a_lost_packet_of_an_unreliable_message_leaves_the_receive_for_the_next_of_the_same_queue_pair() {
    let (mut w, [a, b]) = two_pairs(QpKind::Uc);
    for n in 0..3 {
        w.recv(B, n, 0, 1000);
    }
    w.send(A, 1, SendOp::Send, 0, 700);
    let frames = w.transmit(A);
    w.deliver_all(B, &frames[..2]);
    w.send_on(A, a, 2, SendOp::Send, 0, 10);
    w.send(A, 3, SendOp::Send, 0, 20);
    carry(&mut w);
    let mut got = w.all_received(B);
    got.sort_by_key(|c| c.1);
    assert_eq!(got, [(w.hosts[B].qpn, 0, OK), (b, 1, OK)]);
    // Nothing is lost: the third is still there.
    w.send(A, 4, SendOp::Send, 0, 20);
    carry(&mut w);
    assert_eq!(w.all_received(B), [(w.hosts[B].qpn, 2, OK)]);
}

#[test]
fn a_receive_that_an_unreliable_message_took_and_lost_goes_back_to_the_shared_queue() {
    let (mut w, [a, b]) = two_pairs(QpKind::Uc);
    for n in 0..2 {
        w.recv(B, n, 0, 1000);
    }
    w.send(A, 1, SendOp::Send, 0, 700);
    let frames = w.transmit(A);
    // The gap shows with the last packet, and no message follows it.
    w.deliver(B, &frames[0]);
    w.deliver(B, &frames[2]);
    for _ in 0..2 {
        w.send_on(A, a, 2, SendOp::Send, 0, 10);
    }
    carry(&mut w);
    assert_eq!(w.all_received(B), [(b, 0, OK), (b, 1, OK)], "in the order in which they were posted");
    assert_eq!(w.counters(B).out_of_buffer, 0);
}

#[test]
fn a_lost_receive_whose_place_was_taken_serves_the_same_queue_pair() {
    let mut w = World::new(Options { caps: Caps { max_recv_wr: 1, ..Options::default().caps }, ..shared(QpKind::Uc) });
    w.recv(B, 0, 0, 1000);
    w.send(A, 1, SendOp::Send, 0, 700);
    let frames = w.transmit(A);
    w.deliver(B, &frames[0]);
    w.recv(B, 1, 0, 1000);
    w.deliver(B, &frames[2]);
    for _ in 0..2 {
        w.send(A, 2, SendOp::Send, 0, 10);
    }
    carry(&mut w);
    assert_eq!(w.received_status(B), [(0, OK), (1, OK)]);
}

#[test]
fn datagrams_share_receives_too() {
    let mut w = World::new(shared(QpKind::Ud));
    let second = w.another_ud(B);
    w.recv(B, 0, 0, 100);
    w.recv(B, 1, 200, 100);
    let to = w.datagram(A, B);
    w.send_to(A, 1, SendOp::Send, softnic_nic::transports::Datagram { dest_qp: second, ..to }, 0, 10);
    w.send_to(A, 2, SendOp::Send, to, 0, 10);
    w.send_to(A, 3, SendOp::Send, to, 0, 10);
    carry(&mut w);
    assert_eq!(w.all_received(B), [(second, 0, OK), (w.hosts[B].qpn, 1, OK)]);
    assert_eq!(w.counters(B).out_of_buffer, 1);
}

#[test]
fn a_ring_of_shared_receives_goes_round_in_order() {
    let caps = Caps { max_recv_wr: 3, ..Options::default().caps };
    let mut w = World::new(Options { caps, ..shared(QpKind::Rc) });
    let pair = w.another_pair(QpKind::Rc, [A, B]);
    let mut posted = 0;
    for n in 0..50u64 {
        let sges = [w.sge(B, 0, 100)];
        while w.post_recv(B, &RecvWr { wr_id: posted, sges: &sges, best_effort: None }).is_ok() {
            posted += 1;
        }
        let qpn = if n % 3 == 0 { w.hosts[A].qpn } else { pair[0] };
        w.send_on(A, qpn, n, SendOp::Send, 0, 10);
        w.run();
        let got = w.all_received(B);
        assert_eq!((got.len(), got[0].1, got[0].2), (1, n, OK));
    }
    assert_eq!(posted, 52);
}
