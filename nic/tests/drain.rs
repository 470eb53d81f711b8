//! SQD and SQE: a send queue that begins nothing more and comes to rest, and one that failed while receiving goes on.

use crate::common::*;
use softnic_nic::Nic;
use softnic_nic::transports::qp::QpState::{self, Error, ReadyToSend, SendQueueDrain, SendQueueError};
use softnic_nic::transports::{Data, Event, SendOp, SendWr, Sge, Status};
use softnic_nic::{AddressAttr, ModifyError, QpAttr, QpKind};
use softnic_wire::Addresses;

const OK: Status = Status::Success;

fn options(kind: QpKind) -> Options {
    Options { kind, ..Options::default() }
}

/// To SQD, with an event when it is drained.
fn drain() -> QpAttr {
    QpAttr { sqd_notify: Some(true), ..to_state(SendQueueDrain) }
}

fn drained(w: &World, h: usize) -> Vec<Event> {
    vec![Event::SqDrained(w.hosts[h].qpn)]
}

/// What cannot be sent: a key that nobody has.
fn broken(w: &World) -> [Sge; 1] {
    [Sge { lkey: w.hosts[A].key ^ 0x100, ..w.sge(A, 0, 10) }]
}

#[test]
fn an_idle_queue_is_drained_at_once_and_says_so_only_if_asked() {
    for kind in [QpKind::Rc, QpKind::Uc, QpKind::Ud, QpKind::Gsi] {
        let mut w = World::new(options(kind));
        w.modify(A, &drain());
        let expected = drained(&w, A);
        assert_eq!((w.events(A), w.state(A)), (expected, SendQueueDrain), "{kind:?}");
        w.modify(A, &to_state(ReadyToSend));
        w.modify(A, &to_state(SendQueueDrain));
        w.modify(A, &to_state(SendQueueDrain));
        assert!(w.events(A).is_empty(), "{kind:?}");
    }
}

#[test]
fn the_message_under_way_is_finished_and_the_next_does_not_begin() {
    each_psn(options(QpKind::Rc), |mut w| {
        let op = w.write_to(B, 0);
        w.send(A, 1, op, 0, 700);
        w.send(A, 2, op, 0, 10);
        let first = w.transmit_one(A, Nic::WIRE).unwrap();
        w.modify(A, &drain());
        w.send(A, 3, op, 0, 10);
        let rest = w.transmit(A);
        assert_eq!(w.show(&rest), ["RDMA_WRITE_MIDDLE +1", "RDMA_WRITE_LAST +2 A"]);
        w.deliver(B, &first);
        w.deliver_all(B, &rest);
        assert!(w.events(A).is_empty(), "not before the answer");
        let answers = w.transmit(B);
        w.deliver_all(A, &answers);
        let expected = drained(&w, A);
        assert_eq!((w.events(A), w.sent_status(A)), (expected, vec![(1, OK)]));
        assert!(w.shown(A).is_empty());
        w.modify(A, &to_state(ReadyToSend));
        let frames = w.transmit(A);
        assert_eq!(w.show(&frames), ["RDMA_WRITE_ONLY +3", "RDMA_WRITE_ONLY +4 A"], "in order");
        w.deliver_all(B, &frames);
        w.run();
        assert_eq!(w.sent_status(A), [(2, OK), (3, OK)]);
        assert!(w.events(A).is_empty(), "once");
    });
}

#[test]
fn what_counted_on_its_successor_to_ask_for_an_answer_asks_itself() {
    each_psn(options(QpKind::Rc), |mut w| {
        let op = w.write_to(B, 0);
        for id in 1..=4 {
            w.send(A, id, op, 0, 10);
        }
        let frames = [w.transmit_one(A, Nic::WIRE).unwrap(), w.transmit_one(A, Nic::WIRE).unwrap()];
        assert_eq!(w.show(&frames), ["RDMA_WRITE_ONLY +0", "RDMA_WRITE_ONLY +1"], "neither asks: two more follow");
        w.deliver_all(B, &frames);
        w.modify(A, &drain());
        w.run();
        let expected = drained(&w, A);
        assert_eq!((w.events(A), w.sent_status(A)), (expected, vec![(1, OK), (2, OK)]));
        w.modify(A, &to_state(ReadyToSend));
        w.run();
        assert_eq!(w.sent_status(A), [(3, OK), (4, OK)]);
        assert_eq!(w.counters(B).rx_write_requests, 4, "nothing is carried out twice");
    });
}

