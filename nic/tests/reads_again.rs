//! READs and atomics that come again: doubled on the way, asked for again, or forged. What later requests are owed stays owed.

use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{Data, SendOp, Sge, Status};
use softnic_nic::{Buffer, Nic};
use softnic_wire::ext::Reth;
use softnic_wire::{ExtHeaders, Opcode};

use crate::common::*;

/// Bytes of each READ: four packets.
const LEN: usize = 1000;

/// A posts this many READs of four packets each, of different parts of B's buffer; their request frames.
fn reads(w: &mut World, count: usize) -> Vec<Vec<u8>> {
    for i in 0..count {
        w.fill(B, i * 1024, &pattern(i as u32, LEN));
        let op = w.read_from(B, i * 1024);
        w.send(A, i as u64, op, i * 1024, LEN);
    }
    w.transmit(A)
}

fn assert_read(w: &mut World, count: usize) {
    let done: Vec<_> = (0..count as u64).map(|id| (id, Status::Success)).collect();
    assert_eq!(w.sent_status(A), done);
    for i in 0..count {
        assert_eq!(w.read(A, i * 1024, LEN), pattern(i as u32, LEN));
    }
}

/// A READ request to B as A would send it.
fn forge_read(w: &World, psn: i32, va: u64, rkey: u32, len: u32) -> Vec<u8> {
    let ext = ExtHeaders { reth: Some(Reth { va, rkey, len }), ..ExtHeaders::default() };
    w.forge(B, Opcode::RC_RDMA_READ_REQUEST.0, psn, true, ext, &[])
}

#[test]
fn a_doubled_read_request_leaves_the_answers_that_later_reads_are_owed() {
    for doubled in 0..4 {
        each_psn(Options::default(), |mut w| {
            let requests = reads(&mut w, 4);
            w.deliver_all(B, &requests);
            w.deliver(B, &requests[doubled]);
            let answers = w.transmit(B);
            assert_eq!(answers.len(), 16, "nothing was sent yet, so nothing is sent twice");
            w.deliver_all(A, &answers);
            assert_read(&mut w, 4);
            assert_eq!((w.counters(A).implied_nak_seq_err, w.counters(A).retransmitted_packets), (0, 0));
        });
    }
}

#[test]
fn a_read_that_is_answered_comes_again_and_is_answered_before_those_that_are_owed() {
    each_psn(Options::default(), |mut w| {
        let first = reads(&mut w, 1);
        w.deliver_all(B, &first);
        assert_eq!(w.transmit(B).len(), 4, "lost");
        for i in 1..3 {
            w.fill(B, i * 1024, &pattern(i as u32, LEN));
            let op = w.read_from(B, i * 1024);
            w.send(A, i as u64, op, i * 1024, LEN);
        }
        let others = w.transmit(A);
        w.deliver_all(B, &others);
        w.deliver_all(B, &first);
        let answers = w.transmit(B);
        assert_eq!(w.show(&answers)[..1], ["RDMA_READ_RESPONSE_FIRST +0 msn 3"]);
        assert_eq!(answers.len(), 12);
        w.deliver_all(A, &answers);
        assert_read(&mut w, 3);
    });
}

#[test]
fn a_forged_read_request_discards_no_answer_whatever_its_key() {
    let mut w = World::new(Options::default());
    let requests = reads(&mut w, 4);
    w.deliver_all(B, &requests);
    let (va, key) = (w.hosts[B].buffer.addr(), w.hosts[B].key);
    // A wrong key; a right key and another address or length than the READ's; a range that begins in one READ and ends in another.
    for (psn, va, key, len) in [
        (0, va, key ^ 0x100, LEN as u32),
        (0, va, 0, LEN as u32),
        (0, va + 8, key, LEN as u32),
        (0, va, key, 8),
        (2, va + 512, key, LEN as u32),
        (0, va, key, 4 * LEN as u32),
    ] {
        let frame = forge_read(&w, psn, va, key, len);
        w.deliver(B, &frame);
    }
    let answers = w.transmit(B);
    assert_eq!(answers.len(), 16);
    w.deliver_all(A, &answers);
    assert_read(&mut w, 4);
}

#[test]
fn a_read_under_way_that_lost_a_response_begins_again_there() {
    each_psn(Options::default(), |mut w| {
        let requests = reads(&mut w, 2);
        w.deliver_all(B, &requests);
        let mut answers: Vec<_> = (0..3).map(|_| w.transmit_one(B, Nic::WIRE).expect("a response")).collect();
        answers.remove(1);
        w.deliver_all(A, &answers);
        let again = w.transmit(A);
        assert_eq!(w.show(&again), ["RDMA_READ_REQUEST +1 A", "RDMA_READ_REQUEST +4 A"]);
        w.deliver_all(B, &again);
        let answers = w.transmit(B);
        assert_eq!(answers.len(), 3 + 4, "the READ from there on, and the other one once");
        w.deliver_all(A, &answers);
        assert_read(&mut w, 2);
    });
}

