//! Threads of the NIC's own. All signals are blocked in them: a signal is for a thread of the program, which may have blocked it, or may
//! take it by signalfd(2), after the NIC was opened. And none is still on its way when a program goes on that started one, by opening a
//! device or asking for a path, without knowing it: UCX writes a jump over the first bytes of `munmap` and its like while it starts, and
//! a thread that is inside of them, as the C library is when it gives a new thread its memory, dies of that.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a thread that was started is waited for: one that has no memory yet may never get any, where the program ends in a handler of
/// a signal that found it inside of malloc.
const BEGINS_WITHIN: Duration = Duration::from_millis(500);

/// Starts a thread in which all signals are blocked, and waits until it has begun and has memory of its own.
///
/// # Errors
/// When the system has no thread left.
pub fn spawn_own<T: Send + 'static>(
    name: impl Into<String>,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    // A thread begins with the mask of the thread that starts it.
    let _blocked = AllBlocked::new();
    let (begun, has_begun) = mpsc::channel();
    let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
        // The first allocation of a thread is what maps and unmaps: it is made now.
        std::hint::black_box(Box::new(0u64));
        let _ = begun.send(());
        body()
    })?;
    let _ = has_begun.recv_timeout(BEGINS_WITHIN);
    Ok(thread)
}

/// A core that this process may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Core(core_affinity::CoreId);

impl Core {
    /// The core with this number, if it is there and allowed.
    pub(crate) fn find(number: usize) -> Option<Core> {
        core_affinity::get_core_ids()?.into_iter().find(|core| core.id == number).map(Core)
    }

    /// The calling thread stays on it.
    pub(crate) fn stay(self) {
        core_affinity::set_for_current(self.0);
    }
}

/// All signals are blocked in this thread as long as the value lives.
struct AllBlocked {
    before: libc::sigset_t,
}

impl AllBlocked {
    fn new() -> AllBlocked {
        let mut all = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: `sigfillset` writes the whole set, and `pthread_sigmask` reads that and writes the one before: it cannot fail with these
        // arguments.
        let before = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            before.assume_init()
        };
        AllBlocked { before }
    }
}

impl Drop for AllBlocked {
    fn drop(&mut self) {
        // SAFETY: the set is one that the system wrote.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_begun_when_whoever_started_it_goes_on() {
        for round in 0..50 {
            let (end, until) = mpsc::channel::<()>();
            let name = format!("softnic-t{round}");
            let thread = spawn_own(name.clone(), move || until.recv().is_err()).unwrap();
            // It takes its name itself, before anything else.
            let tasks = std::fs::read_dir("/proc/self/task").unwrap();
            let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
            assert_eq!(names.filter(|comm| comm.trim_end() == name).count(), 1);
            drop(end);
            assert!(thread.join().unwrap());
        }
    }
}
