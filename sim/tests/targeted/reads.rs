//! A READ request or a READ response is lost.

use crate::targeted::world::{FOUR, ONE, TWO, World, at_each_psn};
use softnic_sim::pair::{A, B};

const FIRST_REQUEST: &str = r#"event = [{ action = "drop", opcode = "RC_RDMA_READ_REQUEST", nth = 1 }]"#;

/// The first response of this position is lost.
fn response(position: &str) -> String {
    format!(r#"event = [{{ action = "drop", opcode = "RC_RDMA_READ_RESPONSE_{position}", nth = 1 }}]"#)
}

#[test]
fn a_request_alone_is_missed_by_the_timer() {
    at_each_psn(|psn| {
        let mut w = World::new(psn, FIRST_REQUEST);
        w.read(0, FOUR);
        w.expect(&[
            "a> RDMA_READ_REQUEST +0 A of 773 x",
            "...",
            "a> RDMA_READ_REQUEST +0 A of 773",
            "b> RDMA_READ_RESPONSE_FIRST +0 msn 1",
            "b> RDMA_READ_RESPONSE_MIDDLE +1",
            "b> RDMA_READ_RESPONSE_MIDDLE +2",
            "b> RDMA_READ_RESPONSE_LAST +3 msn 1",
        ]);
        w.counted(A, "local_ack_timeout_err 1, retransmitted_packets 1, sent_requests 1")
            .counted(B, "rx_read_requests 1");
    });
}

#[test]
fn a_request_with_a_write_behind_it_draws_a_nak() {
    at_each_psn(|psn| {
        let mut w = World::new(psn, FIRST_REQUEST);
        w.read(0, FOUR).write(1, ONE);
        w.expect(&[
            "a> RDMA_READ_REQUEST +0 A of 773 x",
            "a> RDMA_WRITE_ONLY +4 A",
            "b> NAK0 +0 msn 0",
            "a> RDMA_READ_REQUEST +0 A of 773",
            "a> RDMA_WRITE_ONLY +4 A",
            "b> RDMA_READ_RESPONSE_FIRST +0 msn 1",
            "b> RDMA_READ_RESPONSE_MIDDLE +1",
            "b> RDMA_READ_RESPONSE_MIDDLE +2",
            "b> RDMA_READ_RESPONSE_LAST +3 msn 1",
            "b> ACK +4 msn 2",
        ]);
        w.counted(A, "packet_seq_err 1, retransmitted_packets 2, sent_requests 2")
            .counted(B, "out_of_sequence 1, rx_read_requests 1, rx_write_requests 1, sent_seq_naks 1");
    });
}

#[test]
fn a_request_with_others_behind_it_draws_a_nak_and_all_are_sent_again() {
    // rxe does the same (loss_read_request).
    at_each_psn(|psn| {
        let mut w = World::new(psn, FIRST_REQUEST);
        w.read(0, TWO).read(1, TWO).read(2, TWO);
        w.expect(&[
            "a> RDMA_READ_REQUEST +0 A of 261 x",
            "a> RDMA_READ_REQUEST +2 A of 261",
            "a> RDMA_READ_REQUEST +4 A of 261",
            "b> NAK0 +0 msn 0",
            "a> RDMA_READ_REQUEST +0 A of 261",
            "a> RDMA_READ_REQUEST +2 A of 261",
            "a> RDMA_READ_REQUEST +4 A of 261",
            "b> RDMA_READ_RESPONSE_FIRST +0 msn 1",
            "b> RDMA_READ_RESPONSE_LAST +1 msn 1",
            "b> RDMA_READ_RESPONSE_FIRST +2 msn 2",
            "b> RDMA_READ_RESPONSE_LAST +3 msn 2",
            "b> RDMA_READ_RESPONSE_FIRST +4 msn 3",
            "b> RDMA_READ_RESPONSE_LAST +5 msn 3",
        ]);
        w.counted(A, "packet_seq_err 1, retransmitted_packets 3, sent_requests 3")
            .counted(B, "out_of_sequence 2, rx_read_requests 3, sent_seq_naks 1");
    });
}

#[test]
fn the_first_response_is_asked_for_again_when_the_second_comes() {
    at_each_psn(|psn| {
        let mut w = World::new(psn, &response("FIRST"));
        w.read(0, FOUR);
        w.expect(&[
            "a> RDMA_READ_REQUEST +0 A of 773",
            "b> RDMA_READ_RESPONSE_FIRST +0 msn 1 x",
            "b> RDMA_READ_RESPONSE_MIDDLE +1",
            "b> RDMA_READ_RESPONSE_MIDDLE +2",
            "b> RDMA_READ_RESPONSE_LAST +3 msn 1",
            "a> RDMA_READ_REQUEST +0 A of 773",
            "b> RDMA_READ_RESPONSE_FIRST +0 msn 1",
            "b> RDMA_READ_RESPONSE_MIDDLE +1",
            "b> RDMA_READ_RESPONSE_MIDDLE +2",
            "b> RDMA_READ_RESPONSE_LAST +3 msn 1",
        ]);
        w.counted(A, "implied_nak_seq_err 1, retransmitted_packets 1, sent_requests 1")
            .counted(B, "duplicate_request 1, rx_read_requests 1");
    });
}

#[test]
fn a_middle_response_is_asked_for_again_when_the_next_comes() {
    at_each_psn(|psn| {
        let mut w = World::new(psn, &response("MIDDLE"));
        w.read(0, FOUR);
        w.expect(&[
            "a> RDMA_READ_REQUEST +0 A of 773",
            "b> RDMA_READ_RESPONSE_FIRST +0 msn 1",
            "b> RDMA_READ_RESPONSE_MIDDLE +1 x",
            "b> RDMA_READ_RESPONSE_MIDDLE +2",
            "b> RDMA_READ_RESPONSE_LAST +3 msn 1",
            "a> RDMA_READ_REQUEST +1 A of 517",
            "b> RDMA_READ_RESPONSE_FIRST +1 msn 1",
            "b> RDMA_READ_RESPONSE_MIDDLE +2",
            "b> RDMA_READ_RESPONSE_LAST +3 msn 1",
        ]);
        w.counted(A, "implied_nak_seq_err 1, retransmitted_packets 1, sent_requests 1")
            .counted(B, "duplicate_request 1, rx_read_requests 1");
    });
}

#[test]
fn the_last_response_is_missed_by_the_timer_and_only_the_tail_is_asked_for() {
    // rxe asks for the same tail, but answers it with LAST (loss_read_resp_last, packet 22), as if the first request went on; we
    // answer the request as it stands, with ONLY. Our requester takes both.
    at_each_psn(|psn| {
        let mut w = World::new(psn, &response("LAST"));
        w.read(0, FOUR);
        w.expect(&[
            "a> RDMA_READ_REQUEST +0 A of 773",
            "b> RDMA_READ_RESPONSE_FIRST +0 msn 1",
            "b> RDMA_READ_RESPONSE_MIDDLE +1",
            "b> RDMA_READ_RESPONSE_MIDDLE +2",
            "b> RDMA_READ_RESPONSE_LAST +3 msn 1 x",
            "...",
            "a> RDMA_READ_REQUEST +3 A of 5",
            "b> RDMA_READ_RESPONSE_ONLY +3 msn 1",
        ]);
        w.counted(A, "local_ack_timeout_err 1, retransmitted_packets 1, sent_requests 1")
            .counted(B, "duplicate_request 1, rx_read_requests 1");
    });
}

#[test]
fn the_last_response_with_another_read_behind_it_is_missed_by_that_ones_first() {
    at_each_psn(|psn| {
        let mut w = World::new(psn, &response("LAST"));
        w.read(0, FOUR).read(1, TWO);
        w.expect(&[
            "a> RDMA_READ_REQUEST +0 A of 773",
            "a> RDMA_READ_REQUEST +4 A of 261",
            "b> RDMA_READ_RESPONSE_FIRST +0 msn 1",
            "b> RDMA_READ_RESPONSE_MIDDLE +1",
            "b> RDMA_READ_RESPONSE_MIDDLE +2",
            "b> RDMA_READ_RESPONSE_LAST +3 msn 1 x",
            "b> RDMA_READ_RESPONSE_FIRST +4 msn 2",
            "b> RDMA_READ_RESPONSE_LAST +5 msn 2",
            "a> RDMA_READ_REQUEST +3 A of 5",
            "a> RDMA_READ_REQUEST +4 A of 261",
            "b> RDMA_READ_RESPONSE_ONLY +3 msn 2",
            "b> RDMA_READ_RESPONSE_FIRST +4 msn 2",
            "b> RDMA_READ_RESPONSE_LAST +5 msn 2",
        ]);
        w.counted(A, "implied_nak_seq_err 1, retransmitted_packets 2, sent_requests 2")
            .counted(B, "duplicate_request 2, rx_read_requests 2");
    });
}

#[test]
fn an_only_response_is_missed_by_the_timer() {
    at_each_psn(|psn| {
        let mut w = World::new(psn, &response("ONLY"));
        w.read(0, ONE);
        w.expect(&[
            "a> RDMA_READ_REQUEST +0 A of 100",
            "b> RDMA_READ_RESPONSE_ONLY +0 msn 1 x",
            "...",
            "a> RDMA_READ_REQUEST +0 A of 100",
            "b> RDMA_READ_RESPONSE_ONLY +0 msn 1",
        ]);
        w.counted(A, "local_ack_timeout_err 1, retransmitted_packets 1, sent_requests 1")
            .counted(B, "duplicate_request 1, rx_read_requests 1");
    });
}

#[test]
fn an_only_response_with_a_write_behind_it_is_missed_by_the_writes_ack() {
    at_each_psn(|psn| {
        let mut w = World::new(psn, &response("ONLY"));
        w.read(0, ONE).write(1, ONE);
        w.expect(&[
            "a> RDMA_READ_REQUEST +0 A of 100",
            "a> RDMA_WRITE_ONLY +1 A",
            "b> RDMA_READ_RESPONSE_ONLY +0 msn 1 x",
            "b> ACK +1 msn 2",
            "a> RDMA_READ_REQUEST +0 A of 100",
            "a> RDMA_WRITE_ONLY +1 A",
            "b> RDMA_READ_RESPONSE_ONLY +0 msn 2",
            "b> ACK +1 msn 2",
        ]);
        w.counted(A, "implied_nak_seq_err 1, retransmitted_packets 2, sent_requests 2")
            .counted(B, "duplicate_request 2, rx_read_requests 1, rx_write_requests 1");
    });
}

#[test]
fn a_response_that_is_lost_twice_is_asked_for_twice() {
    // What follows the second loss begins where the first loss showed: it is not what was still under way then.
    at_each_psn(|psn| {
        let script = r#"event = [
            { action = "drop", direction = "ba", psn = "+1", nth = 1 },
            { action = "drop", direction = "ba", psn = "+1", nth = 2 },
        ]"#;
        let mut w = World::new(psn, script);
        w.read(0, FOUR);
        w.expect(&[
            "a> RDMA_READ_REQUEST +0 A of 773",
            "b> RDMA_READ_RESPONSE_FIRST +0 msn 1",
            "b> RDMA_READ_RESPONSE_MIDDLE +1 x",
            "b> RDMA_READ_RESPONSE_MIDDLE +2",
            "b> RDMA_READ_RESPONSE_LAST +3 msn 1",
            "a> RDMA_READ_REQUEST +1 A of 517",
            "b> RDMA_READ_RESPONSE_FIRST +1 msn 1 x",
            "b> RDMA_READ_RESPONSE_MIDDLE +2",
            "b> RDMA_READ_RESPONSE_LAST +3 msn 1",
            "a> RDMA_READ_REQUEST +1 A of 517",
            "b> RDMA_READ_RESPONSE_FIRST +1 msn 1",
            "b> RDMA_READ_RESPONSE_MIDDLE +2",
            "b> RDMA_READ_RESPONSE_LAST +3 msn 1",
        ]);
        w.counted(A, "implied_nak_seq_err 2, retransmitted_packets 2, sent_requests 1")
            .counted(B, "duplicate_request 2, rx_read_requests 1");
    });
}

