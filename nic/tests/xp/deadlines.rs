//! Bounded completion: each work request ends at its deadline, whatever came, and in order.

use softnic_nic::transports::PostError;
use softnic_nic::transports::qp::QpState;

use super::*;

/// The deadline before, at and after each of four packets.
#[test]
fn a_receive_ends_at_its_deadline_with_the_bytes_that_were_placed_before_it() {
    for deadline in (0..4).flat_map(|i| [i * 1000 + 999, i * 1000 + 1000, i * 1000 + 1001]) {
        let mut w = world();
        w.fill(A, 0, &pattern(3, 4 * MTU));
        let work = within(&w, deadline);
        recv_with(&mut w, 9, 0, 4 * MTU, &work);
        w.send(A, 1, SendOp::Send, 0, 4 * MTU);
        let (frames, start) = (w.transmit(A), w.now.as_nanos());
        // They come at 1, 2, 3 and 4 µs; what comes at the deadline comes too late.
        let in_time = (1..=4).filter(|i| i * 1000 < deadline).count();
        for (i, frame) in frames.iter().enumerate() {
            w.now = Instant::from_nanos(start + 1000 * (i as u64 + 1));
            w.deliver(B, frame);
        }
        let expected = if in_time == 4 { (9, 1024, None) } else { (9, 256 * in_time as u32, EXPIRED) };
        assert_eq!(received(&mut w), [expected], "a deadline of {deadline} ns");
        for i in 0..4 {
            let is_there = w.read(B, i * MTU, MTU) == pattern(3, 4 * MTU)[i * MTU..][..MTU];
            assert_eq!(is_there, i < in_time, "packet {i}, a deadline of {deadline} ns");
        }
        assert_eq!(w.counters(B).xp_late_packets as usize, 4 - in_time);
    }
}

#[test]
fn a_receive_whose_message_never_comes_ends_with_nothing_to_the_nanosecond() {
    for nanos in [1, 4095, 4096, 5_000, 1_000_000_007] {
        let mut w = world();
        w.fill(B, 9000, &[0xff; 2]);
        let work = BestEffort { bitmap: Some(w.sge(B, 9000, 2)), ..within(&w, nanos) };
        recv_with(&mut w, 9, 0, 100, &work);
        let start = w.now.as_nanos();
        while received(&mut w).is_empty() {
            w.wait_for_timer(B).expect("a deadline");
        }
        assert_eq!((w.now.as_nanos() - start, w.read(B, 9000, 2)), (nanos, vec![0, 0]));
    }
}

/// Its message comes after all, when the next receive is there: it is over.
#[test]
fn a_message_whose_receive_expired_takes_no_other() {
    let mut w = world();
    let work = within(&w, 1000);
    recv_with(&mut w, 1, 0, 100, &work);
    w.recv(B, 2, 4096, 300);
    w.wait(1000);
    assert_eq!(received(&mut w), [(1, 0, EXPIRED)]);
    w.send(A, 1, SendOp::Send, 0, 300);
    w.run();
    assert_eq!((received(&mut w), w.counters(B).xp_late_packets), (vec![], 2));
    w.send(A, 2, SendOp::Send, 0, 300);
    w.run();
    assert_eq!(received(&mut w), [(2, 300, None)]);
}

/// Memory that was given back when its message expired is the program's: a late packet leaves it alone.
#[test]
fn a_late_packet_leaves_memory_alone_that_has_another_use_by_now() {
    let mut w = world();
    w.fill(A, 0, &pattern(1, 3 * MTU));
    let work = within(&w, 1000);
    recv_with(&mut w, 1, 0, 3 * MTU, &work);
    w.send(A, 1, SendOp::Send, 0, 3 * MTU);
    let frames = w.transmit(A);
    w.deliver(B, &frames[0]);
    w.wait(1000);
    assert_eq!(received(&mut w), [(1, 256, EXPIRED)]);
    w.fill(B, 0, &[7; 3 * MTU]);
    w.recv(B, 2, 0, 3 * MTU);
    w.deliver_all(B, &frames);
    assert_eq!((received(&mut w), w.read(B, 0, 3 * MTU)), (vec![], vec![7; 3 * MTU]));
}

