//! READs and atomics, packet by packet: what is asked for, what is answered, and what happens to lost answers.

use crate::common::{self, A, B, Options, World, each_psn, wr};
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{Data, PostError, SendFlags, SendOp, SendWr, Status, WcOpcode};
use softnic_wire::{ExtHeaders, PathMtu};

/// B's buffer is filled; A reads `len` bytes of it from offset 64 to offset 0. No frame was moved yet.
fn reading(w: &mut World, len: usize) -> Vec<u8> {
    let data = common::pattern(7, len);
    w.fill(B, 64, &data);
    let op = w.read_from(B, 64);
    w.send(A, 1, op, 0, len);
    data
}

#[test]
fn a_read_brings_every_size_over_every_mtu() {
    for mtu in PathMtu::ALL {
        let m = mtu.bytes() as usize;
        for len in [0, 1, m - 1, m, m + 1, 3 * m + 5] {
            let mut w = World::new(Options { mtu, ..Options::default() });
            let data = reading(&mut w, len);
            w.run();
            let done = w.sent(A);
            assert_eq!((done.len(), done[0].status, done[0].opcode), (1, Status::Success, WcOpcode::Read));
            assert_eq!((done[0].byte_len as usize, w.read(A, 0, len)), (len, data), "{len} bytes at {mtu:?}");
            assert_eq!(w.read(A, len, 8), [common::UNTOUCHED; 8]);
        }
    }
}

#[test]
fn one_request_stands_for_all_responses_and_the_next_message_follows_behind_them() {
    each_psn(Options::default(), |mut w| {
        reading(&mut w, 600);
        let op = w.write_to(B, 4096);
        w.send(A, 2, op, 0, 1);
        let requests = w.transmit(A);
        assert_eq!(w.show(&requests), ["RDMA_READ_REQUEST +0 A", "RDMA_WRITE_ONLY +3 A"]);
        w.deliver_all(B, &requests);
        let expected = [
            "RDMA_READ_RESPONSE_FIRST +0 msn 1",
            "RDMA_READ_RESPONSE_MIDDLE +1",
            "RDMA_READ_RESPONSE_LAST +2 msn 1",
            "ACK +3 credits 0 msn 2",
        ];
        let answers = w.transmit(B);
        assert_eq!(w.show(&answers), expected);
        w.deliver_all(A, &answers);
        assert_eq!(w.sent_status(A), [(1, Status::Success), (2, Status::Success)]);
    });
}

#[test]
fn a_lost_response_is_asked_for_again_from_there_on() {
    for lost in 0..4 {
        each_psn(Options::default(), |mut w| {
            let data = reading(&mut w, 1000);
            let request = w.transmit(A);
            w.deliver_all(B, &request);
            let mut answers = w.transmit(B);
            answers.remove(lost);
            w.deliver_all(A, &answers);
            if lost < 3 {
                assert_eq!(w.counters(A).implied_nak_seq_err, 1, "a later response says that one is missing");
            } else {
                w.wait(4096 << 10);
            }
            let again = w.transmit(A);
            let packet = w.parse(&again[0]);
            let reth = packet.ext.reth.expect("a READ request");
            assert_eq!(w.show(&again), [format!("RDMA_READ_REQUEST +{lost} A")]);
            assert_eq!(reth.len as usize, 1000 - 256 * lost);
            assert_eq!(reth.va, w.hosts[B].buffer.addr() + 64 + 256 * lost as u64);
            w.deliver_all(B, &again);
            w.run();
            assert_eq!((w.sent_status(A), w.read(A, 0, 1000)), (vec![(1, Status::Success)], data.clone()));
        });
    }
}

#[test]
fn an_acknowledgement_cannot_stand_for_data() {
    each_psn(Options::default(), |mut w| {
        let data = reading(&mut w, 300);
        let op = w.write_to(B, 4096);
        w.send(A, 2, op, 0, 1);
        let requests = w.transmit(A);
        w.deliver_all(B, &requests);
        let answers = w.transmit(B);
        w.deliver(A, &answers[2]); // only the ACK of the WRITE comes
        assert!(w.sent(A).is_empty());
        assert_eq!(w.counters(A).implied_nak_seq_err, 1);
        assert_eq!(w.shown(A), ["RDMA_READ_REQUEST +0 A", "RDMA_WRITE_ONLY +2 A"]);
        w.wait(4096 << 10);
        w.run();
        assert_eq!(w.sent_status(A), [(1, Status::Success), (2, Status::Success)]);
        assert_eq!(w.read(A, 0, 300), data);
    });
}

