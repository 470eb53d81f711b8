//! The scheduling class of an engine's own thread.
#![allow(unsafe_code)]

/// The scheduling class of the calling thread. A thread starts in the ordinary class.
///
/// Where programs spin on all cores, the fair scheduler makes a sleeping thread wait for milliseconds after its wake-up. So a watching
/// thread sleeps in the real-time class, at the lowest priority, where the system permits that (CAP_SYS_NICE, or a limit `ulimit -r`). No
/// other thread can use its core while it runs. So a thread that keeps running returns to the ordinary class: the program for which it runs
/// the engine may be waiting for that core.
pub(super) struct Priority {
    is_raised: bool,
    is_permitted: bool,
}

impl Priority {
    pub(super) fn ordinary() -> Priority {
        Priority { is_raised: false, is_permitted: true }
    }

    pub(super) fn is_raised(&self) -> bool {
        self.is_raised
    }

    /// Enters the real-time class, where that is permitted. Threads and processes started by this thread do not inherit it.
    pub(super) fn raise(&mut self) {
        if !self.is_raised && self.is_permitted {
            self.is_permitted = set(libc::SCHED_FIFO, 1);
            self.is_raised = self.is_permitted;
        }
    }

    /// Returns to the ordinary class.
    pub(super) fn lower(&mut self) {
        if self.is_raised {
            self.is_raised = !set(libc::SCHED_OTHER, 0);
        }
    }
}

/// Sets the class of the calling thread; returns whether that was permitted.
fn set(policy: i32, priority: i32) -> bool {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the parameters are valid for the call, which affects only the calling thread.
    unsafe { libc::sched_setscheduler(0, policy | libc::SCHED_RESET_ON_FORK, &parameters) == 0 }
}