/// A deadline binds what stands before it, for completions stay in order.
#[test]
fn a_deadline_that_is_earlier_than_those_before_it_ends_them_too() {
    let mut w = world();
    let (late, early) = (within(&w, 5000), within(&w, 1000));
    recv_with(&mut w, 1, 0, 100, &late);
    w.recv(B, 2, 0, 100);
    recv_with(&mut w, 3, 0, 100, &early);
    recv_with(&mut w, 4, 0, 100, &late);
    w.wait(999);
    assert_eq!(received(&mut w), []);
    w.wait(1);
    assert_eq!(received(&mut w), [(1, 0, EXPIRED), (2, 0, EXPIRED), (3, 0, EXPIRED)]);
    w.wait(4000);
    assert_eq!(received(&mut w), [(4, 0, EXPIRED)]);
}

#[test]
fn a_deadline_in_the_past_ends_the_work_at_once_and_nothing_leaves() {
    let mut w = world();
    let past = BestEffort::until(Instant::from_nanos(w.now.as_nanos() - 5));
    recv_with(&mut w, 9, 0, 100, &past);
    send_with(&mut w, 1, SendOp::Send, (0, 600), &past);
    assert_eq!((sent(&mut w), w.transmit(A)), (vec![(1, 0, EXPIRED)], vec![]));
    w.wait_for_timer(B);
    assert_eq!(received(&mut w), [(9, 0, EXPIRED)]);
}

/// A READ that expires lets a SEND complete that left behind it: the count of what has to end must not go by that.
#[test]
fn a_read_that_expires_ends_no_send_that_has_time() {
    let mut w = world();
    let work = within(&w, 1000);
    let op = w.read_from(B, 0);
    send_with(&mut w, 1, op, (0, 100), &work);
    w.send(A, 2, SendOp::Send, 0, 10);
    let _lost = w.transmit(A);
    w.send(A, 3, SendOp::Send, 0, 3 * MTU);
    w.wait(1000);
    assert_eq!(sent(&mut w), [(1, 0, EXPIRED), (2, 10, None)]);
    let frames = w.transmit(A);
    assert_eq!((frames.len(), sent(&mut w)), (3, vec![(3, 768, None)]));
}

#[test]
fn a_send_stops_at_its_deadline() {
    let mut w = world();
    w.recv(B, 1, 0, 3 * MTU);
    let work = within(&w, 1000);
    send_with(&mut w, 1, SendOp::Send, (0, 3 * MTU), &work);
    w.send(A, 2, SendOp::Send, 0, 10);
    let first = w.transmit_one(A, softnic_nic::Nic::WIRE).unwrap();
    w.wait(1000);
    assert_eq!((sent(&mut w), w.counters(A).xp_expired_sends), (vec![(1, 256, EXPIRED)], 1));
    let rest = w.transmit(A);
    assert_eq!(
        headers(&w, &rest).iter().map(|h| h.wqe_seq).collect::<Vec<_>>(),
        [w.options.psn + 1],
        "only the next message"
    );
    assert_eq!(sent(&mut w), [(2, 10, None)]);
    w.deliver(B, &first);
    w.recv(B, 2, 4096, 10);
    w.deliver_all(B, &rest);
    assert_eq!(received(&mut w), [(1, 256, PREEMPTED), (2, 10, None)]);
}

/// A message of which nothing left takes its receive at the peer, as one that was lost.
#[test]
fn a_send_that_never_left_uses_up_its_receive() {
    let mut w = world();
    w.recv(B, 1, 0, 100);
    w.recv(B, 2, 0, 100);
    let past = BestEffort::until(Instant::from_nanos(w.now.as_nanos()));
    send_with(&mut w, 1, SendOp::Send, (0, 100), &past);
    w.send(A, 2, SendOp::Send, 0, 100);
    w.run();
    assert_eq!(received(&mut w), [(1, 0, PREEMPTED), (2, 100, None)]);
}

