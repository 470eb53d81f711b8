//! A receiver without a posted receive: the RNR NAK, the wait that it asks for, and the retries.

use crate::common::*;
use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{SendOp, Status, WcOpcode};
use softnic_wire::aeth::RnrTimer;

const LEN: usize = 600;

fn each_kind(options: Options, test: impl Fn(World, SendOp, &[&str])) {
    let send: &[&str] = &["SEND_FIRST +0", "SEND_MIDDLE +1", "SEND_LAST +2 A"];
    let write: &[&str] = &["RDMA_WRITE_FIRST +0", "RDMA_WRITE_MIDDLE +1", "RDMA_WRITE_LAST_WITH_IMMEDIATE +2 A"];
    each_psn(options, |w| test(w, SendOp::Send, send));
    each_psn(options, |w| {
        let op = w.write_imm_to(B, 0, 77);
        test(w, op, write);
    });
}

/// The packet that needs the receive: the first of a SEND, the last of a WRITE with immediate.
fn refused(op: SendOp) -> usize {
    if op == SendOp::Send { 0 } else { 2 }
}

#[test]
fn a_message_without_a_receive_waits_exactly_as_long_as_it_was_told_and_then_arrives() {
    for code in [0u8, 1, 5, 12, 31] {
        each_kind(Options { min_rnr_timer: code, ..Options::default() }, |mut w, op, names| {
            w.fill(A, 0, &pattern(4, LEN));
            w.send(A, 7, op, 0, LEN);
            let frames = w.transmit(A);
            assert_eq!(w.show(&frames), names);
            let at = refused(op);
            let mut answers = Vec::new();
            for f in &frames {
                w.deliver(B, f);
                answers.extend(w.transmit(B));
            }
            assert_eq!(w.show(&answers), [format!("RNR{code} +{at} msn 0")], "what follows it is not a gap");
            assert_eq!((w.counters(B).out_of_buffer, w.counters(B).sent_seq_naks), (1, 0));
            w.deliver_all(A, &answers);
            assert_eq!(w.counters(A).rnr_naks_received, 1);
            assert!(w.shown(A).is_empty());
            w.recv(B, 8, 0, LEN);
            let wait = RnrTimer(code).duration().as_nanos() as u64;
            w.wait(wait - 1);
            assert!(w.shown(A).is_empty(), "not a nanosecond too early");
            w.wait(1);
            let again = w.transmit(A);
            assert_eq!(w.show(&again), &names[at..]);
            w.deliver_all(B, &again);
            w.run();
            assert_eq!(w.sent_status(A), [(7, Status::Success)]);
            let received = w.received(B);
            let opcode = if op == SendOp::Send { WcOpcode::Recv } else { WcOpcode::RecvWriteImm };
            assert_eq!((received.len(), received[0].opcode, received[0].byte_len), (1, opcode, LEN as u32));
            assert_eq!(w.read(B, 0, LEN), pattern(4, LEN));
            assert_eq!(w.counters(A).local_ack_timeout_err, 0, "waiting is not a timeout");
        });
    }
}

#[test]
fn the_timer_of_the_node_names_the_end_of_the_wait() {
    each_kind(Options { timeout: 0, ..Options::default() }, |mut w, op, _| {
        w.send(A, 7, op, 0, LEN);
        let frames = w.transmit(A);
        w.deliver_all(B, &frames);
        let rnr = w.transmit(B);
        w.deliver_all(A, &rnr);
        assert_eq!(w.wait_for_timer(A), Some(RnrTimer(5).duration().as_nanos() as u64));
        assert!(!w.shown(A).is_empty());
    });
}

#[test]
fn a_refused_packet_is_not_placed() {
    each_kind(Options::default(), |mut w, op, _| {
        w.fill(A, 0, &pattern(4, LEN));
        w.send(A, 7, op, 0, LEN);
        let frames = w.transmit(A);
        w.deliver_all(B, &frames);
        let placed = if op == SendOp::Send { 0 } else { 512 };
        assert_eq!(w.read(B, placed, LEN - placed), vec![UNTOUCHED; LEN - placed]);
        assert!(w.received(B).is_empty());
    });
}

#[test]
fn retries_end_after_exactly_rnr_retry() {
    for rnr_retry in [0u8, 1, 6] {
        each_kind(Options { rnr_retry, ..Options::default() }, |mut w, op, _| {
            w.send(A, 7, op, 0, LEN);
            w.send(A, 8, SendOp::Send, 0, 1);
            let mut tries = 0;
            loop {
                let frames = w.transmit(A);
                w.deliver_all(B, &frames);
                let rnr = w.transmit(B);
                assert_eq!(rnr.len(), 1);
                w.deliver_all(A, &rnr);
                if w.state(A) == QpState::Error {
                    break;
                }
                tries += 1;
                w.wait(RnrTimer(5).duration().as_nanos() as u64);
            }
            assert_eq!(tries, rnr_retry);
            assert_eq!(w.sent_status(A), [(7, Status::RnrRetryExcErr), (8, Status::WrFlushErr)]);
            assert_eq!(w.counters(A).rnr_nak_retry_err, 1);
            assert_eq!(w.state(B), QpState::ReadyToSend, "the receiver did nothing wrong");
        });
    }
}

