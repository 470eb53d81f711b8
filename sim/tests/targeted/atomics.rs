//! An atomic's request or answer is lost: whatever happens, it is carried out once. That the counter and the values found
//! are right is checked at the end of every case.

use crate::targeted::world::{ONE, World, at_each_psn};
use softnic_sim::pair::{A, B};

const FIRST_REQUEST: &str = r#"event = [{ action = "drop", opcode = "RC_FETCH_ADD", nth = 1 }]"#;
const FIRST_ANSWER: &str = r#"event = [{ action = "drop", opcode = "RC_ATOMIC_ACKNOWLEDGE", nth = 1 }]"#;

#[test]
fn a_request_is_missed_by_the_timer() {
    at_each_psn(|psn| {
        let mut w = World::new(psn, FIRST_REQUEST);
        w.add(0, 5);
        w.expect(&["a> FETCH_ADD +0 A x", "...", "a> FETCH_ADD +0 A", "b> ATOMIC_ACKNOWLEDGE +0 msn 1"]);
        w.counted(A, "local_ack_timeout_err 1, retransmitted_packets 1, sent_requests 1")
            .counted(B, "rx_atomic_requests 1");
    });
}

#[test]
fn a_request_with_another_behind_it_draws_a_nak() {
    at_each_psn(|psn| {
        let mut w = World::new(psn, FIRST_REQUEST);
        w.add(0, 5).add(1, 7);
        w.expect(&[
            "a> FETCH_ADD +0 A x",
            "a> FETCH_ADD +1 A",
            "b> NAK0 +0 msn 0",
            "a> FETCH_ADD +0 A",
            "a> FETCH_ADD +1 A",
            "b> ATOMIC_ACKNOWLEDGE +0 msn 1",
            "b> ATOMIC_ACKNOWLEDGE +1 msn 2",
        ]);
        w.counted(A, "packet_seq_err 1, retransmitted_packets 2, sent_requests 2")
            .counted(B, "out_of_sequence 1, rx_atomic_requests 2, sent_seq_naks 1");
    });
}

#[test]
fn an_answer_is_missed_by_the_timer_and_given_again_from_memory() {
    at_each_psn(|psn| {
        let mut w = World::new(psn, FIRST_ANSWER);
        w.add(0, 5);
        w.expect(&[
            "a> FETCH_ADD +0 A",
            "b> ATOMIC_ACKNOWLEDGE +0 msn 1 x",
            "...",
            "a> FETCH_ADD +0 A",
            "b> ATOMIC_ACKNOWLEDGE +0 msn 1",
        ]);
        w.counted(A, "local_ack_timeout_err 1, retransmitted_packets 1, sent_requests 1")
            .counted(B, "duplicate_request 1, rx_atomic_requests 1");
    });
}

#[test]
fn an_answer_is_missed_by_the_next_one_and_both_are_given_again() {
    // What is given again carries the MSN of now, not that of then.
    at_each_psn(|psn| {
        let mut w = World::new(psn, FIRST_ANSWER);
        w.add(0, 5).add(1, 7);
        w.expect(&[
            "a> FETCH_ADD +0 A",
            "a> FETCH_ADD +1 A",
            "b> ATOMIC_ACKNOWLEDGE +0 msn 1 x",
            "b> ATOMIC_ACKNOWLEDGE +1 msn 2",
            "a> FETCH_ADD +0 A",
            "a> FETCH_ADD +1 A",
            "b> ATOMIC_ACKNOWLEDGE +0 msn 2",
            "b> ATOMIC_ACKNOWLEDGE +1 msn 2",
        ]);
        w.counted(A, "implied_nak_seq_err 1, retransmitted_packets 2, sent_requests 2")
            .counted(B, "duplicate_request 2, rx_atomic_requests 2");
    });
}

#[test]
fn an_answer_is_missed_by_the_ack_of_a_write_behind_it() {
    at_each_psn(|psn| {
        let mut w = World::new(psn, FIRST_ANSWER);
        w.add(0, 5).write(1, ONE);
        w.expect(&[
            "a> FETCH_ADD +0 A",
            "a> RDMA_WRITE_ONLY +1 A",
            "b> ATOMIC_ACKNOWLEDGE +0 msn 1 x",
            "b> ACK +1 msn 2",
            "a> FETCH_ADD +0 A",
            "a> RDMA_WRITE_ONLY +1 A",
            "b> ATOMIC_ACKNOWLEDGE +0 msn 2",
            "b> ACK +1 msn 2",
        ]);
        w.counted(A, "implied_nak_seq_err 1, retransmitted_packets 2, sent_requests 2")
            .counted(B, "duplicate_request 2, rx_atomic_requests 1, rx_write_requests 1");
    });
}

#[test]
fn an_answer_that_is_lost_twice_is_given_three_times() {
    at_each_psn(|psn| {
        let script = r#"event = [
            { action = "drop", opcode = "RC_ATOMIC_ACKNOWLEDGE", iteration = 1 },
            { action = "drop", opcode = "RC_ATOMIC_ACKNOWLEDGE", iteration = 2 },
        ]"#;
        let mut w = World::new(psn, script);
        w.add(0, 5);
        w.expect(&[
            "a> FETCH_ADD +0 A",
            "b> ATOMIC_ACKNOWLEDGE +0 msn 1 x",
            "...",
            "a> FETCH_ADD +0 A",
            "b> ATOMIC_ACKNOWLEDGE +0 msn 1 x",
            "...",
            "a> FETCH_ADD +0 A",
            "b> ATOMIC_ACKNOWLEDGE +0 msn 1",
        ]);
        w.counted(A, "local_ack_timeout_err 2, retransmitted_packets 2, sent_requests 1")
            .counted(B, "duplicate_request 2, rx_atomic_requests 1");
    });
}
