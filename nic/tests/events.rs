//! Asynchronous events by name, each once and only where it belongs; completion events; completion queues that change size.

use crate::common::*;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::negotiation::FallbackReason;
use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{CqId, Data, Event, SendFlags, SendOp, SendWr, SrqId, Status};
use softnic_nic::{CqError, Notify, QpKind};
use softnic_wire::ext::Reth;
use softnic_wire::{ExtHeaders, Node, Opcode, Qpn};

const OK: Status = Status::Success;

fn options(kind: QpKind) -> Options {
    Options { kind, ..Options::default() }
}

/// B is ready to receive, not to send; A is ready for both.
fn half_connected(kind: QpKind) -> World {
    let o = options(kind);
    let mut w = World::unconnected(o);
    for h in [A, B] {
        w.modify(h, &init_attr(&o));
        let rtr = rtr_attr(&o, w.path(h), w.hosts[1 - h].qpn);
        w.modify(h, &rtr);
    }
    w.modify(A, &rts_attr(&o));
    w
}

#[test]
fn names_are_those_of_verbs() {
    let qpn = Qpn::new(5);
    for (event, name) in [
        (Event::CommEst(qpn), "COMM_EST"),
        (Event::LastWqeReached(qpn), "LAST_WQE_REACHED"),
        (Event::SqDrained(qpn), "SQ_DRAINED"),
        (Event::QpFatal(qpn), "QP_FATAL"),
        (Event::QpReqErr(qpn), "QP_REQ_ERR"),
        (Event::QpAccessErr(qpn), "QP_ACCESS_ERR"),
        (Event::FellBack(qpn, [10, 0, 0, 2].into(), FallbackReason::Silent), "FELL_BACK"),
        (Event::QpHalted(qpn, Status::RetryExcErr), "HALTED"),
        (Event::PathMig(qpn), "PATH_MIG"),
        (Event::PathMigErr(qpn), "PATH_MIG_ERR"),
        (Event::CqErr(CqId(0)), "CQ_ERR"),
        (Event::SrqLimit(SrqId(0)), "SRQ_LIMIT"),
        (Event::PortActive, "PORT_ACTIVE"),
        (Event::PortErr, "PORT_ERR"),
        (Event::GidChange, "GID_CHANGE"),
    ] {
        assert_eq!(event.to_string(), name);
        assert_eq!(
            event.qpn().is_some(),
            !matches!(name, "CQ_ERR" | "SRQ_LIMIT" | "GID_CHANGE") && !name.contains("PORT")
        );
    }
}

#[test]
fn the_first_packet_before_ready_to_send_establishes_the_connection_once() {
    for kind in [QpKind::Rc, QpKind::Uc] {
        let mut w = half_connected(kind);
        w.recv(B, 1, 0, 100);
        w.recv(B, 2, 0, 100);
        assert!(w.events(B).is_empty());
        w.send(A, 1, SendOp::Send, 0, 10);
        w.send(A, 2, SendOp::Send, 0, 10);
        w.run();
        assert_eq!(w.events(B), [Event::CommEst(w.hosts[B].qpn)], "{kind:?}");
        assert_eq!(w.received(B).len(), 2);
        assert!(w.events(A).is_empty());
        // Again only after a reset.
        let o = w.options;
        w.modify(B, &to_state(QpState::Reset));
        w.modify(B, &init_attr(&o));
        let rtr = rtr_attr(&o, w.path(B), w.hosts[A].qpn);
        w.modify(B, &rtr);
        w.send(A, 3, SendOp::Send, 0, 10);
        w.run();
        assert_eq!(w.events(B), [Event::CommEst(w.hosts[B].qpn)], "{kind:?}");
    }
}

#[test]
fn a_packet_to_a_queue_pair_that_can_send_is_nothing_to_tell_of() {
    for kind in [QpKind::Rc, QpKind::Uc] {
        let mut w = half_connected(kind);
        w.modify(B, &rts_attr(&options(kind)));
        w.recv(B, 1, 0, 100);
        w.send(A, 1, SendOp::Send, 0, 10);
        w.run();
        assert_eq!((w.events(B), w.received(B).len()), (vec![], 1), "{kind:?}");
    }
}

#[test]
fn a_frame_that_is_dropped_at_the_door_establishes_nothing() {
    let mut w = half_connected(QpKind::Rc);
    w.send(A, 1, SendOp::Send, 0, 10);
    let mut frames = w.transmit(A);
    let at = frames[0].len() - 6;
    frames[0][at] ^= 1;
    w.deliver_all(B, &frames);
    assert!(w.events(B).is_empty());
}

