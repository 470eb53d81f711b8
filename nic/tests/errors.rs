//! Work that must fail: the NAK that says so, the status of the guilty work request, the flushing of all others.

use crate::common::*;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{Data, Event, PostError, RecvWr, SendFlags, SendOp, SendWr, Sge, Status, Transport};
use softnic_nic::{Buffer, CqError};
use softnic_wire::ExtHeaders;
use softnic_wire::ext::Reth;

use Status::{LocAccessErr, LocLenErr, LocProtErr, RemAccessErr, RemInvReqErr, RemOpErr, Success, WrFlushErr};

/// What is posted to a queue pair in the error state is flushed at once, and nothing is sent any more.
fn assert_dead(w: &mut World, h: usize) {
    assert_eq!(w.state(h), QpState::Error);
    let op = w.write_to(1 - h, 0);
    let unsignaled = SendFlags::default();
    w.post(h, &SendWr { flags: unsignaled, ..wr(90, op, Data::Inline(b"x")) }).unwrap();
    w.recv(h, 91, 0, 10);
    assert_eq!(w.sent_status(h), [(90, WrFlushErr)], "unsignaled work too");
    assert_eq!(w.received_status(h), [(91, WrFlushErr)]);
    w.wait(1 << 40);
    assert!(w.shown(h).is_empty() && w.sent(h).is_empty() && w.received(h).is_empty());
}

/// A good WRITE, the bad request, a good WRITE behind it; `answer` is what the receiver says, the bad one's PSN being +1.
fn refused_by_the_peer(mut w: World, bad: SendOp, answer: &str, status: Status, receive: Status) {
    let good = w.write_to(B, 0);
    for id in [60, 61] {
        w.recv(B, id, 4096, 100);
    }
    w.recv(A, 50, 0, 10);
    w.send(A, 1, good, 0, 10);
    w.send(A, 2, bad, 0, 200);
    w.send(A, 3, good, 0, 10);
    let qpn = w.hosts[A].qpn;
    w.hosts[A].nic.write_send(qpn, &wr(4, good, Data::Inline(b"no doorbell"))).unwrap();
    let frames = w.transmit(A);
    assert_eq!(frames.len(), 3);
    w.deliver_all(B, &frames);
    assert_eq!(w.state(B), QpState::Error);
    assert_eq!(w.received_status(B), [(60, receive), (61, WrFlushErr)], "in order");
    let nak = w.transmit(B);
    assert_eq!(w.show(&nak), [answer], "the NAK is still sent, alone");
    w.deliver_all(A, &nak);
    assert_eq!(w.sent_status(A), [(1, Success), (2, status), (3, WrFlushErr), (4, WrFlushErr)]);
    assert_eq!(w.received_status(A), [(50, WrFlushErr)]);
    let c = (w.counters(A).req_cqe_error, w.counters(B).resp_cqe_error);
    assert_eq!(c, (1, u64::from(receive != WrFlushErr)));
    for h in [A, B] {
        assert_dead(&mut w, h);
    }
}

#[test]
fn a_key_that_does_not_exist_is_a_remote_access_error() {
    each_psn(Options::default(), |w| {
        let bad = SendOp::Write { remote_addr: w.hosts[B].buffer.addr(), rkey: w.hosts[B].key ^ 1 };
        refused_by_the_peer(w, bad, "NAK2 +1 msn 1", RemAccessErr, WrFlushErr);
    });
}

#[test]
fn a_range_outside_the_region_is_a_remote_access_error() {
    for offset in [BUFFER as i64 - 199, -1, i64::MIN, 1 << 40] {
        let w = World::new(Options::default());
        let remote_addr = w.hosts[B].buffer.addr().wrapping_add_signed(offset);
        let bad = SendOp::Write { remote_addr, rkey: w.hosts[B].key };
        refused_by_the_peer(w, bad, "NAK2 +1 msn 1", RemAccessErr, WrFlushErr);
    }
    let w = World::new(Options::default());
    let bad = SendOp::WriteImm { remote_addr: u64::MAX - 10, rkey: w.hosts[B].key, imm: 1 };
    refused_by_the_peer(w, bad, "NAK2 +1 msn 1", RemAccessErr, LocAccessErr);
}

