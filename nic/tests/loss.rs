//! What is lost, doubled or overtaken on the wire: what is sent again, when, and that nothing arrives twice.

use crate::common::*;
use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{SendOp, Status, WcOpcode};
use softnic_wire::Node;

/// Bytes of a message of four packets.
const LEN: usize = 3 * 256 + 5;
const TIMEOUT: u64 = 4096 << 10; // code 10

/// A message of four packets from A to B, as a WRITE or as a SEND with its receive posted; its frames.
fn four_packets(w: &mut World, send: bool) -> Vec<Vec<u8>> {
    w.fill(A, 0, &pattern(5, LEN));
    let op = if send { SendOp::Send } else { w.write_to(B, 0) };
    if send {
        w.recv(B, 8, 0, LEN);
    }
    w.send(A, 7, op, 0, LEN);
    let frames = w.transmit(A);
    assert_eq!(frames.len(), 4);
    frames
}

/// All is as if nothing had happened on the way: one completion on each side, the bytes there, silence.
fn assert_done(w: &mut World, send: bool) {
    w.run();
    assert_eq!(w.sent_status(A), [(7, Status::Success)]);
    let received: Vec<_> = w.received(B).iter().map(|c| (c.wr_id, c.opcode, c.byte_len)).collect();
    assert_eq!(received, if send { vec![(8, WcOpcode::Recv, LEN as u32)] } else { vec![] });
    assert_eq!(w.read(B, 0, LEN), pattern(5, LEN));
    assert_eq!(w.read(B, LEN, 64), [UNTOUCHED; 64]);
    assert_eq!((w.state(A), w.state(B)), (QpState::ReadyToSend, QpState::ReadyToSend));
    // Nothing is left to wait for: a timer that is still set must find nothing to do.
    for _ in 0..3 {
        w.wait(TIMEOUT * 2);
        assert!(w.shown(A).is_empty() && w.shown(B).is_empty());
    }
    assert_eq!(w.counters(A).retry_exceeded_err, 0);
}

fn both(test: impl Fn(World, bool)) {
    for send in [false, true] {
        each_psn(Options::default(), |w| test(w, send));
    }
}

fn expected(send: bool, from: usize) -> Vec<String> {
    let name = if send { "SEND" } else { "RDMA_WRITE" };
    let all = ["FIRST +0", "MIDDLE +1", "MIDDLE +2", "LAST +3 A"];
    all[from..].iter().map(|p| format!("{name}_{p}")).collect()
}

#[test]
fn a_lost_first_or_middle_packet_draws_one_nak_and_all_from_it_on_is_sent_again() {
    for lost in [0, 1, 2] {
        both(|mut w, send| {
            let frames = four_packets(&mut w, send);
            let mut answers = Vec::new();
            for (i, f) in frames.iter().enumerate().filter(|&(i, _)| i != lost) {
                w.deliver(B, f);
                answers.extend(w.transmit(B).into_iter().map(|f| (i, f)));
            }
            let (at, nak) = answers.pop().unwrap();
            assert!(answers.is_empty(), "one NAK a gap, then silence");
            assert_eq!((at, w.show(std::slice::from_ref(&nak))), (lost + 1, vec![format!("NAK0 +{lost} msn 0")]));
            assert_eq!((w.counters(B).out_of_sequence, w.counters(B).sent_seq_naks), (3 - lost as u64, 1));
            w.deliver(A, &nak);
            let again = w.transmit(A);
            assert_eq!(w.show(&again), expected(send, lost), "at once, without waiting for the timer");
            assert_eq!((w.counters(A).packet_seq_err, w.counters(A).retransmitted_packets), (1, again.len() as u64));
            w.deliver_all(B, &again);
            assert_eq!(w.shown(B).len(), 1);
            w.wait(TIMEOUT);
            assert_eq!(w.shown(A), expected(send, lost), "the acknowledgement was lost too");
            w.deliver_all(B, &again);
            assert_done(&mut w, send);
        });
    }
}

#[test]
fn a_lost_last_packet_is_missed_by_the_timer() {
    both(|mut w, send| {
        let frames = four_packets(&mut w, send);
        w.deliver_all(B, &frames[..3]);
        assert!(w.shown(B).is_empty());
        assert_eq!(w.wait_for_timer(A), Some(TIMEOUT));
        let again = w.transmit(A);
        assert_eq!(w.show(&again), expected(send, 0), "no answer came, so nothing is known to have arrived");
        assert_eq!(w.counters(A).local_ack_timeout_err, 1);
        w.deliver_all(B, &again);
        assert_eq!(w.counters(B).duplicate_request, 3);
        assert_done(&mut w, send);
    });
}

