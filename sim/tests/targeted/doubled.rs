//! A packet comes twice.

use crate::targeted::world::{FOUR, ONE, TWO, World, at_each_psn};
use softnic_sim::pair::{A, B};

fn twice(opcode: &str) -> String {
    format!(r#"event = [{{ action = "duplicate", opcode = "RC_{opcode}", nth = 1 }}]"#)
}

#[test]
fn a_packet_in_the_middle_of_a_send() {
    at_each_psn(|psn| {
        let mut w = World::new(psn, &twice("SEND_MIDDLE"));
        w.receive(0, FOUR).send(0, FOUR);
        w.expect(&[
            "a> SEND_FIRST +0",
            "a> SEND_MIDDLE +1 twice",
            "a> SEND_MIDDLE +2",
            "a> SEND_LAST +3 A",
            "b> ACK +1 msn 0",
            "b> ACK +3 msn 1",
        ]);
        w.counted(A, "sent_requests 4").counted(B, "duplicate_request 1, rx_send_requests 1");
    });
}

#[test]
fn a_whole_send_is_received_once() {
    at_each_psn(|psn| {
        let mut w = World::new(psn, &twice("SEND_ONLY"));
        w.receive(0, ONE).receive(1, ONE).send(0, ONE).send(1, ONE);
        w.expect(&["a> SEND_ONLY +0 twice", "a> SEND_ONLY +1 A", "b> ACK +0 msn 1", "b> ACK +1 msn 2"]);
        w.counted(A, "sent_requests 2").counted(B, "duplicate_request 1, rx_send_requests 2");
    });
}

#[test]
fn the_last_packet_of_a_write() {
    at_each_psn(|psn| {
        let mut w = World::new(psn, &twice("RDMA_WRITE_LAST"));
        w.write(0, FOUR);
        w.expect(&[
            "a> RDMA_WRITE_FIRST +0",
            "a> RDMA_WRITE_MIDDLE +1",
            "a> RDMA_WRITE_MIDDLE +2",
            "a> RDMA_WRITE_LAST +3 A twice",
            "b> ACK +3 msn 1",
            "b> ACK +3 msn 1",
        ]);
        w.counted(A, "sent_requests 4, stale_acks 1").counted(B, "duplicate_request 1, rx_write_requests 1");
    });
}

#[test]
fn a_read_request_makes_the_responses_begin_anew() {
    // A responder that has sent a part of them when the request comes again starts over: the requester may have lost all.
    at_each_psn(|psn| {
        let mut w = World::new(psn, &twice("RDMA_READ_REQUEST"));
        w.read(0, FOUR);
        w.expect(&[
            "a> RDMA_READ_REQUEST +0 A of 773 twice",
            "b> RDMA_READ_RESPONSE_FIRST +0 msn 1",
            "b> RDMA_READ_RESPONSE_FIRST +0 msn 1",
            "b> RDMA_READ_RESPONSE_MIDDLE +1",
            "b> RDMA_READ_RESPONSE_MIDDLE +2",
            "b> RDMA_READ_RESPONSE_LAST +3 msn 1",
        ]);
        w.counted(A, "sent_requests 1, stale_acks 1").counted(B, "duplicate_request 1, rx_read_requests 1");
    });
}

#[test]
fn a_read_request_with_a_write_behind_it() {
    at_each_psn(|psn| {
        let mut w = World::new(psn, &twice("RDMA_READ_REQUEST"));
        w.read(0, TWO).write(1, ONE);
        w.expect(&[
            "a> RDMA_READ_REQUEST +0 A of 261 twice",
            "a> RDMA_WRITE_ONLY +2 A",
            "b> RDMA_READ_RESPONSE_FIRST +0 msn 1",
            "b> RDMA_READ_RESPONSE_FIRST +0 msn 1",
            "b> RDMA_READ_RESPONSE_LAST +1 msn 1",
            "b> ACK +2 msn 2",
        ]);
        w.counted(A, "sent_requests 2, stale_acks 1")
            .counted(B, "duplicate_request 1, rx_read_requests 1, rx_write_requests 1");
    });
}

#[test]
fn an_atomic_request_is_carried_out_once() {
    at_each_psn(|psn| {
        let mut w = World::new(psn, &twice("FETCH_ADD"));
        w.add(0, 5).add(1, 7);
        w.expect(&[
            "a> FETCH_ADD +0 A twice",
            "a> FETCH_ADD +1 A",
            "b> ATOMIC_ACKNOWLEDGE +0 msn 1",
            "b> ATOMIC_ACKNOWLEDGE +0 msn 1",
            "b> ATOMIC_ACKNOWLEDGE +1 msn 2",
        ]);
        w.counted(A, "sent_requests 2, stale_acks 1").counted(B, "duplicate_request 1, rx_atomic_requests 2");
    });
}

#[test]
fn an_ack() {
    at_each_psn(|psn| {
        let mut w = World::new(psn, &twice("ACKNOWLEDGE"));
        w.write(0, TWO);
        w.expect(&["a> RDMA_WRITE_FIRST +0", "a> RDMA_WRITE_LAST +1 A", "b> ACK +1 msn 1 twice"]);
        w.counted(A, "sent_requests 2, stale_acks 1").counted(B, "rx_write_requests 1");
    });
}

#[test]
fn a_nak_makes_the_retransmission_begin_anew() {
    // It costs what was sent between the two, here one packet, and one of the retries.
    at_each_psn(|psn| {
        let script = r#"event = [
            { action = "drop", direction = "ab", psn = "+1", iteration = 1 },
            { action = "duplicate", opcode = "RC_ACKNOWLEDGE", nth = 1 },
        ]"#;
        let mut w = World::new(psn, script);
        w.write(0, FOUR);
        w.expect(&[
            "a> RDMA_WRITE_FIRST +0",
            "a> RDMA_WRITE_MIDDLE +1 x",
            "a> RDMA_WRITE_MIDDLE +2",
            "a> RDMA_WRITE_LAST +3 A",
            "b> NAK0 +1 msn 0 twice",
            "a> RDMA_WRITE_MIDDLE +1",
            "a> RDMA_WRITE_MIDDLE +1",
            "a> RDMA_WRITE_MIDDLE +2",
            "a> RDMA_WRITE_LAST +3 A",
            "b> ACK +1 msn 0",
            "b> ACK +3 msn 1",
        ]);
        w.counted(A, "packet_seq_err 2, retransmitted_packets 4, sent_requests 4")
            .counted(B, "duplicate_request 1, out_of_sequence 2, rx_write_requests 1, sent_seq_naks 1");
    });
}

