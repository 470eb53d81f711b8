//! Two queues at both ends: frames of a queue pair come in at either, and reach the engine that has it.

use std::net::IpAddr;

use softnic_nic::transports::memory::{Access, Bind};
use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{Data, Event, SendFlags, SendOp, SendWr, Status};
use softnic_nic::{QpAttr, QpKind, WindowType};
use softnic_runtime::api::{MemoryRegion, MemoryWindow, QueuePair};

use crate::world::{HALF, World, post, send_wr};

#[test]
fn frames_that_come_in_at_the_other_engine_are_handed_over() {
    let Some(w) = World::new(2, 4200) else { return };
    let [a, b] = &w.sides;
    assert_eq!([a, b].map(|s| s.context.engines()), [2, 2]);
    // A frame leaves by the queue of its engine and comes in at the same queue of the peer. So a pair whose ends are at different
    // engines has all its frames handed over, both ways; the upper bit of a number tells the engine.
    let engine = |qp: &QueuePair| qp.qpn().value() >> 23;
    let mut seen = [[0; 2]; 2];
    for round in 0..8u8 {
        let mut qps = w.queue_pairs(QpKind::Rc, |_| ());
        if round % 2 == 1 {
            // Engines take turns: the next one there is at the other engine.
            let [_, other] = w.queue_pairs(QpKind::Rc, |_| ());
            qps[1] = other;
        }
        seen[engine(&qps[0]) as usize][engine(&qps[1]) as usize] += 1;
        w.connect(&qps, [w.address(0), w.address(1)], |_| ());
        w.write_and_compare(&qps, 0, HALF, round);
        w.write_and_compare(&qps, 1, 100_000, round);
        b.post_recv(&qps[1], 77, 64);
        post(&qps[0], 78, SendOp::Send, Data::Gather(&[a.mr.sge(0, 64)]));
        w.success(1, 77);
        w.success(0, 78);
    }
    assert!(seen.iter().all(|to| to[0] + to[1] > 0), "both engines send: {seen:?}");
    assert!(seen[0][1] + seen[1][0] > 0, "some frames come in at the other engine: {seen:?}");
    for side in &w.sides {
        assert_eq!(side.context.counters().rx_bad_qp, 0, "no engine saw a frame of another's");
    }
}

#[test]
fn a_group_is_heard_at_whichever_engine_the_member_is() {
    let Some(w) = World::new(2, 1500) else { return };
    let [a, b] = &w.sides;
    let group: IpAddr = [239, 7, 7, 7].into();
    // Four members: engines take turns, so two at each.
    let members: Vec<_> = (0..4).map(|_| w.queue_pairs(QpKind::Ud, |_| ())[1].clone()).collect();
    for member in &members {
        member.open_datagrams(9).unwrap();
        w.veth.inside(1, || member.attach_multicast(group)).unwrap();
    }
    let senders: Vec<_> = (0..2).map(|_| w.queue_pairs(QpKind::Ud, |_| ())[0].clone()).collect();
    for (i, sender) in senders.iter().enumerate() {
        sender.open_datagrams(9).unwrap();
        let path = a.context.path_to(group, i as u32).unwrap();
        let ah = a.pd.create_ah(&path).unwrap();
        let data = a.fill(100, i as u8);
        members.iter().for_each(|member| b.post_recv(member, 1, 140));
        let sge = [a.mr.sge(0, 100)];
        let to = Some(ah.to(softnic_wire::Qpn::MULTICAST, 9));
        sender.post_send(&SendWr { to, ..send_wr(2, SendOp::Send, Data::Gather(&sge)) }).unwrap();
        w.success(0, 2);
        let mut heard: Vec<_> = members.iter().map(|_| w.success(1, 1).qpn).collect();
        heard.sort_unstable();
        heard.dedup();
        assert_eq!(heard.len(), members.len(), "each member once");
        assert!(b.received(140)[40..] == data);
    }
}