#[test]
fn work_that_is_posted_while_the_peer_has_not_answered_is_bound_too() {
    let mut w = World::new(options(""));
    let work = within(&w, 1000);
    recv_with(&mut w, 9, 0, 100, &work);
    send_with(&mut w, 1, SendOp::Send, (0, 100), &work);
    let _lost = [w.transmit(A), w.transmit(B)];
    w.wait(999);
    assert_eq!((sent(&mut w), received(&mut w)), (vec![], vec![]));
    w.wait(1);
    assert_eq!((sent(&mut w), received(&mut w)), (vec![(1, 0, EXPIRED)], vec![(9, 0, EXPIRED)]));
    // And what has none goes when the peer has answered.
    w.recv(B, 10, 0, 100);
    w.send(A, 2, SendOp::Send, 0, 100);
    w.wait(60_000_000);
    w.run();
    assert_eq!((sent(&mut w), received(&mut w)), (vec![(2, 100, None)], vec![(10, 100, None)]));
}

#[test]
fn a_link_that_is_down_keeps_no_deadline_from_coming() {
    let mut w = world();
    w.hosts[A].nic.set_link(false);
    let work = within(&w, 1000);
    send_with(&mut w, 1, SendOp::Send, (0, 100), &work);
    assert_eq!(w.transmit(A), Vec::<Vec<u8>>::new());
    assert_eq!(w.wait_for_timer(A), Some(1000));
    assert_eq!(sent(&mut w), [(1, 0, EXPIRED)]);
}

/// For programs that post receives long before anybody sends: the time counts from the first packet.
#[test]
fn a_message_is_active_for_so_long_and_no_longer() {
    for srq in [false, true] {
        let mut w = agreed(Options { srq, ..options("active=2us") });
        w.recv(B, 9, 0, 3 * MTU);
        w.wait(1_000_000);
        w.send(A, 1, SendOp::Send, 0, 3 * MTU);
        let frames = w.transmit(A);
        w.deliver_all(B, &frames[..2]);
        w.wait(1999);
        assert_eq!(received(&mut w), []);
        assert_eq!(w.wait_for_timer(B), Some(1));
        assert_eq!(received(&mut w), [(9, 512, EXPIRED)], "shared {srq}");
        w.recv(B, 10, 0, 3 * MTU);
        w.deliver(B, &frames[2]);
        assert_eq!(received(&mut w), []);
    }
}

#[test]
fn a_shared_receive_queue_with_deadlines_is_refused() {
    let mut w = world();
    let host = &mut w.hosts[B];
    let rules = softnic_nic::transports::RecvRules::new(1).with_deadlines();
    let srq = host.nic.create_srq_of(host.pd, 4, rules).unwrap();
    let usual = softnic_nic::QpInit::new(QpKind::Rc, host.pd, host.send_cq, host.recv_cq, w.options.caps);
    let init = softnic_nic::QpInit { srq: Some(srq), transport: Transport::XP, ..usual };
    assert!(host.nic.create_qp(&init).is_err());
    // And on one without, its receives take none.
    let mut w = agreed(Options { srq: true, ..options("") });
    let (sges, work) = ([w.sge(B, 0, 10)], within(&w, 10));
    let refused = w.post_recv(B, &RecvWr { wr_id: 1, sges: &sges, best_effort: Some(&work) });
    assert_eq!(refused, Err(PostError::NoDeadlines));
}

#[test]
fn a_queue_that_is_drained_ends_the_message_that_it_is_in() {
    let mut w = world();
    w.recv(B, 1, 0, 3 * MTU);
    w.send(A, 1, SendOp::Send, 0, 3 * MTU);
    let first = w.transmit_one(A, softnic_nic::Nic::WIRE).unwrap();
    let work = within(&w, 1000);
    send_with(&mut w, 2, SendOp::Send, (0, 10), &work);
    w.modify(A, &to_state(QpState::SendQueueDrain));
    let rest = w.transmit(A);
    assert_eq!((rest.len(), sent(&mut w)), (2, vec![(1, 768, None)]));
    w.deliver(B, &first);
    w.deliver_all(B, &rest);
    w.wait(1000);
    assert_eq!(sent(&mut w), [(2, 0, EXPIRED)], "its deadline comes all the same");
    w.modify(A, &to_state(QpState::ReadyToSend));
    assert_eq!(w.transmit(A), Vec::<Vec<u8>>::new());
}
