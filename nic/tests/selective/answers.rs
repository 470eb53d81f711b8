//! Answers with data: READ responses in any order, again when they are lost, and when their memory is gone.

use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{SendOp, Status};

use super::*;

/// A READ of four packets by A; B's answers to it.
fn four_answers(w: &mut World) -> Vec<Vec<u8>> {
    w.fill(B, 0, &pattern(9, 4 * MTU));
    let read = w.read_from(B, 0);
    w.send(A, 1, read, 0, 4 * MTU);
    let request = fly(w, A);
    w.deliver_all(B, &request);
    let mut frames = fly(w, B);
    frames.retain(|f| show_one(w, f).starts_with("RDMA_READ_RESPONSE"));
    assert_eq!(frames.len(), 4);
    frames
}

#[test]
fn read_responses_are_placed_as_they_come_and_complete_when_all_are_there() {
    for order in [[3, 2, 1, 0], [1, 0, 3, 2], [0, 3, 1, 2]] {
        each(|mut w| {
            let frames = four_answers(&mut w);
            for (k, i) in order.into_iter().enumerate() {
                assert!(w.sent(A).is_empty());
                w.deliver(A, &frames[i]);
                w.deliver(A, &frames[i]);
                assert_eq!(w.read(A, i * MTU, MTU), pattern(9, 4 * MTU)[i * MTU..][..MTU], "{k}");
            }
            assert_eq!(w.sent_status(A), [(1, Status::Success)]);
            settle(&mut w);
            assert_quiet(&mut w);
        });
    }
}

#[test]
fn of_the_answers_only_the_one_that_was_lost_is_sent_again() {
    for lost in 0..4 {
        each(|mut w| {
            let frames = four_answers(&mut w);
            for f in frames.iter().enumerate().filter(|&(i, _)| i != lost).map(|(_, f)| f) {
                w.deliver(A, f);
            }
            let told = fly(&mut w, A);
            w.deliver_all(B, &told);
            let mut again = w.transmit(B);
            for _ in 0..6 {
                // With nothing behind it, the last one is missed by the clock.
                if again.iter().any(|f| show_one(&w, f).contains(&format!("+{lost} "))) {
                    break;
                }
                w.deliver_all(A, &again);
                let told = fly(&mut w, A);
                w.deliver_all(B, &told);
                again = w.transmit(B);
                if again.is_empty() {
                    again = on_timer(&mut w, B);
                }
            }
            w.deliver_all(A, &again);
            assert_eq!(w.sent_status(A), [(1, Status::Success)]);
            assert_eq!(w.read(A, 0, 4 * MTU), pattern(9, 4 * MTU));
            assert!(w.counters(B).retransmitted_packets <= if lost == 3 { 2 } else { 1 });
            settle(&mut w);
            assert_quiet(&mut w);
        });
    }
}

/// Found by the swarm: the responder stopped at the refused request and heard no acknowledgement any more, so it sent no more than
/// may be under way at a time.
#[test]
fn what_is_before_a_refused_request_is_answered_to_its_end_though_answers_are_lost() {
    for lost in [None, Some(3), Some(99)] {
        each(|mut w| {
            let len = 100 * MTU;
            w.fill(B, 0, &pattern(9, len));
            let read = w.read_from(B, 0);
            w.send(A, 1, read, 0, len);
            let bad = SendOp::Write { remote_addr: w.hosts[B].buffer.addr(), rkey: w.hosts[B].key ^ 0x5a00 };
            w.send(A, 2, bad, 0, 10);
            let mut left = lost;
            for _ in 0..400 {
                let requests = fly(&mut w, A);
                w.deliver_all(B, &requests);
                let mut answers = fly(&mut w, B);
                if let Some(n) = left {
                    let before = answers.len();
                    answers.retain(|f| !show_one(&w, f).contains(&format!("+{n}")));
                    left = left.filter(|_| answers.len() == before);
                }
                w.deliver_all(A, &answers);
            }
            assert_eq!(left, None);
            assert_eq!(w.sent_status(A), [(1, Status::Success), (2, Status::RemAccessErr)], "{lost:?}");
            assert_eq!(w.read(A, 0, len), pattern(9, len));
            assert_eq!((w.state(A), w.state(B)), (QpState::Error, QpState::Error));
            for _ in 0..100 {
                w.wait_for_timer(B);
                w.transmit(B);
            }
            assert_quiet(&mut w);
        });
    }
}

/// Found by the swarm: only the acknowledgement of the answers was late, the READ was done, and so the memory was free to go.
#[test]
fn an_answer_that_nobody_misses_may_lose_its_memory() {
    each(|mut w| {
        let frames = four_answers(&mut w);
        w.deliver_all(A, &frames);
        assert_eq!(w.sent_status(A), [(1, Status::Success)]);
        w.transmit(A);
        let key = w.hosts[B].key;
        w.hosts[B].nic.dereg_mr(key).unwrap();
        let doubt = on_timer(&mut w, B);
        assert_eq!(show(&w, &doubt), ["NAK2 +0 from +1 []"; 2], "of the oldest packet and of the newest");
        w.deliver_all(A, &doubt);
        settle(&mut w);
        assert_eq!((w.state(A), w.state(B)), (QpState::ReadyToSend, QpState::ReadyToSend));
        assert!(w.events(A).is_empty() && w.events(B).is_empty());
        assert_quiet(&mut w);
    });
}

#[test]
fn an_answer_that_is_missed_and_lost_its_memory_is_refused() {
    each(|mut w| {
        let frames = four_answers(&mut w);
        w.deliver_all(A, &frames[1..]);
        let key = w.hosts[B].key;
        w.hosts[B].nic.dereg_mr(key).unwrap();
        for _ in 0..6 {
            settle(&mut w);
            w.wait_for_timer(B);
        }
        settle(&mut w);
        assert_eq!(w.sent_status(A), [(1, Status::RemAccessErr)]);
        assert_eq!(w.state(A), QpState::Error);
    });
}
