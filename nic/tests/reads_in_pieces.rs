//! Long READs where packets outstanding are limited: they are asked for in pieces, and no more comes at a time than there is room for.

use softnic_nic::transports::{Data, SendFlags, SendWr, Status};
use softnic_wire::Opcode;

use crate::common::*;

/// Responses that a request asks for at most: half of the limit at a path MTU of 256.
const PIECE: usize = 256;
/// The limit itself.
const LIMIT: usize = 512;
/// Packets of the READ, and its bytes: the last packet is short.
const PACKETS: usize = 5 * PIECE + 70;
const LEN: usize = PACKETS * 256 - 100;

fn limited(max_rd_atomic: u8) -> Options {
    Options { limit_flight: true, max_rd_atomic, buffer: LEN + 4096, ..Options::default() }
}

/// Posts the READ at A.
fn post_read(w: &mut World) {
    w.fill(B, 0, &pattern(7, LEN));
    let op = w.read_from(B, 0);
    w.send(A, 1, op, 0, LEN);
}

fn assert_read(w: &mut World) {
    assert_eq!(w.sent_status(A), [(1, Status::Success)]);
    assert!(w.read(A, 0, LEN) == pattern(7, LEN));
}

/// Bytes that each of these requests asks for.
fn asked(w: &World, frames: &[Vec<u8>]) -> Vec<u32> {
    let read = |frame: &Vec<u8>| {
        let packet = w.parse(frame);
        assert_eq!(packet.bth.opcode, Opcode::RC_RDMA_READ_REQUEST);
        packet.ext.reth.unwrap().len
    };
    frames.iter().map(read).collect()
}

#[test]
fn a_long_read_is_asked_for_in_pieces_of_what_may_be_outstanding() {
    each_psn(limited(16), |mut w| {
        post_read(&mut w);
        let mut requests = w.transmit(A);
        assert_eq!(asked(&w, &requests), [PIECE as u32 * 256; 2], "as many as may be outstanding");
        let (mut all, mut most) = (Vec::new(), 0);
        while !requests.is_empty() {
            all.extend(asked(&w, &requests));
            w.deliver_all(B, &requests);
            let answers = w.transmit(B);
            most = most.max(answers.len());
            w.deliver_all(A, &answers);
            requests = w.transmit(A);
        }
        assert_eq!(all.iter().sum::<u32>(), LEN as u32, "every byte once");
        assert_eq!(all.len(), 6);
        assert!(most <= LIMIT, "{most} responses at a time");
        assert_read(&mut w);
        assert_eq!((w.counters(A).retransmitted_packets, w.counters(A).implied_nak_seq_err), (0, 0));
    });
}

#[test]
fn a_piece_of_a_read_waits_where_the_peer_answers_no_more_requests() {
    each_psn(limited(1), |mut w| {
        post_read(&mut w);
        for piece in 0..6 {
            let requests = w.transmit(A);
            assert_eq!(requests.len(), 1, "piece {piece}");
            w.deliver_all(B, &requests);
            let (last, others) = w.transmit(B).split_last().map(|(l, o)| (l.clone(), o.to_vec())).unwrap();
            w.deliver_all(A, &others);
            assert!(w.transmit(A).is_empty(), "one request at a time");
            w.deliver(A, &last);
        }
        assert_read(&mut w);
    });
}

#[test]
fn a_fenced_message_waits_for_every_piece_of_a_read() {
    let mut w = World::new(limited(1));
    post_read(&mut w);
    let op = w.write_to(B, LEN);
    let sges = [w.sge(A, LEN, 100)];
    let fenced = wr(2, op, Data::Gather(&sges));
    let flags = SendFlags { fence: true, ..fenced.flags };
    w.post(A, &SendWr { flags, ..fenced }).unwrap();
    for _ in 0..6 {
        let requests = w.transmit(A);
        asked(&w, &requests);
        w.deliver_all(B, &requests);
        let answers = w.transmit(B);
        w.deliver_all(A, &answers);
    }
    assert_eq!(w.sent_status(A), [(1, Status::Success)]);
    w.run();
    assert_eq!(w.sent_status(A), [(2, Status::Success)]);
}

#[test]
fn a_lost_response_is_asked_for_again_to_the_end_of_its_piece() {
    for lost in [0, 1, PIECE - 1, PIECE, PIECE + 1, LIMIT - 1] {
        each_psn(limited(16), |mut w| {
            post_read(&mut w);
            let requests = w.transmit(A);
            w.deliver_all(B, &requests);
            let mut answers = w.transmit(B);
            answers.remove(lost);
            w.deliver_all(A, &answers);
            if lost == LIMIT - 1 {
                w.wait_for_timer(A);
            }
            let again = w.transmit(A);
            let first = asked(&w, &again)[0] as usize;
            assert_eq!(first, (PIECE - lost % PIECE) * 256, "response {lost}");
            w.deliver_all(B, &again);
            w.run();
            assert_read(&mut w);
        });
    }
}

#[test]
fn reads_behind_one_in_pieces_keep_to_the_number_that_the_peer_answers() {
    let mut w = World::new(limited(2));
    post_read(&mut w);
    for id in 2..6 {
        let op = w.read_from(B, 0);
        w.send(A, id, op, LEN, 64);
    }
    let (mut unanswered, mut requests) = (0, 0);
    for _ in 0..20_000 {
        let frames = w.transmit(A);
        unanswered += frames.len();
        requests += frames.len();
        assert!(unanswered <= 2, "{unanswered} requests");
        w.deliver_all(B, &frames);
        for answer in w.transmit(B) {
            let ends = w.parse(&answer).bth.opcode.ends_message();
            w.deliver(A, &answer);
            unanswered -= usize::from(ends);
            let frames = w.transmit(A);
            unanswered += frames.len();
            requests += frames.len();
            assert!(unanswered <= 2, "{unanswered} requests");
            w.deliver_all(B, &frames);
        }
        if unanswered == 0 {
            break;
        }
    }
    assert_eq!(requests, 6 + 4);
    assert_eq!(w.sent_status(A), (1..6).map(|id| (id, Status::Success)).collect::<Vec<_>>());
}
