//! What is lost: only that is sent again, lost retransmissions and acknowledgements are noticed, nothing is placed twice.

use softnic_nic::transports::{SendOp, Status};

use super::*;

/// A WRITE of four packets from A to B; its frames.
fn four_packets(w: &mut World, wr_id: u64, at: usize) -> Vec<Vec<u8>> {
    w.fill(A, at, &pattern(wr_id as u32, 4 * MTU));
    let op = w.write_to(B, at);
    w.send(A, wr_id, op, at, 4 * MTU);
    let frames = fly(w, A);
    assert_eq!(frames.len(), 4);
    frames
}

fn assert_written(w: &World, wr_id: u64, at: usize) {
    assert_eq!(w.read(B, at, 4 * MTU), pattern(wr_id as u32, 4 * MTU));
}

#[test]
fn of_a_message_only_the_packet_that_was_lost_is_sent_again() {
    for lost in 0..3 {
        each(|mut w| {
            let frames = four_packets(&mut w, 7, 0);
            let mut answers = Vec::new();
            for (i, f) in frames.iter().enumerate().filter(|&(i, _)| i != lost) {
                w.deliver(B, f);
                let placed = w.read(B, i * MTU, MTU) == pattern(7, 4 * MTU)[i * MTU..][..MTU];
                assert_eq!(placed, i < 3, "placed as it comes, but for the last");
                answers.extend(w.transmit(B));
            }
            let gap = format!("ACK +{lost} [.x]");
            assert_eq!(show(&w, &answers[..1]), [gap], "told at once");
            w.wait(ONE_WAY);
            w.deliver_all(A, &answers);
            assert!(w.sent(A).is_empty());
            let again = fly(&mut w, A);
            let opcode = if lost == 0 { "RDMA_WRITE_FIRST" } else { "RDMA_WRITE_MIDDLE" };
            assert_eq!(show(&w, &again), [format!("{opcode} +{lost} A")]);
            w.deliver_all(B, &again);
            let last = fly(&mut w, B);
            assert_eq!(show(&w, &last), ["ACK +4 []"]);
            w.deliver_all(A, &last);
            assert_eq!(w.sent_status(A), [(7, Status::Success)]);
            assert_eq!(w.counters(A).retransmitted_packets, 1);
            assert_written(&w, 7, 0);
            assert_quiet(&mut w);
        });
    }
}

#[test]
fn a_lost_last_packet_is_missed_a_little_more_than_a_round_trip_later() {
    each(|mut w| {
        let frames = four_packets(&mut w, 7, 0);
        w.deliver_all(B, &frames[..3]);
        assert!(shown(&mut w, B).is_empty());
        let again = on_timer(&mut w, A);
        // The oldest draws an answer in any case; of the loss of the newest nothing behind it would tell.
        assert_eq!(show(&w, &again), ["RDMA_WRITE_FIRST +0 A", "RDMA_WRITE_LAST +3 A"]);
        w.deliver_all(B, &again);
        let answer = fly(&mut w, B);
        assert_eq!(show(&w, &answer), ["ACK +4 []"]);
        w.deliver_all(A, &answer);
        assert_eq!(w.sent_status(A), [(7, Status::Success)]);
        assert_written(&w, 7, 0);
        assert_eq!(w.counters(A).local_ack_timeout_err, 0, "the long timeout was not needed");
        assert_quiet(&mut w);
    });
}

#[test]
fn a_lost_retransmission_is_noticed_by_what_was_sent_behind_it() {
    each(|mut w| {
        let first = four_packets(&mut w, 1, 0);
        w.deliver_all(B, &first[2..]);
        w.deliver_all(B, &first[..1]);
        let answers = fly(&mut w, B);
        w.deliver_all(A, &answers);
        let lost = w.transmit(A);
        assert_eq!(show(&w, &lost), ["RDMA_WRITE_MIDDLE +1 A"]);
        let second = four_packets(&mut w, 2, 4 * MTU);
        w.deliver_all(B, &second);
        let answers = fly(&mut w, B);
        let before = w.counters(A).local_ack_timeout_err;
        w.deliver_all(A, &answers);
        assert_eq!(shown(&mut w, A), ["RDMA_WRITE_MIDDLE +1 A"], "sent again without a clock");
        w.deliver_all(B, &lost);
        settle(&mut w);
        assert_eq!(w.sent_status(A), [(1, Status::Success), (2, Status::Success)]);
        assert_written(&w, 1, 0);
        assert_written(&w, 2, 4 * MTU);
        assert_eq!(w.counters(A).local_ack_timeout_err, before);
    });
}

