//! Whole messages of every kind, and each of their packets.

use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{PostError, WcOpcode};

use super::*;

#[test]
fn each_packet_of_a_send_says_where_it_belongs_and_has_the_immediate() {
    for psn in FIRST_PSNS {
        let mut w = agreed(Options { psn, ..options("") });
        w.fill(A, 0, &pattern(1, 700));
        w.recv(B, 9, 1000, 800);
        w.send(A, 1, SendOp::SendImm { imm: 7 }, 0, 700);
        let frames = w.transmit(A);
        let name = "XP_SEND_WITH_IMMEDIATE";
        assert_eq!(w.show(&frames), [format!("{name} +0"), format!("{name} +1"), format!("{name} +2")]);
        let eth = |offset, last| XpEth {
            flags: XpEth::RECEIVE | if last { XpEth::LAST } else { 0 },
            wqe_seq: psn,
            offset,
            len: 700,
            stride: 1,
            receive: 0,
        };
        assert_eq!(headers(&w, &frames), [eth(0, false), eth(256, false), eth(512, true)]);
        assert!(frames.iter().all(|f| w.parse(f).ext.imm == Some(7)));
        assert_eq!(sent(&mut w), [(1, 700, None)], "done when the last packet has left");
        w.deliver_all(B, &frames);
        let cq = w.hosts[B].recv_cq;
        let done = w.all(B, cq)[0];
        assert_eq!((done.wr_id, done.byte_len, done.message_len, done.imm), (9, 700, 700, Some(7)));
        assert_eq!((done.partial, done.opcode), (None, WcOpcode::Recv));
        assert_eq!(w.read(B, 1000, 700), pattern(1, 700));
        assert_eq!(w.transmit(B), Vec::<Vec<u8>>::new(), "nothing is acknowledged");
    }
}

#[test]
fn each_packet_of_a_write_has_its_own_address() {
    let mut w = world();
    w.fill(A, 0, &pattern(2, 600));
    w.recv(B, 9, 0, 0);
    let ops = [w.write_to(B, 1000), w.write_imm_to(B, 2000, 5)];
    let base = w.hosts[B].buffer.addr();
    for (i, op) in ops.into_iter().enumerate() {
        w.send(A, i as u64, op, 0, 600);
    }
    let frames = w.transmit(A);
    let targets: Vec<_> = frames.iter().map(|f| w.parse(f).ext.reth.unwrap()).map(|r| (r.va - base, r.len)).collect();
    assert_eq!(targets, [(1000, 256), (1256, 256), (1512, 88), (2000, 256), (2256, 256), (2512, 88)]);
    w.deliver_all(B, &frames);
    assert_eq!(received(&mut w), [(9, 600, None)]);
    assert_eq!((w.read(B, 1000, 600), w.read(B, 2000, 600)), (pattern(2, 600), pattern(2, 600)));
    assert_eq!(sent(&mut w), [(0, 600, None), (1, 600, None)]);
}

#[test]
fn messages_without_bytes_arrive() {
    let mut w = world();
    w.recv(B, 8, 0, 0);
    w.recv(B, 9, 0, 0);
    w.send(A, 1, SendOp::Send, 0, 0);
    let op = w.write_imm_to(B, 0, 3);
    w.send(A, 2, op, 0, 0);
    w.run();
    assert_eq!(received(&mut w), [(8, 0, None), (9, 0, None)]);
}

#[test]
fn what_would_be_a_promise_broken_is_refused() {
    let mut w = world();
    let sges = [w.sge(A, 0, 8)];
    let atomic = w.add_to(B, 0, 1);
    for op in [atomic, SendOp::SendInv { rkey: 5 }] {
        assert_eq!(w.post(A, &wr(1, op, Data::Gather(&sges))), Err(PostError::NoSuchOperation));
    }
    let mut w = agreed(options("uc"));
    let read = w.read_from(B, 0);
    assert_eq!(
        w.post(A, &wr(1, read, Data::Gather(&sges))),
        Err(PostError::NoSuchOperation),
        "it is UC to its program"
    );
}

