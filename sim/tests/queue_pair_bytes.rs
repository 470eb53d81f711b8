//! What a connected queue pair takes of memory, by every allocation: not less than the sizes that `StateSize` tells, and not much more.
#![allow(clippy::print_stdout)] // what it prints is in docs/optinic.md

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use softnic_nic::QpInit;
use softnic_nic::transports::negotiation::Choice;
use softnic_nic::transports::qp::Caps;
use softnic_nic::transports::{StateSize, Transport};
use softnic_sim::topology::{Connecting, Network, Topology};

/// Counts the bytes that the thread has allocated and not given back.
struct Counting;

thread_local! {
    static BYTES: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // A thread that is ending has no counter any more; it is not the one that measures.
    let _ = BYTES.try_with(|n| n.set(n.get() + bytes));
}

#[allow(unsafe_code)]
// SAFETY: everything is handed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Connections; a power of two, so that tables that grow by doubling are as full as they are before.
const PAIRS: usize = 1024;

/// Bytes of one of many connected queue pairs with room for one work request in each queue.
fn allocated(transport: Transport) -> f64 {
    let star = Topology::of_network("kind = \"star\"\nhosts = 2\nrate = \"25Gbit\"").unwrap();
    let mut network = Network::new(&star, 1).unwrap();
    let caps = Caps { max_send_wr: 1, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
    let ends = [0, 1].map(|host| {
        let nic = network.nic(host);
        (nic.alloc_pd(), nic.create_cq(16))
    });
    let mut made = Vec::with_capacity(2 * PAIRS);
    let mut add = |network: &mut Network<'_>, pairs: usize| {
        for _ in 0..pairs {
            let qpns = [0, 1].map(|host| {
                let (pd, cq) = ends[host];
                let init = QpInit { transport, ..QpInit::new(transport.kind(), pd, cq, cq, caps) };
                network.nic(host).create_qp(&init).unwrap()
            });
            network.connect([0, 1], qpns, &Connecting::default()).unwrap();
            made.push(qpns);
            network.touch(0);
            network.touch(1);
            for host in [0, 1] {
                while network.nic(host).choice(qpns[host]) == Some(Choice::Waiting) {
                    network.step().unwrap().expect("they agree");
                }
            }
        }
        BYTES.with(Cell::get)
    };
    let before = add(&mut network, PAIRS);
    let after = add(&mut network, PAIRS);
    (after - before) as f64 / (2 * PAIRS) as f64
}

#[test]
fn what_is_told_of_the_state_of_a_queue_pair_is_what_is_allocated() {
    for name in ["rc", "sr", "lowar:32,1", "xp", "uc"] {
        let transport: Transport = name.parse().unwrap();
        let (told, allocated) = (StateSize::of(transport), allocated(transport));
        println!("{name}: {} bytes of state, {} in all, {allocated:.0} allocated", told.state(), told.all());
        let beyond = allocated - told.all() as f64;
        // Rings, and what the NIC's tables and timers have of each; of LoWAR buffers of repair packets, of SR what a window of 16384 packets
        // needs.
        let most = match name {
            "sr" => 200_000.0,
            "lowar:32,1" => 60_000.0,
            _ => 6_000.0,
        };
        assert!((0.0..most).contains(&beyond), "{name}: {told:?}, {allocated}");
    }
}