#[test]
fn a_lost_acknowledgement_is_given_again_and_nothing_is_placed_twice() {
    both(|mut w, send| {
        let frames = four_packets(&mut w, send);
        w.deliver_all(B, &frames);
        let lost = w.shown(B);
        assert_eq!(lost, ["ACK +3 credits 0 msn 1"]);
        assert_eq!(w.received(B).len(), usize::from(send));
        // The program owns the memory now; what comes again must leave it alone.
        w.fill(B, 0, &[1; LEN]);
        w.wait(TIMEOUT);
        let again = w.transmit(A);
        w.deliver_all(B, &again);
        let answer = w.transmit(B);
        assert_eq!(w.show(&answer), ["ACK +3 credits 0 msn 1"]);
        assert_eq!(w.read(B, 0, LEN), [1; LEN]);
        w.deliver_all(A, &answer);
        assert_eq!(w.sent_status(A), [(7, Status::Success)]);
        assert!(w.received(B).is_empty());
        assert_eq!((w.counters(B).duplicate_request, w.counters(B).rx_send_requests), (4, u64::from(send)));
    });
}

#[test]
fn a_lost_nak_is_made_good_by_the_timer() {
    both(|mut w, send| {
        let frames = four_packets(&mut w, send);
        w.deliver(B, &frames[0]);
        w.deliver(B, &frames[2]);
        assert_eq!(w.shown(B), ["NAK0 +1 msn 0"]);
        w.deliver(B, &frames[3]);
        assert!(w.shown(B).is_empty(), "silent until the expected packet comes");
        assert_eq!(w.wait_for_timer(A), Some(TIMEOUT));
        assert_done(&mut w, send);
        assert_eq!(w.counters(B).sent_seq_naks, 1);
    });
}

#[test]
fn two_gaps_draw_two_naks() {
    both(|mut w, send| {
        let frames = four_packets(&mut w, send);
        w.deliver(B, &frames[1]);
        let nak = w.transmit(B);
        assert_eq!(w.show(&nak), ["NAK0 +0 msn 0"]);
        w.deliver_all(A, &nak);
        let again = w.transmit(A);
        assert_eq!(again.len(), 4);
        w.deliver(B, &again[0]);
        w.deliver(B, &again[1]);
        w.deliver(B, &again[3]);
        let nak = w.transmit(B);
        assert_eq!(w.show(&nak), ["NAK0 +2 msn 0"], "another gap");
        w.deliver_all(A, &nak);
        let again = w.transmit(A);
        assert_eq!(w.show(&again), expected(send, 2));
        w.deliver_all(B, &again);
        assert_done(&mut w, send);
        assert_eq!((w.counters(B).sent_seq_naks, w.counters(A).packet_seq_err), (2, 2));
    });
}

#[test]
fn packets_dropped_after_the_nak_left_draw_no_other() {
    each_psn(Options::default(), |mut w| {
        let op = w.write_to(B, 0);
        let mut frames = Vec::new();
        for id in [1, 2] {
            w.send(A, id, op, 0, 500);
            frames.extend(w.transmit(A));
        }
        w.deliver(B, &frames[1]);
        let nak = w.transmit(B);
        assert_eq!(w.show(&nak), ["NAK0 +0 msn 0"]);
        w.deliver_all(B, &frames[2..]);
        w.deliver_all(A, &nak);
        let again = w.transmit(A);
        assert_eq!(again.len(), 4);
        // The requester is sending all of it again, so the middle of it is acknowledged like any other message.
        w.deliver_all(B, &again[..2]);
        assert_eq!(w.shown(B), ["ACK +1 credits 0 msn 1"]);
    });
}

#[test]
fn a_lost_retransmission_is_made_good_by_the_timer() {
    both(|mut w, send| {
        let frames = four_packets(&mut w, send);
        w.deliver(B, &frames[0]);
        w.deliver(B, &frames[2]);
        let nak = w.transmit(B);
        w.wait(1000);
        w.deliver_all(A, &nak);
        assert_eq!(w.shown(A), expected(send, 1), "and lost");
        let mut waited = 0;
        while w.counters(A).local_ack_timeout_err == 0 {
            waited += w.wait_for_timer(A).unwrap();
        }
        assert_eq!(waited, TIMEOUT, "counted from the NAK");
        assert_done(&mut w, send);
        assert_eq!(w.counters(A).local_ack_timeout_err, 1);
    });
}

