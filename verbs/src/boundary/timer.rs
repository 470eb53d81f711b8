//! Delayed actions of faults: one thread of the process, started with the first action.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Instant;

use softnic_runtime::api::spawn_own;

type Action = Box<dyn FnOnce() + Send>;

/// Actions by their times; those with equal times in the order of insertion.
#[derive(Default)]
struct Queue {
    actions: BTreeMap<(Instant, u64), Action>,
    next: u64,
    has_thread: bool,
}

/// Executes actions at their times.
#[derive(Default)]
pub(crate) struct Timer {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl Timer {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(|p| p.into_inner())
    }

    /// Calls `action` on the thread at this time, or a moment later.
    pub(crate) fn at(&'static self, when: Instant, action: impl FnOnce() + Send + 'static) {
        let mut queue = self.queue();
        let number = queue.next;
        queue.next += 1;
        queue.actions.insert((when, number), Box::new(action));
        if !queue.has_thread {
            // If the thread cannot be started, the action is dropped; the process is out of resources anyway.
            queue.has_thread = spawn_own("softnic-fault", || self.run()).is_ok();
        }
        self.changed.notify_one();
    }

    fn run(&self) {
        let mut queue = self.queue();
        loop {
            let now = Instant::now();
            let Some(&(when, number)) = queue.actions.keys().next() else {
                queue = self.changed.wait(queue).unwrap_or_else(|p| p.into_inner());
                continue;
            };
            if when > now {
                queue = self.changed.wait_timeout(queue, when - now).unwrap_or_else(|p| p.into_inner()).0;
                continue;
            }
            if let Some(action) = queue.actions.remove(&(when, number)) {
                drop(queue);
                action();
                queue = self.queue();
            }
        }
    }
}