#[test]
fn an_answer_to_a_part_of_it_does_not_leave_the_rest_waiting() {
    each_psn(options(QpKind::Rc), |mut w| {
        let op = w.write_to(B, 0);
        w.send(A, 1, op, 0, 10);
        let asks = w.transmit(A);
        w.send(A, 2, op, 0, 10);
        w.send(A, 3, op, 0, 10);
        let silent = w.transmit_one(A, Nic::WIRE).unwrap();
        assert_eq!(w.show(&[asks[0].clone(), silent.clone()]), ["RDMA_WRITE_ONLY +0 A", "RDMA_WRITE_ONLY +1"]);
        w.modify(A, &drain());
        w.deliver_all(B, &asks);
        let answer = w.transmit(B);
        w.deliver(B, &silent);
        w.deliver_all(A, &answer);
        assert!(w.events(A).is_empty());
        w.run();
        let expected = drained(&w, A);
        assert_eq!((w.events(A), w.sent_status(A)), (expected, vec![(1, OK), (2, OK)]));
    });
}

#[test]
fn loss_while_draining_is_recovered_and_the_event_waits_for_it() {
    for lost in 0..3 {
        each_psn(options(QpKind::Rc), |mut w| {
            w.fill(A, 0, &pattern(1, 700));
            let op = w.write_to(B, 0);
            w.send(A, 1, op, 0, 700);
            w.send(A, 2, op, 0, 10);
            let mut frames = vec![w.transmit_one(A, Nic::WIRE).unwrap()];
            w.modify(A, &drain());
            frames.extend(w.transmit(A));
            frames.remove(lost);
            w.deliver_all(B, &frames);
            w.run();
            if lost == 2 {
                assert!(w.events(A).is_empty() && w.sent(A).is_empty());
                w.wait_for_timer(A);
                w.run();
            }
            let expected = drained(&w, A);
            assert_eq!((w.events(A), w.sent_status(A)), (expected, vec![(1, OK)]), "packet {lost} lost");
            assert_eq!(w.read(B, 0, 700), pattern(1, 700));
        });
    }
}

#[test]
fn a_lost_answer_while_draining_is_asked_for_again() {
    let mut w = World::new(options(QpKind::Rc));
    let op = w.write_to(B, 0);
    w.send(A, 1, op, 0, 10);
    let frames = w.transmit(A);
    w.modify(A, &drain());
    w.deliver_all(B, &frames);
    let _lost = w.transmit(B);
    assert!(w.wait_for_timer(A).is_some());
    w.run();
    let expected = drained(&w, A);
    assert_eq!((w.events(A), w.sent_status(A)), (expected, vec![(1, OK)]));
}

#[test]
fn outstanding_reads_hold_the_drain_up_until_their_data_is_there() {
    each_psn(options(QpKind::Rc), |mut w| {
        w.fill(B, 0, &pattern(3, 700));
        let op = w.read_from(B, 0);
        w.send(A, 1, op, 5000, 700);
        w.send(A, 2, op, 6000, 700);
        let request = w.transmit_one(A, Nic::WIRE).unwrap();
        w.modify(A, &drain());
        assert!(w.shown(A).is_empty(), "the second does not begin");
        w.deliver(B, &request);
        let responses = w.transmit(B);
        w.deliver_all(A, &responses[..2]);
        assert!(w.events(A).is_empty());
        w.deliver(A, &responses[2]);
        let expected = drained(&w, A);
        assert_eq!((w.events(A), w.sent_status(A)), (expected, vec![(1, OK)]));
        assert_eq!(w.read(A, 5000, 700), pattern(3, 700));
        w.modify(A, &to_state(ReadyToSend));
        w.run();
        assert_eq!((w.sent_status(A), w.read(A, 6000, 700)), (vec![(2, OK)], pattern(3, 700)));
    });
}

