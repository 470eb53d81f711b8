//! BIND_MW and LOCAL_INV among sends: carried out in their turn, completed in order, whatever happens on the wire.

use crate::common::*;
use softnic_nic::transports::memory::{Access, Bind};
use softnic_nic::transports::negotiation::{Choice, FallbackReason};
use softnic_nic::transports::qp::{Caps, QpState};
use softnic_nic::transports::{Data, PostError, SendFlags, SendOp, SendWr, Status, Transport};
use softnic_nic::{MrError, Nic, QpKind, WindowType, next_key};
use softnic_wire::Node;

const OK: Status = Status::Success;
const FLUSHED: Status = Status::WrFlushErr;
const NOTHING_IN_COMMON: Choice = Choice::Standard(FallbackReason::NothingInCommon);

/// A window over A's buffer, to be bound by A under its next key; type 1, so that it can be bound again and again.
fn bind(w: &mut World) -> SendOp {
    let pd = w.hosts[A].pd;
    let window = w.hosts[A].nic.alloc_mw(pd, WindowType::Type1).unwrap();
    let (addr, lkey) = (w.hosts[A].buffer.addr(), w.hosts[A].key);
    let rkey = next_key(window);
    SendOp::BindWindow(Bind { window, rkey, lkey, addr, len: 100, access: Access::REMOTE_READ, zero_based: false })
}

/// A window that cannot be bound.
fn bad_bind(w: &mut World) -> SendOp {
    match bind(w) {
        SendOp::BindWindow(b) => SendOp::BindWindow(Bind { lkey: 0, ..b }),
        op => op,
    }
}

fn post_local(w: &mut World, wr_id: u64, op: SendOp, signaled: bool, fence: bool) {
    let flags = SendFlags { signaled, fence, solicited: false };
    w.post(A, &SendWr { flags, ..wr(wr_id, op, Data::Gather(&[])) }).unwrap();
}

/// Whether some window is bound to A's buffer: then it cannot go. (Asked last: else it is gone.)
fn is_bound(w: &mut World) -> bool {
    let key = w.hosts[A].key;
    w.hosts[A].nic.dereg_mr(key) == Err(MrError::Busy)
}

#[test]
fn a_bind_between_two_messages_is_done_when_the_second_leaves_and_not_before_the_first_has() {
    for kind in [QpKind::Rc, QpKind::Uc] {
        for packets in 0..=4 {
            let mut w = World::new(Options { kind, ..Options::default() });
            let (op, write) = (bind(&mut w), w.write_to(B, 0));
            w.send(A, 1, write, 0, 600);
            post_local(&mut w, 2, op, true, false);
            w.send(A, 3, write, 0, 10);
            let frames: Vec<_> = (0..packets).map(|_| w.transmit_one(A, Nic::WIRE).unwrap()).collect();
            if packets == 4 {
                w.deliver_all(B, &frames);
                w.run();
                assert_eq!(w.sent_status(A), [(1, OK), (2, OK), (3, OK)], "{kind:?}");
            }
            assert_eq!(is_bound(&mut w), packets == 4, "{kind:?}: after {packets} packets");
        }
    }
}

#[test]
fn a_local_operation_is_carried_out_at_the_doorbell_while_a_negotiation_waits() {
    for (peer, spoken) in [(Some(Transport::Sr { window: 256 }), Choice::Agreed), (None, NOTHING_IN_COMMON)] {
        let offers = [Some(Transport::Sr { window: 256 }), peer];
        let mut w = World::new(Options { offers, ..Options::default() });
        let qpn = w.hosts[A].qpn;
        let (first, second, bad, write) = (bind(&mut w), bind(&mut w), bad_bind(&mut w), w.write_to(B, 0));
        post_local(&mut w, 1, first, true, false);
        post_local(&mut w, 2, second, false, false);
        assert_eq!(w.hosts[A].nic.choice(qpn), Some(Choice::Waiting));
        assert_eq!(w.sent_status(A), [(1, OK)]);
        w.fill(A, 0, b"written");
        w.send(A, 3, write, 0, 7);
        post_local(&mut w, 4, first, true, false);
        assert!(w.sent(A).is_empty(), "behind what has not left");
        w.run();
        assert_eq!(w.hosts[A].nic.choice(qpn), Some(spoken));
        assert_eq!(w.sent_status(A), [(3, OK), (4, OK)]);
        assert_eq!(w.read(B, 0, 7), b"written");
        // One that fails ends the queue pair there and then, too.
        let mut w = World::new(Options { offers, ..Options::default() });
        post_local(&mut w, 1, bad, true, false);
        assert_eq!(w.sent_status(A), [(1, Status::MwBindErr)]);
    }
}

