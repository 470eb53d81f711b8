//! What the kernel changes at the interface while the NIC is open.

use std::net::IpAddr;

use softnic_nic::QpKind;
use softnic_nic::transports::{Data, Event, Status};
use softnic_runtime::api::{LinkDown, OpenOptions};
use softnic_wire::PathMtu;

use crate::world::{HALF, LIMIT, World, post};

#[test]
fn traffic_goes_on_when_the_link_is_back() {
    let Some(w) = World::new(1, 1500) else { return };
    let [a, b] = &w.sides;
    let qps = w.queue_pairs(QpKind::Rc, |_| ());
    // Half a second a try, seven tries: far longer than the link is down.
    w.connect(&qps, [w.address(0), w.address(1)], |c| c.timeout = 17);
    w.write_and_compare(&qps, 0, HALF, 1);
    w.veth.ip(0, "link set sn0 down").unwrap();
    w.event(0, Event::PortErr);
    // The cable has no other end any more.
    w.event(1, Event::PortErr);
    assert!(!a.context.is_up() && !b.context.is_up());
    let data = a.fill(HALF, 2);
    post(&qps[0], 5, b.write_op(), Data::Gather(&[a.mr.sge(0, HALF)]));
    w.veth.ip(0, "link set sn0 up").unwrap();
    w.event(0, Event::PortActive);
    w.event(1, Event::PortActive);
    w.success(0, 5);
    assert!(b.received(HALF) == data);
    w.write_and_compare(&qps, 1, HALF, 3);
    assert_eq!((a.context.failure(), b.context.failure()), (None, None));
}

#[test]
fn a_link_that_is_down_uses_up_retries() {
    let Some(w) = World::new(1, 1500) else { return };
    let [a, b] = &w.sides;
    let qps = w.queue_pairs(QpKind::Rc, |_| ());
    // Eight milliseconds in all.
    w.connect(&qps, [w.address(0), w.address(1)], |c| (c.timeout, c.retry_cnt) = (8, 7));
    w.veth.ip(0, "link set sn0 down").unwrap();
    w.event(0, Event::PortErr);
    assert!(!a.context.is_up());
    post(&qps[0], 5, b.write_op(), Data::Gather(&[a.mr.sge(0, HALF)]));
    let done = w.completion(0);
    assert_eq!(
        (done.wr_id, done.status),
        (5, Status::RetryExcErr),
        "the program learns that its peer cannot be reached"
    );
    assert_eq!((a.context.counters().local_ack_timeout_err, a.context.failure()), (8, None));
}

#[test]
fn a_nic_that_waits_for_its_link_uses_up_no_retries() {
    let wait = || OpenOptions { link_down: LinkDown::Wait, ..OpenOptions::default() };
    let Some(w) = World::with(1, 1500, [wait(), wait()]) else { return };
    let [a, b] = &w.sides;
    let qps = w.queue_pairs(QpKind::Rc, |_| ());
    w.connect(&qps, [w.address(0), w.address(1)], |c| (c.timeout, c.retry_cnt) = (14, 1));
    w.veth.ip(0, "link set sn0 down").unwrap();
    w.event(0, Event::PortErr);
    w.event(1, Event::PortErr);
    post(&qps[0], 5, b.write_op(), Data::Gather(&[a.mr.sge(0, 100)]));
    let sent = a.context.counters().sent_pkts;
    // Three times as long as all retries take: nothing leaves, so no timer runs.
    let start = std::time::Instant::now();
    while start.elapsed() < std::time::Duration::from_millis(400) {
        w.progress();
        std::thread::yield_now();
    }
    let counters = a.context.counters();
    assert_eq!((counters.sent_pkts, counters.local_ack_timeout_err), (sent, 0));
    w.veth.ip(0, "link set sn0 up").unwrap();
    w.event(0, Event::PortActive);
    w.event(1, Event::PortActive);
    w.success(0, 5);
}

#[test]
fn the_mtu_of_the_interface_is_followed() {
    let Some(w) = World::new(1, 4200) else { return };
    let context = &w.sides[0].context;
    let follows = |mtu: u32, path_mtu: PathMtu| {
        w.veth.ip(0, &format!("link set sn0 mtu {mtu}")).unwrap();
        let start = std::time::Instant::now();
        while (context.port().mtu, context.link_mtu()) != (path_mtu, Some(mtu)) {
            assert!(start.elapsed() < LIMIT, "{:?} at MTU {mtu}", context.port().mtu);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    };
    assert_eq!(context.port().mtu, PathMtu::B4096);
    follows(1500, PathMtu::B1024);
    let path = context.path_to(w.address(1), 1).unwrap();
    assert_eq!(path.mtu, PathMtu::B1024, "new connections are made with it");
    follows(4200, PathMtu::B4096);
}

#[test]
fn an_address_that_is_added_later_can_be_used() {
    let Some(w) = World::new(1, 1500) else { return };
    let new: [IpAddr; 2] = [[10, 99, 0, 1].into(), [10, 99, 0, 2].into()];
    for (side, &new) in new.iter().enumerate() {
        assert!(!w.sides[side].context.addresses().contains(&new));
        let interface = w.veth.interface(side);
        w.veth.ip(side, &format!("address add {new}/24 dev {interface}")).unwrap();
        while !w.sides[side].context.addresses().contains(&new) {
            w.event(side, Event::GidChange);
        }
        assert_eq!(w.sides[side].context.addresses()[0], w.address(side), "those that were there keep their places");
    }
    let qps = w.queue_pairs(QpKind::Rc, |_| ());
    w.connect(&qps, new, |_| ());
    w.write_and_compare(&qps, 0, 10_000, 1);
    w.write_and_compare(&qps, 1, 10_000, 2);
}

#[test]
fn an_interface_that_is_removed_ends_in_errors_not_in_silence() {
    let Some(w) = World::new(1, 1500) else { return };
    let [a, b] = &w.sides;
    let qps = w.queue_pairs(QpKind::Rc, |_| ());
    w.connect(&qps, [w.address(0), w.address(1)], |_| ());
    w.write_and_compare(&qps, 0, 10_000, 1);
    // The peer's memory has no way to it any more, so this one is under way when the device goes.
    w.veth.ip(1, "link set sn1 down").unwrap();
    w.event(0, Event::PortErr);
    post(&qps[0], 4, b.write_op(), Data::Gather(&[a.mr.sge(0, 64)]));
    w.veth.ip(0, "link delete sn0").unwrap();
    for wr_id in [4, 5] {
        // Asleep, not polling: the NIC's own thread must bring it to an end.
        assert!(a.cq.wait(LIMIT).unwrap(), "WRITE {wr_id} does not end: {:?}", a.context.failure());
        let done = a.cq.poll_one().unwrap().unwrap();
        assert_eq!((done.wr_id, done.status), (wr_id, Status::WrFlushErr));
        assert_eq!(a.context.failure().as_deref(), Some("the interface sn0 is gone"));
        if wr_id == 4 {
            post(&qps[0], 5, b.write_op(), Data::Gather(&[a.mr.sge(0, 64)]));
        }
    }
}
