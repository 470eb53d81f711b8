//! A packet is held until later ones have passed it.

use crate::targeted::world::{FOUR, ONE, TWO, World, at_each_psn};
use softnic_sim::pair::{A, B};

#[test]
fn a_packet_of_a_send_comes_behind_the_next() {
    // Arrivals: +0 +2 +1 +3. The second NAK is for +2, which was dropped as too early; +1 was on its way again by then.
    at_each_psn(|psn| {
        let script = r#"event = [{ action = "reorder", behind = 1, direction = "ab", nth = 2 }]"#;
        let mut w = World::new(psn, script);
        w.receive(0, FOUR).send(0, FOUR);
        w.expect(&[
            "a> SEND_FIRST +0",
            "a> SEND_MIDDLE +1 held",
            "a> SEND_MIDDLE +2",
            "a> SEND_LAST +3 A",
            "b> NAK0 +1 msn 0",
            "b> NAK0 +2 msn 0",
            "a> SEND_MIDDLE +1",
            "a> SEND_MIDDLE +2",
            "a> SEND_LAST +3 A",
            "b> ACK +1 msn 0",
            "b> ACK +3 msn 1",
        ]);
        w.counted(A, "packet_seq_err 2, retransmitted_packets 3, sent_requests 4, stale_acks 1")
            .counted(B, "duplicate_request 1, out_of_sequence 2, rx_send_requests 1, sent_seq_naks 2");
    });
}

#[test]
fn a_packet_of_a_write_comes_behind_two_others() {
    // Arrivals: +0 +2 +3 +1. Nothing comes behind +1 that would show the next gap, and nothing needs to: the NAK brings it all.
    at_each_psn(|psn| {
        let script = r#"event = [{ action = "reorder", behind = 2, direction = "ab", nth = 2 }]"#;
        let mut w = World::new(psn, script);
        w.write(0, FOUR);
        w.expect(&[
            "a> RDMA_WRITE_FIRST +0",
            "a> RDMA_WRITE_MIDDLE +1 held",
            "a> RDMA_WRITE_MIDDLE +2",
            "a> RDMA_WRITE_LAST +3 A",
            "b> NAK0 +1 msn 0",
            "a> RDMA_WRITE_MIDDLE +1",
            "a> RDMA_WRITE_MIDDLE +2",
            "a> RDMA_WRITE_LAST +3 A",
            "b> ACK +1 msn 0",
            "b> ACK +3 msn 1",
        ]);
        w.counted(A, "packet_seq_err 1, retransmitted_packets 3, sent_requests 4")
            .counted(B, "duplicate_request 1, out_of_sequence 2, rx_write_requests 1, sent_seq_naks 1");
    });
}

#[test]
fn the_last_packet_of_a_write_comes_behind_the_next_message() {
    at_each_psn(|psn| {
        let script = r#"event = [{ action = "reorder", behind = 1, opcode = "RC_RDMA_WRITE_LAST", nth = 1 }]"#;
        let mut w = World::new(psn, script);
        w.write(0, TWO).write(1, ONE);
        w.expect(&[
            "a> RDMA_WRITE_FIRST +0",
            "a> RDMA_WRITE_LAST +1 held",
            "a> RDMA_WRITE_ONLY +2 A",
            "b> NAK0 +1 msn 0",
            "a> RDMA_WRITE_LAST +1 A",
            "a> RDMA_WRITE_ONLY +2 A",
            "b> ACK +1 msn 1",
            "b> ACK +2 msn 2",
        ]);
        w.counted(A, "packet_seq_err 1, retransmitted_packets 2, sent_requests 3")
            .counted(B, "duplicate_request 1, out_of_sequence 1, rx_write_requests 2, sent_seq_naks 1");
    });
}