#[test]
fn seven_is_for_ever() {
    each_kind(Options { rnr_retry: 7, retry_cnt: 0, ..Options::default() }, |mut w, op, _| {
        w.send(A, 7, op, 0, LEN);
        for _ in 0..50 {
            let frames = w.transmit(A);
            w.deliver_all(B, &frames);
            let rnr = w.transmit(B);
            w.deliver_all(A, &rnr);
            w.wait(RnrTimer(5).duration().as_nanos() as u64);
        }
        assert_eq!(w.counters(A).rnr_naks_received, 50);
        w.recv(B, 8, 0, LEN);
        w.run();
        assert_eq!(w.sent_status(A), [(7, Status::Success)]);
    });
}

#[test]
fn a_lost_rnr_nak_is_made_good_by_the_timer() {
    each_kind(Options::default(), |mut w, op, names| {
        w.send(A, 7, op, 0, LEN);
        let frames = w.transmit(A);
        w.deliver_all(B, &frames);
        assert_eq!(w.shown(B).len(), 1);
        assert_eq!(w.wait_for_timer(A), Some(4096 << 10));
        let again = w.transmit(A);
        assert_eq!(w.show(&again), names);
        w.deliver_all(B, &again);
        assert_eq!(w.shown(B).len(), 1, "refused again, and said again");
    });
}

#[test]
fn messages_before_the_refused_one_are_acknowledged_by_the_rnr_nak() {
    each_psn(Options::default(), |mut w| {
        let op = w.write_to(B, 0);
        w.send(A, 1, op, 0, LEN);
        w.send(A, 2, SendOp::Send, 0, 10);
        w.send(A, 3, op, 0, LEN);
        let frames = w.transmit(A);
        w.deliver_all(B, &frames);
        let rnr = w.transmit(B);
        assert_eq!(w.show(&rnr), ["RNR5 +3 msn 1"]);
        w.deliver_all(A, &rnr);
        assert_eq!(w.sent_status(A), [(1, Status::Success)]);
        w.recv(B, 8, 0, 10);
        w.wait(RnrTimer(5).duration().as_nanos() as u64);
        w.run();
        assert_eq!(w.sent_status(A), [(2, Status::Success), (3, Status::Success)]);
    });
}

/// Linux rxe sends sequence NAKs for the packets behind the one that it refused: the wait goes on, and costs no retry.
#[test]
fn a_sequence_nak_during_the_wait_neither_ends_it_nor_starts_the_clock() {
    // A wait that is far longer than all ACK timeouts together.
    each_kind(Options { min_rnr_timer: 0, timeout: 1, retry_cnt: 1, ..Options::default() }, |mut w, op, names| {
        w.send(A, 7, op, 0, LEN);
        let frames = w.transmit(A);
        w.deliver_all(B, &frames);
        let rnr = w.transmit(B);
        w.deliver_all(A, &rnr);
        let at = refused(op);
        for _ in 0..3 {
            let nak = w.forge_aeth(A, at as i32, 0x60, 0);
            w.deliver(A, &nak);
            assert!(w.shown(A).is_empty());
        }
        // Nor does the NAK of the receiver when it is doubled on the way.
        w.deliver_all(A, &rnr);
        let wait = RnrTimer(0).duration().as_nanos() as u64;
        for _ in 0..10 {
            w.wait(wait / 10 - 1);
            assert!(w.shown(A).is_empty());
        }
        assert_eq!((w.state(A), w.counters(A).local_ack_timeout_err), (QpState::ReadyToSend, 0));
        w.recv(B, 8, 0, LEN);
        w.wait(10);
        let again = w.transmit(A);
        assert_eq!(w.show(&again), &names[at..]);
        w.deliver_all(B, &again);
        w.run();
        assert_eq!(w.sent_status(A), [(7, Status::Success)]);
    });
}

#[test]
fn a_timer_changed_while_connected_is_told_to_the_peer() {
    let mut w = World::new(Options::default());
    w.modify(B, &softnic_nic::QpAttr { min_rnr_timer: Some(9), ..Default::default() });
    w.send(A, 7, SendOp::Send, 0, 1);
    let frames = w.transmit(A);
    w.deliver_all(B, &frames);
    assert_eq!(w.shown(B), ["RNR9 +0 msn 0"]);
}

#[test]
fn an_early_packet_after_the_wait_draws_a_nak_again() {
    each_psn(Options::default(), |mut w| {
        w.send(A, 7, SendOp::Send, 0, LEN);
        let frames = w.transmit(A);
        w.deliver_all(B, &frames);
        let rnr = w.transmit(B);
        w.deliver_all(A, &rnr);
        w.recv(B, 8, 0, LEN);
        w.wait(RnrTimer(5).duration().as_nanos() as u64);
        let again = w.transmit(A);
        w.deliver(B, &again[0]);
        w.deliver(B, &again[2]);
        assert_eq!(w.shown(B), ["NAK0 +1 msn 0"]);
    });
}
