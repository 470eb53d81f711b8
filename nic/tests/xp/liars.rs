//! A peer that lies: each packet is counted and dropped, nothing is touched, and the connection lives.

use softnic_nic::transports::Counters;
use softnic_wire::ExtHeaders;
use softnic_wire::ext::Reth;
use softnic_wire::xp::{XpFeedback, XpReport};

use super::*;

const SEND: u8 = 0xe4;
/// The number of the first message: the first PSN.
const FIRST: u32 = 100;

fn eth() -> XpEth {
    XpEth { flags: XpEth::RECEIVE, wqe_seq: FIRST, offset: 256, len: 1024, stride: 1, receive: 0 }
}

/// Two receives are posted, one packet of message 0 has come, and then this; what B counted since.
fn lie(opcode: u8, ext: ExtHeaders, payload: usize) -> Counters {
    let mut w = world();
    w.recv(B, 1, 0, 1024);
    w.recv(B, 2, 2048, 1024);
    w.send(A, 1, SendOp::Send, 0, 1024);
    let frames = w.transmit(A);
    w.deliver(B, &frames[0]);
    let before = w.read(B, 0, BUFFER);
    let frame = w.forge(B, opcode, 50, false, ext, &vec![9; payload]);
    w.deliver(B, &frame);
    assert_eq!((w.read(B, 0, BUFFER) == before, received(&mut w)), (true, vec![]), "{ext:?}");
    let counters = w.counters(B);
    w.deliver_all(B, &frames[1..]);
    assert_eq!(received(&mut w), [(1, 1024, None)], "the connection lives: {ext:?}");
    counters
}

fn lie_in_send(xp: XpEth, payload: usize) -> Counters {
    lie(SEND, ExtHeaders { xp: Some(xp), ..ExtHeaders::default() }, payload)
}

#[test]
fn headers_that_cannot_be_are_rejected() {
    for (xp, payload) in [
        (XpEth { offset: 1024, ..eth() }, 256),           // beyond the message
        (XpEth { offset: u32::MAX - 255, ..eth() }, 256), // far beyond
        (XpEth { offset: 100, ..eth() }, 256),            // between two packets
        (XpEth { len: 1025, ..eth() }, 256),              // another length than before
        (XpEth { len: u32::MAX, ..eth() }, 256),          // longer than a message can be
        (XpEth { stride: 0, ..eth() }, 256),
        (XpEth { stride: 3, ..eth() }, 256),    // no divisor
        (XpEth { stride: 4096, ..eth() }, 256), // too large
        (XpEth { stride: 512, ..eth() }, 256),  // runs of less than a byte
        (XpEth { stride: 4, ..eth() }, 256),    // beyond the message's end
        (eth(), 255),                           // too short for its place
        (XpEth { flags: 0, ..eth() }, 256),     // a SEND that uses no receive
        (XpEth { wqe_seq: FIRST + 1, len: u32::MAX, ..eth() }, 256),
    ] {
        assert_eq!(lie_in_send(xp, payload).xp_rejected_packets, 1, "{xp:?}");
    }
}

#[test]
fn a_far_jump_of_a_messages_number_is_rejected_and_an_old_number_is_late() {
    for wqe_seq in [FIRST + 1025, FIRST + 0x7f_ffff, FIRST + 0x80_0000, 0xff_0000] {
        assert_eq!(lie_in_send(XpEth { wqe_seq, ..eth() }, 256).xp_rejected_packets, 1, "{wqe_seq:#x}");
    }
    assert_eq!(lie_in_send(XpEth { wqe_seq: FIRST - 1, ..eth() }, 256).xp_late_packets, 1);
}

/// A network that was away for more messages than can be told from a lie: what follows agrees on where it is.
#[test]
fn messages_are_found_again_wherever_they_are() {
    for jump in [2000, 0x7f_0000, 0x90_0000, 0xff_0000] {
        let mut w = world();
        (0..40).for_each(|i| w.recv(B, i, 0, 16));
        let mut came = 0;
        for i in 0..40u32 {
            let flags = XpEth::RECEIVE | XpEth::LAST;
            let wqe_seq = (FIRST + jump + i) & 0xff_ffff;
            let xp = XpEth { flags, wqe_seq, offset: 0, len: 16, stride: 1, receive: i as u16 };
            let frame = w.forge(B, SEND, 0, false, ExtHeaders { xp: Some(xp), ..ExtHeaders::default() }, &[7; 16]);
            w.deliver(B, &frame);
            came += received(&mut w).iter().filter(|(_, bytes, _)| *bytes == 16).count();
        }
        assert_eq!((came, w.counters(B).xp_rejected_packets), (25, 15), "{jump:#x}");
    }
}

#[test]
fn message_numbers_count_round() {
    let mut w = agreed(Options { psn: 0xff_fffd, ..options("") });
    for (i, wqe_seq) in [0xff_fffd, 0xff_ffff, 0, 1, 900, 901].into_iter().enumerate() {
        w.recv(B, i as u64, 0, 16);
        let flags = XpEth::RECEIVE | XpEth::LAST;
        let xp = XpEth { flags, wqe_seq, offset: 0, len: 16, stride: 1, receive: i as u16 };
        let frame = w.forge(B, SEND, 0, false, ExtHeaders { xp: Some(xp), ..ExtHeaders::default() }, &[i as u8; 16]);
        w.deliver(B, &frame);
        assert_eq!((received(&mut w), w.read(B, 0, 1)), (vec![(i as u64, 16, None)], vec![i as u8]), "{wqe_seq:#x}");
    }
}

