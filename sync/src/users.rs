//! Counts the users of an object. A thread that finds no users may free the object.

use crate::primitives::{AtomicU32, Ordering};

/// The count; 0 at first.
#[derive(Debug, Default)]
pub struct Users(AtomicU32);

impl Users {
    /// Adds a user, which got the object from a current user.
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a user. All its accesses to the object happen before the actions of a thread that then finds no users.
    pub fn remove(&self) {
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// Whether the object has no users.
    pub fn is_none(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }
}

#[cfg(all(test, loom))]
#[allow(unsafe_code)] // the object is a cell that loom checks
mod loom_tests {
    use super::*;
    use crate::primitives::{Arc, UnsafeCell};

    struct Object {
        users: Users,
        value: UnsafeCell<u32>,
    }

    // SAFETY: the thread that frees the object found that it has no users; loom reports a race if that is not enough.
    unsafe impl Sync for Object {}
    // SAFETY: as for `Sync` above.
    unsafe impl Send for Object {}

    /// Two threads use the object, and a third frees it once it has no users: loom fails if an access can follow the release.
    #[test]
    fn what_was_done_with_an_object_happens_before_it_is_freed() {
        loom::model(|| {
            let object = Arc::new(Object { users: Users::default(), value: UnsafeCell::new(7) });
            let users: Vec<_> = (0..2)
                .map(|_| {
                    object.users.add();
                    let object = Arc::clone(&object);
                    loom::thread::spawn(move || {
                        // SAFETY: the object is not freed while it has a user.
                        let seen = object.value.with(|value| unsafe { *value });
                        assert_eq!(seen, 7, "it was freed");
                        object.users.remove();
                    })
                })
                .collect();
            if object.users.is_none() {
                // SAFETY: the object has no users.
                object.value.with_mut(|value| unsafe { *value = 0 });
            }
            users.into_iter().for_each(|user| user.join().unwrap());
            assert!(object.users.is_none());
        });
    }
}