/// Linux's rxe takes a READ or atomic for done, without its data, when a plain acknowledgement names its last PSN.
#[test]
fn an_acknowledgement_that_is_repeated_does_not_name_a_read_or_atomic_that_came_since() {
    each_psn(Options::default(), |mut w| {
        let op = w.write_to(B, 4096);
        w.send(A, 9, op, 8192, 300);
        let data = reading(&mut w, 600);
        let op = w.add_to(B, 32768, 1);
        w.send(A, 3, op, 16384, 8);
        let requests = w.transmit(A);
        let sent = ["RDMA_WRITE_FIRST +0", "RDMA_WRITE_LAST +1", "RDMA_READ_REQUEST +2 A", "FETCH_ADD +5 A"];
        assert_eq!(w.show(&requests), sent);
        w.deliver_all(B, &requests);
        assert_eq!(w.shown(B).len(), 4, "three responses and an atomic: all are lost");
        w.deliver(B, &requests[1]);
        w.deliver(B, &requests[0]);
        assert_eq!(w.shown(B), ["ACK +1 credits 0 msn 3"]);
        w.deliver(B, &requests[0]);
        w.deliver(B, &requests[1]);
        let answer = w.transmit(B);
        assert_eq!(w.show(&answer), ["ACK +1 credits 0 msn 3"]);
        w.deliver_all(A, &answer);
        assert_eq!(w.sent_status(A), [(9, Status::Success)]);
        // The rest is asked for again in its own time, and the atomic not carried out twice.
        while w.wait_for_timer(A).is_some() {
            w.run();
        }
        assert_eq!(w.sent_status(A), [(1, Status::Success), (3, Status::Success)]);
        assert_eq!((w.read(A, 0, 600), w.read(B, 32768, 1)), (data, vec![common::UNTOUCHED + 1]));
    });
}

#[test]
fn a_lost_read_request_draws_a_sequence_nak_from_what_follows() {
    each_psn(Options::default(), |mut w| {
        let data = reading(&mut w, 300);
        let op = w.write_to(B, 4096);
        w.send(A, 2, op, 0, 1);
        let requests = w.transmit(A);
        w.deliver(B, &requests[1]);
        let nak = w.transmit(B);
        assert_eq!(w.show(&nak), ["NAK0 +0 msn 0"]);
        w.deliver_all(A, &nak);
        w.run();
        assert_eq!(w.sent_status(A), [(1, Status::Success), (2, Status::Success)]);
        assert_eq!(w.read(A, 0, 300), data);
    });
}

#[test]
fn an_atomic_finds_and_changes_and_is_never_carried_out_twice() {
    each_psn(Options::default(), |mut w| {
        w.fill(B, 64, &5u64.to_ne_bytes());
        let op = w.add_to(B, 64, 3);
        w.send(A, 1, op, 0, 8);
        let request = w.transmit(A);
        assert_eq!(w.show(&request), ["FETCH_ADD +0 A"]);
        w.deliver_all(B, &request);
        let lost = w.transmit(B);
        assert_eq!(w.show(&lost), ["ATOMIC_ACKNOWLEDGE +0 msn 1"]);
        w.wait(4096 << 10);
        let again = w.transmit(A);
        w.deliver_all(B, &again);
        w.deliver_all(B, &again);
        w.run();
        let word = |w: &World, h, at| u64::from_ne_bytes(w.read(h, at, 8).try_into().unwrap());
        assert_eq!((word(&w, B, 64), word(&w, A, 0)), (8, 5));
        let SendOp::FetchAdd { remote_addr, rkey, .. } = op else { unreachable!() };
        for (id, compare, left) in [(2, 9, 8), (3, 8, 77)] {
            w.send(A, id, SendOp::CompareSwap { remote_addr, rkey, compare, swap: 77 }, 8, 8);
            w.run();
            assert_eq!((word(&w, B, 64), word(&w, A, 8)), (left, 8), "compare with {compare}");
        }
        let done: Vec<_> = w.sent(A).iter().map(|c| (c.wr_id, c.opcode)).collect();
        assert_eq!(done, [(1, WcOpcode::FetchAdd), (2, WcOpcode::CompareSwap), (3, WcOpcode::CompareSwap)]);
    });
}

#[test]
fn no_more_reads_are_outstanding_than_agreed_on() {
    let mut w = World::new(Options { max_rd_atomic: 2, ..Options::default() });
    for id in 0..5 {
        let op = w.read_from(B, 0);
        w.send(A, id, op, 0, 300);
    }
    let first = w.transmit(A);
    assert_eq!(w.show(&first), ["RDMA_READ_REQUEST +0 A", "RDMA_READ_REQUEST +2 A"]);
    w.deliver_all(B, &first);
    w.run();
    assert_eq!(w.sent_status(A).len(), 5);
}

#[test]
fn a_peer_that_asks_for_more_reads_than_agreed_on_is_refused() {
    let mut w = World::new(Options { max_rd_atomic: 1, ..Options::default() });
    let reth = softnic_wire::ext::Reth { va: w.hosts[B].buffer.addr(), rkey: w.hosts[B].key, len: 300 };
    let ext = ExtHeaders { reth: Some(reth), ..ExtHeaders::default() };
    for psn in [0, 2] {
        let frame = w.forge(B, 0x0c, psn, true, ext, &[]);
        w.deliver(B, &frame);
    }
    assert_eq!(w.state(B), QpState::Error);
    assert_eq!(w.shown(B).last().map(String::as_str), Some("NAK1 +2 msn 1"));
}