#[test]
fn of_two_read_responses_the_second_comes_first() {
    // Arrivals: +0 +2 +1 +3. Each gap is asked for as it shows; the second request asks for what is still owed to the first.
    at_each_psn(|psn| {
        let script =
            r#"event = [{ action = "reorder", behind = 1, opcode = "RC_RDMA_READ_RESPONSE_MIDDLE", nth = 1 }]"#;
        let mut w = World::new(psn, script);
        w.read(0, FOUR);
        w.expect(&[
            "a> RDMA_READ_REQUEST +0 A of 773",
            "b> RDMA_READ_RESPONSE_FIRST +0 msn 1",
            "b> RDMA_READ_RESPONSE_MIDDLE +1 held",
            "b> RDMA_READ_RESPONSE_MIDDLE +2",
            "b> RDMA_READ_RESPONSE_LAST +3 msn 1",
            "a> RDMA_READ_REQUEST +1 A of 517",
            "a> RDMA_READ_REQUEST +2 A of 261",
            "b> RDMA_READ_RESPONSE_FIRST +1 msn 1",
            "b> RDMA_READ_RESPONSE_MIDDLE +2",
            "b> RDMA_READ_RESPONSE_LAST +3 msn 1",
        ]);
        w.counted(A, "implied_nak_seq_err 2, retransmitted_packets 2, sent_requests 1, stale_acks 1")
            .counted(B, "duplicate_request 2, rx_read_requests 1");
    });
}

#[test]
fn of_two_acks_the_second_comes_first() {
    at_each_psn(|psn| {
        let script = r#"event = [{ action = "reorder", behind = 1, opcode = "RC_ACKNOWLEDGE", nth = 1 }]"#;
        let mut w = World::new(psn, script);
        w.write(0, TWO).run_until("a> RDMA_WRITE_LAST +1 A").write(1, TWO);
        w.expect(&[
            "a> RDMA_WRITE_FIRST +0",
            "a> RDMA_WRITE_LAST +1 A",
            "a> RDMA_WRITE_FIRST +2",
            "a> RDMA_WRITE_LAST +3 A",
            "b> ACK +1 msn 1 held",
            "b> ACK +3 msn 2",
        ]);
        w.counted(A, "sent_requests 4, stale_acks 1").counted(B, "rx_write_requests 2");
    });
}

#[test]
fn an_ack_comes_behind_the_answer_of_a_read() {
    at_each_psn(|psn| {
        let script = r#"event = [{ action = "reorder", behind = 1, opcode = "RC_ACKNOWLEDGE", nth = 1 }]"#;
        let mut w = World::new(psn, script);
        w.write(0, ONE).run_until("a> RDMA_WRITE_ONLY +0 A").read(1, ONE);
        w.expect(&[
            "a> RDMA_WRITE_ONLY +0 A",
            "a> RDMA_READ_REQUEST +1 A of 100",
            "b> ACK +0 msn 1 held",
            "b> RDMA_READ_RESPONSE_ONLY +1 msn 2",
        ]);
        w.counted(A, "sent_requests 2, stale_acks 1").counted(B, "rx_read_requests 1, rx_write_requests 1");
    });
}

#[test]
fn of_two_atomic_requests_the_second_comes_first() {
    at_each_psn(|psn| {
        let script = r#"event = [{ action = "reorder", behind = 1, opcode = "RC_FETCH_ADD", nth = 1 }]"#;
        let mut w = World::new(psn, script);
        w.add(0, 5).add(1, 7);
        w.expect(&[
            "a> FETCH_ADD +0 A held",
            "a> FETCH_ADD +1 A",
            "b> NAK0 +0 msn 0",
            "b> ATOMIC_ACKNOWLEDGE +0 msn 1",
            "a> FETCH_ADD +0 A",
            "a> FETCH_ADD +1 A",
            "b> ATOMIC_ACKNOWLEDGE +0 msn 1",
            "b> ATOMIC_ACKNOWLEDGE +1 msn 2",
        ]);
        w.counted(A, "packet_seq_err 1, retransmitted_packets 2, sent_requests 2, stale_acks 1")
            .counted(B, "duplicate_request 1, out_of_sequence 1, rx_atomic_requests 2, sent_seq_naks 1");
    });
}
