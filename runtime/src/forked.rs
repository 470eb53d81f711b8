//! Descriptors that the child of a fork closes: there they would keep wires busy, and connections open, after the parent's end.
//!
//! Whoever has a handler for forks ([`close_in_child`]) may neither lock nor allocate there, so they lie in a fixed table.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

/// As many as fit: a NIC of several queues has a few dozen, one that shares a network with a hundred processes some hundreds.
static DESCRIPTORS: [AtomicI32; 4096] = [const { AtomicI32::new(-1) }; 4096];

/// A child will close these.
pub fn keep_from_children(descriptors: &[RawFd]) {
    let mut places = DESCRIPTORS.iter();
    for &fd in descriptors {
        let free = |place: &&AtomicI32| place.compare_exchange(-1, fd, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if places.by_ref().find(free).is_none() {
            return;
        }
    }
}

/// They are closed, and their numbers others'.
pub fn forget(descriptors: &[RawFd]) {
    for place in &DESCRIPTORS {
        if descriptors.contains(&place.load(Ordering::Relaxed)) {
            place.store(-1, Ordering::Relaxed);
        }
    }
}

/// For the handler of a fork, in the child.
pub fn close_in_child() {
    for place in &DESCRIPTORS {
        let fd = place.swap(-1, Ordering::Relaxed);
        if fd >= 0 {
            // SAFETY: close(2) may be called in a handler; nobody uses the descriptor in the child, where the parent's NIC is nobody's.
            unsafe { libc::close(fd) };
        }
    }
}

/// Something with a descriptor that a child closes.
#[derive(Debug)]
pub struct Kept<T: AsRawFd>(T);

impl<T: AsRawFd> Kept<T> {
    /// A child will close its descriptor.
    pub fn new(held: T) -> Kept<T> {
        keep_from_children(&[held.as_raw_fd()]);
        Kept(held)
    }
}

impl<T: AsRawFd> std::ops::Deref for Kept<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: AsRawFd> Drop for Kept<T> {
    fn drop(&mut self) {
        forget(&[self.0.as_raw_fd()]);
    }
}