#[test]
fn a_duplicate_read_longer_than_any_message_is_ignored() {
    let mut w = World::new(Options::default());
    let key = w.hosts[B].nic.alloc_null_mr(w.hosts[B].pd, Access::LOCAL_WRITE | Access::REMOTE_READ).unwrap();
    w.send(A, 1, SendOp::Read { remote_addr: 0, rkey: key }, 0, 100);
    w.run();
    assert_eq!(w.sent_status(A), [(1, Status::Success)]);
    for len in [u32::MAX, (1 << 31) + 1, 1 << 31, 257] {
        let frame = forge_read(&w, 0, 0, key, len);
        w.deliver(B, &frame);
        assert!(w.transmit(B).is_empty(), "{len} bytes");
    }
    assert_eq!((w.counters(B).duplicate_request, w.state(B)), (4, QpState::ReadyToSend));
}

#[test]
fn a_read_of_two_gib_is_asked_for_at_the_shortest_mtu() {
    let mut w = World::new(Options::default());
    let all = Access::LOCAL_WRITE | Access::REMOTE_READ;
    let [mine, key] = [A, B].map(|h| w.hosts[h].nic.alloc_null_mr(w.hosts[h].pd, all).unwrap());
    let sges = [Sge { addr: 0, len: 1 << 31, lkey: mine }];
    for id in [1, 2] {
        w.post(A, &wr(id, SendOp::Read { remote_addr: 0, rkey: key }, Data::Gather(&sges))).unwrap();
    }
    let request = w.transmit(A);
    assert_eq!(request.len(), 1, "the other one has to wait");
    w.deliver_all(B, &request);
    w.deliver_all(B, &request);
    for _ in 0..100 {
        let answer = w.transmit_one(B, Nic::WIRE).expect("a response");
        w.deliver(A, &answer);
        assert!(w.transmit(A).is_empty());
    }
    assert_eq!((w.counters(B).duplicate_request, w.counters(A).stale_acks), (1, 0));
    assert_eq!((w.state(A), w.state(B)), (QpState::ReadyToSend, QpState::ReadyToSend));
}

#[test]
fn a_read_response_that_is_lost_twice_is_asked_for_twice_without_waiting() {
    for lost in 0..3 {
        each_psn(Options::default(), |mut w| {
            let requests = reads(&mut w, 1);
            w.deliver_all(B, &requests);
            let mut answers = w.transmit(B);
            answers.remove(lost);
            for time in 1..=3 {
                w.deliver_all(A, &answers);
                assert_eq!(w.counters(A).implied_nak_seq_err, time);
                let again = w.transmit(A);
                assert_eq!(w.show(&again), [format!("RDMA_READ_REQUEST +{lost} A")]);
                // What was under way behind it says nothing new.
                let behind = if time == 1 { lost + 1 } else { 1 };
                w.deliver_all(A, answers.get(behind..).unwrap_or_default());
                assert_eq!(w.counters(A).implied_nak_seq_err, time);
                w.deliver_all(B, &again);
                answers = w.transmit(B);
                if time < 3 {
                    answers.remove(0);
                }
            }
            w.deliver_all(A, &answers);
            assert_eq!(w.counters(A).local_ack_timeout_err, 0);
            assert_read(&mut w, 1);
        });
    }
}

#[test]
fn a_doubled_sequence_nak_costs_one_retry() {
    each_psn(Options { retry_cnt: 1, ..Options::default() }, |mut w| {
        let op = w.write_to(B, 0);
        w.send(A, 7, op, 0, LEN);
        let frames = w.transmit(A);
        w.deliver_all(B, &frames[1..]);
        let nak = w.transmit(B);
        assert_eq!(w.show(&nak), ["NAK0 +0 msn 0"]);
        w.deliver_all(A, &nak);
        assert_eq!(w.transmit(A).len(), 4, "lost");
        w.deliver_all(A, &nak);
        assert_eq!((w.state(A), w.counters(A).packet_seq_err), (QpState::ReadyToSend, 2));
        let again = w.transmit(A);
        w.deliver_all(B, &again);
        w.run();
        assert_eq!(w.sent_status(A), [(7, Status::Success)]);
    });
}

#[test]
fn an_answer_that_is_to_be_given_again_from_memory_that_is_gone_is_not_given_and_stops_nothing() {
    for len in [100, LEN] {
        let mut w = World::new(Options::default());
        let buffer = Buffer::new(0x77_0000, 4096);
        let key = w.hosts[B].nic.reg_mr(w.hosts[B].pd, &buffer, Access::LOCAL_WRITE | Access::REMOTE_READ).unwrap();
        w.send(A, 1, SendOp::Read { remote_addr: buffer.addr(), rkey: key }, 0, len);
        let request = w.transmit(A);
        w.deliver_all(B, &request);
        let answers = w.transmit(B);
        w.deliver_all(A, &answers);
        assert_eq!(w.sent_status(A), [(1, Status::Success)]);
        // The request was doubled on the way; the program, which knows that the READ is done, takes the memory away.
        w.deliver_all(B, &request);
        w.hosts[B].nic.dereg_mr(key).unwrap();
        let read = w.read_from(B, 0);
        w.send(A, 2, read, 0, LEN);
        w.run();
        assert_eq!(w.sent_status(A), [(2, Status::Success)]);
        assert_eq!(w.state(B), QpState::ReadyToSend);
    }
}
