//! Unreliable connections: packets as they should be, no answer ever, and a loss that costs one message and no more.

use crate::common::*;
use softnic_nic::Nic;
use softnic_nic::QpKind;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::{Caps, QpState};
use softnic_nic::transports::{BestEffort, Data, Datagram, PostError, SendFlags, SendOp, SendWr, Status, WcOpcode};
use softnic_wire::ext::Reth;
use softnic_wire::{ExtHeaders, Node, PathMtu};

fn uc() -> Options {
    Options { kind: QpKind::Uc, ..Options::default() }
}

const OK: Status = Status::Success;

/// The names of the packets of a message.
fn names(op: &str, suffix: &str, packets: u32) -> Vec<String> {
    let name = |i: u32| match (i == 0, i + 1 == packets) {
        (true, true) => format!("{op}_ONLY{suffix} +0"),
        (true, false) => format!("{op}_FIRST +0"),
        (false, true) => format!("{op}_LAST{suffix} +{i}"),
        (false, false) => format!("{op}_MIDDLE +{i}"),
    };
    (0..packets).map(name).collect()
}

#[test]
fn every_size_over_every_mtu_arrives_with_the_packets_of_its_kind_and_nobody_answers() {
    for mtu in PathMtu::ALL {
        let m = mtu.bytes() as usize;
        for len in [0, 1, 3, 4, m - 1, m, m + 1, 2 * m, 3 * m + 5] {
            for (kind, ipv6) in [(0, false), (1, false), (2, false), (3, false), (0, true), (3, true)] {
                let mut w = World::new(Options { mtu, ipv6, ..uc() });
                w.fill(A, 0, &pattern(len as u32, len));
                w.recv(B, 9, 1000, len);
                let (op, name, suffix) = match kind {
                    0 => (SendOp::Send, "SEND", ""),
                    1 => (SendOp::SendImm { imm: 77 }, "SEND", "_WITH_IMMEDIATE"),
                    2 => (w.write_to(B, 1000), "RDMA_WRITE", ""),
                    _ => (w.write_imm_to(B, 1000, 78), "RDMA_WRITE", "_WITH_IMMEDIATE"),
                };
                w.send(A, 1, op, 0, len);
                let frames = w.transmit(A);
                let case = format!("{name}{suffix} of {len} bytes, MTU {m}");
                assert_eq!(w.show(&frames), names(name, suffix, mtu.packets(len as u32)), "{case}");
                w.deliver_all(B, &frames);
                assert!(w.shown(B).is_empty(), "{case}: nobody answers");
                let sent = w.sent(A);
                assert_eq!((sent.len(), sent[0].wr_id, sent[0].status), (1, 1, OK), "{case}");
                assert_eq!(w.read(B, 1000, len), pattern(len as u32, len), "{case}");
                assert_eq!(w.read(B, 1000 + len, 8), [UNTOUCHED; 8], "{case}");
                let got = w.received(B);
                let (opcode, imm) = match kind {
                    0 => (WcOpcode::Recv, None),
                    1 => (WcOpcode::Recv, Some(77)),
                    2 => {
                        assert!(got.is_empty(), "{case}: a WRITE takes no receive");
                        continue;
                    }
                    _ => (WcOpcode::RecvWriteImm, Some(78)),
                };
                let c = got[0];
                assert_eq!((got.len(), c.wr_id, c.status, c.opcode), (1, 9, OK, opcode), "{case}");
                assert_eq!((c.byte_len as usize, c.imm, c.src_qp), (len, imm, None), "{case}");
            }
        }
    }
}

#[test]
fn a_send_is_done_when_its_last_packet_has_left_and_not_before() {
    let mut w = World::new(uc());
    w.send(A, 1, SendOp::Send, 0, 600);
    for left in [2, 1, 0] {
        assert!(w.sent(A).is_empty(), "{left} more to go");
        assert!(w.transmit_one(A, Nic::WIRE).is_some());
    }
    assert_eq!(w.sent_status(A), [(1, OK)]);
    assert_eq!(w.hosts[A].nic.poll_timeout(), None, "nothing is waited for");
}

#[test]
fn unsignaled_sends_say_nothing_and_leave_room() {
    let mut w = World::new(Options { caps: Caps { max_send_wr: 2, ..uc().caps }, ..uc() });
    let op = w.write_to(B, 0);
    for round in 0..5 {
        w.send_unsignaled(A, 1, op, 0, 10);
        w.send_unsignaled(A, 2, op, 0, 300);
        assert_eq!(w.post(A, &wr(3, op, Data::Inline(b"x"))), Err(PostError::QueueFull), "round {round}");
        assert_eq!(w.shown(A).len(), 3);
        assert!(w.sent(A).is_empty());
    }
}