#[test]
fn a_read_response_of_any_position() {
    for position in ["FIRST", "MIDDLE", "LAST"] {
        at_each_psn(|psn| {
            let mut w = World::new(psn, &twice(&format!("RDMA_READ_RESPONSE_{position}")));
            w.read(0, TWO + 256);
            let trace = [
                "a> RDMA_READ_REQUEST +0 A of 517",
                "b> RDMA_READ_RESPONSE_FIRST +0 msn 1",
                "b> RDMA_READ_RESPONSE_MIDDLE +1",
                "b> RDMA_READ_RESPONSE_LAST +2 msn 1",
            ]
            .map(|line| if line.contains(position) { format!("{line} twice") } else { line.into() });
            w.expect(&trace.each_ref().map(String::as_str));
            w.counted(A, "sent_requests 1, stale_acks 1").counted(B, "rx_read_requests 1");
        });
    }
}

#[test]
fn an_answer_of_an_atomic() {
    at_each_psn(|psn| {
        let mut w = World::new(psn, &twice("ATOMIC_ACKNOWLEDGE"));
        w.add(0, 5).add(1, 7);
        w.expect(&[
            "a> FETCH_ADD +0 A",
            "a> FETCH_ADD +1 A",
            "b> ATOMIC_ACKNOWLEDGE +0 msn 1 twice",
            "b> ATOMIC_ACKNOWLEDGE +1 msn 2",
        ]);
        w.counted(A, "sent_requests 2, stale_acks 1").counted(B, "rx_atomic_requests 2");
    });
}
