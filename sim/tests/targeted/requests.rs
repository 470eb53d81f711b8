//! A packet of a SEND or WRITE is lost.

use crate::targeted::world::{FOUR, ONE, TWO, World, at_each_psn};
use softnic_sim::pair::{A, B};

#[test]
fn the_third_packet_of_a_send_draws_a_nak_and_is_sent_again_with_what_follows() {
    // rxe does the same (loss_send_middle_nak).
    at_each_psn(|psn| {
        let mut w = World::new(psn, r#"event = [{ action = "drop", direction = "ab", nth = 3 }]"#);
        w.receive(0, FOUR).send(0, FOUR);
        w.expect(&[
            "a> SEND_FIRST +0",
            "a> SEND_MIDDLE +1",
            "a> SEND_MIDDLE +2 x",
            "a> SEND_LAST +3 A",
            "b> NAK0 +2 msn 0",
            "a> SEND_MIDDLE +2",
            "a> SEND_LAST +3 A",
            "b> ACK +3 msn 1",
        ]);
        w.counted(A, "packet_seq_err 1, retransmitted_packets 2, sent_requests 4")
            .counted(B, "out_of_sequence 1, rx_send_requests 1, sent_seq_naks 1");
    });
}

#[test]
fn the_third_packet_of_a_write_draws_a_nak_and_is_sent_again_with_what_follows() {
    at_each_psn(|psn| {
        let script = r##"event = [{ action = "drop", qpn = "#1", direction = "ab", psn = "+2", iteration = 1 }]"##;
        let mut w = World::new(psn, script);
        w.write(0, FOUR);
        w.expect(&[
            "a> RDMA_WRITE_FIRST +0",
            "a> RDMA_WRITE_MIDDLE +1",
            "a> RDMA_WRITE_MIDDLE +2 x",
            "a> RDMA_WRITE_LAST +3 A",
            "b> NAK0 +2 msn 0",
            "a> RDMA_WRITE_MIDDLE +2",
            "a> RDMA_WRITE_LAST +3 A",
            "b> ACK +3 msn 1",
        ]);
        w.counted(A, "packet_seq_err 1, retransmitted_packets 2, sent_requests 4")
            .counted(B, "out_of_sequence 1, rx_write_requests 1, sent_seq_naks 1");
    });
}

#[test]
fn the_first_packet_of_a_write_draws_a_nak_from_its_second() {
    // rxe sends the same packets again (loss_write_first_nak). It asks for an answer at the end of every message; we do so only
    // when the message is sent again, else where nothing more can leave: the ACK of the first WRITE is not missing here.
    at_each_psn(|psn| {
        let script = r#"event = [{ action = "drop", opcode = "RC_RDMA_WRITE_FIRST", nth = 2 }]"#;
        let mut w = World::new(psn, script);
        w.write(0, TWO).write(1, FOUR).write(2, TWO);
        w.expect(&[
            "a> RDMA_WRITE_FIRST +0",
            "a> RDMA_WRITE_LAST +1",
            "a> RDMA_WRITE_FIRST +2 x",
            "a> RDMA_WRITE_MIDDLE +3",
            "a> RDMA_WRITE_MIDDLE +4",
            "a> RDMA_WRITE_LAST +5",
            "a> RDMA_WRITE_FIRST +6",
            "a> RDMA_WRITE_LAST +7 A",
            "b> NAK0 +2 msn 1",
            "a> RDMA_WRITE_FIRST +2",
            "a> RDMA_WRITE_MIDDLE +3",
            "a> RDMA_WRITE_MIDDLE +4",
            "a> RDMA_WRITE_LAST +5 A",
            "a> RDMA_WRITE_FIRST +6",
            "a> RDMA_WRITE_LAST +7 A",
            "b> ACK +5 msn 2",
            "b> ACK +7 msn 3",
        ]);
        w.counted(A, "packet_seq_err 1, retransmitted_packets 6, sent_requests 8")
            .counted(B, "out_of_sequence 5, rx_write_requests 3, sent_seq_naks 1");
    });
}

#[test]
fn the_last_packet_of_a_write_is_missed_by_the_timer() {
    at_each_psn(|psn| {
        let script = r#"event = [{ action = "drop", opcode = "RC_RDMA_WRITE_LAST", iteration = 1 }]"#;
        let mut w = World::new(psn, script);
        w.write(0, FOUR);
        w.expect(&[
            "a> RDMA_WRITE_FIRST +0",
            "a> RDMA_WRITE_MIDDLE +1",
            "a> RDMA_WRITE_MIDDLE +2",
            "a> RDMA_WRITE_LAST +3 A x",
            "...",
            "a> RDMA_WRITE_FIRST +0",
            "a> RDMA_WRITE_MIDDLE +1",
            "a> RDMA_WRITE_MIDDLE +2",
            "a> RDMA_WRITE_LAST +3 A",
            "b> ACK +2 msn 0",
            "b> ACK +2 msn 0",
            "b> ACK +2 msn 0",
            "b> ACK +3 msn 1",
        ]);
        w.counted(A, "local_ack_timeout_err 1, retransmitted_packets 4, sent_requests 4, stale_acks 2")
            .counted(B, "duplicate_request 3, rx_write_requests 1");
    });
}

#[test]
fn the_last_packet_of_a_send_is_missed_by_the_timer() {
    // rxe too sends the whole message again, and acknowledges each packet that it has already: loss_send_last_timeout.
    at_each_psn(|psn| {
        let script = r#"event = [{ action = "drop", opcode = "RC_SEND_LAST", nth = 2 }]"#;
        let mut w = World::new(psn, script);
        w.receive(0, TWO).receive(1, TWO).send(0, TWO).run_until("b> ACK +1 msn 1").send(1, TWO);
        w.expect(&[
            "a> SEND_FIRST +0",
            "a> SEND_LAST +1 A",
            "b> ACK +1 msn 1",
            "a> SEND_FIRST +2",
            "a> SEND_LAST +3 A x",
            "...",
            "a> SEND_FIRST +2",
            "a> SEND_LAST +3 A",
            "b> ACK +2 msn 1",
            "b> ACK +3 msn 2",
        ]);
        w.counted(A, "local_ack_timeout_err 1, retransmitted_packets 2, sent_requests 4")
            .counted(B, "duplicate_request 1, rx_send_requests 2");
    });
}

#[test]
fn the_last_packet_of_a_write_with_a_message_behind_it_draws_a_nak() {
    at_each_psn(|psn| {
        let script = r#"event = [{ action = "drop", opcode = "RC_RDMA_WRITE_LAST", nth = 1 }]"#;
        let mut w = World::new(psn, script);
        w.write(0, FOUR).write(1, ONE);
        w.expect(&[
            "a> RDMA_WRITE_FIRST +0",
            "a> RDMA_WRITE_MIDDLE +1",
            "a> RDMA_WRITE_MIDDLE +2",
            "a> RDMA_WRITE_LAST +3 x",
            "a> RDMA_WRITE_ONLY +4 A",
            "b> NAK0 +3 msn 0",
            "a> RDMA_WRITE_LAST +3 A",
            "a> RDMA_WRITE_ONLY +4 A",
            "b> ACK +3 msn 1",
            "b> ACK +4 msn 2",
        ]);
        w.counted(A, "packet_seq_err 1, retransmitted_packets 2, sent_requests 5")
            .counted(B, "out_of_sequence 1, rx_write_requests 2, sent_seq_naks 1");
    });
}

#[test]
fn a_packet_that_is_lost_twice_is_sent_three_times() {
    // One NAK for a gap, then silence until the missing packet comes: the second loss is left to the timer. The NAK has said
    // that +0 arrived, so it is not sent again.
    at_each_psn(|psn| {
        let script = r#"event = [
            { action = "drop", direction = "ab", psn = "+1", iteration = 1 },
            { action = "drop", direction = "ab", psn = "+1", iteration = 2 },
        ]"#;
        let mut w = World::new(psn, script);
        w.write(0, FOUR);
        w.expect(&[
            "a> RDMA_WRITE_FIRST +0",
            "a> RDMA_WRITE_MIDDLE +1 x",
            "a> RDMA_WRITE_MIDDLE +2",
            "a> RDMA_WRITE_LAST +3 A",
            "b> NAK0 +1 msn 0",
            "a> RDMA_WRITE_MIDDLE +1 x",
            "a> RDMA_WRITE_MIDDLE +2",
            "a> RDMA_WRITE_LAST +3 A",
            "...",
            "a> RDMA_WRITE_MIDDLE +1",
            "a> RDMA_WRITE_MIDDLE +2",
            "a> RDMA_WRITE_LAST +3 A",
            "b> ACK +3 msn 1",
        ]);
        w.counted(A, "local_ack_timeout_err 1, packet_seq_err 1, retransmitted_packets 6, sent_requests 4")
            .counted(B, "out_of_sequence 4, rx_write_requests 1, sent_seq_naks 1");
    });
}

