//! Packet by packet: whole messages, deadlines that pass, gaps, and a peer that knows only UC.

use softnic_nic::transports::negotiation::FallbackReason;
use softnic_nic::transports::{
    Completion, Data, Event, PartialReason, RecvWr, SendOp, SendWr, Status, Transport, WcOpcode,
};
use softnic_nic::{Nic, QpKind};
use softnic_wire::Instant;

use crate::common::*;

const MTU: usize = 256;

fn options() -> Options {
    Options { kind: QpKind::Uc, offers: [Some(Transport::Timed); 2], ..Options::default() }
}

/// Two hosts that have agreed.
fn agreed(options: Options) -> World {
    let mut w = World::new(options);
    w.run();
    assert_eq!((w.events(A), w.events(B)), (vec![], vec![]));
    w
}

/// Posts a receive of `len` bytes at `offset` that must be done in so many nanoseconds; when that is.
fn recv_within(w: &mut World, wr_id: u64, offset: usize, len: usize, nanos: u64) -> Instant {
    let deadline = Instant::from_nanos(w.now.as_nanos() + nanos);
    let sges = [w.sge(B, offset, len)];
    w.post_recv(B, &RecvWr { wr_id, sges: &sges, deadline: Some(deadline) }).unwrap();
    deadline
}

/// wr_id, bytes, and why not all of them are there.
fn ended(completions: &[Completion]) -> Vec<(u64, u32, Option<PartialReason>)> {
    assert!(completions.iter().all(|c| c.status == Status::Success));
    completions.iter().map(|c| (c.wr_id, c.byte_len, c.partial)).collect()
}

fn received(w: &mut World) -> Vec<(u64, u32, Option<PartialReason>)> {
    let cq = w.hosts[B].recv_cq;
    ended(&w.all(B, cq))
}

fn sent(w: &mut World) -> Vec<(u64, u32, Option<PartialReason>)> {
    let cq = w.hosts[A].send_cq;
    ended(&w.all(A, cq))
}

const DEADLINE: Option<PartialReason> = Some(PartialReason::Deadline);
const SUPERSEDED: Option<PartialReason> = Some(PartialReason::Superseded);

#[test]
fn a_message_that_is_whole_before_its_deadline_completes_as_any_other() {
    for psn in FIRST_PSNS {
        let mut w = agreed(Options { psn, ..options() });
        w.fill(A, 0, &pattern(1, 700));
        recv_within(&mut w, 9, 1000, 800, 5_000);
        w.send(A, 1, SendOp::SendImm { imm: 7 }, 0, 700);
        let frames = w.transmit(A);
        let shown = ["TIMED_SEND_FIRST +0", "TIMED_SEND_MIDDLE +1", "TIMED_SEND_LAST_WITH_IMMEDIATE +2"];
        assert_eq!(w.show(&frames), shown);
        let headers: Vec<_> =
            frames.iter().map(|f| w.parse(f).ext.timed.unwrap()).map(|h| (h.number, h.offset)).collect();
        assert_eq!(headers, [(0, 0), (0, 256), (0, 512)]);
        w.deliver_all(B, &frames);
        assert_eq!(sent(&mut w), [(1, 700, None)]);
        assert_eq!(received(&mut w), [(9, 700, None)]);
        assert_eq!(w.read(B, 1000, 700), pattern(1, 700));
        w.wait(5_000);
        assert_eq!(received(&mut w), [], "the deadline is gone with its receive");
    }
}

#[test]
fn a_write_and_a_write_with_immediate_arrive() {
    let mut w = agreed(options());
    w.fill(A, 0, &pattern(2, 600));
    w.recv(B, 9, 0, 0);
    let ops = [w.write_to(B, 1000), w.write_imm_to(B, 2000, 5)];
    for (i, op) in ops.into_iter().enumerate() {
        w.send(A, i as u64, op, 0, 600);
    }
    w.run();
    assert_eq!(received(&mut w), [(9, 600, None)]);
    assert_eq!((w.read(B, 1000, 600), w.read(B, 2000, 600)), (pattern(2, 600), pattern(2, 600)));
}

/// Each of four packets lost in turn: the receive completes at the deadline, and the other packets are where they belong.
#[test]
fn at_the_deadline_a_message_completes_with_the_bytes_that_were_placed() {
    for psn in FIRST_PSNS {
        for lost in 0..4 {
            let mut w = agreed(Options { psn, ..options() });
            w.fill(A, 0, &pattern(3, 4 * MTU));
            let deadline = recv_within(&mut w, 9, 0, 4 * MTU, 5_000);
            w.send(A, 1, SendOp::Send, 0, 4 * MTU);
            let mut frames = w.transmit(A);
            let late = frames.remove(lost);
            w.deliver_all(B, &frames);
            assert_eq!(received(&mut w), [], "packet {lost} may still come");
            assert_eq!(w.wait_for_timer(B), Some(5_000));
            assert_eq!(w.now, deadline);
            assert_eq!(received(&mut w), [(9, 3 * MTU as u32, DEADLINE)]);
            for i in 0..4 {
                let expected =
                    if i == lost { vec![UNTOUCHED; MTU] } else { pattern(3, 4 * MTU)[i * MTU..][..MTU].to_vec() };
                assert_eq!(w.read(B, i * MTU, MTU), expected, "packet {i} with {lost} lost");
            }
            // What comes too late does not go into the receive of another message.
            w.recv(B, 10, 2000, 2000);
            w.deliver(B, &late);
            assert_eq!((received(&mut w), w.read(B, 2000, 8)), (vec![], vec![UNTOUCHED; 8]));
        }
    }
}