#[test]
fn a_write_with_immediate_to_where_it_may_not_ends_the_receive_that_it_takes() {
    for sr in [false, true] {
        let offers = [sr.then_some(Transport::Sr { window: 256 }); 2];
        let mut w = World::new(Options { offers, ..Options::default() });
        w.run();
        for id in [60, 61] {
            w.recv(B, id, 4096, 100);
        }
        let bad = SendOp::WriteImm { remote_addr: w.hosts[B].buffer.addr(), rkey: w.hosts[B].key ^ 1, imm: 1 };
        w.send(A, 1, bad, 0, 10);
        w.settle(1000);
        assert_eq!(w.sent_status(A), [(1, RemAccessErr)], "sr: {sr}");
        assert_eq!(w.received_status(B), [(60, LocAccessErr), (61, WrFlushErr)], "sr: {sr}");
        assert!(w.events(B).iter().all(|e| !matches!(e, Event::QpAccessErr(_))), "the receive tells of it");
    }
}

#[test]
fn a_range_that_ends_outside_is_refused_before_a_byte_of_it_is_written() {
    each_psn(Options::default(), |mut w| {
        // The first packet alone would fit.
        let op = w.write_to(B, BUFFER - 300);
        w.send(A, 1, op, 0, 600);
        let frames = w.transmit(A);
        w.deliver_all(B, &frames);
        assert_eq!(w.shown(B), ["NAK2 +0 msn 0"]);
        assert_eq!(w.read(B, BUFFER - 300, 300), [UNTOUCHED; 300]);
    });
}

#[test]
fn a_region_without_the_right_or_of_another_domain_is_a_remote_access_error() {
    for other_domain in [false, true] {
        let mut w = World::new(Options::default());
        let b = &mut w.hosts[B];
        let buffer = Buffer::new(0x90_0000, 4096);
        let (pd, access) = if other_domain { (b.nic.alloc_pd(), LOCAL | Access::REMOTE_WRITE) } else { (b.pd, LOCAL) };
        let rkey = b.nic.reg_mr(pd, &buffer, access).unwrap();
        let bad = SendOp::Write { remote_addr: 0x90_0000, rkey };
        refused_by_the_peer(w, bad, "NAK2 +1 msn 1", RemAccessErr, WrFlushErr);
        let mut bytes = [9; 4096];
        buffer.read_at(0, &mut bytes);
        assert_eq!(bytes, [0; 4096]);
    }
}

#[test]
fn a_queue_pair_without_the_right_finds_the_request_invalid() {
    let mut w = World::new(Options { access: LOCAL, ..Options::default() });
    let op = w.write_to(B, 0);
    w.send(A, 2, op, 0, 200);
    w.run();
    assert_eq!(w.sent_status(A), [(2, RemInvReqErr)]);
    assert_eq!((w.counters(B).resp_remote_invalid_request, w.counters(A).req_remote_invalid_request), (1, 1));
    assert_dead(&mut w, A);
    assert_dead(&mut w, B);
}

#[test]
fn a_message_longer_than_its_receive_fails_on_both_sides() {
    each_psn(Options::default(), |w| {
        refused_by_the_peer(w, SendOp::Send, "NAK1 +1 msn 1", RemInvReqErr, LocLenErr);
    });
}

#[test]
fn a_long_message_fails_with_the_packet_that_does_not_fit() {
    each_psn(Options::default(), |mut w| {
        w.recv(B, 60, 0, 300);
        w.send(A, 1, SendOp::Send, 0, 600);
        let frames = w.transmit(A);
        w.deliver_all(B, &frames);
        let nak = w.transmit(B);
        assert_eq!(w.show(&nak), ["NAK1 +1 msn 0"]);
        assert_eq!(w.received_status(B), [(60, LocLenErr)]);
        assert_eq!(w.counters(B).resp_local_length_error, 1);
        assert_eq!(w.read(B, 256, 300), [UNTOUCHED; 300], "no byte of the packet that does not fit");
        w.deliver_all(A, &nak);
        assert_eq!(w.sent_status(A), [(1, RemInvReqErr)]);
    });
}

#[test]
fn a_receive_whose_key_is_bad_is_the_receivers_own_error() {
    each_psn(Options::default(), |mut w| {
        let good = w.sge(B, 0, 10);
        let bad = [good, Sge { lkey: good.lkey ^ 1, ..good }];
        w.post_recv(B, &RecvWr { wr_id: 60, sges: &bad, best_effort: None }).unwrap();
        w.recv(B, 61, 0, 100);
        w.send(A, 1, SendOp::Send, 0, 20);
        w.run();
        assert_eq!(w.received_status(B), [(60, LocProtErr), (61, WrFlushErr)]);
        assert_eq!(w.sent_status(A), [(1, RemOpErr)]);
        assert_dead(&mut w, A);
        assert_dead(&mut w, B);
    });
}