#[test]
fn a_local_operation_is_carried_out_at_the_doorbell_whether_the_link_is_up_or_not() {
    let sr = [Some(Transport::Sr { window: 256 }); 2];
    for (kind, offers) in [(QpKind::Rc, [None; 2]), (QpKind::Rc, sr), (QpKind::Uc, [None; 2])] {
        let mut w = World::new(Options { kind, offers, ..Options::default() });
        w.run();
        w.hosts[A].nic.set_link(false);
        let (op, bad, write) = (bind(&mut w), bad_bind(&mut w), w.write_to(B, 0));
        post_local(&mut w, 1, op, true, false);
        assert_eq!(w.sent_status(A), [(1, OK)], "{kind:?}");
        w.send(A, 2, write, 0, 10);
        post_local(&mut w, 3, bad, true, false);
        assert!(w.sent(A).is_empty(), "behind what has not left");
        w.hosts[A].nic.set_link(true);
        w.run();
        assert_eq!(w.sent_status(A), [(2, OK), (3, Status::MwBindErr)], "{kind:?}");
    }
}

#[test]
fn a_local_operation_that_fails_at_the_doorbell_stops_the_queue_pair_there() {
    for (kind, state) in [(QpKind::Rc, QpState::Error), (QpKind::Uc, QpState::SendQueueError)] {
        let mut w = World::new(Options { kind, ..Options::default() });
        w.hosts[A].nic.set_link(false);
        let op = bad_bind(&mut w);
        post_local(&mut w, 1, op, true, false);
        assert_eq!((w.sent_status(A), w.state(A)), (vec![(1, Status::MwBindErr)], state));
    }
}

#[test]
fn a_local_operation_behind_what_is_not_acknowledged_is_carried_out_and_completes_in_its_turn() {
    let mut w = World::new(Options::default());
    let (op, write) = (bind(&mut w), w.write_to(B, 0));
    w.send(A, 1, write, 0, 10);
    post_local(&mut w, 2, op, true, false);
    let frames = w.transmit(A);
    assert_eq!(w.show(&frames), ["RDMA_WRITE_ONLY +0 A"]);
    assert!(w.sent(A).is_empty());
    w.deliver_all(B, &frames);
    w.run();
    assert_eq!(w.sent_status(A), [(1, OK), (2, OK)]);
    assert!(is_bound(&mut w));
}

#[test]
fn unsignaled_neighbours_say_nothing_and_the_signaled_come_in_order() {
    for kind in [QpKind::Rc, QpKind::Uc] {
        let mut w = World::new(Options { kind, ..Options::default() });
        let write = w.write_to(B, 0);
        for id in 0..12 {
            let signaled = id % 3 == 0;
            if id % 2 == 0 {
                let op = bind(&mut w);
                post_local(&mut w, id, op, signaled, false);
            } else if signaled {
                w.send(A, id, write, 0, 300);
            } else {
                w.send_unsignaled(A, id, write, 0, 300);
            }
        }
        w.run();
        assert_eq!(w.sent_status(A), [(0, OK), (3, OK), (6, OK), (9, OK)], "{kind:?}");
        assert_eq!(w.counters(B).rx_write_requests, 6);
    }
}

#[test]
fn a_queue_full_of_local_operations_is_done_without_a_packet() {
    for kind in [QpKind::Rc, QpKind::Uc] {
        let caps = Caps { max_send_wr: 5, ..Options::default().caps };
        let mut w = World::new(Options { kind, caps, ..Options::default() });
        for round in 0..3 {
            let qpn = w.hosts[A].qpn;
            for id in 0..5 {
                let op = bind(&mut w);
                let flags = SendFlags { signaled: id == 4, fence: false, solicited: false };
                let wr = SendWr { flags, ..wr(id, op, Data::Gather(&[])) };
                w.hosts[A].nic.write_send(qpn, &wr).unwrap();
            }
            let op = bind(&mut w);
            assert_eq!(w.post(A, &wr(9, op, Data::Gather(&[]))), Err(PostError::QueueFull));
            w.hosts[A].nic.ring_doorbell(w.now, qpn);
            assert!(w.shown(A).is_empty());
            assert_eq!(w.sent_status(A), [(4, OK)], "{kind:?}, round {round}");
        }
        assert!(w.hosts[A].nic.poll_timeout().is_none(), "nothing is waited for");
        let write = w.write_to(B, 0);
        w.send(A, 7, write, 0, 10);
        w.run();
        assert_eq!(w.sent_status(A), [(7, OK)], "{kind:?}");
    }
}

