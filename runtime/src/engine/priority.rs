//! The scheduling class of an engine's own thread.
#![allow(unsafe_code)]

/// Real time for the calling thread, at the lowest priority, where the system permits that (CAP_SYS_NICE, or a limit `ulimit -r`): where
/// programs spin on all cores the fair scheduler lets a thread that sleeps wait for milliseconds. Threads and processes that the thread
/// starts do not inherit it.
///
/// Only for a thread that sleeps as soon as it has nothing to do: no other thread has its core meanwhile.
pub(super) fn raise() {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameters are valid for the call, which concerns the calling thread alone.
    let _ = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &parameters) };
}