/// Bytes out of several pieces of memory and inline data, into several pieces.
#[test]
fn pieces_of_memory_and_inline_data_are_gathered_and_scattered() {
    for stride in [1, 2] {
        let mut w = world();
        w.fill(A, 0, &pattern(5, 1000));
        let work = BestEffort { stride, ..BestEffort::default() };
        let from = [w.sge(A, 0, 100), w.sge(A, 100, 301), w.sge(A, 401, 599)];
        let to = [w.sge(B, 3000, 7), w.sge(B, 100, 500), w.sge(B, 2000, 493)];
        w.post_recv(B, &RecvWr { wr_id: 1, sges: &to, best_effort: None }).unwrap();
        w.post(A, &SendWr { best_effort: Some(&work), ..wr(1, SendOp::Send, Data::Gather(&from)) }).unwrap();
        let frames = w.transmit_split(A);
        w.deliver_all(B, &frames);
        let landed = [w.read(B, 3000, 7), w.read(B, 100, 500), w.read(B, 2000, 493)].concat();
        assert_eq!((received(&mut w), landed), (vec![(1, 1000, None)], pattern(5, 1000)), "stride {stride}");
    }
    let mut w = world();
    w.recv(B, 1, 0, 100);
    w.post(A, &wr(1, SendOp::Send, Data::Inline(b"inline"))).unwrap();
    w.run();
    assert_eq!((received(&mut w), w.read(B, 0, 6)), (vec![(1, 6, None)], b"inline".to_vec()));
}

#[test]
fn a_message_without_a_receive_is_dropped_whole_also_when_one_is_posted_in_the_middle() {
    for imm in [false, true] {
        let mut w = world();
        let op = if imm { w.write_imm_to(B, 0, 5) } else { SendOp::Send };
        w.send(A, 1, op, 0, 3 * MTU);
        let frames = w.transmit(A);
        w.deliver(B, &frames[0]);
        w.recv(B, 9, 0, 3 * MTU);
        w.deliver_all(B, &frames[1..]);
        assert_eq!((received(&mut w), w.counters(B).out_of_buffer), (vec![], 1));
        assert_eq!(w.read(B, 0, 3 * MTU), [UNTOUCHED; 3 * MTU]);
        w.send(A, 2, SendOp::Send, 0, 10);
        w.run();
        assert_eq!(received(&mut w), [(9, 10, None)], "the receive is the next message's");
    }
}

#[test]
fn memory_that_is_not_there_ends_the_queue_pair_that_wanted_it_and_no_other() {
    let mut w = world();
    w.recv(B, 9, 0, 600);
    let sges = [w.sge(A, 0, 300), softnic_nic::transports::Sge { lkey: 1, ..w.sge(A, 0, 300) }];
    w.post(A, &wr(1, SendOp::Send, Data::Gather(&sges))).unwrap();
    w.send(A, 2, SendOp::Send, 0, 10);
    w.run();
    assert_eq!(w.sent_status(A), [(1, Status::LocProtErr), (2, Status::WrFlushErr)]);
    assert_eq!((w.state(A), w.state(B)), (QpState::Error, QpState::ReadyToSend));
    // A write where the peer may not is dropped, and the connection lives.
    let mut w = world();
    let op = SendOp::Write { remote_addr: 1, rkey: 77 };
    w.send(A, 1, op, 0, 600);
    w.recv(B, 9, 0, 600);
    w.send(A, 2, SendOp::Send, 0, 600);
    w.run();
    assert_eq!((received(&mut w), w.counters(B).resp_remote_access_errors), (vec![(9, 600, None)], 3));
}

#[test]
fn unsignaled_sends_and_local_operations_keep_their_order() {
    let mut w = world();
    (0..3).for_each(|i| w.recv(B, i, 0, 10));
    for i in 0..3 {
        let flags = SendFlags { signaled: i == 2, ..SendFlags::default() };
        let sges = [w.sge(A, 0, 10)];
        w.post(A, &SendWr { flags, ..wr(i, SendOp::Send, Data::Gather(&sges)) }).unwrap();
    }
    w.run();
    assert_eq!((sent(&mut w), received(&mut w).len()), (vec![(2, 10, None)], 3));
}

#[test]
fn queue_pairs_work_again_after_a_reset() {
    let mut w = world();
    for round in 0..3 {
        w.recv(B, round, 0, 100);
        w.send(A, round, SendOp::Send, 0, 100);
        w.run();
        assert_eq!(received(&mut w), [(round, 100, None)]);
        sent(&mut w);
        w.recv(B, 77, 0, 100);
        for h in [A, B] {
            w.modify(h, &to_state(QpState::Reset));
            w.modify(h, &init_attr(&w.options));
        }
        for h in [A, B] {
            let rtr = rtr_attr(&w.options, w.path(h), w.hosts[1 - h].qpn);
            w.modify(h, &rtr);
            w.modify(h, &rts_attr(&w.options));
        }
        w.run();
    }
}