#[test]
fn a_receive_into_memory_without_local_write_is_the_receivers_own_error() {
    let mut w = World::new(Options::default());
    let b = &mut w.hosts[B];
    let buffer = Buffer::new(0x90_0000, 4096);
    let lkey = b.nic.reg_mr(b.pd, &buffer, Access::NONE).unwrap();
    let sges = [Sge { addr: 0x90_0000, len: 100, lkey }];
    w.post_recv(B, &RecvWr { wr_id: 60, sges: &sges, best_effort: None }).unwrap();
    w.send(A, 1, SendOp::Send, 0, 20);
    w.run();
    assert_eq!((w.received_status(B), w.sent_status(A)), (vec![(60, LocProtErr)], vec![(1, RemOpErr)]));
}

/// Posts two good WRITEs, one whose second element has a bad key, and one more; with one doorbell, or one for each.
fn post_with_bad_key(w: &mut World, doorbells: bool, bad_at: usize) {
    let op = w.write_to(B, 0);
    let (now, qpn) = (w.now, w.hosts[A].qpn);
    let good = [w.sge(A, 0, 300)];
    let broken = Sge { lkey: w.hosts[A].key ^ 1, ..w.sge(A, 0, 10) };
    let bad = [w.sge(A, 0, bad_at), broken];
    for (id, sges) in [(1, &good[..]), (2, &good[..]), (3, &bad[..]), (4, &good[..])] {
        w.hosts[A].nic.write_send(qpn, &wr(id, op, Data::Gather(sges))).unwrap();
        if doorbells || id == 4 {
            w.hosts[A].nic.ring_doorbell(now, qpn);
        }
    }
}

#[test]
fn a_send_whose_key_is_bad_fails_when_those_before_it_are_done() {
    for timeout in [0, 10] {
        for doorbells in [false, true] {
            // In the first, in the second, and in the third packet.
            for bad_at in [0, 300, 512] {
                each_psn(Options { timeout, ..Options::default() }, |mut w| {
                    post_with_bad_key(&mut w, doorbells, bad_at);
                    // No timer: what was sent before the bad one must be answered by itself.
                    w.run();
                    let all = [(1, Success), (2, Success), (3, LocProtErr), (4, WrFlushErr)];
                    assert_eq!(w.sent_status(A), all, "doorbells {doorbells}, bad at {bad_at}");
                    assert_dead(&mut w, A);
                    assert_eq!(w.state(B), QpState::ReadyToSend, "the peer did nothing wrong");
                });
            }
        }
    }
}

#[test]
fn a_send_whose_key_is_bad_fails_at_once_when_it_is_the_oldest() {
    let mut w = World::new(Options::default());
    let op = w.write_to(B, 0);
    let sges = [Sge { lkey: w.hosts[A].key ^ 1, ..w.sge(A, 0, 10) }];
    w.post(A, &wr(1, op, Data::Gather(&sges))).unwrap();
    assert!(w.shown(A).is_empty(), "nothing of it leaves");
    assert_eq!(w.sent_status(A), [(1, LocProtErr)]);
    assert_dead(&mut w, A);
}

#[test]
fn earlier_sends_before_one_with_a_bad_key_are_still_sent_again() {
    each_psn(Options::default(), |mut w| {
        post_with_bad_key(&mut w, false, 0);
        w.transmit(A);
        while w.sent(A).is_empty() {
            assert!(w.wait_for_timer(A).is_some(), "all was lost, and the timer knows");
            w.run();
        }
        assert_eq!(w.state(A), QpState::Error);
    });
}

#[test]
fn memory_deregistered_under_a_send_fails_it_when_it_is_sent_again() {
    let mut w = World::new(Options::default());
    let op = w.write_to(B, 0);
    w.send(A, 1, op, 0, 300);
    w.transmit(A);
    let key = w.hosts[A].key;
    w.hosts[A].nic.dereg_mr(key).unwrap();
    w.wait(4096 << 10);
    assert!(w.shown(A).is_empty());
    assert_eq!(w.sent_status(A), [(1, LocProtErr)]);
}

#[test]
fn memory_deregistered_under_a_write_of_the_peer_refuses_the_rest() {
    let mut w = World::new(Options::default());
    let op = w.write_to(B, 0);
    w.fill(A, 0, &pattern(1, 600));
    w.send(A, 1, op, 0, 600);
    let frames = w.transmit(A);
    w.deliver(B, &frames[0]);
    let key = w.hosts[B].key;
    w.hosts[B].nic.dereg_mr(key).unwrap();
    w.deliver(B, &frames[1]);
    assert_eq!(w.shown(B), ["NAK2 +1 msn 0"]);
    assert_eq!(w.read(B, 256, 600), [UNTOUCHED; 600]);
}