#[test]
fn a_drained_connection_still_receives_and_answers() {
    let mut w = World::new(options(QpKind::Rc));
    w.modify(A, &drain());
    w.recv(A, 5, 0, 100);
    w.fill(B, 0, &pattern(9, 100));
    w.send(B, 1, SendOp::Send, 0, 100);
    let op = w.read_from(A, 0);
    w.send(B, 2, op, 1000, 100);
    w.run();
    assert_eq!((w.sent_status(B), w.received_status(A)), (vec![(1, OK), (2, OK)], vec![(5, OK)]));
    assert_eq!((w.read(A, 0, 100), w.read(B, 1000, 100)), (pattern(9, 100), pattern(9, 100)));
}

#[test]
fn local_operations_wait_for_the_drain_to_end() {
    for kind in [QpKind::Rc, QpKind::Uc] {
        let mut w = World::new(options(kind));
        w.modify(A, &drain());
        w.post(A, &wr(1, SendOp::LocalInv { rkey: 5 }, Data::Gather(&[]))).unwrap();
        w.run();
        assert!(w.sent(A).is_empty(), "{kind:?}");
        assert_eq!(w.state(A), SendQueueDrain);
        w.modify(A, &to_state(ReadyToSend));
        w.run();
        assert_eq!(w.sent_status(A), [(1, Status::MwBindErr)], "{kind:?}");
    }
}

#[test]
fn attributes_change_when_it_is_drained_and_not_before() {
    let mut w = World::new(options(QpKind::Rc));
    let op = w.write_to(B, 0);
    w.send(A, 1, op, 0, 10);
    let frames = w.transmit(A);
    w.modify(A, &drain());
    let mut path = w.path(A);
    (path.hop_limit, path.src_port) = (9, 0xdead);
    let change = QpAttr { path: Some(path), timeout: Some(12), ..to_state(SendQueueDrain) };
    let qpn = w.hosts[A].qpn;
    assert_eq!(w.hosts[A].nic.modify_qp(qpn, &change), Err(ModifyError::NotDrained));
    let (_, attr) = w.hosts[A].nic.query_qp(qpn).unwrap();
    assert_eq!(attr.timeout, Some(10), "what is refused changes nothing");
    w.deliver_all(B, &frames);
    w.run();
    w.modify(A, &change);
    w.modify(A, &to_state(ReadyToSend));
    w.send(A, 2, op, 0, 10);
    let frames = w.transmit(A);
    let b = &frames[0];
    assert_eq!((b[14 + 8], u16::from_be_bytes([b[34], b[35]])), (9, 0xdead), "on the wire");
    // The timer of the last send may fire early; the deadline is the new one.
    let start = w.now;
    while w.counters(A).local_ack_timeout_err == 0 {
        w.wait_for_timer(A).unwrap();
    }
    assert_eq!(w.now.saturating_since(start).as_nanos(), 4096 << 12);
    w.deliver_all(B, &frames);
    w.run();
    assert_eq!(w.sent_status(A), [(1, OK), (2, OK)]);
}

#[test]
fn a_drained_connection_may_move_to_another_address_of_its_peer() {
    for kind in [QpKind::Rc, QpKind::Uc] {
        let mut w = World::new(options(kind));
        for h in [A, B] {
            w.modify(h, &to_state(SendQueueDrain));
            let (v6, mac) = (address_v6(1 - h), address(1 - h).1);
            let path = AddressAttr::new(v6, mac, 1, 7).path(w.hosts[h].nic.port()).unwrap();
            w.modify(h, &QpAttr { path: Some(path), ..to_state(SendQueueDrain) });
            w.modify(h, &to_state(ReadyToSend));
        }
        w.recv(B, 9, 0, 10);
        w.send(A, 1, SendOp::Send, 0, 10);
        let frames = w.transmit(A);
        let p = w.parse(&frames[0]);
        assert_eq!(p.layout.addresses(&frames[0]), Some((address_v6(A), address_v6(B))), "{kind:?}");
        w.deliver_all(B, &frames);
        w.run();
        assert_eq!((w.sent_status(A), w.received_status(B)), (vec![(1, OK)], vec![(9, OK)]));
        let path = softnic_wire::Path { addresses: Addresses::new(address_v6(B), address_v6(A)).unwrap(), ..w.path(A) };
        w.modify(A, &to_state(SendQueueDrain));
        let change = QpAttr { path: Some(path), ..to_state(SendQueueDrain) };
        let qpn = w.hosts[A].qpn;
        assert_eq!(w.hosts[A].nic.modify_qp(qpn, &change), Err(ModifyError::NotOurAddress));
    }
}

