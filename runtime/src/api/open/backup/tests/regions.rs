//! Regions that come and go while the backup is used.

use super::*;

#[test]
fn a_region_is_used_right_behind_its_registration_while_the_backup_is_used() {
    let world = World::new(Progress::Inline, 1, [true, true]);
    let mut flow = Flow::new(&world, Work::Write);
    world.await_protection(1);
    flow.more(20);
    world.set(0, LOSES);
    flow.until("fallback", |flow| flow.world.moved(A).0 >= 1);
    let all = flow.posted;
    flow.until("the rest", |flow| flow.done >= all);
    let [a, b] = &flow.ends;
    // What the program has outstanding goes first.
    let left = (flow.posted - flow.done) as usize;
    completions(&world, &a.cqs[0], left);
    for n in 0..10u8 {
        let (from, to) = (a.pd.alloc_mr(SIZE, rights()).unwrap(), b.pd.alloc_mr(SIZE, rights()).unwrap());
        from.write_at(0, &[n; SIZE]);
        post(a, n.into(), SendOp::Write { remote_addr: to.addr(), rkey: to.rkey() }, &from, 0);
        let done = completions(&world, &a.cqs[0], 1)[0];
        assert_eq!((done.wr_id, done.status), (n.into(), Status::Success));
        let mut bytes = [0; SIZE];
        to.read_at(0, &mut bytes);
        assert_eq!(bytes, [n; SIZE]);
    }
}

#[test]
fn a_region_that_is_deregistered_is_refused_by_the_backup() {
    let world = World::new(Progress::Inline, 1, [true, true]);
    let mut flow = Flow::new(&world, Work::Write);
    world.await_protection(1);
    flow.more(20);
    world.set(0, LOSES);
    flow.until("fallback", |flow| flow.world.moved(A).0 >= 1);
    let [a, b] = &flow.ends;
    let left = (flow.posted - flow.done) as usize;
    completions(&world, &a.cqs[0], left);
    let to = b.pd.alloc_mr(SIZE, rights()).unwrap();
    let op = SendOp::Write { remote_addr: to.addr(), rkey: to.rkey() };
    post(a, 1, op, &a.memory, 0);
    assert_eq!(completions(&world, &a.cqs[0], 1)[0].status, Status::Success);
    to.deregister().unwrap();
    post(a, 2, op, &a.memory, 0);
    let refused = completions(&world, &a.cqs[0], 1)[0];
    assert_eq!((refused.wr_id, refused.status), (2, Status::RemAccessErr));
}

/// A region that the peer registers anew, under its key, between two failures; the two have these stores.
pub(super) fn a_region_changes_between_failures(stores: [Kv; 2]) {
    let world = World::with_stores(Progress::Inline, 1, [true, true], stores);
    let [a, b] = world.connect();
    world.await_protection(1);
    let mut to = b.pd.alloc_mr(SIZE, rights()).unwrap();
    for round in 1..=3u8 {
        world.set(0, LOSES);
        a.memory.write_at(0, &[round; SIZE]);
        post(&a, round.into(), SendOp::Write { remote_addr: to.addr(), rkey: to.rkey() }, &a.memory, 0);
        let done = completions(&world, &a.cqs[0], 1)[0];
        assert_eq!((done.wr_id, done.status), (round.into(), Status::Success), "{:?}", world.lines.lock().unwrap());
        let mut bytes = [0; SIZE];
        to.read_at(0, &mut bytes);
        assert_eq!(bytes, [round; SIZE]);
        world.set(0, WHOLE);
        world.until("return", || world.moved(A).1 >= round.into() && world.moved(B).1 >= round.into());
        let key = to.rkey();
        to = to.reregister(None, None, Some(rights())).unwrap_or_else(|(_, why)| panic!("{why}"));
        assert_eq!(to.rkey(), key);
    }
}

#[test]
fn a_region_that_is_registered_anew_under_its_key_is_found_after_the_next_failure() {
    a_region_changes_between_failures(Default::default());
}
