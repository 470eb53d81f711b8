//! What is placed early, and what waits for its turn: completions, READs, atomics, keys taken away, refusals.

use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{SendOp, Status};

use super::*;

/// Numbers of packets in an order that is not theirs.
const ORDERS: [[usize; 4]; 4] = [[3, 2, 1, 0], [1, 0, 3, 2], [3, 0, 1, 2], [2, 3, 0, 1]];

#[test]
fn sends_are_placed_in_their_own_receives_and_complete_in_order() {
    for order in ORDERS {
        for srq in [false, true] {
            for psn in FIRST_PSNS {
                let mut w = agreed(Options { psn, srq, ..both_offer() });
                for i in 0..4 {
                    w.recv(B, 10 + i, i as usize * MTU, MTU);
                    w.fill(A, i as usize * MTU, &pattern(i as u32, 100));
                    w.send(A, i, SendOp::SendImm { imm: 70 + i as u32 }, i as usize * MTU, 100);
                }
                let frames = fly(&mut w, A);
                assert_eq!(frames.len(), 4);
                let mut came = [false; 4];
                for i in order {
                    w.deliver(B, &frames[i]);
                    came[i] = true;
                    assert_eq!(w.read(B, i * MTU, 100), pattern(i as u32, 100), "at once");
                    let ready = came.iter().take_while(|c| **c).count();
                    let done: Vec<_> = w.received(B).iter().map(|c| (c.wr_id - 10, c.imm)).collect();
                    assert!(done.iter().all(|&(n, imm)| n < ready as u64 && imm == Some(70 + n as u32)), "{done:?}");
                }
                settle(&mut w);
                assert_eq!(w.sent_status(A), [0, 1, 2, 3].map(|i| (i, Status::Success)));
                assert_eq!(w.counters(A).retransmitted_packets, 0);
            }
        }
    }
}

#[test]
fn receives_complete_when_all_before_them_has_come_each_once() {
    for order in ORDERS {
        each(|mut w| {
            for i in 0..4 {
                w.recv(B, 10 + i, i as usize * MTU, MTU);
                w.send(A, i, SendOp::Send, 0, 100);
            }
            let frames = fly(&mut w, A);
            let (mut came, mut done) = ([false; 4], Vec::new());
            for i in order {
                w.deliver(B, &frames[i]);
                w.deliver(B, &frames[i]);
                came[i] = true;
                done.extend(w.received_status(B));
                let ready = came.iter().take_while(|c| **c).count() as u64;
                assert_eq!(done, (0..ready).map(|n| (10 + n, Status::Success)).collect::<Vec<_>>());
            }
        });
    }
}

#[test]
fn a_read_that_comes_early_is_carried_out_behind_the_write_before_it() {
    each(|mut w| {
        w.fill(A, 0, &pattern(1, 2 * MTU));
        let (write, read) = (w.write_to(B, 0), w.read_from(B, 0));
        w.send(A, 1, write, 0, 2 * MTU);
        w.send(A, 2, read, 4 * MTU, 2 * MTU);
        let frames = fly(&mut w, A);
        w.deliver(B, &frames[2]);
        w.deliver(B, &frames[1]);
        assert_eq!(shown(&mut w, B), ["ACK +0 [.xx]"], "no data yet");
        w.deliver(B, &frames[0]);
        settle(&mut w);
        assert_eq!(w.sent_status(A), [(1, Status::Success), (2, Status::Success)]);
        assert_eq!(w.read(A, 4 * MTU, 2 * MTU), pattern(1, 2 * MTU));
    });
}

