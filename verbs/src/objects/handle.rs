//! Handles: each object has a number that is unique among objects of its kind, and control verbs accept only existing objects.
//!
//! A program may pass a pointer to an object that it destroyed, or to an object of another kind, or to one whose handle it overwrote. The
//! kernel would not find such an object under its handle; this library knows the addresses of all objects. The verbs that post and poll do
//! not check.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::abi::ibv_context;
use crate::errno::Errno;
use crate::fork::Generation;
use crate::per_process::PerProcess;

/// Kinds of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ObjectKind {
    Context,
    Domain,
    ThreadDomain,
    Region,
    Window,
    Channel,
    CompletionQueue,
    SharedReceive,
    QueuePair,
    Address,
    SdrContext,
    SdrRegion,
    SdrQueuePair,
    SdrSend,
    SdrReceive,
}

/// An object that programs have pointers to.
pub(crate) trait Object {
    const KIND: ObjectKind;

    /// The handle that the C struct contains now, and the context of the object. Kinds without a handle have 0.
    ///
    /// # Safety
    /// `this` is alive. The program may have written to the struct.
    unsafe fn identity(this: *const Self) -> (u32, *mut ibv_context);
}

/// Each existing object, by its kind and address.
type Alive = BTreeMap<(ObjectKind, usize), Known>;

/// The record of an object.
struct Known {
    handle: u32,
    /// The address of its context.
    context: usize,
    /// The program owns the object now. An object that is kept for the next use stays on the list, so that a use allocates nothing.
    is_held: bool,
}

static ALIVE: PerProcess<Mutex<Alive>> = PerProcess::new();

fn alive() -> MutexGuard<'static, Alive> {
    ALIVE.get().lock().unwrap_or_else(|p| p.into_inner())
}

/// The error for a missing object; in the child of a fork the object most likely belongs to the parent.
fn missing() -> Errno {
    Errno(if Generation::current().is_child() { libc::EIO } else { libc::ENOENT })
}

/// A handle for a new object of a kind.
pub(crate) fn next(kind: ObjectKind) -> u32 {
    const KINDS: usize = ObjectKind::SdrReceive as usize + 1;
    static NEXT: [AtomicU32; KINDS] = [const { AtomicU32::new(1) }; KINDS];
    NEXT[kind as usize].fetch_add(1, Ordering::Relaxed)
}

/// Registers an object, until [`Pointer::remove`]; or returns it to the program, after [`Pointer::put_back`].
pub(crate) fn add<T: Object>(object: &T) {
    // SAFETY: the pointer is derived from a reference.
    let (handle, context) = unsafe { T::identity(object) };
    let known = Known { handle, context: context.addr(), is_held: true };
    alive().insert((T::KIND, (&raw const *object).addr()), known);
}

/// Unregisters an object, whether or not the program owns it.
pub(crate) fn forget<T: Object>(object: &T) {
    alive().remove(&(T::KIND, (&raw const *object).addr()));
}

/// A context was closed: its remaining objects no longer belong to the program.
pub(crate) fn forget_context(context: *mut ibv_context) {
    alive().retain(|_, known| known.context != context.addr());
}

/// A program's pointer to an object, not yet validated.
#[repr(transparent)]
pub(crate) struct Pointer<T>(*mut T);

impl<T> Clone for Pointer<T> {
    fn clone(&self) -> Pointer<T> {
        *self
    }
}

impl<T> Copy for Pointer<T> {}

impl<T: Object> Pointer<T> {
    pub(crate) fn new<C>(pointer: *mut C) -> Pointer<T> {
        Pointer(pointer.cast())
    }

    pub(crate) fn of(object: &T) -> Pointer<T> {
        Pointer((&raw const *object).cast_mut())
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    pub(crate) fn as_ptr(self) -> *mut T {
        self.0
    }

    /// The object.
    ///
    /// # Errors
    /// EINVAL for NULL, ENOENT if there is no such object with the handle in its struct; in the child of a fork EIO.
    pub(crate) fn get(self) -> Result<&'static T, Errno> {
        self.find(&alive())
    }

    /// The object, if there is one; NULL means none.
    pub(crate) fn optional(self) -> Result<Option<&'static T>, Errno> {
        if self.is_null() { Ok(None) } else { self.get().map(Some) }
    }

    /// Takes the object away from the program if `may_go` permits; no other call can take it meanwhile. The caller frees it.
    pub(crate) fn remove(self, may_go: impl FnOnce(&T) -> Result<(), Errno>) -> Result<&'static T, Errno> {
        let mut alive = alive();
        let found = self.find(&alive)?;
        may_go(found)?;
        alive.remove(&(T::KIND, self.0.addr()));
        Ok(found)
    }

    /// Takes the object away from the program, which may get it again by [`add`]. Nothing is freed.
    pub(crate) fn put_back(self) -> Result<&'static T, Errno> {
        let mut alive = alive();
        let found = self.find(&alive)?;
        if let Some(known) = alive.get_mut(&(T::KIND, self.0.addr())) {
            known.is_held = false;
        }
        Ok(found)
    }

    fn find(self, alive: &Alive) -> Result<&'static T, Errno> {
        if self.0.is_null() {
            return Err(Errno::EINVAL);
        }
        let known = alive.get(&(T::KIND, self.0.addr())).filter(|known| known.is_held).ok_or_else(missing)?;
        // SAFETY: an object is alive as long as it is on the list.
        match unsafe { T::identity(self.0) }.0 == known.handle {
            // SAFETY: as above. The program, which destroys it, does not use it afterwards.
            true => Ok(unsafe { &*self.0 }),
            false => Err(Errno(libc::ENOENT)),
        }
    }
}
