//! Which packets ask for an acknowledgement, when one is given, and the credits that it carries.

use std::time::Duration;

use crate::common::*;
use softnic_nic::Nic;
use softnic_nic::transports::congestion::{CongestionControl, Feedback};
use softnic_nic::transports::qp::{Caps, QpState};
use softnic_nic::transports::{Data, SendOp, Status, Transport};
use softnic_wire::aeth::Credits;
use softnic_wire::{Instant, PathMtu};

/// Posts `n` one-byte WRITEs with one doorbell.
fn post_writes(w: &mut World, n: u64) {
    let op = w.write_to(B, 0);
    let (now, qpn) = (w.now, w.hosts[A].qpn);
    for id in 0..n {
        w.hosts[A].nic.write_send(qpn, &wr(id, op, Data::Inline(b"x"))).unwrap();
    }
    w.hosts[A].nic.ring_doorbell(now, qpn);
}

fn ack_reqs(w: &World, frames: &[Vec<u8>]) -> Vec<usize> {
    (0..frames.len()).filter(|&i| w.parse(&frames[i]).bth.ack_req).collect()
}

#[test]
fn messages_delivered_before_the_receiver_is_polled_share_one_acknowledgement() {
    each_psn(Options::default(), |mut w| {
        let op = w.write_to(B, 0);
        for id in 0..5 {
            w.send(A, id, op, 0, 300);
            // Polled after each post, every message asks for itself.
            let frames = w.transmit(A);
            assert_eq!(ack_reqs(&w, &frames), [1]);
            w.deliver_all(B, &frames);
        }
        let answer = w.transmit(B);
        assert_eq!(w.show(&answer), ["ACK +9 credits 0 msn 5"]);
        w.deliver_all(A, &answer);
        assert_eq!(w.sent_status(A), (0..5).map(|i| (i, Status::Success)).collect::<Vec<_>>());
    });
}

#[test]
fn one_packet_of_a_reply_goes_before_the_acknowledgement_and_the_rest_behind_it() {
    each_psn(Options::default(), |mut w| {
        let (to_b, to_a) = (w.write_to(B, 0), w.write_to(A, 0));
        w.send(A, 1, to_b, 0, 10);
        let message = w.transmit(A);
        w.deliver_all(B, &message);
        w.send(B, 2, to_a, 0, 600);
        let kinds: Vec<bool> = w.transmit(B).iter().map(|frame| w.parse(frame).bth.opcode.is_request()).collect();
        assert_eq!(kinds, [true, false, true, true]);
    });
}

#[test]
fn a_negative_acknowledgement_goes_before_any_request() {
    let mut w = World::new(Options::default());
    let to_b = w.write_to(B, 0);
    for id in 0..2 {
        w.send(A, id, to_b, 0, 10);
    }
    let frames = w.transmit(A);
    w.deliver(B, &frames[1]);
    let to_a = w.write_to(A, 0);
    w.send(B, 2, to_a, 0, 10);
    let shown = w.shown(B);
    assert!(shown[0].starts_with("NAK"), "{shown:?}");
    assert_eq!(shown.len(), 2);
}

#[test]
fn a_packet_that_does_not_ask_is_not_acknowledged_by_itself() {
    let mut w = World::new(Options::default());
    let op = w.write_to(B, 0);
    w.send(A, 1, op, 0, 600);
    let frames = w.transmit(A);
    w.deliver(B, &frames[0]);
    w.deliver(B, &frames[1]);
    assert!(w.shown(B).is_empty());
    w.deliver(B, &frames[2]);
    assert_eq!(w.shown(B), ["ACK +2 credits 0 msn 1"]);
    assert!(w.shown(B).is_empty(), "once");
}

#[test]
fn a_long_message_asks_at_least_every_sixty_four_packets_and_at_its_end() {
    each_psn(Options::default(), |mut w| {
        let op = w.write_to(B, 0);
        w.send(A, 1, op, 0, 200 * 256 + 1);
        let frames = w.transmit(A);
        assert_eq!(ack_reqs(&w, &frames), [63, 127, 191, 200]);
    });
}

