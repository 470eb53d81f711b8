//! A NIC's thread that sleeps and is woken allocates no memory: it sleeps between any two packets of a program that does not poll.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use softnic_nic::QpKind;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::{Data, SendFlags, SendOp, SendWr};
use softnic_runtime::api::{Connection, Context, OpenOptions, Progress, QpOptions};
use softnic_wire::Psn;

/// Counts the allocations of all threads.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

#[allow(unsafe_code)]
// SAFETY: everything is handed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
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

/// Some come before those that count, so that what grows with use has grown.
const BEFORE: u64 = 50;
const COUNTED: u64 = 200;

#[test]
fn threads_that_sleep_between_packets_allocate_nothing() {
    let options = OpenOptions { progress: Some(Progress::Inline), ..OpenOptions::default() };
    let contexts = Context::open_pair([&options; 2]).unwrap();
    let ends = contexts.map(|context| {
        let cq = context.create_cq(16).unwrap();
        let pd = context.alloc_pd();
        let mr = pd.alloc_mr(4096, Access::LOCAL_WRITE | Access::REMOTE).unwrap();
        let qp = pd.create_qp(&QpOptions::new(QpKind::Rc, &cq)).unwrap();
        (context, cq, mr, qp)
    });
    for (me, peer) in [(0, 1), (1, 0)] {
        // The peer's own thread answers who it is.
        let path = ends[me].0.path_to(ends[peer].0.addresses()[0], 7).unwrap();
        ends[me].3.connect(&Connection::new(path, ends[peer].3.qpn(), Psn::new(0), Psn::new(0))).unwrap();
    }
    let [(_, cq, mr, qp), (_, _, to, _)] = &ends;
    let carry = |n| {
        let data = [mr.sge(0, 4096)];
        let op = SendOp::Write { remote_addr: to.addr(), rkey: to.rkey() };
        let (data, flags) = (Data::Gather(&data), SendFlags::default());
        qp.post_send(&SendWr { wr_id: n, op, data, flags, best_effort: None, to: None }).unwrap();
        // Nobody polls: both NICs' threads are woken, work, and sleep again.
        while cq.poll_one().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    (0..BEFORE).for_each(carry);
    // Something may still grow once, and a port announces itself in its first seconds: what a sleep costs is there in every row.
    let row = || {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        (0..COUNTED).for_each(carry);
        ALLOCATIONS.load(Ordering::Relaxed) - before
    };
    let rows: Vec<_> = (0..5).map(|_| row()).collect();
    assert!(rows.iter().any(|&more| more < COUNTED / 10), "allocations of {COUNTED} messages each: {rows:?}");
}