#[test]
fn an_unreliable_message_under_way_is_finished_before_the_event() {
    each_psn(options(QpKind::Uc), |mut w| {
        w.recv(B, 9, 0, 1000);
        w.send(A, 1, SendOp::Send, 0, 700);
        w.send(A, 2, SendOp::Send, 0, 700);
        let mut frames = vec![w.transmit_one(A, Nic::WIRE).unwrap()];
        w.modify(A, &drain());
        let qpn = w.hosts[A].qpn;
        assert_eq!(w.hosts[A].nic.modify_qp(qpn, &to_state(SendQueueDrain)), Err(ModifyError::NotDrained));
        frames.push(w.transmit_one(A, Nic::WIRE).unwrap());
        assert!(w.events(A).is_empty());
        frames.extend(w.transmit(A));
        let expected = drained(&w, A);
        assert_eq!((frames.len(), w.events(A), w.sent_status(A)), (3, expected, vec![(1, OK)]));
        w.modify(A, &to_state(SendQueueDrain));
        w.modify(A, &to_state(ReadyToSend));
        assert_eq!(w.shown(A), ["SEND_FIRST +3", "SEND_MIDDLE +4", "SEND_LAST +5"]);
        w.deliver_all(B, &frames);
        assert_eq!(w.received_status(B), [(9, OK)]);
        assert!(w.events(A).is_empty());
    });
}

#[test]
fn datagrams_wait_in_sqd_and_go_in_order_afterwards() {
    let mut w = World::new(options(QpKind::Ud));
    let to = w.datagram(A, B);
    w.modify(A, &drain());
    w.events(A);
    for id in 1..4 {
        w.send_to(A, id, SendOp::SendImm { imm: id as u32 }, to, 0, 10);
    }
    assert!(w.shown(A).is_empty() && w.sent(A).is_empty());
    w.modify(A, &to_state(ReadyToSend));
    let frames = w.transmit(A);
    let imms: Vec<_> = frames.iter().map(|f| w.parse(f).ext.imm.unwrap()).collect();
    assert_eq!((imms, w.sent_status(A)), (vec![1, 2, 3], vec![(1, OK), (2, OK), (3, OK)]));
}

#[test]
fn a_failed_send_stops_only_the_sending_of_an_unreliable_queue_pair() {
    for kind in [QpKind::Uc, QpKind::Ud] {
        for psn in FIRST_PSNS {
            let mut w = World::new(Options { psn, ..options(kind) });
            let to = (kind == QpKind::Ud).then(|| w.datagram(A, B));
            let back = (kind == QpKind::Ud).then(|| w.datagram(B, A));
            let (good, bad) = ([w.sge(A, 0, 10)], broken(&w));
            let post = |w: &mut World, id, sges: &[Sge]| {
                w.post(A, &SendWr { to, ..wr(id, SendOp::Send, Data::Gather(sges)) }).unwrap();
            };
            w.recv(B, 50, 0, 100);
            w.recv(B, 51, 100, 100);
            w.recv(A, 60, 1000, 100);
            for (id, sges) in [(1, &good), (2, &bad), (3, &good), (4, &bad)] {
                post(&mut w, id, sges);
            }
            let flushed = Status::WrFlushErr;
            w.run();
            assert_eq!(w.sent_status(A), [(1, OK), (2, Status::LocProtErr), (3, flushed), (4, flushed)], "{kind:?}");
            assert_eq!((w.state(A), w.events(A)), (SendQueueError, vec![]), "{kind:?}");
            assert_eq!(w.received_status(B), [(50, OK)]);
            // What is posted now is flushed at once; receiving goes on, posted receives stay.
            post(&mut w, 5, &good);
            assert_eq!(w.sent_status(A), [(5, flushed)], "{kind:?}");
            let sges = [w.sge(B, 0, 10)];
            w.post(B, &SendWr { to: back, ..wr(1, SendOp::Send, Data::Gather(&sges)) }).unwrap();
            w.run();
            assert_eq!((w.received_status(A), w.sent_status(B)), (vec![(60, OK)], vec![(1, OK)]), "{kind:?}");
            let qpn = w.hosts[A].qpn;
            let refused = ModifyError::Transition { from: SendQueueError, to: SendQueueDrain };
            assert_eq!(w.hosts[A].nic.modify_qp(qpn, &to_state(SendQueueDrain)), Err(refused));
            w.modify(A, &to_state(ReadyToSend));
            post(&mut w, 6, &good);
            let frames = w.transmit(A);
            assert_eq!(w.show(&frames)[0].split(' ').nth(1), Some("+1"), "the next PSN: none was used up");
            w.deliver_all(B, &frames);
            assert_eq!((w.sent_status(A), w.received_status(B)), (vec![(6, OK)], vec![(51, OK)]), "{kind:?}");
        }
    }
}