#[test]
fn a_lost_acknowledgement_is_given_again_and_nothing_is_placed_twice() {
    each(|mut w| {
        w.recv(B, 8, 8 * MTU, MTU);
        let mut frames = four_packets(&mut w, 7, 0);
        w.send(A, 9, SendOp::Send, 0, 10);
        frames.extend(fly(&mut w, A));
        w.deliver_all(B, &frames);
        assert_eq!(shown(&mut w, B), ["ACK +5 []"]);
        assert_eq!(w.received_status(B), [(8, Status::Success)]);
        // The program owns the memory now.
        w.fill(B, 0, &[1; 9 * MTU]);
        let again = on_timer(&mut w, A);
        assert_eq!(show(&w, &again), ["RDMA_WRITE_FIRST +0 A", "SEND_ONLY +4 A"], "the oldest and the newest ask");
        w.deliver_all(B, &again);
        w.deliver_all(B, &frames);
        settle(&mut w);
        assert_eq!(w.sent_status(A), [(7, Status::Success), (9, Status::Success)]);
        assert!(w.received(B).is_empty());
        assert_eq!(w.read(B, 0, 9 * MTU), [1; 9 * MTU]);
        assert_quiet(&mut w);
    });
}

/// Found by the swarm: all that was sent had come, as selective acknowledgements said; nothing was left to send again, and the word
/// that it had been carried out was lost.
#[test]
fn what_has_come_is_asked_about_until_the_peer_says_that_it_was_carried_out() {
    each(|mut w| {
        let (read, write) = (w.read_from(B, 0), w.write_to(B, MTU));
        w.send(A, 1, read, 0, 8);
        w.send(A, 2, write, MTU, 8);
        let frames = fly(&mut w, A);
        w.deliver(B, &frames[1]);
        let gap = fly(&mut w, B);
        assert_eq!(show(&w, &gap), ["ACK +0 [.x]"]);
        w.deliver_all(A, &gap);
        shown(&mut w, A);
        w.deliver(B, &frames[0]);
        let mut answers = fly(&mut w, B);
        answers.retain(|f| show_one(&w, f).starts_with("RDMA_READ"));
        w.deliver_all(A, &answers);
        assert_eq!(w.sent_status(A), [(1, Status::Success)]);
        shown(&mut w, A);
        let again = on_timer(&mut w, A);
        assert_eq!(show(&w, &again), ["RDMA_WRITE_ONLY +1 A"]);
        w.deliver_all(B, &again);
        settle(&mut w);
        assert_eq!(w.sent_status(A), [(2, Status::Success)]);
    });
}

#[test]
fn a_peer_that_is_gone_is_noticed() {
    each(|mut w| {
        four_packets(&mut w, 7, 0);
        for _ in 0..100 {
            if w.wait_for_timer(A).is_none() {
                break;
            }
            w.transmit(A);
        }
        assert_eq!(w.sent_status(A), [(7, Status::RetryExcErr)]);
        assert_eq!(w.counters(A).local_ack_timeout_err, u64::from(w.options.retry_cnt) + 1);
        assert_eq!(w.wait_for_timer(A), None, "nothing is waited for any more");
    });
}

/// Found by the swarm: a clock that had been started for a READ ran on when its data was there.
#[test]
fn no_clock_runs_when_all_is_done() {
    each(|mut w| {
        let read = w.read_from(B, 0);
        w.send(A, 1, read, 0, 3 * MTU);
        settle(&mut w);
        assert_eq!(w.sent_status(A), [(1, Status::Success)]);
        assert_quiet(&mut w);
        assert_eq!(w.counters(A).local_ack_timeout_err, 0);
    });
}

/// NCCL asks for an ACK timeout of four seconds.
#[test]
fn a_full_window_whose_acknowledgements_are_all_lost_goes_on_within_four_round_trips() {
    let mut w = agreed(Options { timeout: 20, ..both_offer() });
    four_packets(&mut w, 7, 0).iter().for_each(|f| w.deliver(B, f));
    settle(&mut w);
    assert_eq!(w.sent_status(A), [(7, Status::Success)]);
    let len = 200 * MTU;
    w.fill(A, 0, &pattern(8, len));
    let op = w.write_to(B, 0);
    w.send(A, 8, op, 0, len);
    let frames = fly(&mut w, A);
    assert!(frames.len() < 200, "the window ends before the message does");
    w.deliver_all(B, &frames);
    assert!(!w.transmit(B).is_empty(), "acknowledgements, which are lost");
    let heard_nothing_since = w.now;
    let again = on_timer(&mut w, A);
    assert!(again.len() <= 2, "not all of the window");
    let waited = w.now.saturating_since(heard_nothing_since);
    assert!(waited.as_nanos() <= 4 * 2 * u128::from(ONE_WAY), "{waited:?}");
    w.deliver_all(B, &again);
    settle(&mut w);
    assert_eq!(w.sent_status(A), [(8, Status::Success)]);
    assert_eq!(w.read(B, 0, len), pattern(8, len));
    assert_eq!(w.counters(A).local_ack_timeout_err, 0);
}