#[test]
fn the_request_for_the_rest_may_be_lost_too() {
    at_each_psn(|psn| {
        let script = r#"event = [
            { action = "drop", opcode = "RC_RDMA_READ_RESPONSE_MIDDLE", nth = 1 },
            { action = "drop", opcode = "RC_RDMA_READ_REQUEST", nth = 2 },
        ]"#;
        let mut w = World::new(psn, script);
        w.read(0, FOUR);
        w.expect(&[
            "a> RDMA_READ_REQUEST +0 A of 773",
            "b> RDMA_READ_RESPONSE_FIRST +0 msn 1",
            "b> RDMA_READ_RESPONSE_MIDDLE +1 x",
            "b> RDMA_READ_RESPONSE_MIDDLE +2",
            "b> RDMA_READ_RESPONSE_LAST +3 msn 1",
            "a> RDMA_READ_REQUEST +1 A of 517 x",
            "...",
            "a> RDMA_READ_REQUEST +1 A of 517",
            "b> RDMA_READ_RESPONSE_FIRST +1 msn 1",
            "b> RDMA_READ_RESPONSE_MIDDLE +2",
            "b> RDMA_READ_RESPONSE_LAST +3 msn 1",
        ]);
        w.counted(A, "implied_nak_seq_err 1, local_ack_timeout_err 1, retransmitted_packets 2, sent_requests 1")
            .counted(B, "duplicate_request 1, rx_read_requests 1");
    });
}
