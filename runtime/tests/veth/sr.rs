//! Selective Repeat between namespaces: every operation under faults, at several queues, and with a peer that has it not.

use std::time::{Duration, Instant};

use softnic_nic::QpKind;
use softnic_nic::transports::negotiation::Choice;
use softnic_nic::transports::negotiation::Why;
use softnic_nic::transports::wr::Data;
use softnic_nic::transports::{SendOp, Status};
use softnic_runtime::api::{OpenOptions, QpOptions, QueuePair, Transport};

use crate::operations::{every_reliable, window};
use crate::world::{HALF, LIMIT, World, post};

fn sr(options: &mut QpOptions) {
    options.transport = Transport::Sr { window: None };
}

/// Waits until that is what its requests are sent by; the NICs see to it themselves. A verdict may change from silence to an answer that
/// came late, so another one is not final.
fn expect(qp: &QueuePair, choice: Choice) {
    let start = Instant::now();
    while qp.choice() != Some(choice) {
        assert!(start.elapsed() < LIMIT, "{:?} instead of {choice:?}", qp.choice());
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn every_operation_is_right_through_faults_on_both_sides() {
    for (i, fault) in
        ["loss=2e-2,reorder=5e-2:5,dup=2e-2", "loss=2e-2,corrupt=1e-2,rx.loss=1e-2"].into_iter().enumerate()
    {
        let fault = Some(fault.parse().unwrap());
        let options =
            [0, 1].map(|s| OpenOptions { fault: fault.clone(), seed: 10 * i as u64 + s, ..OpenOptions::default() });
        let Some(w) = World::with(1, 1500, options) else { return };
        let [a, b] = &w.sides;
        let qps = w.queue_pairs(QpKind::Rc, sr);
        w.connect(&qps, [w.address(0), w.address(1)], |c| c.timeout = 14);
        qps.iter().for_each(|qp| expect(qp, Choice::Agreed));
        for round in 0..4 {
            w.write_and_compare(&qps, 0, HALF, round);
            let data = b.fill(HALF, 90 + round);
            a.clear();
            let op = SendOp::Read { remote_addr: b.mr.addr(), rkey: b.mr.rkey() };
            post(&qps[0], 1, op, Data::Gather(&[a.mr.sge(HALF, HALF)]));
            w.success(0, 1);
            assert!(a.received(HALF) == data, "READ with {fault:?}");
        }
        // Numbers add up whatever is lost: each is carried out once.
        b.mr.write_at(0, &[0; 8]);
        let op = SendOp::FetchAdd { remote_addr: b.mr.addr(), rkey: b.mr.rkey(), add: 1 };
        for i in 0..100 {
            post(&qps[0], i, op, Data::Gather(&[a.mr.sge(HALF, 8)]));
        }
        for i in 0..100 {
            let done = w.completion(0);
            assert_eq!((done.status, done.wr_id), (Status::Success, i));
        }
        let mut sum = [0; 8];
        b.mr.read_at(0, &mut sum);
        assert_eq!(u64::from_ne_bytes(sum), 100, "with {fault:?}");
        every_reliable(&w, &qps);
        let counters = a.context.counters();
        assert!(counters.retransmitted_packets > 0, "{fault:?}: {counters:?}");
    }
}

#[test]
fn peers_agree_at_whichever_queue_their_mads_come_in() {
    let Some(w) = World::new(2, 4200) else { return };
    let engine = |qp: &QueuePair| qp.qpn().value() >> 23;
    // They stay: what comes late still finds them.
    let mut all = Vec::new();
    let mut across = 0;
    for round in 0..8u8 {
        let mut qps = w.queue_pairs(QpKind::Rc, sr);
        if round % 2 == 1 {
            // Engines take turns: the next one there is at the other engine.
            let [_, other] = w.queue_pairs(QpKind::Rc, sr);
            qps[1] = other;
        }
        across += u32::from(engine(&qps[0]) != engine(&qps[1]));
        w.connect(&qps, [w.address(0), w.address(1)], |_| ());
        qps.iter().for_each(|qp| expect(qp, Choice::Agreed));
        w.write_and_compare(&qps, 0, HALF, round);
        every_reliable(&w, &qps);
        w.write_and_compare(&qps, 1, 100_000, round);
        window(&w, &qps);
        all.push(qps);
    }
    assert!(across > 0, "some MADs come in at the other engine");
    for side in &w.sides {
        assert_eq!(side.context.counters().rx_bad_qp, 0, "no engine saw a frame of another's");
    }
}

#[test]
fn a_peer_that_has_it_not_is_spoken_to_by_the_standard() {
    let Some(w) = World::new(2, 1500) else { return };
    for round in 0..4 {
        let [mine, _] = w.queue_pairs(QpKind::Rc, sr);
        let [_, theirs] = w.queue_pairs(QpKind::Rc, |_| ());
        let qps = [mine, theirs];
        w.connect(&qps, [w.address(0), w.address(1)], |_| ());
        expect(&qps[0], Choice::Standard(Why::NothingInCommon));
        w.write_and_compare(&qps, 0, HALF, round);
        w.write_and_compare(&qps, 1, HALF, round);
    }
}
