//! Contexts: a device that a program opened, and the objects that must not outlive the context.

use std::collections::BTreeMap;
use std::fs::File;
use std::marker::PhantomData;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::abi::*;
use crate::c_result::status;
use crate::errno::Errno;
use crate::fork::Generation;
use crate::objects::device::Device;
use crate::objects::event_queue::EventQueue;
use crate::objects::handle::{self, Object, ObjectKind, Pointer};
use crate::objects::nic::{Nic, Nics};

/// An opened device. A program has the address of `ext.context`.
#[repr(C)]
pub(crate) struct Context {
    ext: UntypedVerbsContext,
    /// Vendors' libraries look for their own fields here, and must find none.
    zeros: [u64; 64],
    pub(crate) ours: Ours,
}

pub(crate) struct Ours {
    /// The process that opened it.
    pub(crate) made_in: Generation,
    pub(crate) device: &'static Device,
    pub(crate) nics: Arc<Nics>,
    pub(crate) events: Arc<EventQueue>,
    /// Objects that a program may forget to destroy, by kind and address.
    alive: Mutex<Alive>,
    /// The descriptor that programs take for the kernel's device: they may duplicate it and pass it on, but cannot import objects by it.
    _command: File,
}

type Alive = BTreeMap<(Kind, usize), NonNull<dyn Retire>>;

/// An object that a program may forget to destroy, and that must not outlive its context.
pub(crate) trait Retire {
    /// The context is closed: the object becomes inactive.
    fn retire(&self);
}

/// The kinds of such objects, in the order in which they retire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    SdrQueuePair,
    QueuePair,
    Region,
    SdrContext,
}

/// A pointer to `struct ibv_context`, which is the middle of a [`Context`].
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct ContextPtr<'a>(NonNull<ibv_context>, PhantomData<&'a Context>);

impl ContextPtr<'_> {
    /// Wraps a pointer.
    ///
    /// # Safety
    /// The pointer comes from `open`, and the context is not closed.
    pub(crate) unsafe fn new<'a>(context: *mut ibv_context) -> ContextPtr<'a> {
        // SAFETY: `open` does not return NULL.
        ContextPtr(unsafe { NonNull::new_unchecked(context) }, PhantomData)
    }

    pub(crate) fn as_c(self) -> *mut ibv_context {
        self.0.as_ptr()
    }

    /// Refuses a context that was opened by the parent of a fork.
    pub(crate) fn check_process(self) -> Result<(), Errno> {
        self.ours.made_in.check()
    }

    /// Refuses an object of another NIC.
    pub(crate) fn check_same_nic(self, other: ContextPtr<'_>) -> Result<(), Errno> {
        match std::ptr::eq(self.nic(), other.nic()) {
            true => Ok(()),
            false => Err(Errno::EINVAL),
        }
    }
}

impl Deref for ContextPtr<'_> {
    type Target = Context;

    fn deref(&self) -> &Context {
        let before = std::mem::offset_of!(Context, ext) + std::mem::offset_of!(UntypedVerbsContext, context);
        // SAFETY: a program has such pointers only from `open`; they point to this offset in a `Context`.
        unsafe { self.0.byte_sub(before).cast().as_ref() }
    }
}

impl Context {
    pub(crate) fn nic(&self) -> &Nic {
        self.ours.device.nic(&self.ours.nics)
    }

    fn alive(&self) -> MutexGuard<'_, Alive> {
        self.ours.alive.lock().unwrap_or_else(|p| p.into_inner())
    }

    /// Adds an object to the list, until it is removed.
    pub(crate) fn add<T: Retire + 'static>(&self, kind: Kind, object: &T) {
        let object: NonNull<dyn Retire> = NonNull::from(object);
        self.alive().insert((kind, object.addr().get()), object);
    }

    /// The program destroys the object.
    pub(crate) fn remove<T: Retire>(&self, kind: Kind, object: &T) {
        self.alive().remove(&(kind, (&raw const *object).addr()));
    }

    /// Opens a device for a program. `ops` are the functions of its `struct ibv_context`; `extend` adds the rest in front.
    pub(crate) fn open(
        device: &'static Device,
        ops: [Function; 32],
        extend: fn(ibv_context) -> UntypedVerbsContext,
    ) -> Result<*mut ibv_context, Errno> {
        let (nics, events) = (device.open()?, Arc::new(EventQueue::new()?));
        let command = File::open("/dev/null")?;
        device.nic(&nics).owners.add_context(&events);
        let context = ibv_context {
            device: device.as_c(),
            ops,
            cmd_fd: command.as_raw_fd(),
            async_fd: events.fd(),
            num_comp_vectors: 1,
            mutex: Default::default(),
            abi_compat: usize::MAX,
        };
        let ours =
            Ours { made_in: Generation::current(), device, nics, events, alive: Mutex::default(), _command: command };
        let context = Box::into_raw(Box::new(Context { ext: extend(context), zeros: [0; 64], ours }));
        // SAFETY: the context was just created.
        let context = unsafe { &mut (*context).ext.context };
        handle::add(context);
        Ok(context)
    }
}

impl Object for ibv_context {
    const KIND: ObjectKind = ObjectKind::Context;

    unsafe fn identity(this: *const ibv_context) -> (u32, *mut ibv_context) {
        (0, this.cast_mut())
    }
}

/// `ibv_close_device`. Objects that the program did not destroy are no longer its own: queue pairs become inactive, and memory is
/// inaccessible.
pub(crate) extern "C" fn close(context: Pointer<ibv_context>) -> c_int {
    status(|| {
        context.remove(|_| Ok(()))?;
        handle::forget_context(context.as_ptr());
        // SAFETY: the pointer comes from `open`, and the context was not closed before.
        let context = unsafe { ContextPtr::new(context.as_ptr()) };
        let alive = std::mem::take(&mut *context.alive());
        for object in alive.into_values() {
            // SAFETY: an object is removed from the list before it is freed.
            unsafe { object.as_ref() }.retire();
        }
        context.nic().owners.remove_context(&context.ours.events);
        // The capture contains all frames even if another context keeps the NIC open.
        let _ = context.nic().runtime.flush_capture();
        // SAFETY: the pointer comes from `open`, which allocated a box, and the program does not use it any more.
        drop(unsafe { Box::from_raw((&raw const *context).cast_mut()) });
        Ok(())
    })
}