#[test]
fn a_receive_whose_message_never_comes_completes_with_nothing_at_its_deadline() {
    let mut w = agreed(options());
    recv_within(&mut w, 9, 0, 100, 3_000);
    recv_within(&mut w, 10, 0, 100, 1_000);
    w.wait(2_999);
    assert_eq!(received(&mut w), []);
    w.wait(1);
    assert_eq!(received(&mut w), [(9, 0, DEADLINE), (10, 0, DEADLINE)], "in the order in which they were posted");
}

#[test]
fn a_message_that_lacks_packets_makes_room_for_the_next_one() {
    let mut w = agreed(options());
    for wr_id in [9, 10] {
        recv_within(&mut w, wr_id, 1000 * wr_id as usize, 600, 50_000);
        w.send(A, wr_id, SendOp::Send, 0, 600);
    }
    let mut frames = w.transmit(A);
    frames.remove(1);
    w.deliver_all(B, &frames);
    assert_eq!(received(&mut w), [(9, 344, SUPERSEDED), (10, 600, None)]);
}

#[test]
fn a_packet_that_comes_twice_is_placed_once() {
    let mut w = agreed(options());
    recv_within(&mut w, 9, 0, 600, 50_000);
    w.send(A, 1, SendOp::Send, 0, 600);
    for frame in w.transmit(A) {
        w.deliver_all(B, &[frame.clone(), frame]);
    }
    assert_eq!(received(&mut w), [(9, 600, None)]);
}

#[test]
fn a_send_that_cannot_leave_before_its_deadline_leaves_the_queue() {
    // Nobody has answered the offer: sends wait.
    let mut w = World::new(options());
    let sges = [w.sge(A, 0, 600)];
    let deadline = Some(Instant::from_nanos(w.now.as_nanos() + 1_000));
    w.post(A, &SendWr { deadline, ..wr(1, SendOp::Send, Data::Gather(&sges)) }).unwrap();
    w.send(A, 2, SendOp::Send, 0, 100);
    w.wait(1_000);
    assert_eq!(sent(&mut w), [(1, 0, DEADLINE)]);
    w.recv(B, 9, 0, 100);
    w.run();
    assert_eq!((sent(&mut w), received(&mut w)), (vec![(2, 100, None)], vec![(9, 100, None)]));
    // Of three packets one has left when the time is over.
    let deadline = Some(Instant::from_nanos(w.now.as_nanos() + 1_000));
    w.post(A, &SendWr { deadline, ..wr(3, SendOp::Send, Data::Gather(&sges)) }).unwrap();
    assert!(w.transmit_one(A, Nic::WIRE).is_some());
    w.wait(1_000);
    assert_eq!((sent(&mut w), w.transmit(A).len()), (vec![(3, MTU as u32, DEADLINE)], 0));
}

#[test]
fn with_a_peer_that_knows_only_uc_the_program_is_told_and_deadlines_are_kept_all_the_same() {
    let mut w = World::new(Options { offers: [None, Some(Transport::Timed)], ..options() });
    w.run();
    let peer = address(A).0;
    assert_eq!(w.events(B), [Event::FellBack(w.hosts[B].qpn, peer, FallbackReason::NothingInCommon)]);
    // Both ways.
    w.recv(A, 8, 0, 600);
    w.send(B, 2, SendOp::Send, 0, 600);
    let frames = w.transmit(B);
    assert_eq!(w.show(&frames)[0], "SEND_FIRST +0");
    assert_eq!(w.parse(&frames[0]).bth.opcode.to_string(), "UC_SEND_FIRST");
    w.deliver_all(A, &frames);
    assert_eq!(w.received(A)[0].opcode, WcOpcode::Recv);
    w.fill(A, 1000, &pattern(4, 600));
    recv_within(&mut w, 9, 0, 600, 5_000);
    w.send(A, 1, SendOp::Send, 1000, 600);
    let frames = w.transmit(A);
    w.deliver_all(B, &frames[..2]);
    w.wait(5_000);
    assert_eq!(received(&mut w), [(9, 512, DEADLINE)]);
    assert_eq!(w.read(B, 0, 512), &pattern(4, 600)[..512]);
    // The last packet belongs to no message any more.
    w.recv(B, 10, 2000, 600);
    w.deliver(B, &frames[2]);
    assert_eq!(received(&mut w), []);
}
