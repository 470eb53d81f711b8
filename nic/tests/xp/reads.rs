//! READs: the requester has one active, and a time; the responder stops when that is over.

use super::*;

fn posted(w: &mut World, wr_id: u64, len: usize, work: &BestEffort) {
    let op = w.read_from(B, 0);
    send_with(w, wr_id, op, (1000 * wr_id as usize, len), work);
}

#[test]
fn a_read_brings_the_peers_bytes_whole_or_strided() {
    for stride in [1, 2, 4, 256] {
        let mut w = world();
        w.fill(B, 0, &pattern(4, 11 * MTU + 5));
        let work = BestEffort { stride, ..BestEffort::default() };
        posted(&mut w, 1, 11 * MTU + 5, &work);
        let request = w.transmit(A);
        assert_eq!(
            (w.show(&request), w.parse(&request[0]).ext.xp_time),
            (vec!["XP_RDMA_READ_REQUEST +0".into()], Some(1_000_000))
        );
        w.deliver_all(B, &request);
        let responses = w.transmit(B);
        assert_eq!((responses.len(), w.show(&responses)[1].as_str()), (12, "XP_RDMA_READ_RESPONSE +1"));
        // In any order.
        responses.iter().rev().skip(1).for_each(|f| w.deliver(A, f));
        assert_eq!(sent(&mut w), []);
        w.deliver(A, &responses[11]);
        assert_eq!(sent(&mut w), [(1, 11 * MTU as u32 + 5, None)]);
        assert_eq!(w.read(A, 1000, 11 * MTU + 5), pattern(4, 11 * MTU + 5), "stride {stride}");
    }
}

#[test]
fn a_response_to_a_later_read_ends_the_one_before_it_and_what_left_between() {
    let mut w = world();
    let none = BestEffort::default();
    w.recv(B, 7, 9000, 10);
    posted(&mut w, 1, 3 * MTU, &none);
    w.send(A, 2, SendOp::Send, 0, 10);
    posted(&mut w, 3, 3 * MTU, &none);
    posted(&mut w, 4, 3 * MTU, &none);
    let frames = w.transmit(A);
    assert_eq!((frames.len(), sent(&mut w)), (4, vec![]), "the SEND left, and waits for the READ before it");
    w.deliver_all(B, &frames);
    let responses = w.transmit(B);
    w.deliver(A, &responses[1]);
    w.deliver(A, &responses[6]);
    assert_eq!(sent(&mut w), [(1, 256, PREEMPTED), (2, 10, None), (3, 0, PREEMPTED)]);
    w.deliver_all(A, &responses);
    assert_eq!((sent(&mut w), w.counters(A).xp_late_packets), (vec![(4, 768, None)], 7), "one came twice");
}

/// Without a deadline a READ has the queue pair's: its request may be lost, and nobody would tell.
#[test]
fn a_read_ends_in_time_also_when_its_request_is_lost() {
    for (settings, nanos) in [("", 1_000_000_000), ("timeout=5ms", 5_000_000)] {
        let mut w = agreed(options(settings));
        posted(&mut w, 1, 100, &BestEffort::default());
        let (_lost, start) = (w.transmit(A), w.now.as_nanos());
        let mut done = sent(&mut w);
        while done.is_empty() {
            w.wait_for_timer(A).expect("a time at which it ends");
            done = sent(&mut w);
        }
        assert_eq!((w.now.as_nanos() - start, done), (nanos, vec![(1, 0, EXPIRED)]), "{settings}");
    }
    let mut w = world();
    let work = BestEffort { bitmap: Some(w.sge(A, 9000, 1)), ..within(&w, 2500) };
    posted(&mut w, 1, 3 * MTU, &work);
    let request = w.transmit(A);
    assert_eq!(w.parse(&request[0]).ext.xp_time, Some(3), "microseconds, rounded up");
    w.deliver_all(B, &request);
    let responses = w.transmit(B);
    w.deliver(A, &responses[1]);
    w.wait(2500);
    assert_eq!((sent(&mut w), w.read(A, 9000, 1)), (vec![(1, 256, EXPIRED)], vec![0b10]));
    w.deliver(A, &responses[2]);
    assert_eq!(w.counters(A).xp_late_packets, 1);
}

