//! A queue pair that runs out of retries and halts: its work stays in place until its owner flushes or resets it.

use crate::common::*;
use softnic_nic::QpKind;
use softnic_nic::transports::SendProgress::{self, PartlyAcknowledged, Sent, Unsent};
use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{Data, Event, PostError, RecvWr, SendOp, Status, Transport};

const SR: [Option<Transport>; 2] = [Some(Transport::Sr { window: 1024 }); 2];

/// Both kinds of reliable connections, which halt; with the negotiation behind them.
fn worlds(o: Options) -> [World; 2] {
    [[None; 2], SR].map(|offers| {
        let mut w = World::new(Options { offers, halts: true, ..o });
        w.run();
        w
    })
}

/// Whatever A sends is lost until it stops.
fn lose_all(w: &mut World) {
    for _ in 0..200 {
        w.transmit(A);
        if w.state(A) == QpState::Error {
            return;
        }
        w.wait_for_timer(A).expect("it tries again");
    }
    panic!("it never stops");
}

fn outstanding(w: &World) -> Vec<(u64, SendProgress)> {
    let sends = w.hosts[A].nic.outstanding_sends(w.hosts[A].qpn).expect("a reliable connection");
    sends.map(|send| (send.wr.wr_id, send.progress)).collect()
}

#[test]
fn out_of_retries_the_work_stays_in_place_and_one_event_tells_of_it() {
    for mut w in worlds(Options::default()) {
        let qpn = w.hosts[A].qpn;
        for id in 1..=3 {
            let op = w.write_to(B, 0);
            w.send(A, id, op, 0, 256 * 4);
        }
        w.recv(A, 9, 0, 100);
        lose_all(&mut w);
        assert_eq!(w.events(A), [Event::QpHalted(qpn, Status::RetryExcErr)]);
        assert_eq!(w.counters(A).retry_exceeded_err, 1);
        assert_eq!(outstanding(&w), [(1, Sent), (2, Sent), (3, Sent)]);
        let op = w.write_to(B, 0);
        let sends = w.hosts[A].nic.outstanding_sends(qpn).unwrap();
        assert!(sends.into_iter().all(|send| send.wr.op == op));
        // Nothing more is sent, received or completed.
        let request = w.forge(A, softnic_wire::Opcode::RC_SEND_ONLY.0, 0, true, Default::default(), &[1; 8]);
        w.deliver(A, &request);
        w.wait(1_000_000_000);
        assert!(w.transmit(A).is_empty());
        assert!(w.sent(A).is_empty() && w.received(A).is_empty() && w.events(A).is_empty());
        assert_eq!(w.counters(A).req_cqe_error, 0);
    }
}

#[test]
fn the_error_state_asked_for_again_flushes_with_the_status_that_it_halted_with() {
    for mut w in worlds(Options::default()) {
        for id in 1..=3 {
            let op = w.write_to(B, 0);
            w.send(A, id, op, 0, 100);
        }
        (10..14).for_each(|id| w.recv(A, id, 0, 100));
        lose_all(&mut w);
        w.events(A);
        w.modify(A, &to_state(QpState::Error));
        let flushed = Status::WrFlushErr;
        assert_eq!(w.sent_status(A), [(1, Status::RetryExcErr), (2, flushed), (3, flushed)]);
        assert_eq!(w.received_status(A), [(10, flushed), (11, flushed), (12, flushed), (13, flushed)]);
        assert!(outstanding(&w).is_empty() && w.events(A).is_empty());
        assert_eq!(w.counters(A).req_cqe_error, 1);
        // From now on it is as any other in error.
        w.modify(A, &to_state(QpState::Error));
        w.send(A, 4, SendOp::Send, 0, 10);
        w.recv(A, 14, 0, 100);
        assert_eq!((w.sent_status(A), w.received_status(A)), (vec![(4, flushed)], vec![(14, flushed)]));
    }
}

#[test]
fn a_reset_forgets_the_work_and_the_queue_pair_is_of_use_again() {
    for mut w in worlds(Options::default()) {
        let op = w.write_to(B, 0);
        w.send(A, 1, op, 0, 100);
        lose_all(&mut w);
        let o = w.options;
        for h in [A, B] {
            w.modify(h, &to_state(QpState::Reset));
            w.modify(h, &init_attr(&o));
            let rtr = rtr_attr(&o, w.path(h), w.hosts[1 - h].qpn);
            w.modify(h, &rtr);
            w.modify(h, &rts_attr(&o));
        }
        assert!(outstanding(&w).is_empty());
        w.run();
        w.send(A, 2, op, 0, 100);
        w.run();
        assert_eq!(w.sent_status(A), [(2, Status::Success)]);
        // It halts again.
        w.events(A);
        w.send(A, 3, op, 0, 100);
        lose_all(&mut w);
        assert_eq!(w.events(A), [Event::QpHalted(w.hosts[A].qpn, Status::RetryExcErr)]);
        assert_eq!(outstanding(&w), [(3, Sent)]);
    }
}

