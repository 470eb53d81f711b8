//! A bit of a packet is flipped: the ICRC finds it, and the packet is as good as lost.

use crate::targeted::world::{FOUR, ONE, World, at_each_psn};
use softnic_sim::pair::{A, B};

#[test]
fn a_damaged_request_is_dropped_and_missed_like_a_lost_one() {
    // Bit 480 is in the payload of a WRITE MIDDLE, which begins at byte 54; bit 427 is in the PSN.
    for bit in [480, 427] {
        at_each_psn(|psn| {
            let script = format!(r#"event = [{{ action = "corrupt", direction = "ab", nth = 3, bit = {bit} }}]"#);
            let mut w = World::new(psn, &script);
            w.write(0, FOUR);
            w.expect(&[
                "a> RDMA_WRITE_FIRST +0",
                "a> RDMA_WRITE_MIDDLE +1",
                "a> RDMA_WRITE_MIDDLE +2 damaged",
                "a> RDMA_WRITE_LAST +3 A",
                "b> NAK0 +2 msn 0",
                "a> RDMA_WRITE_MIDDLE +2",
                "a> RDMA_WRITE_LAST +3 A",
                "b> ACK +3 msn 1",
            ]);
            w.counted(A, "packet_seq_err 1, retransmitted_packets 2, sent_requests 4")
                .counted(B, "out_of_sequence 1, rx_icrc_encapsulated 1, rx_write_requests 1, sent_seq_naks 1");
        });
    }
}

#[test]
fn a_damaged_ack_is_missed_by_the_timer() {
    // Bit 432 is in the AETH, which begins at byte 54: an ACK would become another one.
    at_each_psn(|psn| {
        let script = r#"event = [{ action = "corrupt", opcode = "RC_ACKNOWLEDGE", nth = 1, bit = 432 }]"#;
        let mut w = World::new(psn, script);
        w.receive(0, ONE).send(0, ONE);
        w.expect(&["a> SEND_ONLY +0 A", "b> ACK +0 msn 1 damaged", "...", "a> SEND_ONLY +0 A", "b> ACK +0 msn 1"]);
        w.counted(A, "local_ack_timeout_err 1, retransmitted_packets 1, rx_icrc_encapsulated 1, sent_requests 1")
            .counted(B, "duplicate_request 1, rx_send_requests 1");
    });
}

#[test]
fn a_damaged_read_response_is_asked_for_again() {
    at_each_psn(|psn| {
        let script = r#"event = [{ action = "corrupt", opcode = "RC_RDMA_READ_RESPONSE_MIDDLE", nth = 2, bit = 500 }]"#;
        let mut w = World::new(psn, script);
        w.read(0, FOUR);
        w.expect(&[
            "a> RDMA_READ_REQUEST +0 A of 773",
            "b> RDMA_READ_RESPONSE_FIRST +0 msn 1",
            "b> RDMA_READ_RESPONSE_MIDDLE +1",
            "b> RDMA_READ_RESPONSE_MIDDLE +2 damaged",
            "b> RDMA_READ_RESPONSE_LAST +3 msn 1",
            "a> RDMA_READ_REQUEST +2 A of 261",
            "b> RDMA_READ_RESPONSE_FIRST +2 msn 1",
            "b> RDMA_READ_RESPONSE_LAST +3 msn 1",
        ]);
        w.counted(A, "implied_nak_seq_err 1, retransmitted_packets 1, rx_icrc_encapsulated 1, sent_requests 1")
            .counted(B, "duplicate_request 1, rx_read_requests 1");
    });
}

#[test]
fn a_damaged_answer_of_an_atomic_is_given_again() {
    at_each_psn(|psn| {
        let script = r#"event = [{ action = "corrupt", opcode = "RC_ATOMIC_ACKNOWLEDGE", nth = 1, bit = 500 }]"#;
        let mut w = World::new(psn, script);
        w.add(0, 5);
        w.expect(&[
            "a> FETCH_ADD +0 A",
            "b> ATOMIC_ACKNOWLEDGE +0 msn 1 damaged",
            "...",
            "a> FETCH_ADD +0 A",
            "b> ATOMIC_ACKNOWLEDGE +0 msn 1",
        ]);
        w.counted(A, "local_ack_timeout_err 1, retransmitted_packets 1, rx_icrc_encapsulated 1, sent_requests 1")
            .counted(B, "duplicate_request 1, rx_atomic_requests 1");
    });
}