#[test]
fn a_message_that_breaks_in_its_middle_leaves_a_peer_that_takes_the_next() {
    each_psn(options(QpKind::Uc), |mut w| {
        let (good, bad) = (w.sge(A, 0, 300), broken(&w)[0]);
        w.recv(B, 50, 0, 1000);
        w.post(A, &wr(1, SendOp::Send, Data::Gather(&[good, bad]))).unwrap();
        w.send(A, 2, SendOp::Send, 0, 10);
        w.run();
        assert_eq!(w.sent_status(A), [(1, Status::LocProtErr), (2, Status::WrFlushErr)]);
        assert!(w.received(B).is_empty());
        w.modify(A, &to_state(ReadyToSend));
        w.send(A, 3, SendOp::Send, 0, 700);
        let frames = w.transmit(A);
        assert_eq!(w.show(&frames), ["SEND_FIRST +1", "SEND_MIDDLE +2", "SEND_LAST +3"]);
        w.deliver_all(B, &frames);
        assert_eq!((w.received_status(B), w.sent_status(A)), (vec![(50, OK)], vec![(3, OK)]));
    });
}

#[test]
fn a_send_that_fails_while_draining_goes_to_sqe_without_the_event() {
    let mut w = World::new(options(QpKind::Uc));
    let sges = [w.sge(A, 0, 256), broken(&w)[0]];
    w.post(A, &wr(1, SendOp::Send, Data::Gather(&sges))).unwrap();
    assert!(w.transmit_one(A, Nic::WIRE).is_some());
    w.modify(A, &drain());
    w.run();
    assert_eq!((w.sent_status(A), w.state(A)), (vec![(1, Status::LocProtErr)], SendQueueError));
    assert!(w.events(A).is_empty());
}

#[test]
fn a_reliable_connection_never_stops_its_sending_alone() {
    for draining in [false, true] {
        let mut w = World::new(options(QpKind::Rc));
        let sges = [w.sge(A, 0, 256), broken(&w)[0]];
        w.recv(A, 60, 0, 10);
        w.post(A, &wr(1, SendOp::Send, Data::Gather(&sges))).unwrap();
        let first = w.transmit_one(A, Nic::WIRE).unwrap();
        if draining {
            w.modify(A, &drain());
        }
        w.recv(B, 50, 0, 1000);
        w.deliver(B, &first);
        w.run();
        assert_eq!((w.sent_status(A), w.state(A)), (vec![(1, Status::LocProtErr)], Error));
        assert_eq!(w.received_status(A), [(60, Status::WrFlushErr)]);
        assert!(w.events(A).is_empty());
    }
}

#[test]
fn leaving_sqd_for_error_or_reset_raises_no_drained_event() {
    for to in [Error, QpState::Reset] {
        let mut w = World::new(options(QpKind::Rc));
        let op = w.write_to(B, 0);
        w.send(A, 1, op, 0, 10);
        let frames = w.transmit(A);
        w.modify(A, &drain());
        w.modify(A, &to_state(to));
        w.deliver_all(B, &frames);
        w.run();
        assert!(w.events(A).is_empty(), "{to:?}");
        let flushed = if to == Error { vec![(1, Status::WrFlushErr)] } else { vec![] };
        assert_eq!(w.sent_status(A), flushed, "{to:?}");
    }
}