#[test]
fn short_messages_share_requests_and_the_last_one_asks() {
    let mut w = World::new(Options::default());
    post_writes(&mut w, 40);
    let frames = w.transmit(A);
    let asked = ack_reqs(&w, &frames);
    assert_eq!(asked.last(), Some(&39));
    assert!(asked.len() < 10, "not every message asks: {asked:?}");
    let mut at = 0;
    for i in asked {
        assert!(i - at < 64);
        at = i;
    }
    w.deliver_all(B, &frames);
    w.run();
    assert_eq!(w.sent(A).len(), 40);
}

#[test]
fn an_acknowledgement_in_the_middle_completes_what_it_covers() {
    each_psn(Options::default(), |mut w| {
        let op = w.write_to(B, 0);
        for id in 0..3 {
            w.send(A, id, op, 0, 500);
        }
        w.transmit(A);
        // The second packet of the second message: only the first message is done.
        let ack = w.forge_aeth(A, 2, 0x1f, 1);
        w.deliver(A, &ack);
        assert_eq!(w.sent_status(A), [(0, Status::Success)]);
        let ack = w.forge_aeth(A, 5, 0x1f, 3);
        w.deliver(A, &ack);
        assert_eq!(w.sent_status(A), [(1, Status::Success), (2, Status::Success)]);
        w.wait(1 << 40);
        assert!(w.shown(A).is_empty(), "nothing is left that could be lost");
        assert_eq!(w.counters(A).local_ack_timeout_err, 0);
    });
}

#[test]
fn credits_follow_the_receive_queue_with_all_codes() {
    // The largest code stands for 32768 receives.
    let caps = Caps { max_recv_wr: 40_000, max_recv_sge: 1, ..Options::default().caps };
    let mut w = World::new(Options { caps, cq: 1 << 16, ..Options::default() });
    let mut posted = 0;
    for code in 0..=30u8 {
        let count = Credits(code).count().unwrap();
        for want in [count, count + 1] {
            while posted < want {
                w.recv(B, u64::from(posted), 0, 0);
                posted += 1;
            }
            let op = w.write_to(B, 0);
            w.post(A, &wr(0, op, Data::Inline(b"x"))).unwrap();
            let frames = w.transmit(A);
            w.deliver_all(B, &frames);
            let answer = w.transmit(B);
            // Codes round down: a promise that cannot be kept would draw RNR NAKs.
            let code = Credits::at_most(posted);
            assert!(code.count().unwrap() <= posted);
            let aeth = w.parse(&answer[0]).ext.aeth.unwrap();
            assert_eq!(aeth.syndrome, softnic_wire::aeth::Syndrome::Ack(code), "{posted} receives");
            w.deliver_all(A, &answer);
        }
    }
    assert_eq!(posted, 32769);
}

/// A message that uses up no receive brings credits to A; then A knows how many receives B has.
fn tell_credits(w: &mut World) {
    let op = w.write_to(B, 0);
    w.post(A, &wr(99, op, Data::Inline(b"x"))).unwrap();
    w.run();
    assert_eq!(w.sent_status(A), [(99, Status::Success)]);
}