#[test]
fn a_fenced_local_operation_waits_for_the_data_before_it_and_an_unfenced_one_does_not() {
    for (fence, op_is_read) in [(false, true), (true, true), (true, false)] {
        let mut w = World::new(Options::default());
        let (read, add, write) = (w.read_from(B, 0), w.add_to(B, 0, 1), w.write_to(B, 0));
        let op = bind(&mut w);
        w.send(A, 1, if op_is_read { read } else { add }, 5000, 8);
        post_local(&mut w, 2, op, true, fence);
        w.send(A, 3, write, 0, 8);
        let frames = w.transmit(A);
        assert_eq!(frames.len(), if fence { 1 } else { 2 }, "what follows waits with it");
        w.deliver_all(B, &frames);
        let answers = w.transmit(B);
        assert!(w.sent(A).is_empty());
        w.deliver_all(A, &answers);
        w.run();
        assert_eq!(w.sent_status(A), [(1, OK), (2, OK), (3, OK)]);
        assert!(is_bound(&mut w));
    }
}

#[test]
fn a_fence_does_not_wait_for_what_is_not_data() {
    let mut w = World::new(Options::default());
    let (op, write) = (bind(&mut w), w.write_to(B, 0));
    w.send(A, 1, write, 0, 10);
    post_local(&mut w, 2, op, true, true);
    w.send(A, 3, write, 0, 10);
    assert_eq!(w.shown(A), ["RDMA_WRITE_ONLY +0 A", "RDMA_WRITE_ONLY +1 A"]);
}

/// Messages of 1, 2 and 1 packets with a local operation behind each; each packet lost once, each answer too.
#[test]
fn losses_around_local_operations_are_recovered_and_nothing_is_done_twice() {
    for lost in 0..5 {
        each_psn(Options::default(), |mut w| {
            w.fill(A, 0, &pattern(4, 1000));
            let mut id = 0;
            for (to, len) in [(0, 100), (1000, 400), (2000, 200)] {
                let (write, op) = (w.write_to(B, to), bind(&mut w));
                w.send(A, id, write, 0, len);
                post_local(&mut w, id + 1, op, true, false);
                id += 2;
            }
            let mut frames = w.transmit(A);
            assert_eq!(frames.len(), 4);
            if lost < 4 {
                frames.remove(lost);
            }
            w.deliver_all(B, &frames);
            if lost == 4 {
                let _answers_lost = w.transmit(B);
            }
            w.run();
            while w.wait_for_timer(A).is_some() {
                w.run();
            }
            let all: Vec<_> = (0..6).map(|id| (id, OK)).collect();
            assert_eq!(w.sent_status(A), all, "packet {lost} lost");
            for (to, len) in [(0, 100), (1000, 400), (2000, 200)] {
                assert_eq!(w.read(B, to, len), pattern(4, 1000)[..len]);
            }
            assert_eq!((w.counters(B).rx_write_requests, w.state(A)), (3, QpState::ReadyToSend));
        });
    }
}

#[test]
fn a_local_operation_that_fails_lets_what_was_sent_before_it_end_well() {
    for pending in 1..4 {
        for loss in [false, true] {
            each_psn(Options::default(), |mut w| {
                let (write, op) = (w.write_to(B, 0), bad_bind(&mut w));
                for id in 0..pending {
                    w.send(A, id, write, 0, 300);
                }
                post_local(&mut w, 10, op, false, false);
                w.send(A, 11, write, 0, 10);
                post_local(&mut w, 12, op, false, false);
                let mut frames = w.transmit(A);
                assert_eq!(frames.len() as u64, 2 * pending, "nothing behind it leaves");
                assert_eq!(w.state(A), QpState::ReadyToSend, "it fails in its turn");
                if loss {
                    frames.remove(0);
                }
                w.deliver_all(B, &frames);
                w.run();
                while w.wait_for_timer(A).is_some() {
                    w.run();
                }
                let mut expected: Vec<_> = (0..pending).map(|id| (id, OK)).collect();
                expected.extend([(10, Status::MwBindErr), (11, FLUSHED), (12, FLUSHED)]);
                assert_eq!(w.sent_status(A), expected, "{pending} before it, loss {loss}");
                assert_eq!((w.state(A), w.counters(B).rx_write_requests), (QpState::Error, pending));
            });
        }
    }
}

