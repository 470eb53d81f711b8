//! Reference counts of objects: an object that another one uses is not destroyed.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::errno::Errno;

/// Counts who uses an object: it is not destroyed while there is anybody.
#[derive(Default)]
pub(crate) struct Users(AtomicU32);

impl Users {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The last use of the object before this happens before the object is freed.
    pub(crate) fn remove(&self) {
        self.0.fetch_sub(1, Ordering::Release);
    }

    pub(crate) fn none(&self) -> Result<(), Errno> {
        match self.0.load(Ordering::Acquire) {
            0 => Ok(()),
            _ => Err(Errno::EBUSY),
        }
    }
}
