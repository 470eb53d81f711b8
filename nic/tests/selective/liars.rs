//! Peers that say what cannot be: nothing breaks, nothing completes that was not done, and nothing is placed where it must not be.

use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{SendOp, Status};
use softnic_wire::ExtHeaders;
use softnic_wire::aeth::{Aeth, Credits, NakCode};

use super::*;

/// An acknowledgement to A that expects `psn` and whose bitmap begins with `first`.
fn ack(w: &World, psn: i32, syndrome: Syndrome, first: i32, bits: u32, bitmap: &[u8]) -> Vec<u8> {
    let number = Psn::new(w.options.psn.wrapping_add_signed(first)).value();
    let ext = ExtHeaders {
        sr: Some(SrEth { flags: SrEth::FURTHEST, number, offset: bits }),
        aeth: Some(Aeth { syndrome, msn: 0 }),
        ..ExtHeaders::default()
    };
    w.forge(A, 0xd1, psn, false, ext, bitmap)
}

const GOOD: Syndrome = Syndrome::Ack(Credits::UNLIMITED);

/// A WRITE of four packets that B never saw.
fn outstanding(w: &mut World) -> Vec<Vec<u8>> {
    w.fill(A, 0, &pattern(1, 4 * MTU));
    let op = w.write_to(B, 0);
    w.send(A, 1, op, 0, 4 * MTU);
    let frames = fly(w, A);
    assert_eq!(frames.len(), 4);
    frames
}

/// In the end everything is as if there had been no lie.
fn assert_unharmed(w: &mut World) {
    for _ in 0..12 {
        settle(w);
        w.wait_for_timer(A);
    }
    settle(w);
    assert_eq!(w.sent_status(A), [(1, Status::Success)]);
    assert_eq!(w.read(B, 0, 4 * MTU), pattern(1, 4 * MTU));
    assert_eq!((w.state(A), w.state(B)), (QpState::ReadyToSend, QpState::ReadyToSend));
}

#[test]
fn what_was_never_sent_cannot_be_acknowledged() {
    for (psn, first, bits) in [
        (5, 5, 0),
        (100, 100, 0),
        (1 << 22, 1 << 22, 0),
        (-1, -1, 0),
        (-200, -200, 0),
        (0, 4, 64),
        (0, 1 << 22, 64),
        (0, -50, 40),
    ] {
        each(|mut w| {
            outstanding(&mut w);
            let lie = ack(&w, psn, GOOD, first, bits, &vec![0xff; bits.div_ceil(8) as usize]);
            w.deliver(A, &lie);
            assert!(w.sent(A).is_empty(), "{psn} {first} {bits}");
            assert_unharmed(&mut w);
        });
    }
}

#[test]
fn a_bitmap_may_be_longer_or_shorter_than_it_says_and_reach_beyond_what_was_sent() {
    for (bits, len) in [(u32::MAX, 8), (64, 0), (3, 64), (2000, 256), (0, 16)] {
        each(|mut w| {
            let frames = outstanding(&mut w);
            w.deliver_all(B, &frames[1..]);
            w.transmit(B);
            let lie = ack(&w, 0, GOOD, 0, bits, &vec![0xfe; len]);
            w.deliver(A, &lie);
            assert!(w.sent(A).is_empty(), "{bits} in {len} bytes");
            assert_unharmed(&mut w);
        });
    }
}

#[test]
fn selective_acknowledgements_alone_complete_nothing() {
    each(|mut w| {
        outstanding(&mut w);
        let lie = ack(&w, 0, GOOD, 0, 4, &[0x0f]);
        w.deliver(A, &lie);
        assert!(w.sent(A).is_empty());
        // A liar is not believed for ever: nothing comes of it but a connection that ends.
        for _ in 0..60 {
            settle(&mut w);
            w.wait_for_timer(A);
        }
        let ended = w.sent_status(A);
        assert!(ended.len() == 1 && ended[0].0 == 1, "{ended:?}");
    });
}

#[test]
fn a_nak_for_what_was_never_sent_is_nobody_s() {
    for psn in [5, 77, -3] {
        each(|mut w| {
            outstanding(&mut w);
            let lie = ack(&w, psn, Syndrome::Nak(NakCode::REMOTE_ACCESS_ERROR), psn, 0, &[]);
            w.deliver(A, &lie);
            assert!(w.sent(A).is_empty(), "{psn}");
            assert_unharmed(&mut w);
        });
    }
}

