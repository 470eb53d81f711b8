//! Short-lived objects whose memory is kept for the next one: after the first ones, no further object is allocated.

use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard};

use crate::errno::Errno;
use crate::objects::handle::{self, Object, Pointer};

/// The objects of one kind and one owner.
pub(crate) struct Kept<T: 'static>(Mutex<Lists<T>>);

struct Lists<T: 'static> {
    /// Each one is a separate box.
    all: Vec<NonNull<T>>,
    /// The objects that the program does not have.
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
        // Reserved so that returning an object never allocates.
        self.free.reserve(self.all.len());
        // SAFETY: the box is freed when no code uses the object any more, by the contract of `Kept::free`.
        unsafe { made.as_ref() }
    }
}

impl<T: Object> Kept<T> {
    fn lists(&self) -> MutexGuard<'_, Lists<T>> {
        self.0.lock().unwrap_or_else(|p| p.into_inner())
    }

    /// An object for the program: a free one, or a new one; `fill` initialises it.
    pub(crate) fn hold(&self, make: impl FnOnce() -> T, fill: impl FnOnce(&T)) -> *mut T {
        let mut lists = self.lists();
        let object = lists.free.pop().unwrap_or_else(|| lists.add(make()));
        drop(lists);
        fill(object);
        handle::add(object);
        (&raw const *object).cast_mut()
    }

    /// The program returns an object; `empty` takes its contents out.
    pub(crate) fn put_back<R>(&self, object: Pointer<T>, empty: impl FnOnce(&T) -> R) -> Result<R, Errno> {
        let found = object.put_back()?;
        let taken = empty(found);
        self.lists().free.push(found);
        Ok(taken)
    }

    /// Ends all objects: `empty` takes their contents out. Their memory stays allocated.
    pub(crate) fn retire(&self, empty: impl Fn(&T)) {
        self.take_all(empty);
    }

    /// Ends all objects, and frees their memory.
    ///
    /// # Safety
    /// No code uses any of them any more.
    pub(crate) unsafe fn free(&self, empty: impl Fn(&T)) {
        for object in self.take_all(empty) {
            // SAFETY: the object is a leaked box that is no longer on the list, so it is freed once.
            handle::forget(unsafe { object.as_ref() });
            // SAFETY: as above; no code uses it, by the contract.
            drop(unsafe { Box::from_raw(object.as_ptr()) });
        }
    }

    /// Takes all objects off the list, and empties them after the lock is released.
    fn take_all(&self, empty: impl Fn(&T)) -> Vec<NonNull<T>> {
        let Lists { all, free } = std::mem::take(&mut *self.lists());
        drop(free);
        for object in &all {
            // SAFETY: only `free` frees an object, after the object was taken off the list.
            empty(unsafe { object.as_ref() });
        }
        all
    }
}
