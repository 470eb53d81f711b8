//! An acknowledgement waits for a moment where the program answers every message at once, and nowhere else.

use crate::common::*;
use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{SendOp, Status};
use softnic_wire::Node;

/// The time that a program has, in nanoseconds.
const PATIENCE: u64 = 20_000;

/// One message of A, which B has got; what B sends then.
fn ping(w: &mut World) -> Vec<String> {
    let op = w.write_to(B, 0);
    w.send(A, 1, op, 0, 10);
    let frames = w.transmit(A);
    w.deliver_all(B, &frames);
    w.shown(B)
}

/// B's reply.
fn pong(w: &mut World) {
    let op = w.write_to(A, 0);
    w.send(B, 2, op, 0, 10);
}

/// A message of A, answered by B's program after some time, and everything acknowledged. What B sent before its reply, and with it.
fn exchange(w: &mut World, after: u64) -> (Vec<String>, Vec<String>) {
    let op = w.write_to(B, 0);
    w.send(A, 1, op, 0, 10);
    let frames = w.transmit(A);
    w.deliver_all(B, &frames);
    let before = w.transmit(B);
    w.deliver_all(A, &before);
    // Timers are looked at all the time.
    for passed in (0..after).step_by(5000) {
        w.wait(5000.min(after - passed));
    }
    pong(w);
    let with = w.transmit(B);
    w.deliver_all(A, &with);
    let shown = (kinds(w, &before), kinds(w, &with));
    // A answers nobody.
    w.wait(PATIENCE);
    w.run();
    for (h, wr_id) in [(A, 1), (B, 2)] {
        assert_eq!(w.sent_status(h).pop(), Some((wr_id, Status::Success)));
    }
    shown
}

fn kinds(w: &World, frames: &[Vec<u8>]) -> Vec<String> {
    w.show(frames).iter().map(|line| line.split(' ').next().unwrap_or_default().to_string()).collect()
}

/// A world in which B's program answered as often as counts as a habit.
fn habit(options: Options) -> World {
    let mut w = World::new(options);
    for _ in 0..3 {
        assert_eq!(exchange(&mut w, 1000).0, ["ACK"], "there is no habit yet");
    }
    w
}

#[test]
fn a_reply_that_comes_at_once_goes_first_and_the_acknowledgement_right_behind_it() {
    each_psn(Options::default(), |w| {
        let mut w = habit(w.options);
        for after in [0, 1, PATIENCE - 1, 10] {
            let (before, with) = exchange(&mut w, after);
            assert!(before.is_empty(), "{before:?}");
            assert_eq!(with, ["RDMA_WRITE_ONLY", "ACK"]);
        }
        for h in [A, B] {
            assert_eq!((w.counters(h).local_ack_timeout_err, w.counters(h).duplicate_request), (0, 0));
        }
    });
}

#[test]
fn programs_that_sleep_until_an_event_comes_hear_of_their_own_message_first() {
    let mut w = World::new(Options { prompt_acks: true, ..Options::default() });
    for _ in 0..10 {
        let op = w.write_to(B, 0);
        w.send(A, 1, op, 0, 10);
        let frames = w.transmit(A);
        w.deliver_all(B, &frames);
        // The program is so quick that its reply is posted before anything was sent.
        pong(&mut w);
        let with = w.transmit(B);
        assert_eq!(kinds(&w, &with), ["ACK", "RDMA_WRITE_ONLY"]);
        w.deliver_all(A, &with);
        let answer = w.transmit(A);
        assert_eq!(kinds(&w, &answer), ["ACK"], "and nobody is waited for");
        w.deliver_all(B, &answer);
    }
}

#[test]
fn a_program_that_does_not_reply_is_waited_for_once() {
    let mut w = habit(Options::default());
    assert!(ping(&mut w).is_empty());
    let mut waited = 0;
    // Timers may fire too early, never too late.
    let acknowledgement = loop {
        waited += w.wait_for_timer(B).expect("it waits for something");
        match w.shown(B) {
            nothing if nothing.is_empty() => {}
            shown => break shown,
        }
    };
    assert_eq!((waited, acknowledgement.len()), (PATIENCE, 1));
    assert_eq!(ping(&mut w).len(), 1, "who was waited for in vain is not waited for");
    pong(&mut w);
    w.run();
    assert_eq!(exchange(&mut w, 10).0, ["ACK"], "one reply is no habit");
}

#[test]
fn a_habit_outlives_one_late_reply() {
    let mut w = habit(Options::default());
    (0..5).for_each(|_| assert!(exchange(&mut w, 10).0.is_empty()));
    assert!(exchange(&mut w, 100_000).0.is_empty(), "it is waited for");
    assert!(exchange(&mut w, 10).0.is_empty(), "and again");
    for _ in 0..3 {
        exchange(&mut w, 100_000);
    }
    assert_eq!(exchange(&mut w, 10).0, ["ACK"], "but not for ever");
}

