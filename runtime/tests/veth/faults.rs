//! A cable that loses, repeats, damages and reorders frames, both ways: the data is right in spite of it.

use softnic_nic::QpKind;
use softnic_nic::transports::wr::Data;
use softnic_nic::transports::{SendOp, Status};
use softnic_runtime::api::OpenOptions;

use crate::world::{HALF, World, post};

#[test]
fn data_is_right_through_faults_on_both_sides() {
    for (kind, count) in [("loss=2e-2", 1), ("reorder=2e-2:3", 2), ("dup=5e-2", 3), ("corrupt=2e-2", 4)]
        .into_iter()
        .chain([("loss=1e-2,dup=1e-2,corrupt=5e-3,reorder=1e-2:2,rx.loss=1e-2", 5)])
    {
        let options = [0, 1].map(|i| OpenOptions {
            fault: Some(kind.parse().unwrap()),
            seed: 10 * count + i,
            ..OpenOptions::default()
        });
        let Some(w) = World::with(1, 1500, options) else { return };
        let [a, b] = &w.sides;
        let qps = w.queue_pairs(QpKind::Rc, |_| ());
        w.connect(&qps, [w.address(0), w.address(1)], |c| c.timeout = 14);
        for round in 0..4 {
            w.write_and_compare(&qps, 0, HALF, round);
            let data = b.fill(HALF, 90 + round);
            a.clear();
            let op = SendOp::Read { remote_addr: b.mr.addr(), rkey: b.mr.rkey() };
            post(&qps[0], 1, op, Data::Gather(&[a.mr.sge(HALF, HALF)]));
            w.success(0, 1);
            assert!(a.received(HALF) == data, "READ with {kind}");
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
        assert_eq!(u64::from_ne_bytes(sum), 100, "with {kind}");
        let [ca, cb] = [a, b].map(|side| side.context.counters());
        match count {
            3 => assert!(cb.duplicate_request > 0 || ca.stale_acks > 0, "{ca:?} {cb:?}"),
            _ => assert!(ca.retransmitted_packets > 0, "{kind}: {ca:?}"),
        }
        assert_eq!(ca.rx_icrc_encapsulated + cb.rx_icrc_encapsulated > 0, kind.contains("corrupt"), "{kind}");
    }
}
