//! The flag of a thread that is about to sleep: a thread that publishes work looks at the flag afterwards, and wakes the sleeper only then.
//!
//! Both sides write one thing and then read the other's: the sleeper its flag and then the work, the waker the work and then the flag. With
//! a full barrier between the two at least one of them sees the other, so no work waits for a thread that sleeps.

use crate::primitives::{AtomicBool, Ordering, fence};

/// The flag; down at first.
#[derive(Debug, Default)]
pub struct Sleeper {
    asleep: AtomicBool,
}

impl Sleeper {
    /// About to sleep: look for work once more, and sleep only if there is none.
    pub fn prepare(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Awake again.
    pub fn awake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// There is work, published before this: whether the sleeper must be woken. Says so once.
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

    /// The waker's eventfd is a flag here: set by whoever wakes, looked at by whoever would sleep for ever.
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
            // Found none, so it sleeps: then it was woken, or will find what it looks for in its eventfd.
            assert!(found || shared.1.load(Ordering::Acquire), "it sleeps and nobody wakes it");
        });
    }
}
