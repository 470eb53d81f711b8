//! The scheduling class of an engine's own thread.
#![allow(unsafe_code)]

/// The class that the calling thread is in. It begins in the one of every thread.
///
/// Where programs spin on all cores the fair scheduler lets a thread that sleeps wait for milliseconds, so a thread that watches sleeps in
/// real time, at the lowest priority, where the system permits that (CAP_SYS_NICE, or a limit `ulimit -r`). No other thread has its core then,
/// so a thread that goes on running goes back among the others: the program, which it runs the engine for, may be waiting for that core.
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

    /// Real time, where it is permitted. Threads and processes that the thread starts do not inherit it.
    pub(super) fn raise(&mut self) {
        if !self.is_raised && self.is_permitted {
            self.is_permitted = set(libc::SCHED_FIFO, 1);
            self.is_raised = self.is_permitted;
        }
    }

    /// The class of every thread.
    pub(super) fn lower(&mut self) {
        if self.is_raised {
            self.is_raised = !set(libc::SCHED_OTHER, 0);
        }
    }
}

/// Says whether it was permitted.
fn set(policy: i32, priority: i32) -> bool {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the parameters are valid for the call, which concerns the calling thread alone.
    unsafe { libc::sched_setscheduler(0, policy | libc::SCHED_RESET_ON_FORK, &parameters) == 0 }
}