/// Sequences of forged packets, the last of which cannot be right.
#[test]
fn packets_that_cannot_follow_each_other_are_invalid_requests() {
    let full = [7u8; 256];
    let w = World::new(Options::default());
    let reth = |len| {
        let r = Reth { va: w.hosts[B].buffer.addr(), rkey: w.hosts[B].key, len };
        ExtHeaders { reth: Some(r), ..ExtHeaders::default() }
    };
    let none = ExtHeaders::default();
    type Step<'a> = (u8, ExtHeaders, &'a [u8]);
    let cases: [(&str, &[Step<'_>]); 16] = [
        ("SEND_MIDDLE without a FIRST", &[(0x01, none, &full)]),
        ("SEND_LAST without a FIRST", &[(0x02, none, &full)]),
        ("WRITE_MIDDLE without a FIRST", &[(0x07, none, &full)]),
        ("WRITE_LAST without a FIRST", &[(0x08, none, &full)]),
        ("SEND_FIRST that is not full", &[(0x00, none, &full[..252])]),
        ("WRITE_FIRST that is not full", &[(0x06, reth(600), &full[..252])]),
        ("SEND_MIDDLE that is not full", &[(0x00, none, &full), (0x01, none, &full[..255])]),
        ("SEND_ONLY longer than the MTU", &[(0x04, none, &[7; 260])]),
        ("empty SEND_LAST", &[(0x00, none, &full), (0x02, none, &[])]),
        ("SEND_FIRST inside a SEND", &[(0x00, none, &full), (0x00, none, &full)]),
        ("WRITE_ONLY inside a SEND", &[(0x00, none, &full), (0x0a, reth(4), &full[..4])]),
        ("SEND_LAST inside a WRITE", &[(0x06, reth(300), &full), (0x02, none, &full[..4])]),
        ("WRITE_ONLY shorter than its RETH", &[(0x0a, reth(8), &full[..4])]),
        ("WRITE_LAST short of the RETH", &[(0x06, reth(300), &full), (0x08, none, &full[..4])]),
        ("WRITE_MIDDLE beyond the RETH", &[(0x06, reth(300), &full), (0x07, none, &full)]),
        ("WRITE of more than 2 GiB", &[(0x06, reth(0x8000_0001), &full)]),
    ];
    drop(w);
    for (name, steps) in cases {
        for psn in FIRST_PSNS {
            let mut w = World::new(Options { psn, ..Options::default() });
            w.recv(B, 60, 4096, 4096);
            for (i, (opcode, ext, payload)) in steps.iter().enumerate() {
                assert_eq!(w.state(B), QpState::ReadyToSend, "{name}");
                let frame = w.forge(B, *opcode, i as i32, false, *ext, payload);
                w.deliver(B, &frame);
            }
            assert_eq!(w.shown(B), [format!("NAK1 +{} msn 0", steps.len() - 1)], "{name}");
            assert_eq!(w.received_status(B), [(60, WrFlushErr)], "{name}");
            assert_eq!(w.counters(B).resp_remote_invalid_request, 1);
            assert_dead(&mut w, B);
        }
    }
}

#[test]
fn reserved_and_unsupported_operations_are_invalid_requests() {
    for opcode in (0x0c..=0x0c).chain(0x13..=0x15).chain(0x18..=0x1f) {
        let mut w = World::new(Options::default());
        // As long as the longest header, so that each has all of its own.
        let frame = w.forge(B, opcode, 0, true, ExtHeaders::default(), &[0; 32]);
        w.deliver(B, &frame);
        assert_eq!(w.shown(B), ["NAK1 +0 msn 0"], "{opcode:#x}");
        assert_eq!(w.state(B), QpState::Error);
    }
}

#[test]
fn an_empty_write_needs_no_key() {
    each_psn(Options::default(), |mut w| {
        let op = SendOp::Write { remote_addr: 0xdead_beef, rkey: 0x1234 };
        w.send(A, 1, op, 0, 0);
        w.recv(B, 60, 0, 0);
        let op = SendOp::WriteImm { remote_addr: u64::MAX, rkey: 0, imm: 9 };
        w.send(A, 2, op, 0, 0);
        w.run();
        assert_eq!(w.sent_status(A), [(1, Success), (2, Success)]);
        assert_eq!(w.received(B)[0].imm, Some(9));
    });
}

#[test]
fn an_empty_element_needs_no_key_either() {
    let mut w = World::new(Options::default());
    let sges = [Sge { addr: 1, len: 0, lkey: 2 }, w.sge(A, 0, 5), Sge { addr: 3, len: 0, lkey: 4 }];
    let op = w.write_to(B, 0);
    w.post(A, &wr(1, op, Data::Gather(&sges))).unwrap();
    w.run();
    assert_eq!(w.sent_status(A), [(1, Success)]);
}

#[test]
fn a_completion_queue_that_overflows_stops_the_sender() {
    let mut w = World::new(Options { cq: 2, ..Options::default() });
    let op = w.write_to(B, 0);
    for id in 0..4 {
        w.post(A, &wr(id, op, Data::Inline(b"x"))).unwrap();
    }
    w.run();
    assert_eq!(w.state(A), QpState::Error);
    let (nic, cq) = (&mut w.hosts[A].nic, w.hosts[A].send_cq);
    for id in 0..2 {
        let c = nic.poll_cq(cq).unwrap().unwrap();
        assert_eq!((c.wr_id, c.status), (id, Success), "what came before the overflow is handed out");
    }
    assert_eq!(nic.poll_cq(cq), Err(CqError::Overflow));
}

#[test]
fn a_completion_queue_that_overflows_stops_the_receiver() {
    let mut w = World::new(Options { cq: 1, ..Options::default() });
    w.recv(B, 60, 0, 10);
    w.recv(B, 61, 0, 10);
    w.send(A, 1, SendOp::Send, 0, 10);
    w.send(A, 2, SendOp::Send, 0, 10);
    let frames = w.transmit(A);
    w.deliver_all(B, &frames);
    assert_eq!(w.state(B), QpState::Error);
    let cq = w.hosts[B].recv_cq;
    assert_eq!(w.hosts[B].nic.poll_cq(cq).unwrap().unwrap().wr_id, 60);
    assert_eq!(w.hosts[B].nic.poll_cq(cq), Err(CqError::Overflow));
}

#[test]
fn queues_hold_what_they_were_made_for() {
    let caps = softnic_nic::transports::qp::Caps { max_send_wr: 5, max_recv_wr: 3, ..Options::default().caps };
    let mut w = World::new(Options { caps, ..Options::default() });
    for id in 0..3 {
        w.recv(A, id, 0, 1);
    }
    assert_eq!(w.post_recv(A, &RecvWr { wr_id: 3, sges: &[], best_effort: None }), Err(PostError::QueueFull));
    for id in 0..5 {
        w.send(A, id, SendOp::Send, 0, 1);
    }
    assert_eq!(w.post(A, &wr(5, SendOp::Send, Data::Inline(b""))), Err(PostError::QueueFull));
    w.modify(A, &to_state(QpState::Error));
    assert_eq!(w.sent_status(A), (0..5).map(|i| (i, WrFlushErr)).collect::<Vec<_>>());
    assert_eq!(w.received_status(A), (0..3).map(|i| (i, WrFlushErr)).collect::<Vec<_>>());
    assert_dead(&mut w, A);
}

#[test]
fn memory_that_is_gone_when_a_packet_is_sent_again_fails_that_send_and_not_the_one_before() {
    each_psn(Options::default(), |mut w| {
        let op = w.write_to(B, 0);
        let gone = Buffer::new(0x9000_0000, 64);
        let (pd, now) = (w.hosts[A].pd, w.now);
        let key = w.hosts[A].nic.reg_mr(pd, &gone, Access::LOCAL_WRITE).unwrap();
        let first = [w.sge(A, 0, 8)];
        let second = [Sge { addr: gone.addr(), len: 8, lkey: key }];
        let qpn = w.hosts[A].qpn;
        let nic = &mut w.hosts[A].nic;
        nic.write_send(qpn, &wr(1, op, Data::Gather(&first))).unwrap();
        nic.write_send(qpn, &wr(2, op, Data::Gather(&second))).unwrap();
        nic.ring_doorbell(now, qpn);
        assert_eq!(w.shown(A), ["RDMA_WRITE_ONLY +0", "RDMA_WRITE_ONLY +1 A"], "both are lost");
        w.hosts[A].nic.dereg_mr(key).unwrap();
        w.wait(4096 << 10);
        // The first must ask for its own answer now: nothing that follows could.
        let again = w.transmit(A);
        assert_eq!(w.show(&again).last().map(String::as_str), Some("RDMA_WRITE_ONLY +0 A"));
        w.deliver_all(B, &again);
        w.run();
        assert_eq!(w.sent_status(A), [(1, Success), (2, LocProtErr)]);
    });
}
