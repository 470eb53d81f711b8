//! Connections that go on by the backup, and return.

use super::*;

fn goes_on_and_returns(work: Work, progress: Progress, engines: usize) {
    let world = World::new(progress, engines, [true, true]);
    let mut flow = Flow::new(&world, work);
    world.await_protection(1);
    flow.more(100);
    world.set(0, LOSES);
    flow.until("fallback", |flow| flow.world.moved(A).0 >= 1);
    flow.more(100);
    assert_eq!(flow.ends[A].qp.state(), QpState::ReadyToSend);
    world.set(0, WHOLE);
    flow.until("return", |flow| flow.world.moved(A).1 >= 1);
    flow.more(100);
    let own = flow.ends[A].qp.qpn();
    let mut events = Vec::new();
    world.until("events", || {
        events.extend(world.events(A));
        events.len() >= 2
    });
    assert!(events.iter().all(|&event| event == Event::PathMig(own)), "{events:?}");
    for line in ["goes on by its backup", "is back from its backup"] {
        world.until(line, || world.lines.lock().unwrap().iter().any(|said| said.contains(line)));
    }
}

#[test]
fn sends_go_on_by_the_backup_and_return() {
    goes_on_and_returns(Work::Send, Progress::Inline, 1);
    goes_on_and_returns(Work::Send, Progress::Dedicated, 1);
}

#[test]
fn writes_to_a_target_that_never_polls_go_on_by_the_backup_and_return() {
    goes_on_and_returns(Work::Write, Progress::Inline, 1);
}

#[test]
fn reads_from_a_target_that_never_polls_go_on_by_the_backup_and_return() {
    goes_on_and_returns(Work::Read, Progress::Inline, 1);
}

#[test]
fn a_target_that_is_never_ready_to_send_has_a_backup_and_may_become_ready_later() {
    let all = [(Work::Send, Access::NONE), (Work::Write, Access::REMOTE_WRITE), (Work::Read, Access::REMOTE_READ)];
    for (work, access) in all {
        let world = World::new(Progress::Inline, 1, [true, true]);
        let mut flow = Flow::between(&world, world.connect_as(true, access), work);
        world.await_protection(1);
        flow.more(50);
        for round in 1..=2 {
            world.set(0, LOSES);
            flow.until("fallback", |flow| flow.world.moved(A).0 >= round);
            flow.more(50);
            assert_eq!(flow.ends[B].qp.state(), QpState::ReadyToReceive);
            assert_eq!(flow.ends[B].qp.query().state, Some(QpState::ReadyToReceive));
            world.set(0, WHOLE);
            flow.until("return", |flow| flow.world.moved(A).1 >= round);
            flow.more(50);
            assert_eq!(flow.ends[B].qp.state(), QpState::ReadyToReceive);
        }
        let peer = world.contexts[A].addresses()[0];
        let (a, b) = (&flow.ends[A], &flow.ends[B]);
        let path = world.contexts[B].path_to(peer, b.qp.qpn().value()).unwrap();
        let connection = Connection::new(path, a.qp.qpn(), Psn::new(7), Psn::new(7));
        b.qp.modify(&world.attributes(B, &connection)[2]).unwrap();
        assert_eq!(b.qp.state(), QpState::ReadyToSend);
        a.qp.post_recv(&RecvWr { wr_id: 0, sges: &[a.memory.sge(0, SIZE)], best_effort: None }).unwrap();
        post(b, 99, SendOp::Send, &b.memory, 0);
        let done = completions(&world, &b.cqs[0], 1)[0];
        assert_eq!((done.wr_id, done.status), (99, Status::Success));
        // And is said to be ready to send from now on, wherever its connection is.
        world.set(0, LOSES);
        flow.until("fallback", |flow| flow.world.moved(A).0 >= 3);
        assert_eq!(flow.ends[B].qp.query().state, Some(QpState::ReadyToSend));
    }
}

#[test]
fn every_engine_has_its_backup() {
    let world = World::new(Progress::Inline, 2, [true, true]);
    let mut flows = [Work::Send, Work::Write, Work::Read].map(|work| Flow::new(&world, work));
    // Each host has an engine with two of the three.
    world.await_protection(3);
    flows.iter_mut().for_each(|flow| flow.more(50));
    world.set(0, LOSES);
    flows.iter_mut().for_each(|flow| flow.more(50));
    assert!(world.moved(A).0 >= 3, "{:?}", world.counters());
    world.set(0, WHOLE);
    flows.iter_mut().for_each(|flow| flow.more(50));
}