#[test]
fn what_happens_to_the_port_is_told_once_for_all_engines() {
    let Some(w) = World::new(2, 1500) else { return };
    w.veth.ip(0, "link set sn0 down").unwrap();
    w.event(0, Event::PortErr);
    w.veth.ip(0, "link set sn0 up").unwrap();
    let mut events = Vec::new();
    let start = std::time::Instant::now();
    while !events.contains(&Event::PortActive) {
        events.extend(w.sides[0].context.poll_event());
        assert!(start.elapsed() < crate::world::LIMIT, "{events:?}");
        std::thread::yield_now();
    }
    assert!(!events.contains(&Event::PortErr), "{events:?}");
}

const SIGNALED: SendFlags = SendFlags { signaled: true, solicited: false, fence: false };

/// Connections of which each engine has one, a window of type 1 at their second end, and the work request that binds it.
struct Bound {
    pairs: [[QueuePair; 2]; 2],
    mr: MemoryRegion,
    window: MemoryWindow,
    bind: Bind,
}

impl Bound {
    fn new(w: &World) -> Bound {
        // Engines take turns, so there is one of each.
        let pairs = [(); 2].map(|()| {
            let qps = w.queue_pairs(QpKind::Rc, |_| ());
            w.connect(&qps, [w.address(0), w.address(1)], |_| ());
            qps
        });
        let pd = &w.sides[1].pd;
        let mr = pd.alloc_mr(4096, Access::LOCAL_WRITE | Access::MW_BIND).unwrap();
        let window = pd.alloc_mw(WindowType::Type1).unwrap();
        let access = Access::REMOTE_WRITE;
        let (lkey, addr) = (mr.lkey(), mr.addr());
        let bind = Bind { window: window.key(), rkey: 0, lkey, addr, len: 64, access, zero_based: false };
        Bound { pairs, mr, window, bind }
    }
}

#[test]
fn a_window_of_type_1_is_known_to_all_engines() {
    let Some(w) = World::new(2, 1500) else { return };
    let a = &w.sides[0];
    let Bound { pairs, mr, window: _window, mut bind } = Bound::new(&w);
    for round in 0..4u8 {
        let rkey = pairs[usize::from(round % 2)][1].bind_mw(5, &bind, SIGNALED).unwrap();
        w.success(1, 5);
        for [from, _] in &pairs {
            let data = a.fill(64, round);
            post(from, 6, SendOp::Write { remote_addr: mr.addr(), rkey }, Data::Gather(&[a.mr.sge(0, 64)]));
            w.success(0, 6);
            let mut got = [0; 64];
            mr.read_at(0, &mut got);
            assert_eq!(got[..], data[..], "round {round}");
        }
        bind.window = rkey;
    }
    // Bound to nothing: no engine takes it any more.
    let old = bind.window;
    pairs[0][1].bind_mw(7, &Bind { len: 0, ..bind }, SIGNALED).unwrap();
    w.success(1, 7);
    for [from, _] in &pairs {
        let op = SendOp::Write { remote_addr: mr.addr(), rkey: old };
        post(from, 8, op, Data::Gather(&[a.mr.sge(0, 8)]));
        assert_eq!(w.completion(0).status, Status::RemAccessErr);
    }
}

#[test]
fn a_bind_that_is_flushed_leaves_the_window_as_it_was_at_all_engines() {
    let Some(w) = World::new(2, 1500) else { return };
    let a = &w.sides[0];
    let Bound { pairs, mr, window: _window, bind } = Bound::new(&w);
    let rkey = pairs[0][1].bind_mw(5, &bind, SIGNALED).unwrap();
    w.success(1, 5);
    // Posted to a queue pair that is in error, at either engine.
    for _ in 0..2 {
        let [_, ended] = w.queue_pairs(QpKind::Rc, |_| ());
        ended.modify(&QpAttr { state: Some(QpState::Error), ..QpAttr::default() }).unwrap();
        let elsewhere = Bind { window: rkey, addr: mr.addr() + 1000, ..bind };
        assert_ne!(ended.bind_mw(6, &elsewhere, SIGNALED).unwrap(), rkey);
        assert_eq!(w.completion(1).status, Status::WrFlushErr);
        for [from, _] in &pairs {
            let op = SendOp::Write { remote_addr: mr.addr(), rkey };
            post(from, 7, op, Data::Gather(&[a.mr.sge(0, 64)]));
            w.success(0, 7);
        }
    }
}
