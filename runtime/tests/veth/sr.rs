//! Selective Repeat between namespaces: every operation under faults, at several queues, and with a peer that has it not.

use softnic_nic::QpKind;
use softnic_nic::transports::negotiation::{Choice, FallbackReason};
use softnic_runtime::api::{OpenOptions, QpOptions, QueuePair, Transport};

use crate::operations::{every_reliable, expect, reads_writes_and_atomics, window};
use crate::world::{HALF, World};

fn sr(options: &mut QpOptions) {
    options.transport = Transport::SR;
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
        let [a, _b] = &w.sides;
        let qps = w.queue_pairs(QpKind::Rc, sr);
        w.connect(&qps, [w.address(0), w.address(1)], |c| c.timeout = 14);
        qps.iter().for_each(|qp| expect(qp, Choice::Agreed));
        reads_writes_and_atomics(&w, &qps, &format!("{fault:?}"));
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
        all.push(qps);
    }
    assert!(across > 0, "some MADs come in at the other engine");
    for side in &w.sides {
        assert_eq!(side.context.counters().rx_bad_qp, 0, "no engine saw a frame of another's");
    }
    // The last, because it ends in an error: what is sent again to a queue pair that has one is counted.
    all.iter().for_each(|qps| window(&w, qps));
}

#[test]
fn a_peer_that_has_it_not_is_spoken_to_by_the_standard() {
    let Some(w) = World::new(2, 1500) else { return };
    for round in 0..4 {
        let [mine, _] = w.queue_pairs(QpKind::Rc, sr);
        let [_, theirs] = w.queue_pairs(QpKind::Rc, |_| ());
        let qps = [mine, theirs];
        w.connect(&qps, [w.address(0), w.address(1)], |_| ());
        expect(&qps[0], Choice::Standard(FallbackReason::NothingInCommon));
        w.write_and_compare(&qps, 0, HALF, round);
        w.write_and_compare(&qps, 1, HALF, round);
    }
}