#[test]
fn a_peer_that_never_has_a_receive_halts_the_queue_pair_too() {
    for mut w in worlds(Options { rnr_retry: 1, ..Options::default() }) {
        w.send(A, 1, SendOp::Send, 0, 100);
        w.send(A, 2, SendOp::Send, 0, 100);
        for _ in 0..10 {
            w.run();
            if w.state(A) == QpState::Error {
                break;
            }
            w.wait_for_timer(A);
        }
        let status = Status::RnrRetryExcErr;
        assert_eq!(w.events(A), [Event::QpHalted(w.hosts[A].qpn, status)]);
        assert_eq!(outstanding(&w).iter().map(|&(id, _)| id).collect::<Vec<_>>(), [1, 2]);
        assert!(w.sent(A).is_empty());
        w.modify(A, &to_state(QpState::Error));
        assert_eq!(w.sent_status(A), [(1, status), (2, Status::WrFlushErr)]);
    }
}

#[test]
fn what_was_acknowledged_in_part_sent_and_not_sent_is_told_apart() {
    for mut w in worlds(Options { max_rd_atomic: 1, ..Options::default() }) {
        let (write, read) = (w.write_to(B, 0), w.read_from(B, 0));
        w.send(A, 1, write, 0, 100);
        w.run();
        assert_eq!(w.sent_status(A), [(1, Status::Success)]);
        w.send(A, 2, write, 0, 256 * 200);
        w.send(A, 3, read, 0, 256 * 2);
        w.send(A, 4, read, 0, 256 * 2);
        // The first packets come and are acknowledged.
        let frames = w.transmit(A);
        // One of 64 packets asks for an acknowledgement, of Selective Repeat one of 16.
        let came = if w.options.offers[A].is_some() { 20 } else { 70 };
        w.deliver_all(B, &frames[..came]);
        let answers = w.transmit(B);
        w.deliver_all(A, &answers);
        lose_all(&mut w);
        let found = outstanding(&w);
        assert_eq!((found[0], found.last().copied(), found.len()), ((2, PartlyAcknowledged), Some((4, Unsent)), 3));
        // Selective Repeat may have had no room for the first READ.
        assert!(found[1] == (3, Sent) || w.options.offers[A].is_some(), "{found:?}");
    }
}

#[test]
fn nothing_more_can_be_posted_to_a_queue_pair_that_halted() {
    for mut w in worlds(Options::default()) {
        let op = w.write_to(B, 0);
        w.send(A, 1, op, 0, 100);
        lose_all(&mut w);
        let sges = [w.sge(A, 0, 100)];
        assert_eq!(w.post(A, &wr(2, op, Data::Gather(&sges))), Err(PostError::State));
        let receive = RecvWr { wr_id: 3, sges: &sges, best_effort: None };
        assert_eq!(w.post_recv(A, &receive), Err(PostError::State));
        assert!(w.transmit(A).is_empty() && w.sent(A).is_empty() && w.received(A).is_empty());
        assert_eq!(outstanding(&w), [(1, Sent)]);
        w.modify(A, &to_state(QpState::Error));
        assert_eq!(w.sent_status(A), [(1, Status::RetryExcErr)]);
        assert!(w.received(A).is_empty());
    }
}

#[test]
fn a_queue_pair_that_was_not_asked_to_halt_and_other_errors_flush_as_ever() {
    for [mut halts, mut flushes] in [[None; 2], SR].map(|offers| {
        [true, false].map(|halts| {
            let mut w = World::new(Options { offers, halts, ..Options::default() });
            w.run();
            w
        })
    }) {
        let op = flushes.write_to(B, 0);
        flushes.send(A, 1, op, 0, 100);
        lose_all(&mut flushes);
        assert!(flushes.events(A).is_empty());
        assert_eq!(flushes.sent_status(A), [(1, Status::RetryExcErr)]);
        // The peer refuses a key that does not exist.
        halts.send(A, 1, SendOp::Write { remote_addr: 0, rkey: 12345 }, 0, 100);
        halts.run();
        assert!(halts.events(A).is_empty());
        assert_eq!(halts.sent_status(A), [(1, Status::RemAccessErr)]);
    }
}

#[test]
fn shared_receives_are_left_until_the_work_is_flushed() {
    for mut w in worlds(Options { srq: true, ..Options::default() }) {
        let qpn = w.hosts[A].qpn;
        let op = w.write_to(B, 0);
        w.send(A, 1, op, 0, 100);
        lose_all(&mut w);
        assert_eq!(w.events(A), [Event::QpHalted(qpn, Status::RetryExcErr)]);
        w.modify(A, &to_state(QpState::Error));
        assert_eq!(w.events(A), [Event::LastWqeReached(qpn)]);
    }
}

#[test]
fn only_reliable_connections_tell_of_what_is_outstanding() {
    for kind in [QpKind::Uc, QpKind::Ud] {
        let w = World::new(Options { kind, halts: true, ..Options::default() });
        assert!(w.hosts[A].nic.outstanding_sends(w.hosts[A].qpn).is_none());
    }
}