#[test]
fn a_write_that_contradicts_itself_is_rejected() {
    let reth = Reth { va: 0x20_0000 + 4096, rkey: 0, len: 256 };
    let xp = XpEth { flags: 0, ..eth() };
    for (xp, reth) in [(xp, Reth { len: 257, ..reth }), (XpEth { flags: XpEth::RECEIVE, ..xp }, reth)] {
        let ext = ExtHeaders { xp: Some(xp), reth: Some(reth), ..ExtHeaders::default() };
        assert_eq!(lie(0xea, ext, 256).xp_rejected_packets, 1, "{xp:?} {reth:?}");
    }
}

#[test]
fn a_last_fragment_in_the_middle_ends_the_message() {
    let mut w = world();
    w.recv(B, 1, 0, 1024);
    let ext = ExtHeaders { xp: Some(XpEth { flags: XpEth::RECEIVE | XpEth::LAST, ..eth() }), ..ExtHeaders::default() };
    let frame = w.forge(B, SEND, 0, false, ext, &[9; 256]);
    w.deliver(B, &frame);
    assert_eq!(received(&mut w), [(1, 256, LAST)]);
}

#[test]
fn a_message_longer_than_its_receive_ends_with_what_fits() {
    let mut w = world();
    w.fill(A, 0, &pattern(1, 1024));
    w.recv(B, 1, 0, 600);
    w.send(A, 1, SendOp::Send, 0, 1024);
    let frames = w.transmit(A);
    w.deliver_all(B, &frames[..3]);
    assert_eq!(w.counters(B).resp_local_length_error, 1);
    assert_eq!((w.read(B, 0, 512), w.read(B, 512, 100)), (pattern(1, 1024)[..512].to_vec(), vec![UNTOUCHED; 100]));
    // So does one whose bitmap has too few bits.
    let mut w = world();
    let work = BestEffort { bitmap: Some(w.sge(B, 9000, 1)), ..BestEffort::default() };
    recv_with(&mut w, 1, 0, 12 * MTU, &work);
    w.send(A, 1, SendOp::Send, 0, 12 * MTU);
    w.run();
    w.send(A, 2, SendOp::Send, 0, 10);
    w.run();
    assert_eq!((received(&mut w), w.counters(B).resp_local_length_error), (vec![(1, 8 * MTU as u32, PREEMPTED)], 4));
}

#[test]
fn a_read_response_that_nobody_asked_for_is_dropped() {
    let response = |xp| ExtHeaders { xp: Some(xp), ..ExtHeaders::default() };
    let xp = XpEth { flags: 0, wqe_seq: FIRST, offset: 0, len: 256, stride: 1, receive: 0 };
    assert_eq!(lie(0xf0, response(xp), 256).xp_late_packets, 1);
    // And one to a READ that asked for something else.
    let mut w = world();
    let op = w.read_from(B, 0);
    w.send(A, 1, op, 0, 512);
    let request = w.transmit(A);
    w.deliver_all(B, &request);
    for wrong in [XpEth { len: 513, ..xp }, XpEth { offset: 512, len: 512, ..xp }, XpEth { stride: 2, len: 512, ..xp }]
    {
        let frame = w.forge(A, 0xf0, 0, false, response(wrong), &[9; 256]);
        w.deliver(A, &frame);
    }
    assert_eq!((w.counters(A).xp_rejected_packets, sent(&mut w)), (3, vec![]));
    assert_eq!(w.read(A, 0, 512), [UNTOUCHED; 512]);
    w.run();
    assert_eq!(sent(&mut w), [(1, 512, None)]);
}

#[test]
fn a_read_request_that_cannot_be_is_rejected() {
    let xp = XpEth { flags: 0, wqe_seq: 9, offset: 0, len: 100, stride: 1, receive: 0 };
    let reth = Reth { va: 0x20_0000, rkey: 0, len: 100 };
    for (xp, reth) in
        [(XpEth { stride: 3, ..xp }, reth), (xp, Reth { len: 99, ..reth }), (XpEth { stride: 0, ..xp }, reth)]
    {
        let ext = ExtHeaders { xp: Some(xp), reth: Some(reth), xp_time: Some(10), ..ExtHeaders::default() };
        assert_eq!(lie(0xec, ext, 0).xp_rejected_packets, 1);
    }
}

#[test]
fn feedback_for_packets_that_were_never_sent_says_nothing() {
    let feedback = XpFeedback { held: 1, marks: 2, bytes: 3, credit: 4 };
    let ext = ExtHeaders { xp_report: Some(XpReport::Feedback(feedback)), ..ExtHeaders::default() };
    assert_eq!(lie(0xf1, ext, 0).xp_feedback_received, 0);
}