#[test]
fn a_doubled_packet_changes_nothing() {
    for twice in 0..4 {
        both(|mut w, send| {
            let frames = four_packets(&mut w, send);
            for (i, f) in frames.iter().enumerate() {
                w.deliver(B, f);
                if i == twice {
                    w.deliver(B, f);
                }
            }
            assert_eq!(w.counters(B).duplicate_request, 1);
            let answers = w.transmit(B);
            assert_eq!(w.show(&answers), ["ACK +3 credits 0 msn 1"]);
            // A doubled answer changes nothing either.
            w.deliver_all(A, &answers);
            w.deliver_all(A, &answers);
            assert_eq!(w.counters(A).stale_acks, 1);
            assert_done(&mut w, send);
            assert_eq!(w.counters(A).retransmitted_packets, 0);
        });
    }
}

#[test]
fn a_doubled_message_is_acknowledged_again_and_received_once() {
    both(|mut w, send| {
        let frames = four_packets(&mut w, send);
        w.deliver_all(B, &frames);
        let first = w.transmit(B);
        w.recv(B, 9, 5000, LEN);
        w.deliver_all(B, &frames);
        let second = w.transmit(B);
        assert_eq!(w.show(&second), ["ACK +3 credits 1 msn 1"]);
        assert_eq!(w.read(B, 5000, LEN), [UNTOUCHED; LEN], "the next receive is not for it");
        w.deliver_all(A, &first);
        w.deliver_all(A, &second);
        assert_done(&mut w, send);
    });
}

#[test]
fn two_packets_that_overtake_each_other_cost_one_retransmission() {
    for first in 0..3 {
        both(|mut w, send| {
            let mut frames = four_packets(&mut w, send);
            frames.swap(first, first + 1);
            let mut answers = Vec::new();
            for f in &frames {
                w.deliver(B, f);
                answers.extend(w.transmit(B));
            }
            assert_eq!(w.show(&answers)[0], format!("NAK0 +{first} msn 0"));
            w.deliver_all(A, &answers);
            assert_done(&mut w, send);
            assert!(w.counters(A).retransmitted_packets > 0);
            assert_eq!(w.counters(A).local_ack_timeout_err, 0, "a NAK is enough");
        });
    }
}

#[test]
fn packets_that_overtake_each_other_in_one_batch_need_no_timer_either() {
    for first in 0..3 {
        both(|mut w, send| {
            let mut frames = four_packets(&mut w, send);
            frames.swap(first, first + 1);
            // A driver feeds a batch before it asks for answers.
            w.deliver_all(B, &frames);
            assert_done(&mut w, send);
            assert_eq!(w.counters(A).local_ack_timeout_err, 0, "what was dropped as too early is asked for");
            assert_eq!(w.counters(A).packet_seq_err, w.counters(B).sent_seq_naks, "only NAKs that left are counted");
        });
    }
}

#[test]
fn an_acknowledgement_that_comes_while_sending_again_ends_it() {
    both(|mut w, send| {
        let frames = four_packets(&mut w, send);
        w.deliver_all(B, &frames);
        let late = w.transmit(B);
        w.wait(TIMEOUT);
        w.deliver_all(A, &late);
        assert!(w.shown(A).is_empty(), "all is acknowledged, nothing is sent again");
        assert_done(&mut w, send);
    });
}

#[test]
fn total_loss_ends_after_exactly_retry_cnt_retries_and_flushes() {
    for (retry_cnt, code) in [(0u8, 1u8), (1, 5), (3, 14), (7, 10)] {
        each_psn(Options { retry_cnt, timeout: code, ..Options::default() }, |mut w| {
            let op = w.write_to(B, 0);
            w.recv(A, 1, 0, 10);
            for id in 7..10 {
                w.send(A, id, op, 0, 300);
            }
            assert_eq!(w.transmit(A).len(), 6);
            let mut tries = 0;
            while w.state(A) == QpState::ReadyToSend {
                assert_eq!(w.wait_for_timer(A), Some(4096 << code), "the time is exact");
                let again = w.transmit(A);
                if w.state(A) == QpState::ReadyToSend {
                    tries += 1;
                    assert_eq!(again.len(), 6);
                } else {
                    assert!(again.is_empty());
                }
            }
            assert_eq!(tries, retry_cnt, "7 is seven");
            use Status::{RetryExcErr, WrFlushErr};
            assert_eq!(w.sent_status(A), [(7, RetryExcErr), (8, WrFlushErr), (9, WrFlushErr)]);
            assert_eq!(w.received_status(A), [(1, WrFlushErr)]);
            let c = w.counters(A);
            assert_eq!((c.retry_exceeded_err, c.local_ack_timeout_err), (1, u64::from(retry_cnt) + 1));
            w.wait(1 << 40);
            assert!(w.shown(A).is_empty());
        });
    }
}