#[test]
fn an_access_that_no_receive_tells_of_raises_an_event_at_the_responder() {
    let ops: [fn(&World) -> SendOp; 3] = [
        |w| SendOp::Write { remote_addr: w.hosts[B].buffer.addr(), rkey: 5 },
        |w| SendOp::Read { remote_addr: w.hosts[B].buffer.addr(), rkey: 5 },
        |w| SendOp::FetchAdd { remote_addr: w.hosts[B].buffer.addr(), rkey: 5, add: 1 },
    ];
    for op in ops {
        let mut w = World::new(options(QpKind::Rc));
        w.recv(B, 1, 0, 100);
        let op = op(&w);
        w.send(A, 1, op, 0, 8);
        w.run();
        assert_eq!(w.events(B), [Event::QpAccessErr(w.hosts[B].qpn)], "{op:?}");
        assert_eq!(w.received_status(B), [(1, Status::WrFlushErr)], "the receive was not in use");
        assert!(w.events(A).is_empty(), "the requester has its completion");
        assert_eq!(w.sent_status(A), [(1, Status::RemAccessErr)]);
    }
}

#[test]
fn an_invalid_request_that_no_receive_tells_of_raises_an_event_at_the_responder() {
    // A WRITE that the queue pair does not allow.
    let mut w = World::new(Options { access: LOCAL | Access::REMOTE_READ, ..options(QpKind::Rc) });
    let op = w.write_to(B, 0);
    w.send(A, 1, op, 0, 8);
    w.run();
    assert_eq!(w.events(B), [Event::QpReqErr(w.hosts[B].qpn)]);
    // A MIDDLE of nothing.
    let mut w = World::new(options(QpKind::Rc));
    let frame = w.forge(B, 0x01, 0, true, ExtHeaders::default(), &[0; 256]);
    w.deliver(B, &frame);
    w.deliver(B, &frame);
    assert_eq!(w.events(B), [Event::QpReqErr(w.hosts[B].qpn)]);
    // A WRITE with another length than it says.
    let mut w = World::new(options(QpKind::Rc));
    let reth = Some(Reth { va: w.hosts[B].buffer.addr(), rkey: w.hosts[B].key, len: 5 });
    let frame = w.forge(B, 0x0a, 0, true, ExtHeaders { reth, ..ExtHeaders::default() }, b"1234");
    w.deliver(B, &frame);
    assert_eq!(w.events(B), [Event::QpReqErr(w.hosts[B].qpn)]);
}

#[test]
fn where_a_receive_tells_of_it_there_is_no_event() {
    let mut w = World::new(options(QpKind::Rc));
    w.recv(B, 1, 0, 5);
    w.send(A, 1, SendOp::Send, 0, 10);
    w.run();
    assert_eq!((w.received_status(B), w.events(B)), (vec![(1, Status::LocLenErr)], vec![]));
    let mut w = World::new(options(QpKind::Rc));
    w.recv(B, 1, BUFFER - 5, 10);
    w.send(A, 1, SendOp::Send, 0, 10);
    w.run();
    assert_eq!((w.received_status(B), w.events(B)), (vec![(1, Status::LocProtErr)], vec![]));
    assert!(w.events(A).is_empty());
}

#[test]
fn an_overflow_is_told_of_the_queue_and_of_the_queue_pair_that_lost_a_completion() {
    let mut w = World::new(Options { cq: 1, ..options(QpKind::Rc) });
    let op = w.write_to(B, 0);
    w.send(A, 1, op, 0, 8);
    w.send(A, 2, op, 0, 8);
    w.run();
    let (first, cq) = (w.hosts[A].qpn, w.hosts[A].send_cq);
    assert_eq!(w.events(A), [Event::CqErr(cq), Event::QpFatal(first)]);
    assert_eq!(w.state(A), QpState::Error);
    assert!(w.events(B).is_empty());
    assert_eq!(w.hosts[A].nic.poll_cq(cq).unwrap().unwrap().wr_id, 1);
    assert_eq!(w.hosts[A].nic.poll_cq(cq), Err(CqError::Overflow));
}

#[test]
fn two_queue_pairs_on_one_overflowed_queue_are_both_told() {
    let mut w = World::new(Options { cq: 1, ..options(QpKind::Rc) });
    let [a, _] = w.another_pair(QpKind::Rc, [A, B]);
    let (op, first, cq) = (w.write_to(B, 0), w.hosts[A].qpn, w.hosts[A].send_cq);
    w.send(A, 1, op, 0, 8);
    w.send(A, 2, op, 0, 8);
    w.run();
    w.send_on(A, a, 3, op, 0, 8);
    w.run();
    assert_eq!(w.events(A), [Event::CqErr(cq), Event::QpFatal(first), Event::QpFatal(a)]);
}