#[test]
fn an_atomic_is_carried_out_once_and_in_its_turn_however_often_it_comes() {
    each(|mut w| {
        w.fill(B, 0, &5u64.to_ne_bytes());
        let (first, second) = (w.add_to(B, 0, 1), w.add_to(B, 0, 10));
        w.send(A, 1, first, 0, 8);
        w.send(A, 2, second, 8, 8);
        let frames = fly(&mut w, A);
        w.deliver(B, &frames[1]);
        w.deliver(B, &frames[1]);
        assert_eq!(w.read(B, 0, 8), 5u64.to_ne_bytes());
        w.deliver(B, &frames[0]);
        assert_eq!(w.read(B, 0, 8), 16u64.to_ne_bytes());
        // The answers are lost, and the requests come again.
        shown(&mut w, B);
        w.deliver_all(B, &frames);
        assert_eq!(w.read(B, 0, 8), 16u64.to_ne_bytes());
        for _ in 0..8 {
            settle(&mut w);
            w.wait_for_timer(B);
        }
        assert_eq!(w.sent_status(A), [(1, Status::Success), (2, Status::Success)]);
        assert_eq!((w.read(A, 0, 8), w.read(A, 8, 8)), (5u64.to_ne_bytes().to_vec(), 6u64.to_ne_bytes().to_vec()));
        assert_eq!(w.read(B, 0, 8), 16u64.to_ne_bytes());
        assert_eq!(w.counters(B).rx_atomic_requests, 2);
    });
}

#[test]
fn access_is_refused_in_its_turn_although_the_packet_came_early() {
    each(|mut w| {
        for i in 0..2 {
            w.recv(B, 10 + i, 8 * MTU, MTU);
        }
        w.send(A, 1, SendOp::Send, 0, 10);
        let bad = SendOp::Write { remote_addr: w.hosts[B].buffer.addr(), rkey: w.hosts[B].key ^ 0x5a00 };
        w.send(A, 2, bad, 0, 10);
        w.send(A, 3, SendOp::Send, 0, 10);
        let frames = fly(&mut w, A);
        w.deliver_all(B, &frames[1..]);
        assert_eq!((w.state(B), w.received(B).len()), (QpState::ReadyToSend, 0), "what is before it may still come");
        let early = fly(&mut w, B);
        assert_eq!(show(&w, &early), ["ACK +0 [..x]"]);
        w.deliver(B, &frames[0]);
        assert_eq!(w.received_status(B), [(10, Status::Success)]);
        w.deliver_all(A, &early);
        settle(&mut w);
        // Whatever is sent again draws the NAK.
        for _ in 0..4 {
            w.wait_for_timer(A);
            settle(&mut w);
        }
        let expected = [(1, Status::Success), (2, Status::RemAccessErr), (3, Status::WrFlushErr)];
        assert_eq!(w.sent_status(A), expected);
        assert_eq!(w.received_status(B), [(11, Status::WrFlushErr)], "what came early behind it is not received");
        assert_eq!(w.read(B, 0, 10), [UNTOUCHED; 10]);
        assert_eq!((w.state(A), w.state(B)), (QpState::Error, QpState::Error));
        assert_quiet(&mut w);
    });
}

/// The bitmap of the NAK does not hold all that has come. The acknowledgement that would tell the rest would say, too, that the refused
/// request was carried out.
#[test]
fn no_acknowledgement_follows_a_refusal() {
    let sr = softnic_nic::transports::Transport::Sr { window: 4096 };
    let mut w = agreed(Options { offers: [Some(sr); 2], ..both_offer() });
    let (va, rkey) = (w.hosts[B].buffer.addr(), w.hosts[B].key);
    let reth = |rkey| softnic_wire::ExtHeaders {
        reth: Some(softnic_wire::ext::Reth { va, rkey, len: 8 }),
        ..softnic_wire::ExtHeaders::default()
    };
    let far = w.forge(B, 0xca, 3000, false, reth(rkey), &[1; 8]);
    w.deliver(B, &far);
    w.transmit(B);
    let refused = w.forge(B, 0xcc, 0, true, reth(rkey ^ 0x5a00), &[]);
    w.deliver(B, &refused);
    assert_eq!(w.state(B), QpState::Error);
    let said = shown(&mut w, B);
    assert!(said.len() == 1 && said[0].starts_with("NAK2 +0"), "{said:?}");
}

