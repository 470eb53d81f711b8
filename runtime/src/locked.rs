//! Locks that whoever panicked held.

use std::sync::{Mutex, MutexGuard};

/// A lock, also after whoever had it panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|p| p.into_inner())
}