#[test]
fn a_nic_that_nobody_ran_for_long_waits_for_the_program_from_then_on_once() {
    let mut w = habit(Options::default());
    assert!(ping(&mut w).is_empty());
    w.wait(1_000_000);
    assert!(w.shown(B).is_empty(), "the program had no time either");
    w.wait(1_000_000);
    assert_eq!(w.shown(B).len(), 1);
}

#[test]
fn nobody_who_never_replies_is_waited_for() {
    let mut w = World::new(Options::default());
    for _ in 0..20 {
        let op = w.write_to(B, 0);
        w.send(A, 1, op, 0, 10);
        let frames = w.transmit(A);
        w.deliver_all(B, &frames);
        let answer = w.transmit(B);
        assert_eq!(kinds(&w, &answer), ["ACK"]);
        w.deliver_all(A, &answer);
    }
}

#[test]
fn replies_that_come_late_are_no_habit() {
    let mut w = World::new(Options::default());
    for _ in 0..10 {
        assert_eq!(exchange(&mut w, PATIENCE).0, ["ACK"]);
    }
}

#[test]
fn a_second_message_is_not_kept_waiting_and_neither_is_the_first() {
    let mut w = habit(Options::default());
    assert!(ping(&mut w).is_empty());
    let shown = ping(&mut w);
    assert_eq!(shown.len(), 1);
    assert!(shown[0].ends_with("msn 5"), "it is for both: {shown:?}");
    pong(&mut w);
    w.run();
    assert_eq!(exchange(&mut w, 10).0, ["ACK"], "several at a time are no ping-pong");
}

#[test]
fn what_is_sent_again_is_answered_at_once() {
    let mut w = habit(Options::default());
    let op = w.write_to(B, 0);
    w.send(A, 1, op, 0, 10);
    let frames = w.transmit(A);
    w.deliver_all(B, &frames);
    assert!(w.shown(B).is_empty());
    w.deliver_all(B, &frames);
    assert_eq!(w.shown(B).len(), 1);
    assert_eq!(w.counters(B).duplicate_request, 1);
}

#[test]
fn other_answers_do_not_wait() {
    // A receive that is missing.
    let mut w = habit(Options::default());
    w.send(A, 1, SendOp::Send, 0, 10);
    let frames = w.transmit(A);
    w.deliver_all(B, &frames);
    assert!(w.shown(B)[0].starts_with("RNR"));
    // A gap.
    let mut w = habit(Options::default());
    let op = w.write_to(B, 0);
    (0..2).for_each(|id| w.send(A, id, op, 0, 10));
    let frames = w.transmit(A);
    w.deliver(B, &frames[1]);
    assert!(w.shown(B)[0].starts_with("NAK"));
    // Data, and what was owed when it was asked for.
    let mut w = habit(Options::default());
    assert!(ping(&mut w).is_empty());
    let op = w.read_from(B, 0);
    w.send(A, 3, op, 0, 10);
    let frames = w.transmit(A);
    w.deliver_all(B, &frames);
    let shown = w.shown(B);
    assert!(shown[0].starts_with("RDMA_READ_RESPONSE"), "{shown:?}");
    // A key that is wrong.
    let mut w = habit(Options::default());
    w.send(A, 1, SendOp::Write { remote_addr: 0, rkey: 7 }, 0, 10);
    let frames = w.transmit(A);
    w.deliver_all(B, &frames);
    assert!(w.shown(B)[0].starts_with("NAK"));
}

#[test]
fn an_acknowledgement_that_waits_when_the_queue_pair_stops_is_still_given() {
    let mut w = habit(Options::default());
    assert!(ping(&mut w).is_empty());
    w.modify(B, &to_state(QpState::Error));
    assert!(w.shown(B).len() <= 1, "it is given or not, as at any other time");
    while w.hosts[B].nic.poll_timeout().is_some() {
        w.wait_for_timer(B);
    }
    assert!(w.shown(B).is_empty(), "nothing waits any more");
}

#[test]
fn a_short_timeout_leaves_less_time() {
    // 4.096 µs · 2^2, of which a quarter.
    let options = Options { timeout: 2, ..Options::default() };
    let mut w = World::new(options);
    for _ in 0..3 {
        assert_eq!(exchange(&mut w, 1000).0, ["ACK"]);
    }
    assert!(ping(&mut w).is_empty());
    w.wait(4095);
    assert!(w.shown(B).is_empty());
    w.wait(1);
    assert_eq!(w.shown(B).len(), 1);
    assert_eq!(w.counters(A).local_ack_timeout_err, 0);
}
