//! Requests and READ responses of one queue pair take turns: neither keeps the other from leaving.

use softnic_nic::transports::negotiation::Choice;
use softnic_nic::transports::{Status, Transport};

use crate::common::*;

/// Bytes of each READ.
const LEN: usize = 64 << 10;

/// B owes A the responses to READs, and posts a WRITE of `packets` packets. The kinds of frames that B sends then, in order: `true` is a
/// request.
fn frames_of_both(mut w: World, reads: u64, packets: usize) -> (World, Vec<bool>) {
    for id in 0..reads {
        let read = w.read_from(B, 0);
        w.send(A, id, read, 0, LEN);
    }
    let requests = w.transmit(A);
    w.deliver_all(B, &requests);
    let write = w.write_to(A, LEN);
    w.send(B, 100, write, LEN, packets * w.options.mtu.bytes() as usize);
    let frames = w.transmit(B);
    let kinds = frames.iter().filter_map(|f| {
        let opcode = w.parse(f).bth.opcode;
        let name = opcode.to_string();
        (name.contains("READ_RESPONSE") || name.contains("WRITE")).then_some(!opcode.is_response())
    });
    let kinds = kinds.collect();
    w.deliver_all(A, &frames);
    w.settle(1000);
    assert_eq!(w.sent_status(B), [(100, Status::Success)]);
    let done: Vec<_> = (0..reads).map(|id| (id, Status::Success)).collect();
    assert_eq!(w.sent_status(A), done);
    (w, kinds)
}

fn assert_takes_turns(kinds: &[bool], packets: usize) {
    // The first may be of either kind; then they alternate until the requests have left.
    let requests: Vec<_> = kinds.iter().enumerate().filter(|(_, is_request)| **is_request).map(|(i, _)| i).collect();
    assert_eq!(requests.len(), packets);
    for (k, at) in requests.into_iter().enumerate() {
        assert!(at <= 2 * k + 1, "packet {k} of the request is frame {at}");
    }
}

#[test]
fn a_request_leaves_behind_one_read_response_however_many_reads_are_outstanding() {
    for (reads, packets) in [(1, 1), (4, 1), (16, 1), (4, 20)] {
        let (_, kinds) = frames_of_both(World::new(Options::default()), reads, packets);
        assert_takes_turns(&kinds, packets);
    }
}

#[test]
fn requests_and_read_responses_take_turns_over_selective_repeat() {
    for (reads, packets) in [(1, 1), (4, 1), (16, 1), (4, 20)] {
        let offers = [Some(Transport::Sr { window: 16384 }); 2];
        let mut w = World::new(Options { offers, ..Options::default() });
        w.settle(500_000);
        assert_eq!(w.hosts[B].nic.choice(w.hosts[B].qpn), Some(Choice::Agreed));
        let (_, kinds) = frames_of_both(w, reads, packets);
        assert_takes_turns(&kinds, packets);
    }
}