/// Each packet is judged by itself: those that lie within the region may be placed before the first one is refused.
#[test]
fn a_write_that_begins_before_its_region_is_refused_whatever_of_it_was_placed() {
    each(|mut w| {
        w.fill(A, 0, &pattern(1, 3 * MTU));
        let op = SendOp::Write { remote_addr: w.hosts[B].buffer.addr() - 1, rkey: w.hosts[B].key };
        w.send(A, 1, op, 0, 3 * MTU);
        let frames = fly(&mut w, A);
        w.deliver_all(B, &frames[1..]);
        assert_eq!(w.read(B, MTU - 1, MTU), pattern(1, 3 * MTU)[MTU..2 * MTU]);
        w.deliver(B, &frames[0]);
        assert_eq!(w.state(B), QpState::Error);
        settle(&mut w);
        assert_eq!(w.sent_status(A), [(1, Status::RemAccessErr)]);
        assert_eq!(w.read(B, 0, MTU - 1), [UNTOUCHED; MTU - 1], "no byte of the packet that was refused");
        assert_eq!(w.read(B, 2 * MTU - 1, 2 * MTU), [UNTOUCHED; 2 * MTU], "nor of the last, whose turn never came");
    });
}

#[test]
fn a_send_that_finds_no_receive_waits_and_those_behind_it_keep_their_order() {
    each(|mut w| {
        for i in 0..3 {
            w.fill(A, i * MTU, &pattern(i as u32, 50));
            w.send(A, i as u64, SendOp::Send, i * MTU, 50);
        }
        let frames = fly(&mut w, A);
        // Early ones without a receive are not there; the one whose turn it is says so.
        w.deliver(B, &frames[1]);
        w.deliver(B, &frames[2]);
        assert!(shown(&mut w, B).is_empty());
        w.deliver(B, &frames[0]);
        let rnr = fly(&mut w, B);
        assert_eq!(show(&w, &rnr), ["RNR5 +0 []"]);
        w.deliver_all(A, &rnr);
        assert!(shown(&mut w, A).is_empty(), "the peer is left alone");
        for i in 0..3 {
            w.recv(B, 10 + i as u64, (4 + i) * MTU, MTU);
        }
        // The one behind it comes early once more, and now there is room for it.
        w.deliver(B, &frames[1]);
        assert_eq!((w.read(B, 5 * MTU, 50), w.received(B).len()), (pattern(1, 50), 0));
        for _ in 0..6 {
            w.wait_for_timer(A);
            settle(&mut w);
        }
        assert_eq!(w.sent_status(A), [0, 1, 2].map(|i| (i, Status::Success)));
        assert_eq!(w.received_status(B), [10, 11, 12].map(|i| (i, Status::Success)));
        assert!((0..3).all(|i| w.read(B, (4 + i) * MTU, 50) == pattern(i as u32, 50)));
        assert_eq!((w.counters(A).rnr_naks_received, w.counters(A).rnr_nak_retry_err), (1, 0));
        assert_quiet(&mut w);
    });
}

#[test]
fn a_send_whose_memory_may_not_be_read_fails_when_those_before_it_are_done() {
    each(|mut w| {
        w.fill(A, 0, &pattern(1, 3 * MTU));
        let write = w.write_to(B, 0);
        w.send(A, 1, write, 0, 3 * MTU);
        let mut sge = w.sge(A, 0, 10);
        sge.lkey ^= 0x5a00;
        w.post(A, &wr(2, write, softnic_nic::transports::Data::Gather(&[sge]))).unwrap();
        w.send(A, 3, write, 0, 10);
        let frames = fly(&mut w, A);
        assert_eq!(frames.len(), 3);
        w.deliver_all(B, &frames[1..]);
        for _ in 0..6 {
            settle(&mut w);
            w.wait_for_timer(A);
        }
        let expected = [(1, Status::Success), (2, Status::LocProtErr), (3, Status::WrFlushErr)];
        assert_eq!(w.sent_status(A), expected);
        assert_eq!(w.read(B, 0, 3 * MTU), pattern(1, 3 * MTU));
    });
}

