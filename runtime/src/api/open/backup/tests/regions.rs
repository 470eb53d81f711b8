//! Regions that come and go while the backup is used.

use softnic_nic::Buffer;

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
        let (from, mut to) = (a.pd.alloc_mr(SIZE, rights()).unwrap(), b.pd.alloc_mr(SIZE, rights()).unwrap());
        if n % 2 == 1 {
            // Before the backup has it, or while it gets it.
            to = registered_anew(to, None, Some(rights()));
        }
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

/// The region with other memory, or other rights, under its key.
fn registered_anew(region: MemoryRegion, buffer: Option<&Arc<Buffer>>, access: Option<Access>) -> MemoryRegion {
    let key = region.rkey();
    let region = region.reregister(None, buffer, access).unwrap_or_else(|(_, why)| panic!("{why}"));
    assert_eq!(region.rkey(), key);
    region
}

/// The peer knows the key at the backup from the first WRITE, and is told by a SEND when the region has changed.
pub(super) fn a_region_changes_while_the_backup_is_used(engines: usize, store: &Kv) {
    let world = World::with_stores(Progress::Inline, engines, [true, true], [store.clone(), store.clone()]);
    let [a, b] = world.connect();
    world.await_protection(1);
    world.set(0, LOSES);
    let write = |wr_id: u64, to: &MemoryRegion| {
        a.memory.write_at(0, &[wr_id as u8; SIZE]);
        post(&a, wr_id, SendOp::Write { remote_addr: to.addr(), rkey: to.rkey() }, &a.memory, 0);
        let done = completions(&world, &a.cqs[0], 1)[0];
        assert_eq!(done.wr_id, wr_id);
        let mut bytes = [0; SIZE];
        if !to.is_empty() {
            to.read_at(0, &mut bytes);
        }
        (done.status, bytes == [wr_id as u8; SIZE])
    };
    let (mut to, mut null) = (b.pd.alloc_mr(SIZE, rights()).unwrap(), b.pd.alloc_null_mr(rights()).unwrap());
    let lines = || world.lines.lock().unwrap().clone();
    assert_eq!(write(1, &to), (Status::Success, true), "{:?}", lines());
    assert_eq!(write(2, &null), (Status::Success, false), "{:?}", lines());
    assert_eq!([A, B].map(|host| world.moved(host).0), [1, 1]);
    for round in 3..=6 {
        if round == 4 {
            // A domain that the backup has not got either, and back.
            let elsewhere = world.contexts[B].alloc_pd();
            to = to.reregister(Some(&elsewhere), None, None).unwrap_or_else(|(_, why)| panic!("{why}"));
            to = to.reregister(Some(&b.pd), None, None).unwrap_or_else(|(_, why)| panic!("{why}"));
        }
        if round == 5 {
            null = registered_anew(null, Some(&Buffer::in_place(SIZE)), None);
        }
        to = registered_anew(to, Some(&Buffer::in_place(SIZE)), Some(rights()));
        let sges = [a.memory.sge(SIZE, SIZE)];
        a.qp.post_recv(&RecvWr { wr_id: round, sges: &sges, best_effort: None }).unwrap();
        post(&b, round, SendOp::Send, &b.memory, 0);
        assert_eq!(completions(&world, &a.cqs[1], 1)[0].status, Status::Success, "{:?}", lines());
        assert_eq!(write(round, &to), (Status::Success, true), "{:?}", lines());
        assert_eq!(write(round + 10, &null), (Status::Success, round >= 5), "{:?}", lines());
    }
    let to = registered_anew(to, None, Some(Access::LOCAL_WRITE));
    assert_eq!(write(20, &to), (Status::RemAccessErr, false));
    assert_eq!([A, B].map(|host| world.moved(host)), [(1, 0), (1, 0)]);
}

#[test]
fn a_region_that_is_registered_anew_while_the_backup_is_used_keeps_its_key_there() {
    for engines in [1, 2] {
        a_region_changes_while_the_backup_is_used(engines, &Kv::default());
    }
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