#[test]
fn a_requester_without_credit_stops_after_one_packet_and_goes_on_when_that_is_acknowledged() {
    each_psn(Options::default(), |mut w| {
        tell_credits(&mut w);
        for id in 0..4 {
            w.send(A, id, SendOp::Send, 0, 300);
        }
        // Without credit one packet goes, and asks (IBA 9.7.7.2.5).
        let first = w.transmit(A);
        assert_eq!(w.show(&first), ["SEND_FIRST +1 A"]);
        for id in 0..3 {
            w.recv(B, id, 0, 300);
        }
        w.deliver_all(B, &first);
        let answer = w.transmit(B);
        assert_eq!(w.show(&answer), ["ACK +1 credits 3 msn 1"]);
        w.deliver_all(A, &answer);
        // Two more have credit; the fourth has none and an answer is under way.
        let more = w.transmit(A);
        let expected = ["SEND_LAST +2", "SEND_FIRST +3", "SEND_LAST +4", "SEND_FIRST +5", "SEND_LAST +6 A"];
        assert_eq!(w.show(&more), expected);
        w.deliver_all(B, &more);
        let answer = w.transmit(B);
        assert_eq!(w.show(&answer), ["ACK +6 credits 0 msn 4"]);
        w.deliver_all(A, &answer);
        assert_eq!(w.shown(A), ["SEND_FIRST +7 A"], "one beyond the credit again");
        assert_eq!(w.counters(A).rnr_naks_received, 0);
    });
}

#[test]
fn a_send_without_credit_and_without_a_receive_costs_one_packet_until_there_is_one() {
    for sr in [false, true] {
        let offers = [sr.then_some(Transport::Sr { window: 256 }); 2];
        let mut w = World::new(Options { offers, ..Options::default() });
        w.settle(500_000);
        tell_credits(&mut w);
        w.settle(500_000);
        let before = w.counters(A).sent_requests;
        w.send(A, 1, SendOp::Send, 0, 10 * 256);
        let first = w.transmit(A);
        assert_eq!((first.len(), w.parse(&first[0]).bth.ack_req), (1, true), "sr: {sr}");
        w.deliver_all(B, &first);
        w.recv(B, 5, 0, 10 * 256);
        let rnr = w.transmit(B);
        w.deliver_all(A, &rnr);
        assert_eq!((w.counters(A).rnr_naks_received, w.shown(A).len()), (1, 0));
        for _ in 0..20 {
            w.wait_for_timer(A);
            w.settle(500_000);
        }
        assert_eq!((w.sent_status(A), w.received_status(B)), (vec![(1, Status::Success)], vec![(5, Status::Success)]));
        assert_eq!((w.counters(A).sent_requests - before, w.counters(A).retransmitted_packets), (10, 1), "sr: {sr}");
    }
}

#[test]
fn a_send_that_began_with_credit_goes_on_whatever_becomes_of_the_credit() {
    let mut w = World::new(Options { mtu: PathMtu::B256, ..Options::default() });
    w.recv(B, 1, 0, 10 * 256);
    tell_credits(&mut w);
    w.send(A, 1, SendOp::Send, 0, 10 * 256);
    let mut frames: Vec<_> = (0..3).map(|_| w.transmit_one(A, Nic::WIRE).expect("a packet")).collect();
    // The last answer once more, as it was before there was a receive.
    let stale = w.forge_aeth(A, 0, 0, 1);
    w.deliver(A, &stale);
    frames.extend(w.transmit(A));
    assert_eq!(frames.len(), 10);
    w.deliver_all(B, &frames);
    w.run();
    assert_eq!((w.sent_status(A), w.counters(A).retransmitted_packets), (vec![(1, Status::Success)], 0));
}

#[test]
fn a_write_needs_no_credit_but_a_write_with_immediate_does() {
    let mut w = World::new(Options::default());
    tell_credits(&mut w);
    let (write, imm) = (w.write_to(B, 0), w.write_imm_to(B, 0, 5));
    for (id, op) in [write, imm, write, imm, write].into_iter().enumerate() {
        w.send(A, id as u64, op, 0, 10);
    }
    let frames = w.transmit(A);
    // The first packet that stands before a limit asks, so that there is an answer to wait for.
    assert_eq!(w.show(&frames), ["RDMA_WRITE_ONLY +1 A"], "the message behind it has no credit, and an answer is due");
    w.recv(B, 1, 0, 0);
    w.recv(B, 2, 0, 0);
    w.deliver_all(B, &frames);
    w.run();
    assert_eq!(w.sent(A).len(), 5);
    assert_eq!(w.counters(A).rnr_naks_received, 0);
}