#[test]
fn a_key_is_taken_away_in_its_turn_and_what_was_sent_before_that_still_uses_it() {
    each(|mut w| {
        let (pd, buffer) = (w.hosts[B].pd, w.hosts[B].buffer.clone());
        let window = w.hosts[B].nic.alloc_mw(pd, softnic_nic::WindowType::Type2B).unwrap();
        let rkey = softnic_nic::next_key(window);
        let bind = softnic_nic::transports::memory::Bind {
            window,
            rkey,
            lkey: w.hosts[B].key,
            addr: buffer.addr(),
            len: 1024,
            access: softnic_nic::transports::memory::Access::REMOTE,
            zero_based: false,
        };
        w.post(B, &wr(1, SendOp::BindWindow(bind), softnic_nic::transports::Data::Gather(&[]))).unwrap();
        settle(&mut w);
        assert_eq!(w.sent_status(B), [(1, Status::Success)]);
        w.recv(B, 10, 8 * MTU, MTU);
        w.fill(A, 0, &pattern(3, 2 * MTU));
        w.send(A, 1, SendOp::Write { remote_addr: buffer.addr(), rkey }, 0, 2 * MTU);
        w.send(A, 2, SendOp::SendInv { rkey }, 0, 10);
        let frames = fly(&mut w, A);
        // The SEND overtakes a part of the WRITE.
        w.deliver(B, &frames[0]);
        w.deliver(B, &frames[2]);
        w.deliver(B, &frames[1]);
        assert_eq!(
            w.received(B).iter().map(|c| (c.status, c.invalidated)).collect::<Vec<_>>(),
            [(Status::Success, Some(rkey))]
        );
        settle(&mut w);
        assert_eq!(w.sent_status(A), [(1, Status::Success), (2, Status::Success)]);
        assert_eq!(w.read(B, 0, 2 * MTU), pattern(3, 2 * MTU));
    });
}

/// A program writes data, then a flag; the peer's program polls the flag and reads the data.
#[test]
fn the_end_of_a_write_is_not_seen_before_an_earlier_write() {
    const FLAG: usize = 8 * MTU;
    each(|mut w| {
        w.fill(A, 0, &pattern(1, 2 * MTU));
        w.fill(A, FLAG, &pattern(2, 2 * MTU));
        let (data, flag) = (w.write_to(B, 0), w.write_to(B, FLAG));
        w.send(A, 1, data, 0, 2 * MTU);
        w.send(A, 2, flag, FLAG, 2 * MTU);
        let frames = fly(&mut w, A);
        assert_eq!(frames.len(), 4);
        for i in [3, 2, 0] {
            w.deliver(B, &frames[i]);
            assert_eq!(w.read(B, FLAG + MTU, MTU), [UNTOUCHED; MTU], "the end of the second is held back");
        }
        assert_eq!(w.read(B, FLAG, MTU), pattern(2, 2 * MTU)[..MTU], "what is before it is not");
        w.deliver(B, &frames[3]);
        assert_eq!(w.counters(B).duplicate_request, 1, "it has come, and is not asked for again");
        w.deliver(B, &frames[1]);
        assert_eq!(w.read(B, 0, 2 * MTU), pattern(1, 2 * MTU));
        assert_eq!(w.read(B, FLAG, 2 * MTU), pattern(2, 2 * MTU));
        settle(&mut w);
        assert_eq!(w.sent_status(A), [(1, Status::Success), (2, Status::Success)]);
        assert_eq!(w.counters(A).retransmitted_packets, 0);
    });
}

#[test]
fn a_write_whose_key_is_taken_away_while_its_end_is_held_back_is_refused_when_its_turn_comes() {
    each(|mut w| {
        for i in 0..2 {
            let op = w.write_to(B, i * MTU);
            w.send(A, i as u64, op, i * MTU, 100);
        }
        let frames = fly(&mut w, A);
        w.deliver(B, &frames[1]);
        let key = w.hosts[B].key;
        w.hosts[B].nic.dereg_mr(key).unwrap();
        w.deliver(B, &frames[0]);
        assert_eq!(w.state(B), QpState::Error);
        assert_eq!(w.read(B, 0, 2 * MTU), [UNTOUCHED; 2 * MTU]);
    });
}