#[test]
fn a_local_operation_that_fails_behind_a_packet_that_did_not_ask_still_fails() {
    each_psn(Options::default(), |mut w| {
        let (write, op) = (w.write_to(B, 0), bad_bind(&mut w));
        w.send(A, 1, write, 0, 10);
        w.send(A, 2, write, 0, 10);
        let first = w.transmit_one(A, Nic::WIRE).unwrap();
        assert_eq!(w.show(std::slice::from_ref(&first)), ["RDMA_WRITE_ONLY +0"]);
        post_local(&mut w, 3, op, true, false);
        w.deliver(B, &first);
        w.run();
        assert_eq!(w.sent_status(A), [(1, OK), (2, OK), (3, Status::MwBindErr)]);
    });
}

#[test]
fn on_an_unreliable_connection_it_fails_alone_and_the_connection_receives_on() {
    let mut w = World::new(Options { kind: QpKind::Uc, ..Options::default() });
    let (write, op) = (w.write_to(B, 0), bad_bind(&mut w));
    w.send(A, 1, write, 0, 300);
    post_local(&mut w, 2, op, false, false);
    w.send(A, 3, write, 0, 10);
    w.run();
    assert_eq!(w.sent_status(A), [(1, OK), (2, Status::MwBindErr), (3, FLUSHED)]);
    assert_eq!(w.state(A), QpState::SendQueueError);
    w.modify(A, &to_state(QpState::ReadyToSend));
    let op = bind(&mut w);
    post_local(&mut w, 4, op, true, false);
    w.run();
    assert_eq!(w.sent_status(A), [(4, OK)]);
}

#[test]
fn pending_local_operations_are_flushed_and_not_carried_out() {
    for kind in [QpKind::Rc, QpKind::Uc] {
        let mut w = World::new(Options { kind, ..Options::default() });
        let (write, op) = (w.write_to(B, 0), bind(&mut w));
        w.send(A, 1, write, 0, 300);
        post_local(&mut w, 2, op, false, false);
        w.send(A, 3, write, 0, 10);
        assert!(w.transmit_one(A, Nic::WIRE).is_some());
        w.modify(A, &to_state(QpState::Error));
        assert_eq!(w.sent_status(A), [(1, FLUSHED), (2, FLUSHED), (3, FLUSHED)], "{kind:?}");
        post_local(&mut w, 4, op, false, false);
        assert_eq!(w.sent_status(A), [(4, FLUSHED)]);
        assert!(!is_bound(&mut w));
        // After a reset nothing of it is left over.
        w.modify(A, &to_state(QpState::Reset));
        w.run();
        assert!(w.sent(A).is_empty());
    }
}

#[test]
fn they_take_neither_data_nor_an_address() {
    let mut w = World::new(Options::default());
    let op = bind(&mut w);
    for op in [op, SendOp::LocalInv { rkey: 1 }] {
        assert_eq!(w.post(A, &wr(1, op, Data::Inline(b"x"))), Err(PostError::InlineNotAllowed));
    }
}

#[test]
fn many_messages_among_local_operations_keep_their_order_when_all_of_the_ring_is_used() {
    let caps = Caps { max_send_wr: 7, ..Options::default().caps };
    each_psn(Options { caps, ..Options::default() }, |mut w| {
        let (write, read) = (w.write_to(B, 0), w.read_from(B, 0));
        let (mut next, mut done) = (0u64, 0);
        while done < 200 {
            loop {
                let op = match next % 7 {
                    0 | 3 | 4 => bind(&mut w),
                    5 => read,
                    _ => write,
                };
                let local = matches!(op, SendOp::BindWindow(_));
                let sges = [w.sge(A, 0, if local { 0 } else { next as usize * 13 % 600 })];
                if w.post(A, &wr(next, op, Data::Gather(&sges))).is_err() {
                    break;
                }
                next += 1;
            }
            let mut frames = w.transmit(A);
            if done % 3 == 0 && !frames.is_empty() {
                frames.remove(done as usize % frames.len());
            }
            w.deliver_all(B, &frames);
            w.run();
            for (id, status) in w.sent_status(A) {
                assert_eq!((id, status), (done, OK));
                done += 1;
            }
            w.wait_for_timer(A);
        }
    });
}