/// Three messages of 1, 3 and 2 packets, the n-th packet of them all lost: exactly its message is missing.
#[test]
fn a_lost_packet_kills_exactly_its_message_and_its_receive_serves_the_next() {
    for lost in 0..6 {
        each_psn(uc(), |mut w| {
            for (i, (len, at)) in [(100, 0), (700, 1000), (300, 2000)].into_iter().enumerate() {
                w.fill(A, at, &pattern(i as u32, len));
                w.send(A, i as u64, SendOp::SendImm { imm: i as u32 }, at, len);
                w.recv(B, 10 + i as u64, 1000 * i, 800);
            }
            let mut frames = w.transmit(A);
            assert_eq!(frames.len(), 6);
            frames.remove(lost);
            w.deliver_all(B, &frames);
            let victim = [0, 1, 1, 1, 2, 2][lost];
            let arrived: Vec<u32> = [0, 1, 2].into_iter().filter(|&i| i != victim).collect();
            let got = w.received(B);
            assert_eq!(got.iter().map(|c| c.imm.unwrap()).collect::<Vec<_>>(), arrived, "packet {lost} lost");
            assert_eq!(got.iter().map(|c| c.wr_id).collect::<Vec<_>>(), [10, 11], "receives in their order");
            for (slot, &i) in arrived.iter().enumerate() {
                let len = [100, 700, 300][i as usize];
                assert_eq!(w.read(B, 1000 * slot, len), pattern(i, len), "packet {lost} lost");
            }
            assert_eq!((w.state(A), w.state(B)), (QpState::ReadyToSend, QpState::ReadyToSend));
            assert!(w.shown(B).is_empty() && w.shown(A).is_empty());
            // What comes next arrives, whichever packet was lost.
            w.send(A, 5, SendOp::Send, 0, 100);
            let frames = w.transmit(A);
            w.deliver_all(B, &frames);
            assert_eq!(w.received_status(B), [(12, OK)], "packet {lost} lost");
        });
    }
}

#[test]
fn a_lost_packet_of_a_write_leaves_the_rest_of_it_unwritten() {
    for lost in 0..4 {
        each_psn(uc(), |mut w| {
            w.fill(A, 0, &[7; 1024]);
            let op = w.write_imm_to(B, 0, 5);
            w.recv(B, 9, 5000, 0);
            w.send(A, 1, op, 0, 1024);
            let mut frames = w.transmit(A);
            frames.remove(lost);
            w.deliver_all(B, &frames);
            assert!(w.received(B).is_empty());
            assert_eq!(w.read(B, 0, 256 * lost), vec![7; 256 * lost]);
            assert_eq!(w.read(B, 256 * lost, 1024 - 256 * lost), vec![UNTOUCHED; 1024 - 256 * lost]);
            assert_eq!(w.counters(B).rx_write_requests, 0);
            let op = w.write_imm_to(B, 2000, 6);
            w.send(A, 2, op, 0, 300);
            let frames = w.transmit(A);
            w.deliver_all(B, &frames);
            assert_eq!((w.read(B, 2000, 300), w.received_status(B)), (vec![7; 300], vec![(9, OK)]));
        });
    }
}

#[test]
fn duplicates_inside_a_message_kill_it_and_one_behind_it_changes_nothing() {
    each_psn(uc(), |mut w| {
        w.recv(B, 10, 0, 1000);
        w.recv(B, 11, 1000, 1000);
        w.send(A, 1, SendOp::Send, 0, 700);
        let f = w.transmit(A);
        // The LAST again behind its message belongs to none.
        w.deliver_all(B, &[f[0].clone(), f[1].clone(), f[2].clone(), f[2].clone(), f[1].clone()]);
        assert_eq!(w.received_status(B), [(10, OK)]);
        assert_eq!(w.counters(B).out_of_sequence, 2);
        w.send(A, 2, SendOp::Send, 0, 700);
        let f = w.transmit(A);
        w.deliver_all(B, &[f[0].clone(), f[1].clone(), f[1].clone(), f[2].clone()]);
        assert!(w.received(B).is_empty(), "a MIDDLE twice is a gap in the sequence");
        w.send(A, 3, SendOp::Send, 0, 10);
        let f = w.transmit(A);
        w.deliver_all(B, &f);
        assert_eq!(w.received_status(B), [(11, OK)]);
    });
}

