//! State of the process that the child of a fork creates again.
//!
//! A lock that a thread of the parent held at the fork would stay locked in the child forever, and the protected state may be half changed.
//! So the child never accesses the parent's state. The parent's copy stays allocated in the child.

use std::sync::atomic::{AtomicPtr, Ordering};

use crate::fork::Generation;

/// A value for each process: the first use in a process creates the default.
pub(crate) struct PerProcess<T: 'static>(AtomicPtr<Made<T>>);

struct Made<T> {
    by: Generation,
    value: T,
}

impl<T: Default + Send + Sync> PerProcess<T> {
    pub(crate) const fn new() -> PerProcess<T> {
        PerProcess(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// The value of this process.
    pub(crate) fn get(&self) -> &'static T {
        let mut found = self.0.load(Ordering::Acquire);
        loop {
            // SAFETY: NULL, or a box that is never freed.
            if let Some(made) = unsafe { found.as_ref() }
                && made.by.check().is_ok()
            {
                return &made.value;
            }
            let new = Box::into_raw(Box::new(Made { by: Generation::current(), value: T::default() }));
            found = match self.0.compare_exchange(found, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => new,
                Err(other) => {
                    // SAFETY: no other thread has seen the box.
                    drop(unsafe { Box::from_raw(new) });
                    other
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::fork;

    #[test]
    fn a_child_begins_anew_though_a_lock_was_held_at_the_fork() {
        static STATE: PerProcess<Mutex<Vec<u32>>> = PerProcess::new();
        fork::watch();
        let mut held = STATE.get().lock().unwrap();
        held.push(7);
        // SAFETY: the child allocates little, and ends without running any code of the test.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let anew = STATE.get().try_lock().is_ok_and(|state| state.is_empty());
            // SAFETY: ends only this process.
            unsafe { libc::_exit(if anew { 0 } else { 1 }) };
        }
        let mut status = -1;
        // SAFETY: `status` is a valid location for a number.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child sees the parent's");
        assert_eq!(*held, [7]);
        drop(held);
        assert_eq!(STATE.get().lock().unwrap().len(), 1, "the parent's is as it was");
    }
}