#[test]
fn an_unsolicited_acknowledgement_brings_credit() {
    each_psn(Options::default(), |mut w| {
        tell_credits(&mut w);
        for id in 0..4 {
            w.send(A, id, SendOp::Send, 0, 10);
        }
        assert_eq!(w.shown(A), ["SEND_ONLY +1 A"]);
        // The responder says that receives were posted, with the PSN that it acknowledged last (IBA 9.7.7.2.3).
        let update = w.forge_aeth(A, 0, 3, 1);
        w.deliver(A, &update);
        assert_eq!(w.shown(A), ["SEND_ONLY +2", "SEND_ONLY +3 A"]);
        assert!(w.sent(A).is_empty(), "it acknowledges nothing");
    });
}

#[test]
fn a_peer_that_does_not_count_credits_is_sent_to_at_will() {
    let mut w = World::new(Options::default());
    tell_credits(&mut w);
    for id in 0..3 {
        w.send(A, id, SendOp::Send, 0, 10);
    }
    assert_eq!(w.shown(A), ["SEND_ONLY +1 A"]);
    let ack = w.forge_aeth(A, 1, 0x1f, 2);
    w.deliver(A, &ack);
    assert_eq!(w.shown(A), ["SEND_ONLY +2", "SEND_ONLY +3 A"]);
}

/// A controller that lets two packets of 256 bytes be in flight, one every 10 µs.
struct Slow {
    next: Instant,
}

impl CongestionControl for Slow {
    fn on_feedback(&mut self, _: Instant, _: Feedback) {}
    fn on_sent(&mut self, now: Instant, _: u32) {
        self.next = now + Duration::from_micros(10);
    }
    fn window(&self) -> u64 {
        512
    }
    fn next_send(&self) -> Instant {
        self.next
    }
    fn reset(&mut self) {}
}

#[test]
fn a_paced_queue_pair_wakes_for_its_next_packet_and_sleeps_while_its_window_is_full() {
    let mut w = World::new(Options { mtu: PathMtu::B256, timeout: 0, ..Options::default() });
    let qpn = w.hosts[A].qpn;
    w.hosts[A].nic.set_congestion_control(qpn, Some(Box::new(Slow { next: Instant::ZERO }))).unwrap();
    let op = w.write_to(B, 0);
    w.send(A, 1, op, 0, 256 * 4);
    let mut frames = w.transmit(A);
    assert_eq!(w.show(&frames), ["RDMA_WRITE_FIRST +0"]);
    assert_eq!(w.wait_for_timer(A), Some(10_000));
    frames.extend(w.transmit(A));
    assert_eq!(w.show(&frames[1..]), ["RDMA_WRITE_MIDDLE +1 A"]);
    // The window is full: time alone changes nothing, however often the timer is looked at.
    w.wait(1_000_000);
    assert!(w.shown(A).is_empty());
    w.deliver_all(B, &frames);
    w.run();
    while w.sent(A).is_empty() {
        w.wait_for_timer(A).expect("pacing has a next packet");
        w.run();
    }
}

#[test]
fn a_paced_queue_pair_that_fails_forgets_when_it_wanted_to_send() {
    let mut w = World::new(Options::default());
    let qpn = w.hosts[A].qpn;
    w.hosts[A].nic.set_congestion_control(qpn, Some(Box::new(Slow { next: Instant::ZERO }))).unwrap();
    let op = w.write_to(B, 0);
    w.send(A, 1, op, 0, 256 * 4);
    assert_eq!(w.shown(A).len(), 1);
    w.modify(A, &to_state(QpState::Error));
    w.wait(1 << 40);
    assert_eq!(w.sent_status(A), [(1, Status::WrFlushErr)]);
    assert!(w.shown(A).is_empty());
}