#[test]
fn a_fenced_send_waits_for_the_reads_before_it() {
    let mut w = World::new(Options::default());
    reading(&mut w, 10);
    let op = w.write_to(B, 4096);
    let sges = [w.sge(A, 0, 1)];
    let flags = SendFlags { signaled: true, solicited: false, fence: true };
    w.post(A, &SendWr { flags, ..wr(2, op, Data::Gather(&sges)) }).unwrap();
    let read = w.transmit(A);
    assert_eq!(w.show(&read), ["RDMA_READ_REQUEST +0 A"]);
    w.deliver_all(B, &read);
    let response = w.transmit(B);
    w.deliver_all(A, &response);
    assert_eq!(w.shown(A), ["RDMA_WRITE_ONLY +1 A"]);
}

#[test]
fn what_a_responder_refuses_of_reads_and_atomics() {
    let all = Options::default();
    let write_only = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    type Op = fn(&World) -> SendOp;
    let read: Op = |w| w.read_from(B, 0);
    let outside: Op = |w| w.read_from(B, common::BUFFER - 7);
    let add: Op = |w| w.add_to(B, 0, 1);
    let misaligned: Op = |w| w.add_to(B, 4, 1);
    for (name, options, op, status) in [
        ("READ without the QP's right", Options { access: write_only, ..all }, read, Status::RemInvReqErr),
        ("atomic without the QP's right", Options { access: write_only, ..all }, add, Status::RemInvReqErr),
        ("READ without the MR's right", Options { mr_access: write_only, ..all }, read, Status::RemAccessErr),
        ("atomic without the MR's right", Options { mr_access: write_only, ..all }, add, Status::RemAccessErr),
        ("READ out of range", all, outside, Status::RemAccessErr),
        ("misaligned atomic", all, misaligned, Status::RemInvReqErr),
    ] {
        let mut w = World::new(options);
        let op = op(&w);
        w.send(A, 1, op, 0, 8);
        w.run();
        assert_eq!(w.sent_status(A), [(1, status)], "{name}");
        assert_eq!((w.state(A), w.state(B)), (QpState::Error, QpState::Error), "{name}");
        assert_eq!(w.read(A, 0, 8), [common::UNTOUCHED; 8], "{name}");
    }
}

#[test]
fn an_empty_read_needs_no_key() {
    let mut w = World::new(Options::default());
    w.send(A, 1, SendOp::Read { remote_addr: 1, rkey: 2 }, 0, 0);
    w.run();
    assert_eq!(w.sent_status(A), [(1, Status::Success)]);
}

#[test]
fn responses_that_cannot_be_right_fail_the_read() {
    let aeth = softnic_wire::Aeth { syndrome: softnic_wire::aeth::Syndrome::from_byte(0x1f), msn: 1 };
    let ext = ExtHeaders { aeth: Some(aeth), ..ExtHeaders::default() };
    for (opcode, len) in [(0x10, 256), (0x0d, 255), (0x0f, 256), (0x12, 0)] {
        let mut w = World::new(Options::default());
        reading(&mut w, 300);
        assert_eq!(w.transmit(A).len(), 1);
        let atomic_ack = (opcode == 0x12).then_some(9);
        let frame = w.forge(A, opcode, 0, false, ExtHeaders { atomic_ack, ..ext }, &vec![1; len]);
        w.deliver(A, &frame);
        assert_eq!(w.sent_status(A), [(1, Status::BadRespErr)], "opcode {opcode:#x} with {len} bytes");
    }
    // Data in answer to a WRITE.
    let mut w = World::new(Options::default());
    let op = w.write_to(B, 0);
    w.send(A, 1, op, 0, 8);
    assert_eq!(w.transmit(A).len(), 1);
    let frame = w.forge(A, 0x10, 0, false, ext, &[1; 8]);
    w.deliver(A, &frame);
    assert_eq!(w.sent_status(A), [(1, Status::BadRespErr)]);
}

#[test]
fn what_cannot_be_posted() {
    let mut w = World::new(Options::default());
    let (read, add, sges) = (w.read_from(B, 0), w.add_to(B, 0, 1), [w.sge(A, 0, 4)]);
    assert_eq!(w.post(A, &wr(1, read, Data::Inline(&[1]))), Err(PostError::InlineNotAllowed));
    assert_eq!(w.post(A, &wr(1, add, Data::Gather(&sges))), Err(PostError::AtomicLength));
}

#[test]
fn a_queue_pair_in_error_answers_no_more() {
    let mut w = World::new(Options::default());
    reading(&mut w, 1000);
    let request = w.transmit(A);
    w.deliver_all(B, &request);
    w.modify(B, &common::to_state(QpState::Error));
    assert!(w.shown(B).is_empty());
}