#[test]
fn an_overflow_of_receives_or_of_unreliable_sends_is_fatal_too() {
    for kind in [QpKind::Rc, QpKind::Uc, QpKind::Ud] {
        let mut w = World::new(Options { cq: 1, ..options(kind) });
        let to = (kind == QpKind::Ud).then(|| w.datagram(A, B));
        w.recv(B, 1, 0, 100);
        w.recv(B, 2, 0, 100);
        for id in 1..3 {
            let flags = SendFlags::default();
            w.post(A, &SendWr { to, flags, ..wr(id, SendOp::Send, Data::Inline(b"x")) }).unwrap();
        }
        w.run();
        let (qpn, cq) = (w.hosts[B].qpn, w.hosts[B].recv_cq);
        assert_eq!(w.events(B), [Event::CqErr(cq), Event::QpFatal(qpn)], "{kind:?}");
        assert_eq!(w.state(B), QpState::Error);
        if kind == QpKind::Rc {
            continue;
        }
        for id in 1..3 {
            w.post(A, &SendWr { to, ..wr(id, SendOp::Send, Data::Inline(b"x")) }).unwrap();
        }
        w.run();
        let (qpn, cq) = (w.hosts[A].qpn, w.hosts[A].send_cq);
        assert_eq!(
            (w.events(A), w.state(A)),
            (vec![Event::CqErr(cq), Event::QpFatal(qpn)], QpState::Error),
            "{kind:?}"
        );
    }
}

#[test]
fn the_port_tells_when_it_goes_and_comes_and_when_its_addresses_change() {
    let mut w = World::new(options(QpKind::Rc));
    let nic = &mut w.hosts[A].nic;
    nic.set_link(true);
    assert_eq!(nic.poll_event(), None, "it was up");
    nic.set_link(false);
    nic.set_link(false);
    nic.set_link(true);
    let same = nic.port().addresses.clone();
    nic.set_addresses(same.clone());
    nic.set_addresses(same[..1].to_vec());
    assert_eq!(w.events(A), [Event::PortErr, Event::PortActive, Event::GidChange]);
    assert!(w.hosts[A].nic.is_up() && w.events(B).is_empty());
}

#[test]
fn while_the_port_is_down_nothing_goes_or_comes_and_afterwards_all_arrives() {
    let mut w = World::new(options(QpKind::Rc));
    w.recv(B, 1, 0, 100);
    w.send(A, 1, SendOp::Send, 0, 10);
    w.hosts[A].nic.set_link(false);
    assert!(w.shown(A).is_empty() && w.hosts[A].nic.poll_timeout().is_none(), "no retry is used up");
    w.hosts[A].nic.set_link(true);
    w.hosts[B].nic.set_link(false);
    w.run();
    assert_eq!(w.counters(B).rcvd_pkts, 0);
    w.hosts[B].nic.set_link(true);
    w.wait_for_timer(A);
    w.run();
    assert_eq!((w.sent_status(A), w.received_status(B)), (vec![(1, OK)], vec![(1, OK)]));
}

#[test]
fn events_of_a_destroyed_queue_pair_are_not_told_any_more() {
    let mut w = half_connected(QpKind::Rc);
    w.send(A, 1, SendOp::Send, 0, 10);
    w.run();
    let qpn = w.hosts[B].qpn;
    w.hosts[B].nic.set_link(false);
    w.hosts[B].nic.destroy_qp(qpn).unwrap();
    assert_eq!(w.events(B), [Event::PortErr]);
}

// ---- completion events ----

/// B gets a message; with what the last packet asks for.
fn message(w: &mut World, solicited: bool) {
    w.recv(B, 1, 0, 100);
    let flags = SendFlags { solicited, ..SendFlags::default() };
    w.post(A, &SendWr { flags, ..wr(1, SendOp::Send, Data::Inline(b"x")) }).unwrap();
    w.run();
}

#[test]
fn arming_gives_one_event_for_the_next_completion() {
    let mut w = World::new(options(QpKind::Rc));
    let cq = w.hosts[B].recv_cq;
    message(&mut w, false);
    assert!(w.completion_events(B).is_empty(), "nobody asked");
    w.hosts[B].nic.req_notify_cq(cq, Notify::Next).unwrap();
    assert!(w.completion_events(B).is_empty(), "what is there already raises none");
    message(&mut w, false);
    message(&mut w, false);
    assert_eq!(w.completion_events(B), [cq], "one");
    w.hosts[B].nic.req_notify_cq(cq, Notify::Next).unwrap();
    w.hosts[B].nic.req_notify_cq(cq, Notify::Next).unwrap();
    message(&mut w, false);
    message(&mut w, false);
    assert_eq!(w.completion_events(B), [cq], "asked twice, told once");
    assert_eq!(w.hosts[B].nic.req_notify_cq(CqId(99), Notify::Next), Err(CqError::NoSuchCq));
}

