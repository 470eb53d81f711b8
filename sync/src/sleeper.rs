//! The flag of a thread that is about to sleep. A thread that publishes work reads the flag afterwards, and wakes the sleeper only if the
//! flag is set.
//!
//! Each side writes one location and then reads the other: the sleeper writes its flag and then reads the work, the waker writes the work
//! and then reads the flag. A full barrier between the two steps ensures that at least one side sees the other, so no work waits for a
//! sleeping thread.

use crate::primitives::{AtomicBool, Ordering, fence};

/// The flag; clear at first.
#[derive(Debug, Default)]
pub struct Sleeper {
    asleep: AtomicBool,
}

impl Sleeper {
    /// Sets the flag before a sleep. Afterwards the thread must look for work once more, and may sleep only if there is none.
    pub fn prepare(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Clears the flag: the thread is awake again.
    pub fn awake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Call after work is published: whether the sleeper must be woken. Returns true once per sleep.
    #[inline]
    pub fn must_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed)
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::primitives::Arc;
    use crate::ring::ring;

    /// The waker's eventfd is a flag here, set by the waking thread and read by a thread that would sleep forever.
    #[test]
    fn nobody_sleeps_on_work_that_is_there() {
        loom::model(|| {
            let shared = Arc::new((Sleeper::default(), AtomicBool::new(false)));
            let (mut p, mut c) = ring(2);
            let other = Arc::clone(&shared);
            let waker = loom::thread::spawn(move || {
                p.push(7).unwrap();
                if other.0.must_wake() {
                    other.1.store(true, Ordering::Release);
                }
            });
            shared.0.prepare();
            let found = !c.is_empty();
            waker.join().unwrap();
            // The thread found no work, so it sleeps. Then it was woken, or its eventfd is already set.
            assert!(found || shared.1.load(Ordering::Acquire), "it sleeps and nobody wakes it");
        });
    }
}
