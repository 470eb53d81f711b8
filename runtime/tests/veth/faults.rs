//! A cable that loses, repeats, damages and reorders frames, both ways: the data is right in spite of it.

use softnic_nic::QpKind;
use softnic_runtime::api::OpenOptions;

use crate::operations::reads_writes_and_atomics;
use crate::world::World;

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
        reads_writes_and_atomics(&w, &qps, kind);
        let [ca, cb] = [a, b].map(|side| side.context.counters());
        match count {
            3 => assert!(cb.duplicate_request > 0 || ca.stale_acks > 0, "{ca:?} {cb:?}"),
            _ => assert!(ca.retransmitted_packets > 0, "{kind}: {ca:?}"),
        }
        assert_eq!(ca.rx_icrc_encapsulated + cb.rx_icrc_encapsulated > 0, kind.contains("corrupt"), "{kind}");
    }
}