/// Else the responder drops it with the other one, and the requester waits in vain.
#[test]
fn the_deadline_of_a_read_does_not_bind_those_behind_it() {
    let mut w = agreed(options("timeout=5ms"));
    for (wr_id, nanos) in [(1, Some(2000)), (2, None), (3, Some(9000)), (4, Some(4000))] {
        let work = nanos.map_or_else(BestEffort::default, |nanos| within(&w, nanos));
        posted(&mut w, wr_id, 10, &work);
    }
    let requests = w.transmit(A);
    let times: Vec<_> = requests.iter().map(|request| w.parse(request).ext.xp_time.unwrap()).collect();
    assert_eq!(times, [2, 4, 4, 4], "the last one's binds those before it");
}

#[test]
fn a_responder_stops_when_the_time_is_over() {
    let mut w = world();
    let work = within(&w, 3000);
    posted(&mut w, 1, 3 * MTU, &work);
    let request = w.transmit(A);
    w.deliver_all(B, &request);
    let wire = softnic_nic::Nic::WIRE;
    assert!(w.transmit_one(B, wire).is_some());
    w.now = Instant::from_nanos(w.now.as_nanos() + 2999);
    assert!(w.transmit_one(B, wire).is_some());
    w.now = Instant::from_nanos(w.now.as_nanos() + 1);
    assert!(w.transmit_one(B, wire).is_none());
}

#[test]
fn no_more_reads_are_outstanding_than_the_peer_answers_and_a_fence_waits_for_them() {
    let mut w = agreed(Options { max_rd_atomic: 2, ..options("timeout=1ms") });
    for i in 1..=3 {
        posted(&mut w, i, 10, &BestEffort::default());
    }
    assert_eq!(w.transmit(A).len(), 2);
    w.wait(1_000_000);
    assert_eq!((sent(&mut w).len(), w.transmit(A).len()), (2, 1), "their time is over: the third one goes");
    let flags = SendFlags { signaled: true, fence: true, ..SendFlags::default() };
    w.recv(B, 9, 0, 10);
    let sges = [w.sge(A, 0, 10)];
    w.post(A, &SendWr { flags, ..wr(4, SendOp::Send, Data::Gather(&sges)) }).unwrap();
    assert_eq!(w.transmit(A).len(), 0);
    w.wait(1_000_000);
    assert_eq!(w.transmit(A).len(), 1);
}

/// Its request may arrive before the responder's time for the old one is over: the old one was late, or waited for its turn.
#[test]
fn a_read_takes_the_place_of_the_oldest_one_which_is_over_at_the_requester() {
    let mut w = agreed(Options { max_rd_atomic: 2, ..options("timeout=1ms") });
    let mut requests = Vec::new();
    for round in 0..2 {
        posted(&mut w, 2 * round + 1, 10, &BestEffort::default());
        posted(&mut w, 2 * round + 2, 10, &BestEffort::default());
        requests.extend(w.transmit(A));
        w.wait(1_000_000);
    }
    assert_eq!(sent(&mut w), [1, 2, 3, 4].map(|n| (n, 0, EXPIRED)));
    posted(&mut w, 5, 10, &BestEffort::default());
    posted(&mut w, 6, 10, &BestEffort::default());
    requests.extend(w.transmit(A));
    w.deliver_all(B, &requests);
    assert_eq!(w.counters(B).xp_dropped_reads, 4);
    // One that is being answered already, and one from before, take nobody's place.
    w.deliver_all(B, &[requests[5].clone(), requests[0].clone()]);
    assert_eq!(w.counters(B).xp_dropped_reads, 6);
    let responses = w.transmit(B);
    w.deliver_all(A, &responses);
    assert_eq!((responses.len(), sent(&mut w)), (2, vec![(5, 10, None), (6, 10, None)]));
}

#[test]
fn a_read_of_memory_that_the_peer_may_not_read_ends_with_its_time() {
    let mut w = agreed(options("timeout=1ms"));
    let op = SendOp::Read { remote_addr: 1, rkey: 5 };
    w.send(A, 1, op, 0, 10);
    w.run();
    assert_eq!((sent(&mut w), w.counters(B).resp_remote_access_errors), (vec![], 1));
    w.wait(1_000_000);
    assert_eq!(sent(&mut w), [(1, 0, EXPIRED)]);
}
