//! Objects of a short life whose memory is kept for the next one: none of them allocates but the first so many at a time.

use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard};

use crate::errno::Errno;
use crate::objects::handle::{self, Object, Pointer};

/// Objects of one kind, of one owner.
pub(crate) struct Kept<T: 'static>(Mutex<Lists<T>>);

struct Lists<T: 'static> {
    /// Each is a box of its own.
    all: Vec<NonNull<T>>,
    /// Those that the program does not hold.
    free: Vec<&'static T>,
}

impl<T> Default for Lists<T> {
    fn default() -> Lists<T> {
        Lists { all: Vec::new(), free: Vec::new() }
    }
}

impl<T> Default for Kept<T> {
    fn default() -> Kept<T> {
        Kept(Mutex::default())
    }
}

impl<T> Lists<T> {
    fn add(&mut self, object: T) -> &'static T {
        let made = NonNull::from(Box::leak(Box::new(object)));
        self.all.push(made);
        // So that putting one back never allocates.
        self.free.reserve(self.all.len());
        // SAFETY: the box is freed when nobody uses the object any more, by the contract of `Kept::free`.
        unsafe { made.as_ref() }
    }
}

impl<T: Object> Kept<T> {
    fn lists(&self) -> MutexGuard<'_, Lists<T>> {
        self.0.lock().unwrap_or_else(|p| p.into_inner())
    }

    /// An object for the program to hold: one that is there, or another; `fill` gets it ready.
    pub(crate) fn hold(&self, make: impl FnOnce() -> T, fill: impl FnOnce(&T)) -> *mut T {
        let mut lists = self.lists();
        let object = lists.free.pop().unwrap_or_else(|| lists.add(make()));
        drop(lists);
        fill(object);
        handle::add(object);
        (&raw const *object).cast_mut()
    }

    /// The program does not hold an object of ours any more; `empty` takes out what is in it.
    pub(crate) fn put_back<R>(&self, object: Pointer<T>, empty: impl FnOnce(&T) -> R) -> Result<R, Errno> {
        let found = object.put_back()?;
        let taken = empty(found);
        self.lists().free.push(found);
        Ok(taken)
    }

    /// All objects are over: `empty` takes out what is in them. Their memory stays allocated.
    pub(crate) fn retire(&self, empty: impl Fn(&T)) {
        self.take_all(empty);
    }

    /// All objects are over, and their memory is given back.
    ///
    /// # Safety
    /// Nobody uses one of them any more.
    pub(crate) unsafe fn free(&self, empty: impl Fn(&T)) {
        for object in self.take_all(empty) {
            // SAFETY: it is a box that was leaked, and is on the list no more, so it is freed once.
            handle::forget(unsafe { object.as_ref() });
            // SAFETY: the same; nobody uses it, by the contract.
            drop(unsafe { Box::from_raw(object.as_ptr()) });
        }
    }

    /// Takes all off the list, and empties them when nobody has the lock.
    fn take_all(&self, empty: impl Fn(&T)) -> Vec<NonNull<T>> {
        let Lists { all, free } = std::mem::take(&mut *self.lists());
        drop(free);
        for object in &all {
            // SAFETY: only `free` frees one, after it was taken off the list.
            empty(unsafe { object.as_ref() });
        }
        all
    }
}