#[test]
fn packets_in_the_wrong_order_kill_their_message_alone() {
    each_psn(uc(), |mut w| {
        for i in 0..3 {
            w.recv(B, 10 + i, 1000 * i as usize, 1000);
            w.send(A, i, SendOp::SendImm { imm: i as u32 }, 0, 700);
        }
        let mut f = w.transmit(A);
        f.swap(4, 5);
        w.deliver_all(B, &f);
        let got: Vec<_> = w.received(B).iter().map(|c| c.imm.unwrap()).collect();
        assert_eq!(got, [0, 2]);
        // The end of one behind the beginning of the next: neither is whole.
        for i in 3..5 {
            w.send(A, i, SendOp::SendImm { imm: i as u32 }, 0, 500);
        }
        let mut f = w.transmit(A);
        f.swap(1, 2);
        w.deliver_all(B, &f);
        assert!(w.received(B).is_empty());
        assert_eq!(w.state(B), QpState::ReadyToSend);
    });
}

#[test]
fn a_message_without_a_receive_is_dropped_whole_and_counted_once() {
    each_psn(uc(), |mut w| {
        w.send(A, 1, SendOp::Send, 0, 700);
        let f = w.transmit(A);
        w.deliver(B, &f[0]);
        // A receive in the middle of it comes too late.
        w.recv(B, 10, 0, 1000);
        w.deliver_all(B, &f[1..]);
        assert!(w.received(B).is_empty() && w.shown(B).is_empty());
        assert_eq!(w.counters(B).out_of_buffer, 1);
        assert_eq!(w.read(B, 0, 1000), vec![UNTOUCHED; 1000]);
        w.send(A, 2, SendOp::Send, 0, 700);
        let f = w.transmit(A);
        w.deliver_all(B, &f);
        assert_eq!(w.received_status(B), [(10, OK)]);
    });
}

#[test]
fn a_write_with_immediate_without_a_receive_is_dropped_at_its_last_packet() {
    let mut w = World::new(uc());
    w.fill(A, 0, &[7; 600]);
    let op = w.write_imm_to(B, 0, 5);
    w.send(A, 1, op, 0, 600);
    let f = w.transmit(A);
    w.deliver_all(B, &f);
    assert_eq!((w.counters(B).out_of_buffer, w.counters(B).rx_write_requests), (1, 0));
    assert_eq!((w.read(B, 0, 512), w.read(B, 512, 88)), (vec![7; 512], vec![UNTOUCHED; 88]));
    assert_eq!(w.state(B), QpState::ReadyToSend);
}

#[test]
fn a_receive_that_is_too_short_drops_the_message_and_serves_a_shorter_one() {
    for (capacity, shorter) in [(0, 0), (100, 99), (256, 256), (511, 511)] {
        let mut w = World::new(uc());
        w.recv(B, 10, 0, capacity);
        w.send(A, 1, SendOp::Send, 0, 600);
        w.send(A, 2, SendOp::Send, 0, shorter);
        let f = w.transmit(A);
        w.deliver_all(B, &f);
        assert_eq!(w.received_status(B), [(10, OK)], "{capacity}");
        assert_eq!(w.counters(B).resp_local_length_error, 1);
        assert_eq!(w.read(B, capacity, 1000), vec![UNTOUCHED; 1000], "nothing behind the receive");
    }
}

#[test]
fn a_write_that_may_not_be_is_dropped_in_silence_and_the_next_one_is_taken() {
    let spoil = |w: &World, what: usize| {
        let (remote_addr, rkey) = (w.hosts[B].buffer.addr(), w.hosts[B].key);
        match what {
            0 => SendOp::Write { remote_addr, rkey: rkey ^ 0x100 },
            1 => SendOp::Write { remote_addr: remote_addr + BUFFER as u64 - 599, rkey },
            2 => SendOp::Write { remote_addr: remote_addr - 1, rkey },
            _ => SendOp::Write { remote_addr: u64::MAX - 5, rkey },
        }
    };
    for what in 0..4 {
        let mut w = World::new(uc());
        w.fill(A, 0, &[7; 600]);
        let op = spoil(&w, what);
        w.send(A, 1, op, 0, 600);
        let f = w.transmit(A);
        w.deliver_all(B, &f);
        assert_eq!(w.read(B, 0, BUFFER), vec![UNTOUCHED; BUFFER], "case {what}");
        assert_eq!(w.counters(B).resp_remote_access_errors, 1, "case {what}: once a message");
        assert!(w.shown(B).is_empty() && w.events(B).is_empty());
        assert_eq!((w.sent_status(A), w.state(B)), (vec![(1, OK)], QpState::ReadyToSend));
        let op = w.write_to(B, 0);
        w.send(A, 2, op, 0, 600);
        let f = w.transmit(A);
        w.deliver_all(B, &f);
        assert_eq!(w.read(B, 0, 600), [7; 600], "case {what}");
    }
}