#[test]
fn an_answer_that_was_not_asked_for_or_does_not_fit_ends_the_connection() {
    // Of the READ with PSN 0: number, offset, length, opcode.
    let lies: [(i32, u32, usize, u8); 7] = [
        (0, 128, MTU, 0xcd),
        (0, MTU as u32, MTU, 0xcd),
        (0, 0, MTU - 4, 0xcd),
        (1, 0, MTU, 0xcd),
        (50, 0, MTU, 0xcd),
        (0, 0, 0, 0xd2),
        (0, 4 * MTU as u32, MTU, 0xcd),
    ];
    for (number, offset, len, opcode) in lies {
        each(|mut w| {
            let (read, write) = (w.read_from(B, 0), w.write_to(B, 0));
            w.send(A, 1, read, 0, 4 * MTU);
            w.send(A, 2, write, 0, 10);
            fly(&mut w, A);
            let number = Psn::new(w.options.psn.wrapping_add_signed(number)).value();
            let ext = ExtHeaders {
                sr: Some(SrEth { flags: 0, number, offset }),
                atomic_ack: (opcode == 0xd2).then_some(1),
                ..ExtHeaders::default()
            };
            let lie = w.forge(A, opcode, 0, false, ext, &vec![0xee; len]);
            w.deliver(A, &lie);
            assert_eq!(w.sent_status(A), [(1, Status::BadRespErr), (2, Status::WrFlushErr)], "{number} {offset} {len}");
            assert_eq!(w.read(A, 0, 5 * MTU), [UNTOUCHED; 5 * MTU]);
        });
    }
}

#[test]
fn a_receive_is_named_by_its_turn_or_not_taken() {
    // A receive that was used up, one far beyond the queue, one that is not posted.
    for (number, nak) in
        [(0x00ff_ffff, "NAK1 +0 []"), (0x0080_0000, "NAK1 +0 []"), (1000, "RNR5 +0 []"), (2, "RNR5 +0 []")]
    {
        each(|mut w| {
            for i in 0..2 {
                w.recv(B, 10 + i, 0, MTU);
            }
            let ext = ExtHeaders { sr: Some(SrEth { flags: 0, number, offset: 0 }), ..ExtHeaders::default() };
            let lie = w.forge(B, 0xc4, 0, true, ext, &[0xee; 8]);
            w.deliver(B, &lie);
            assert_eq!(shown(&mut w, B), [nak], "receive {number}");
            assert!(w.received(B).iter().all(|c| c.status != Status::Success));
            assert_eq!(w.read(B, 0, MTU), [UNTOUCHED; MTU]);
        });
    }
}

#[test]
fn two_messages_for_one_receive_end_the_connection_and_complete_it_once() {
    each(|mut w| {
        for i in 0..2 {
            w.recv(B, 10 + i, i as usize * MTU, MTU);
        }
        for psn in [1, 0] {
            let ext = ExtHeaders { sr: Some(SrEth { flags: 0, number: 0, offset: 0 }), ..ExtHeaders::default() };
            let lie = w.forge(B, 0xc4, psn, true, ext, &[psn as u8; 8]);
            w.deliver(B, &lie);
        }
        let received = w.received_status(B);
        assert_eq!(received.iter().filter(|(_, s)| *s == Status::Success).count(), 1, "{received:?}");
        assert_eq!(w.state(B), QpState::Error);
    });
}

#[test]
fn a_packet_beyond_the_window_leaves_no_trace() {
    each(|mut w| {
        w.recv(B, 10, 0, MTU);
        for psn in [256, 5000, 1 << 22, -1, -256] {
            let (va, rkey) = (w.hosts[B].buffer.addr(), w.hosts[B].key);
            let reth = softnic_wire::ext::Reth { va, rkey, len: 8 };
            let lie = w.forge(B, 0xca, psn, true, ExtHeaders { reth: Some(reth), ..ExtHeaders::default() }, &[0xee; 8]);
            w.deliver(B, &lie);
            assert_eq!(w.read(B, 0, 8), [UNTOUCHED; 8], "{psn}");
        }
        assert_eq!(w.state(B), QpState::ReadyToSend);
        w.transmit(B);
        w.send(A, 1, SendOp::Send, 0, 10);
        settle(&mut w);
        assert_eq!(w.sent_status(A), [(1, Status::Success)]);
    });
}
