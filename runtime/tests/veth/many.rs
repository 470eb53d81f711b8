//! A thousand queue pairs.

use std::collections::HashMap;

use softnic_nic::QpKind;
use softnic_nic::transports::{Data, SendOp, Status};

use crate::world::{HALF, World, post};

const QPS: usize = 1000;
const WRITES: usize = 3;
const LEN: usize = 128;

#[test]
fn a_thousand_queue_pairs_write_and_every_write_completes() {
    let Some(w) = World::new(1, 1500) else { return };
    let [a, b] = &w.sides;
    let pairs: Vec<_> = (0..QPS).map(|_| w.connected(QpKind::Rc, None)).collect();
    let data = a.fill(QPS * LEN, 3);
    for write in 0..WRITES {
        for (i, [qp, _]) in pairs.iter().enumerate() {
            let remote_addr = b.mr.addr() + (HALF + i * LEN) as u64;
            let op = SendOp::Write { remote_addr, rkey: b.mr.rkey() };
            post(qp, write as u64, op, Data::Gather(&[a.mr.sge(i * LEN, LEN)]));
        }
    }
    let mut next: HashMap<_, u64> = HashMap::new();
    for _ in 0..QPS * WRITES {
        let done = w.completion(0);
        let next = next.entry(done.qpn).or_default();
        assert_eq!((done.status, done.wr_id), (Status::Success, *next), "in order");
        *next += 1;
    }
    assert_eq!(next.len(), QPS);
    assert!(b.received(QPS * LEN) == data);
}