#[test]
fn a_deadline_that_has_not_come_changes_nothing() {
    let mut w = World::new(Options::default());
    four_packets(&mut w, false);
    w.wait(TIMEOUT - 1);
    assert!(w.shown(A).is_empty());
    w.wait(1);
    assert_eq!(w.transmit(A).len(), 4);
}

#[test]
fn progress_gives_all_retries_back() {
    each_psn(Options { retry_cnt: 1, ..Options::default() }, |mut w| {
        let frames = four_packets(&mut w, false);
        w.deliver(B, &frames[0]);
        for lost in 1..4 {
            w.wait(TIMEOUT);
            assert_eq!(w.state(A), QpState::ReadyToSend, "one retry after each progress");
            w.transmit(A);
            let ack = w.forge_aeth(A, lost - 1, 0x1f, 0);
            w.deliver(A, &ack);
        }
        w.wait(TIMEOUT);
        w.transmit(A);
        w.wait(TIMEOUT);
        assert_eq!(w.state(A), QpState::Error);
    });
}

#[test]
fn no_further_retry_is_counted_before_the_last_one_has_left() {
    each_psn(Options { retry_cnt: 1, ..Options::default() }, |mut w| {
        four_packets(&mut w, false);
        // The link is busy with others: time passes, and what is to be sent again waits for its turn.
        for _ in 0..10 {
            w.wait(TIMEOUT);
        }
        assert_eq!((w.state(A), w.counters(A).local_ack_timeout_err), (QpState::ReadyToSend, 1));
        assert_eq!(w.transmit(A).len(), 4);
        w.wait(TIMEOUT);
        assert_eq!(w.state(A), QpState::Error, "now it was tried");
    });
}

#[test]
fn progress_starts_the_clock_anew() {
    each_psn(Options::default(), |mut w| {
        four_packets(&mut w, false);
        w.wait(TIMEOUT - 1000);
        let ack = w.forge_aeth(A, 1, 0x1f, 0);
        w.deliver(A, &ack);
        w.wait(TIMEOUT - 1);
        assert!(w.shown(A).is_empty(), "the oldest packet has had its whole time only now");
        w.wait(1);
        assert_eq!(w.shown(A), expected(false, 2));
    });
}

#[test]
fn timeout_zero_never_times_out() {
    let mut w = World::new(Options { timeout: 0, ..Options::default() });
    four_packets(&mut w, false);
    assert_eq!(w.hosts[A].nic.poll_timeout(), None);
    w.wait(1 << 50);
    assert!(w.shown(A).is_empty() && w.sent(A).is_empty());
    assert_eq!(w.state(A), QpState::ReadyToSend);
}

#[test]
fn sequence_naks_without_progress_use_up_retries() {
    each_psn(Options { retry_cnt: 2, ..Options::default() }, |mut w| {
        four_packets(&mut w, false);
        // Two of them may be one that was doubled.
        for _ in 0..4 {
            let nak = w.forge_aeth(A, 0, 0x60, 0);
            w.deliver(A, &nak);
            assert_eq!(w.transmit(A).len(), 4);
        }
        let nak = w.forge_aeth(A, 0, 0x60, 0);
        w.deliver(A, &nak);
        assert_eq!(w.sent_status(A), [(7, Status::RetryExcErr)]);
        assert_eq!(w.counters(A).packet_seq_err, 5);
    });
}

#[test]
fn a_queue_pair_that_was_reset_forgets_its_timer() {
    let mut w = World::new(Options::default());
    four_packets(&mut w, false);
    w.modify(A, &to_state(QpState::Reset));
    w.wait(TIMEOUT * 100);
    assert!(w.shown(A).is_empty() && w.sent(A).is_empty());
    assert_eq!(w.counters(A).local_ack_timeout_err, 0);
}