#[test]
fn a_solicited_event_waits_for_a_message_that_asks_or_for_a_failure() {
    for kind in [QpKind::Rc, QpKind::Uc] {
        let mut w = World::new(options(kind));
        let cq = w.hosts[B].recv_cq;
        w.hosts[B].nic.req_notify_cq(cq, Notify::Solicited).unwrap();
        message(&mut w, false);
        assert!(w.completion_events(B).is_empty());
        message(&mut w, true);
        assert_eq!(w.completion_events(B), [cq], "{kind:?}");
        message(&mut w, true);
        assert!(w.completion_events(B).is_empty(), "armed once");
        w.hosts[B].nic.req_notify_cq(cq, Notify::Solicited).unwrap();
        w.recv(B, 2, 0, 10);
        w.modify(B, &to_state(QpState::Error));
        assert_eq!(w.completion_events(B), [cq], "a failure, {kind:?}");
    }
}

#[test]
fn the_senders_own_completion_is_not_solicited() {
    let mut w = World::new(options(QpKind::Rc));
    let cq = w.hosts[A].send_cq;
    w.hosts[A].nic.req_notify_cq(cq, Notify::Solicited).unwrap();
    w.recv(B, 1, 0, 100);
    let flags = SendFlags { solicited: true, signaled: true, fence: false };
    w.post(A, &SendWr { flags, ..wr(1, SendOp::Send, Data::Inline(b"x")) }).unwrap();
    w.run();
    assert_eq!((w.sent_status(A), w.completion_events(A)), (vec![(1, OK)], vec![]));
    let op = SendOp::Write { remote_addr: 0, rkey: 0 };
    w.send(A, 2, op, 0, 8);
    w.run();
    assert_eq!((w.sent_status(A), w.completion_events(A)), (vec![(2, Status::RemAccessErr)], vec![cq]));
}

#[test]
fn who_asked_for_the_next_one_still_gets_it_after_asking_for_a_solicited_one() {
    for order in [[Notify::Next, Notify::Solicited], [Notify::Solicited, Notify::Next]] {
        let mut w = World::new(options(QpKind::Rc));
        let cq = w.hosts[B].recv_cq;
        for what in order {
            w.hosts[B].nic.req_notify_cq(cq, what).unwrap();
        }
        message(&mut w, false);
        assert_eq!(w.completion_events(B), [cq], "{order:?}");
        message(&mut w, true);
        assert!(w.completion_events(B).is_empty());
    }
}

#[test]
fn the_event_of_a_destroyed_queue_is_forgotten() {
    let mut w = World::new(options(QpKind::Rc));
    let (cq, qpn) = (w.hosts[B].recv_cq, w.hosts[B].qpn);
    w.hosts[B].nic.req_notify_cq(cq, Notify::Next).unwrap();
    message(&mut w, false);
    w.hosts[B].nic.destroy_qp(qpn).unwrap();
    w.hosts[B].nic.destroy_cq(cq).unwrap();
    assert!(w.completion_events(B).is_empty());
}

// ---- resize ----

#[test]
fn a_queue_that_grows_or_shrinks_keeps_its_completions_and_overflows_at_its_new_size() {
    for (size, refused) in [(1, true), (2, true), (3, false), (4, false), (10, false)] {
        let mut w = World::new(Options { cq: 5, ..options(QpKind::Rc) });
        let cq = w.hosts[B].recv_cq;
        for _ in 0..3 {
            message(&mut w, false);
        }
        let expected = if refused { Err(CqError::TooSmall) } else { Ok(()) };
        assert_eq!(w.hosts[B].nic.resize_cq(cq, size), expected, "to {size}");
        let room = if refused { 5 } else { size };
        for n in 3..room {
            message(&mut w, false);
            assert!(w.events(B).is_empty(), "{n} of {room}");
        }
        message(&mut w, false);
        assert_eq!(w.events(B), [Event::CqErr(cq), Event::QpFatal(w.hosts[B].qpn)], "to {size}");
        let kept = std::iter::from_fn(|| w.hosts[B].nic.poll_cq(cq).ok().flatten()).count();
        assert_eq!(kept, room);
    }
    let mut w = World::new(options(QpKind::Rc));
    assert_eq!(w.hosts[A].nic.resize_cq(CqId(99), 5), Err(CqError::NoSuchCq));
}

#[test]
fn congestion_notifications_are_counted_and_raise_nothing() {
    for kind in [QpKind::Rc, QpKind::Uc, QpKind::Ud] {
        let mut w = World::new(options(kind));
        let frame = w.forge(B, Opcode::CNP.0, 0, false, ExtHeaders::default(), &[0; 16]);
        w.deliver(B, &frame);
        assert_eq!((w.counters(B).rp_cnp_handled, w.counters(B).rp_cnp_ignored), (0, 1), "{kind:?}");
        assert!(w.events(B).is_empty() && w.shown(B).is_empty());
        assert_eq!(w.counters(B).out_of_sequence, 0, "its PSN says nothing");
    }
}
