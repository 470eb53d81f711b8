//! A second cable between the two NICs: connections go on there when the first one, or its interface, is gone.

use std::time::{Duration, Instant};

use softnic_nic::QpKind;
use softnic_nic::transports::{Data, Event, Status};
use softnic_runtime::api::{BackupOptions, DeviceSpec, FailoverTimes, OpenOptions, QueuePair};

use crate::veth::{Veth, ip};
use crate::world::{HALF, LIMIT, World, post};

const BACKUPS: [&str; 2] = ["snb0", "snb1"];

/// Two NICs with backups, and a connection that has them.
fn world() -> Option<(World, [QueuePair; 2])> {
    let veth = Veth::new(1, 1500)?;
    let [a, b] = &veth.namespaces;
    let ends = [(BACKUPS[0], a), (BACKUPS[1], b)].map(|(name, namespace)| format!("name {name} netns {namespace}"));
    ip(&format!("link add {} type veth peer {}", ends[0], ends[1])).unwrap();
    for (side, name) in BACKUPS.into_iter().enumerate() {
        veth.ip(side, &format!("address add 10.78.0.{}/24 dev {name}", side + 1)).unwrap();
        veth.ip(side, &format!("link set {name} up")).unwrap();
    }
    let options = BACKUPS.map(|interface| {
        let soon = Duration::from_millis(10);
        let times = FailoverTimes { probe: soon, fence: soon, ..FailoverTimes::default() };
        let backup = BackupOptions { times, ..BackupOptions::new(DeviceSpec::afxdp(interface)) };
        OpenOptions { backup: Some(backup), ..OpenOptions::default() }
    });
    let w = World::on(veth, options);
    let qps = w.queue_pairs(QpKind::Rc, |_| ());
    w.connect(&qps, [w.address(0), w.address(1)], |_| ());
    until(&w, "protection", |w| (0..2).all(|side| counters(w, side)[0] > 0));
    Some((w, qps))
}

/// Connections that are protected, failovers, failbacks.
fn counters(w: &World, side: usize) -> [u64; 3] {
    let counters = w.sides[side].context.failover_counters().unwrap();
    [counters.protected, counters.failovers, counters.failbacks]
}

fn until(w: &World, what: &str, is: impl Fn(&World) -> bool) {
    let begin = Instant::now();
    while !is(w) {
        w.progress();
        assert!(begin.elapsed() < LIMIT, "{what}: {:?}", [0, 1].map(|side| counters(w, side)));
    }
}

fn events(w: &World, side: usize) -> Vec<Event> {
    std::iter::from_fn(|| w.sides[side].context.poll_event()).collect()
}

#[test]
fn a_connection_goes_on_while_its_link_is_down_and_returns() {
    let Some((w, qps)) = world() else { return };
    w.write_and_compare(&qps, 0, HALF, 1);
    w.veth.ip(0, "link set sn0 down").unwrap();
    until(&w, "fallback", |w| counters(w, 0)[1] > 0);
    w.write_and_compare(&qps, 0, HALF, 2);
    w.write_and_compare(&qps, 1, HALF, 3);
    assert!(w.sides.iter().all(|side| side.context.is_up()));
    w.veth.ip(0, "link set sn0 up").unwrap();
    until(&w, "return", |w| counters(w, 0)[2] > 0);
    w.write_and_compare(&qps, 0, HALF, 4);
    for (side, qp) in qps.iter().enumerate() {
        let others = |event: &Event| *event != Event::PathMig(qp.qpn()) && *event != Event::GidChange;
        assert_eq!(events(&w, side).into_iter().find(others), None);
    }
}

#[test]
fn a_connection_goes_on_when_its_interface_is_removed_and_ends_with_the_backup() {
    let Some((w, qps)) = world() else { return };
    w.write_and_compare(&qps, 0, HALF, 1);
    w.veth.ip(0, "link delete sn0").unwrap();
    until(&w, "fallback", |w| counters(w, 0)[1] > 0);
    w.write_and_compare(&qps, 0, HALF, 2);
    w.write_and_compare(&qps, 1, HALF, 3);
    for side in 0..2 {
        assert_eq!(w.sides[side].context.failure(), None);
        assert!(!events(&w, side).contains(&Event::PortErr));
    }
    w.veth.ip(0, &format!("link delete {}", BACKUPS[0])).unwrap();
    w.event(0, Event::PortErr);
    until(&w, "the end", |w| w.sides[0].context.failure().is_some());
    post(&qps[0], 9, w.sides[1].write_op(), Data::Gather(&[w.sides[0].mr.sge(0, HALF)]));
    let done = w.completion(0);
    assert_eq!((done.wr_id, done.status), (9, Status::WrFlushErr));
}
