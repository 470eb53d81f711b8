//! Connections that end: both wires are cut, or the program destroys them in the middle.

use super::*;

#[test]
fn a_backend_that_fails_for_good_is_no_reason_to_end_before_the_backup_fails() {
    let world = World::new(Progress::Inline, 1, [true, true]);
    let mut flow = Flow::new(&world, Work::Send);
    world.await_protection(1);
    flow.more(50);
    world.switches[0][A].set(FAILS);
    flow.until("fallback", |flow| flow.world.moved(A).0 >= 1);
    flow.more(50);
    assert_eq!(world.contexts[A].failure(), None);
    assert!(world.contexts[A].is_up());
    let events = world.events(A);
    assert!(!events.contains(&Event::PortErr), "{events:?}");
    world.until("the line", || world.lines.lock().unwrap().iter().any(|line| line.contains("is gone")));
    world.switches[1][A].set(FAILS);
    world.until("the end", || world.contexts[A].failure().is_some());
    assert_eq!(flow.last().last().map(|done| done.status), Some(Status::WrFlushErr));
    assert_eq!(flow.ends[A].qp.state(), QpState::Error);
    assert!(world.contexts[A].failure().is_some() && !world.contexts[A].is_up());
    assert!(world.events(A).contains(&Event::PortErr));
}

#[test]
fn work_ends_in_errors_in_order_and_once_when_both_wires_are_cut() {
    let world = World::new(Progress::Inline, 1, [true, true]);
    let mut flow = Flow::new(&world, Work::Write);
    world.await_protection(1);
    flow.more(50);
    world.set(0, LOSES);
    world.set(1, LOSES);
    let all = flow.last();
    let (posted, a) = (flow.posted, &flow.ends[A]);
    let failed: Vec<Status> = all.iter().map(|done| done.status).filter(|&s| s != Status::Success).collect();
    assert_eq!(failed.first(), Some(&Status::RetryExcErr), "{failed:?}");
    assert!(failed[1..].iter().all(|&status| status == Status::WrFlushErr), "{failed:?}");
    assert_eq!(a.qp.state(), QpState::Error);
    // What is posted afterwards is flushed, too.
    post(a, posted, SendOp::Send, &a.memory, 0);
    let last = completions(&world, &a.cqs[0], 1)[0];
    assert_eq!((last.wr_id, last.status), (posted, Status::WrFlushErr));
    world.until("the event", || world.events(A).contains(&Event::PathMigErr(a.qp.qpn())));
}

#[test]
fn a_queue_pair_is_destroyed_in_the_middle_of_a_failure() {
    for wait in [false, true] {
        let world = World::new(Progress::Inline, 1, [true, true]);
        let mut flow = Flow::new(&world, Work::Send);
        world.await_protection(1);
        flow.more(20);
        world.set(0, LOSES);
        if wait {
            flow.until("fallback", |flow| flow.world.moved(A).0 >= 1);
        }
        let [a, b] = flow.ends;
        drop(a);
        // The other one's next send finds nobody.
        post(&b, 1, SendOp::Send, &b.memory, 0);
        let ended = completions(&world, &b.cqs[0], 1)[0];
        assert_eq!((ended.wr_id, ended.status), (1, Status::RetryExcErr));
        drop(b);
        world.set(0, WHOLE);
        // New ones work as ever.
        Flow::new(&world, Work::Write).more(20);
    }
}
