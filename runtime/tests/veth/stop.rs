//! Closing a NIC leaves nothing behind.

use std::time::{Duration, Instant};

use softnic_nic::QpKind;
use softnic_runtime::api::{OpenOptions, Progress};

use crate::peer;
use crate::veth::Veth;
use crate::world::{LIMIT, World};

/// Those of a NIC with two queues: two engines, one that follows the kernel, one that answers `softnic counters`.
const THREADS: usize = 4;

/// The threads of this process that belong to a NIC.
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    // A thread that ends meanwhile has no name any more.
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("softnic-")).map(|name| name.trim().to_string()).collect()
}

fn comes_true(condition: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > LIMIT {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

/// The body of a process of its own: other tests of this binary have NICs open at the same time.
pub(crate) fn open_and_close() -> String {
    for progress in [Progress::Inline, Progress::Dedicated] {
        let options = OpenOptions { progress: Some(progress), ..OpenOptions::default() };
        for round in 0..30 {
            let Some(w) = World::with(2, 1500, [options.clone(), options.clone()]) else { return "left out".into() };
            let qps = w.connected(QpKind::Rc, None);
            // Threads are awake, about to sleep, or asleep when they are told to end.
            w.write_and_compare(&qps, 0, 1000, round);
            std::thread::sleep(Duration::from_micros(u64::from(round) * 10));
            // A thread has its name only once it ran, and one that was joined is in the list for a moment.
            if !comes_true(|| threads().len() == 2 * THREADS) {
                return format!("threads while open: {:?}", threads());
            }
            let World { sides, veth } = w;
            drop((qps, sides));
            if !comes_true(|| threads().is_empty()) {
                return format!("threads after it was closed: {:?}", threads());
            }
            (0..2).for_each(|side| veth.await_no_program(side));
        }
    }
    "clean".into()
}

#[test]
fn no_thread_and_no_program_is_left() {
    let Some(_) = Veth::new(1, 1500) else { return };
    assert_eq!(peer::start("", "stop").said, "clean");
}
