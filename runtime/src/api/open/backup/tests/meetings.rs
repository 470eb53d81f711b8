//! Queue pairs that find their backups in whatever order programs connect them.

use std::sync::Barrier;

use super::*;

/// Two connections whose ends are connected in opposite orders: A has done with the first when B has done with the second. One by one, in the
/// order of their lists, A's backup would wait for B's first queue pair and B's for A's second, for ever (SHIFT, appendix B.1).
fn connect_in_opposite_orders(world: &World, in_between: impl FnOnce()) -> [[End; 2]; 2] {
    let pairs = [0, 1].map(|_| [A, B].map(|host| world.end(host, rights())));
    let connect = |host: usize, pair: usize| world.connect_end(host, &pairs[pair], false, rights());
    connect(A, 0);
    connect(B, 1);
    in_between();
    connect(A, 1);
    connect(B, 0);
    pairs
}

fn assert_both_fail_over(world: &World, pairs: [[End; 2]; 2]) {
    world.await_protection(2);
    let mut flows = pairs.map(|ends| Flow::between(world, ends, Work::Send));
    flows.iter_mut().for_each(|flow| flow.more(20));
    world.set(0, LOSES);
    flows.iter_mut().for_each(|flow| flow.more(50));
    assert!(world.moved(A).0 >= 2, "{:?}", world.counters());
}

#[test]
fn queue_pairs_that_are_connected_in_opposite_orders_do_not_wait_for_each_other() {
    for progress in [Progress::Inline, Progress::Dedicated] {
        let world = World::new(progress, 1, [true, true]);
        let answered = |context: &Context| context.counters().rcvd_pkts >= 2;
        let pairs = connect_in_opposite_orders(&world, || {
            // Each has asked for the one that the other has not got to, and was told to ask again.
            world.until("questions and answers", || world.contexts.iter().all(answered));
            assert!(world.counters().iter().all(|&[protected, ..]| protected == 0), "{:?}", world.counters());
        });
        assert_both_fail_over(&world, pairs);
    }
}

#[test]
fn two_threads_of_each_host_connect_two_queue_pairs_at_once() {
    let world = World::new(Progress::Dedicated, 1, [true, true]);
    for _ in 0..10 {
        let pairs = [0, 1].map(|_| [A, B].map(|host| world.end(host, rights())));
        let before = world.counters().map(|[protected, ..]| protected);
        let (barrier, world) = (Barrier::new(4), &world);
        std::thread::scope(|scope| {
            for (host, pair) in [(A, 0), (A, 1), (B, 1), (B, 0)] {
                let (barrier, ends) = (&barrier, &pairs[pair]);
                scope.spawn(move || {
                    barrier.wait();
                    world.connect_end(host, ends, false, rights());
                });
            }
        });
        world.until("protection", || {
            world.counters().iter().zip(before).all(|(&[protected, ..], before)| protected == before + 2)
        });
    }
}