#[test]
fn a_retransmission_that_is_lost_in_its_turn_is_asked_for_or_missed() {
    // The retransmission of +2 is lost: what follows it shows that.
    at_each_psn(|psn| {
        let script = r#"event = [
            { action = "drop", direction = "ab", psn = "+1", iteration = 1 },
            { action = "drop", direction = "ab", psn = "+2", iteration = 2 },
        ]"#;
        let mut w = World::new(psn, script);
        w.write(0, FOUR);
        w.expect(&[
            "a> RDMA_WRITE_FIRST +0",
            "a> RDMA_WRITE_MIDDLE +1 x",
            "a> RDMA_WRITE_MIDDLE +2",
            "a> RDMA_WRITE_LAST +3 A",
            "b> NAK0 +1 msn 0",
            "a> RDMA_WRITE_MIDDLE +1",
            "a> RDMA_WRITE_MIDDLE +2 x",
            "a> RDMA_WRITE_LAST +3 A",
            "b> NAK0 +2 msn 0",
            "a> RDMA_WRITE_MIDDLE +2",
            "a> RDMA_WRITE_LAST +3 A",
            "b> ACK +3 msn 1",
        ]);
        w.counted(A, "packet_seq_err 2, retransmitted_packets 5, sent_requests 4")
            .counted(B, "out_of_sequence 3, rx_write_requests 1, sent_seq_naks 2");
    });
    // That of the last packet is lost: nothing follows.
    at_each_psn(|psn| {
        let script = r#"event = [
            { action = "drop", direction = "ab", psn = "+1", iteration = 1 },
            { action = "drop", direction = "ab", psn = "+3", iteration = 2 },
        ]"#;
        let mut w = World::new(psn, script);
        w.write(0, FOUR);
        w.expect(&[
            "a> RDMA_WRITE_FIRST +0",
            "a> RDMA_WRITE_MIDDLE +1 x",
            "a> RDMA_WRITE_MIDDLE +2",
            "a> RDMA_WRITE_LAST +3 A",
            "b> NAK0 +1 msn 0",
            "a> RDMA_WRITE_MIDDLE +1",
            "a> RDMA_WRITE_MIDDLE +2",
            "a> RDMA_WRITE_LAST +3 A x",
            "...",
            "a> RDMA_WRITE_MIDDLE +1",
            "a> RDMA_WRITE_MIDDLE +2",
            "a> RDMA_WRITE_LAST +3 A",
            "b> ACK +2 msn 0",
            "b> ACK +2 msn 0",
            "b> ACK +3 msn 1",
        ]);
        w.counted(
            A,
            "local_ack_timeout_err 1, packet_seq_err 1, retransmitted_packets 6, sent_requests 4, stale_acks 1",
        )
        .counted(B, "duplicate_request 2, out_of_sequence 2, rx_write_requests 1, sent_seq_naks 1");
    });
}

#[test]
fn an_event_for_retransmissions_leaves_first_transmissions_alone() {
    at_each_psn(|psn| {
        let mut w = World::new(psn, r#"event = [{ action = "drop", iteration = 2 }]"#);
        w.write(0, TWO).receive(1, ONE).send(1, ONE).read(2, TWO).add(3, 5);
        w.expect(&[
            "a> RDMA_WRITE_FIRST +0",
            "a> RDMA_WRITE_LAST +1",
            "a> SEND_ONLY +2",
            "a> RDMA_READ_REQUEST +3 A of 261",
            "a> FETCH_ADD +5 A",
            "b> RDMA_READ_RESPONSE_FIRST +3 msn 3",
            "b> RDMA_READ_RESPONSE_LAST +4 msn 3",
            "b> ATOMIC_ACKNOWLEDGE +5 msn 4",
        ]);
        w.counted(A, "sent_requests 5")
            .counted(B, "rx_atomic_requests 1, rx_read_requests 1, rx_send_requests 1, rx_write_requests 1");
    });
}
