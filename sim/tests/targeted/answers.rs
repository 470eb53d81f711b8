//! An ACK, a NAK or an RNR NAK is lost.

use crate::targeted::world::{FOUR, ONE, TWO, World, at_each_psn};
use softnic_sim::pair::{A, B};

const FIRST_ACK: &str = r#"event = [{ action = "drop", opcode = "RC_ACKNOWLEDGE", nth = 1 }]"#;

#[test]
fn the_ack_of_a_write_is_missed_by_the_timer_and_given_again() {
    // Each duplicate is acknowledged, here because the simulator asks for answers after every frame. rxe does so always
    // (loss_final_ack); we give one ACK for all the duplicates that a driver brings in one batch.
    at_each_psn(|psn| {
        let mut w = World::new(psn, FIRST_ACK);
        w.write(0, FOUR);
        w.expect(&[
            "a> RDMA_WRITE_FIRST +0",
            "a> RDMA_WRITE_MIDDLE +1",
            "a> RDMA_WRITE_MIDDLE +2",
            "a> RDMA_WRITE_LAST +3 A",
            "b> ACK +3 msn 1 x",
            "...",
            "a> RDMA_WRITE_FIRST +0",
            "a> RDMA_WRITE_MIDDLE +1",
            "a> RDMA_WRITE_MIDDLE +2",
            "a> RDMA_WRITE_LAST +3 A",
            "b> ACK +3 msn 1",
            "b> ACK +3 msn 1",
            "b> ACK +3 msn 1",
            "b> ACK +3 msn 1",
        ]);
        w.counted(A, "local_ack_timeout_err 1, retransmitted_packets 4, sent_requests 4, stale_acks 3")
            .counted(B, "duplicate_request 4, rx_write_requests 1");
    });
}

#[test]
fn the_ack_of_a_send_is_missed_by_the_timer_and_the_send_is_received_once() {
    at_each_psn(|psn| {
        let mut w = World::new(psn, FIRST_ACK);
        w.receive(0, ONE).send(0, ONE);
        w.expect(&["a> SEND_ONLY +0 A", "b> ACK +0 msn 1 x", "...", "a> SEND_ONLY +0 A", "b> ACK +0 msn 1"]);
        w.counted(A, "local_ack_timeout_err 1, retransmitted_packets 1, sent_requests 1")
            .counted(B, "duplicate_request 1, rx_send_requests 1");
    });
}

#[test]
fn an_ack_in_the_middle_of_several_is_not_missed() {
    // The next one says all that it said.
    at_each_psn(|psn| {
        let script = r#"event = [{ action = "drop", opcode = "RC_ACKNOWLEDGE", nth = 2 }]"#;
        let mut w = World::new(psn, script);
        w.write(0, TWO).run_until("a> RDMA_WRITE_LAST +1 A");
        w.write(1, TWO).run_until("a> RDMA_WRITE_LAST +3 A");
        w.write(2, TWO);
        w.expect(&[
            "a> RDMA_WRITE_FIRST +0",
            "a> RDMA_WRITE_LAST +1 A",
            "a> RDMA_WRITE_FIRST +2",
            "a> RDMA_WRITE_LAST +3 A",
            "a> RDMA_WRITE_FIRST +4",
            "a> RDMA_WRITE_LAST +5 A",
            "b> ACK +1 msn 1",
            "b> ACK +3 msn 2 x",
            "b> ACK +5 msn 3",
        ]);
        w.counted(A, "sent_requests 6").counted(B, "rx_write_requests 3");
    });
}

#[test]
fn a_sequence_nak_is_made_good_by_the_timer() {
    at_each_psn(|psn| {
        let script = r#"event = [
            { action = "drop", direction = "ab", psn = "+1", iteration = 1 },
            { action = "drop", direction = "ba", nth = 1 },
        ]"#;
        let mut w = World::new(psn, script);
        w.write(0, FOUR);
        w.expect(&[
            "a> RDMA_WRITE_FIRST +0",
            "a> RDMA_WRITE_MIDDLE +1 x",
            "a> RDMA_WRITE_MIDDLE +2",
            "a> RDMA_WRITE_LAST +3 A",
            "b> NAK0 +1 msn 0 x",
            "...",
            "a> RDMA_WRITE_FIRST +0",
            "a> RDMA_WRITE_MIDDLE +1",
            "a> RDMA_WRITE_MIDDLE +2",
            "a> RDMA_WRITE_LAST +3 A",
            "b> ACK +0 msn 0",
            "b> ACK +3 msn 1",
        ]);
        w.counted(A, "local_ack_timeout_err 1, retransmitted_packets 4, sent_requests 4")
            .counted(B, "duplicate_request 1, out_of_sequence 2, rx_write_requests 1, sent_seq_naks 1");
    });
}

#[test]
fn an_rnr_nak_is_made_good_by_the_timer() {
    // The receive is posted meanwhile. +1 comes behind a packet that drew an RNR NAK: rxe answers it with a sequence NAK for
    // +0 (rc_rnr_nak, packets 16 and 17), we say nothing, for all is to be sent again anyway.
    at_each_psn(|psn| {
        let mut w = World::new(psn, r#"event = [{ action = "drop", direction = "ba", nth = 1 }]"#);
        w.send(0, TWO).run_until("b> RNR6 +0 msn 0 x").receive(0, TWO);
        w.expect(&[
            "a> SEND_FIRST +0",
            "a> SEND_LAST +1 A",
            "b> RNR6 +0 msn 0 x",
            "...",
            "a> SEND_FIRST +0",
            "a> SEND_LAST +1 A",
            "b> ACK +1 msn 1",
        ]);
        w.counted(A, "local_ack_timeout_err 1, retransmitted_packets 2, sent_requests 2")
            .counted(B, "out_of_buffer 1, out_of_sequence 1, rx_send_requests 1");
    });
    // It is not, and the next RNR NAK arrives.
    at_each_psn(|psn| {
        let mut w = World::new(psn, r#"event = [{ action = "drop", direction = "ba", nth = 1 }]"#);
        w.send(0, ONE).run_until("b> RNR6 +0 msn 0").receive(0, ONE);
        w.expect(&[
            "a> SEND_ONLY +0 A",
            "b> RNR6 +0 msn 0 x",
            "...",
            "a> SEND_ONLY +0 A",
            "b> RNR6 +0 msn 0",
            "...",
            "a> SEND_ONLY +0 A",
            "b> ACK +0 msn 1",
        ]);
        w.counted(A, "local_ack_timeout_err 1, retransmitted_packets 2, rnr_naks_received 1, sent_requests 1")
            .counted(B, "out_of_buffer 2, rx_send_requests 1");
    });
}

#[test]
fn a_send_that_is_lost_after_an_rnr_nak_is_missed_by_the_timer() {
    at_each_psn(|psn| {
        let script = r#"event = [{ action = "drop", opcode = "RC_SEND_ONLY", iteration = 2 }]"#;
        let mut w = World::new(psn, script);
        w.send(0, ONE).run_until("b> RNR6 +0 msn 0").receive(0, ONE);
        w.expect(&[
            "a> SEND_ONLY +0 A",
            "b> RNR6 +0 msn 0",
            "...",
            "a> SEND_ONLY +0 A x",
            "...",
            "a> SEND_ONLY +0 A",
            "b> ACK +0 msn 1",
        ]);
        w.counted(A, "local_ack_timeout_err 1, retransmitted_packets 2, rnr_naks_received 1, sent_requests 1")
            .counted(B, "out_of_buffer 1, rx_send_requests 1");
    });
}
