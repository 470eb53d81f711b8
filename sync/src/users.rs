//! How many use an object: whoever finds nobody may free it.

use crate::primitives::{AtomicU32, Ordering};

/// The count; nobody at first.
#[derive(Debug, Default)]
pub struct Users(AtomicU32);

impl Users {
    /// One more, who got the object from somebody who has it.
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// One less. All that it did with the object happens before whatever is done by whoever finds nobody.
    pub fn remove(&self) {
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// Whether nobody uses it.
    pub fn is_none(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }
}

#[cfg(all(test, loom))]
#[allow(unsafe_code)] // the object is a cell that loom watches
mod loom_tests {
    use super::*;
    use crate::primitives::{Arc, UnsafeCell};

    struct Object {
        users: Users,
        value: UnsafeCell<u32>,
    }

    // SAFETY: whoever frees it found that nobody uses it; loom says so if that is not enough.
    unsafe impl Sync for Object {}
    // SAFETY: the same.
    unsafe impl Send for Object {}

    /// Two use the object, and a third frees it when nobody does: loom fails where a use may come behind that.
    #[test]
    fn what_was_done_with_an_object_happens_before_it_is_freed() {
        loom::model(|| {
            let object = Arc::new(Object { users: Users::default(), value: UnsafeCell::new(7) });
            let users: Vec<_> = (0..2)
                .map(|_| {
                    object.users.add();
                    let object = Arc::clone(&object);
                    loom::thread::spawn(move || {
                        // SAFETY: it is not freed while somebody uses it.
                        let seen = object.value.with(|value| unsafe { *value });
                        assert_eq!(seen, 7, "it was freed");
                        object.users.remove();
                    })
                })
                .collect();
            if object.users.is_none() {
                // SAFETY: nobody uses it.
                object.value.with_mut(|value| unsafe { *value = 0 });
            }
            users.into_iter().for_each(|user| user.join().unwrap());
            assert!(object.users.is_none());
        });
    }
}
