//! Whether messages have left, for programs that look all the time: without the engines, whose work they would hold up.

use std::sync::atomic::{AtomicBool, Ordering};

use softnic_sync::done::Done;

use crate::sends::SendHandle;

/// What is known of the sends of a queue pair.
#[derive(Debug)]
pub struct Watch {
    /// Of each engine that has channels of it.
    pub(crate) parts: Box<[Done]>,
    /// Sending stopped at one of them.
    pub(crate) failed: AtomicBool,
}

impl Watch {
    pub(crate) fn new(parts: usize) -> Watch {
        Watch { parts: (0..parts).map(|_| Done::default()).collect(), failed: AtomicBool::new(false) }
    }

    /// Whether all of a message has left. `None` when the queue pair itself must be asked: sending stopped, or the message is far ahead of others
    /// that have not left.
    #[inline]
    pub fn has_left(&self, send: SendHandle) -> Option<bool> {
        if self.failed.load(Ordering::Acquire) {
            return None;
        }
        for part in &self.parts {
            match part.is_done(send.number()) {
                Some(true) => {}
                other => return other,
            }
        }
        Some(true)
    }
}
