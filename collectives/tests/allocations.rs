//! No step of a collective costs an allocation: not in the core, not in the adapter, not in the transports below.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use softnic_collectives::call::{Algorithm, Call, Element, Operation, Reduction};
use softnic_collectives::member::MemberSettings;
use softnic_collectives::plan::Plan;
use softnic_collectives::simulated::{Cluster, GroupConfig};
use softnic_sim::Cc;
use softnic_sim::topology::Kind;

use super::simulated::network;

/// Counts the allocations of the thread that asks for them, so that other tests do not disturb.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

#[allow(unsafe_code)]
// SAFETY: everything is handed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is ending has no counter any more; it is not the one that measures.
        let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Allocations of the sixth time of a call: plans are made, and memory has grown to what it needs.
fn allocations(call: &Call, ranks: usize, transport: &str) -> u64 {
    let topology = network(Kind::Star { hosts: ranks }, "");
    let mut cluster = Cluster::new(&topology, 1).unwrap();
    let config = GroupConfig {
        hosts: (0..ranks).collect(),
        transport: transport.parse().unwrap(),
        stride: 1,
        cc: Cc::None,
        timeout: None,
        calls: vec![*call],
        member: MemberSettings::default(),
    };
    let group = cluster.add_group(config).unwrap();
    for round in 0..5 {
        cluster.run(&[(group, *call)], round == 0, &|| false).unwrap();
    }
    let before = ALLOCATIONS.with(Cell::get);
    let outcomes = cluster.run(&[(group, *call)], false, &|| false).unwrap();
    let counted = ALLOCATIONS.with(Cell::get) - before;
    assert!(outcomes[0].iter().all(|(outcome, _)| outcome.losses.is_empty()));
    counted
}

#[test]
fn steps_allocate_nothing() {
    for (algorithm, operation) in [
        (Algorithm::Ring, Operation::Broadcast { root: 0 }),
        (Algorithm::Tree, Operation::AllReduce),
        (Algorithm::Ring, Operation::AllReduce),
        (Algorithm::Bcube, Operation::AllReduce),
    ] {
        for transport in ["rc", "sr", "xp"] {
            let call = |bytes| Call { operation, algorithm, element: Element::F32, reduction: Reduction::Sum, bytes };
            let steps = |call: &Call, ranks| -> usize {
                (0..ranks).map(|rank| Plan::new(call, ranks, rank, true).unwrap().steps.len()).sum()
            };
            // Of chains and trees larger buffers have more pieces; of rings and grids larger groups have more steps.
            let pieces = algorithm == Algorithm::Tree || operation != Operation::AllReduce;
            let [few, many] = if pieces { [(20_000, 6), (4_000_000, 6)] } else { [(40_000, 2), (40_000, 12)] };
            let [(small, a), (large, b)] = [few, many]
                .map(|(bytes, ranks)| (allocations(&call(bytes), ranks, transport), steps(&call(bytes), ranks)));
            assert!(b >= 3 * a && b > a + 30, "{a} and {b} steps tell nothing");
            // What each rank's outcome is collected in, and what a queue of the simulator may still double.
            assert!(small <= 12 && large <= 12, "{algorithm} {transport}: {small} for {a} steps, {large} for {b}");
        }
    }
}