#[test]
fn a_write_without_the_right_of_queue_pair_or_region_touches_nothing() {
    let none = LOCAL | Access::REMOTE_READ;
    for options in [Options { access: none, ..uc() }, Options { mr_access: none, ..uc() }] {
        let mut w = World::new(options);
        let op = w.write_to(B, 0);
        w.send(A, 1, op, 0, 600);
        let f = w.transmit(A);
        w.deliver_all(B, &f);
        assert_eq!(w.read(B, 0, BUFFER), vec![UNTOUCHED; BUFFER]);
        let c = w.counters(B);
        assert_eq!(c.resp_remote_access_errors + c.resp_remote_invalid_request, 1);
        assert_eq!(w.state(B), QpState::ReadyToSend);
        w.recv(B, 10, 0, 100);
        w.send(A, 2, SendOp::Send, 0, 100);
        let f = w.transmit(A);
        w.deliver_all(B, &f);
        assert_eq!(w.received_status(B), [(10, OK)]);
    }
}

#[test]
fn what_needs_an_answer_is_refused_when_it_is_posted() {
    let mut w = World::new(uc());
    let (read, add) = (w.read_from(B, 0), w.add_to(B, 0, 1));
    let SendOp::FetchAdd { remote_addr, rkey, .. } = add else { unreachable!() };
    let sges = [w.sge(A, 0, 8)];
    let data = Data::Gather(&sges);
    for op in [read, add, SendOp::CompareSwap { remote_addr, rkey, compare: 0, swap: 1 }, SendOp::SendInv { rkey }] {
        assert_eq!(w.post(A, &wr(1, op, data)), Err(PostError::NoSuchOperation), "{op:?}");
    }
    let to = Some(Datagram { ah: softnic_nic::transports::AhId(0), dest_qp: w.hosts[B].qpn, qkey: 1 });
    assert_eq!(w.post(A, &SendWr { to, ..wr(1, SendOp::Send, data) }), Err(PostError::Address));
    let work = BestEffort::until(w.now);
    assert_eq!(
        w.post(A, &SendWr { best_effort: Some(&work), ..wr(1, SendOp::Send, data) }),
        Err(PostError::NoDeadlines)
    );
    assert!(w.shown(A).is_empty());
}

#[test]
fn a_message_that_is_not_as_long_as_it_says_is_dropped() {
    let mut w = World::new(uc());
    let reth = |len| Reth { va: w.hosts[B].buffer.addr(), rkey: w.hosts[B].key, len };
    let first = |len| ExtHeaders { reth: Some(reth(len)), ..ExtHeaders::default() };
    let frames = [
        // ONLY with less and with more than it says, FIRST that is not full, LAST behind too much.
        w.forge(B, 0x2a, 0, false, first(5), b"1234"),
        w.forge(B, 0x2a, 1, false, first(3), b"1234"),
        w.forge(B, 0x26, 2, false, first(300), &[1; 255]),
        w.forge(B, 0x26, 3, false, first(300), &[1; 256]),
        w.forge(B, 0x28, 4, false, ExtHeaders::default(), &[1; 45]),
    ];
    w.deliver_all(B, &frames);
    assert_eq!((w.counters(B).rx_write_requests, w.counters(B).resp_remote_invalid_request), (0, 4));
    assert_eq!(w.read(B, 256, 100), [UNTOUCHED; 100]);
    assert_eq!(w.state(B), QpState::ReadyToSend);
}

#[test]
fn solicited_is_said_by_the_last_packet_alone_and_never_by_a_write() {
    let mut w = World::new(uc());
    let sges = [w.sge(A, 0, 300)];
    let flags = SendFlags { solicited: true, signaled: true, fence: false };
    for op in [SendOp::Send, w.write_to(B, 0), w.write_imm_to(B, 0, 1)] {
        w.post(A, &SendWr { flags, ..wr(1, op, Data::Gather(&sges)) }).unwrap();
    }
    let shown = w.shown(A);
    let said: Vec<bool> = shown.iter().map(|s| s.ends_with(" S")).collect();
    assert_eq!(said, [false, true, false, false, false, true], "{shown:?}");
}

#[test]
fn memory_that_goes_away_under_a_write_ends_it_and_not_the_connection() {
    let mut w = World::new(uc());
    let (op, key) = (w.write_to(B, 0), w.hosts[B].key);
    w.send(A, 1, op, 0, 600);
    let f = w.transmit(A);
    w.deliver(B, &f[0]);
    w.hosts[B].nic.dereg_mr(key).unwrap();
    w.deliver_all(B, &f[1..]);
    assert_eq!(w.counters(B).resp_remote_access_errors, 1);
    assert_eq!((w.read(B, 256, 344), w.state(B)), (vec![UNTOUCHED; 344], QpState::ReadyToSend));
}
