//! Neither encoding nor decoding allocates: both run while packets wait.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::{Message, Random};
use softnic_codes::{ChunkSet, Code, Family};

/// Counts the allocations of the thread that asks for them, so that the test harness does not disturb.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

#[allow(unsafe_code)]
// SAFETY: everything is handed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
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

#[test]
fn codes_do_not_allocate() {
    for family in [Family::Mds, Family::Xor] {
        let code = Code::new(family, 32, 8).unwrap();
        let mut message = Message::new(code, Random(1).bytes(32 * 1000 - 7), 1000, 8);
        let mut rows: Vec<(usize, Vec<u8>)> = message.parities.iter().cloned().enumerate().collect();
        let lost: ChunkSet = [0, 9, 31].into_iter().collect();
        let before = ALLOCATIONS.get();
        code.encode(&message.data, 1000, &mut message.parities);
        code.add(5, &message.data[5000..8000], 1000, &mut message.parities);
        let present = ChunkSet::below(32).without(&lost);
        assert!(code.can_recover(32, &present, &ChunkSet::below(8)));
        assert_eq!(code.decode(&mut message.data, 1000, &present, &rows), Ok(3));
        rows.clear();
        assert_eq!(ALLOCATIONS.get(), before, "{code}");
    }
}
