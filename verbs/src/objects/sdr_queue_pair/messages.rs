//! `softnic_sdr.h`, messages: what programs hold of sends and receives.
//!
//! The memory of a handle is used again by later messages of the queue pair, and stays on the list of objects meanwhile: only a queue pair
//! with more messages at a time than ever before allocates.

use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard};

use softnic_runtime::api::sdr::{SdrReceive, SdrSend, SdrStream};

use crate::abi::*;
use crate::errno::Errno;
use crate::objects::handle::{self, Object, ObjectKind, Pointer};

use super::{SdrQp, lock};

/// What a program holds of a message.
pub(crate) struct Message<S> {
    pub(crate) qp: &'static SdrQp,
    /// None while the program does not hold it, and once its device was closed.
    state: Mutex<Option<S>>,
}

/// A message that is sent.
pub(crate) type Send = Message<Sending>;

/// A receive that is posted.
pub(crate) type Receive = Message<SdrReceive>;

/// How far a message is that is sent.
pub(crate) enum Sending {
    /// More parts may follow.
    Stream(SdrStream),
    /// No more parts follow.
    Ended(SdrSend),
}

/// All messages of a queue pair.
#[derive(Default)]
pub(crate) struct Messages {
    sends: Handles<Sending>,
    receives: Handles<SdrReceive>,
}

/// The messages of one kind.
pub(crate) struct Handles<S: 'static>(Mutex<Lists<S>>);

struct Lists<S: 'static> {
    /// Each is a box of its own.
    all: Vec<NonNull<Message<S>>>,
    /// Those that the program does not hold.
    free: Vec<&'static Message<S>>,
}

impl<S> Default for Lists<S> {
    fn default() -> Lists<S> {
        Lists { all: Vec::new(), free: Vec::new() }
    }
}

impl<S> Default for Handles<S> {
    fn default() -> Handles<S> {
        Handles(Mutex::default())
    }
}

/// What a message may be.
pub(crate) trait State: Sized + 'static {
    const KIND: ObjectKind;

    fn handles(messages: &Messages) -> &Handles<Self>;
}

impl State for Sending {
    const KIND: ObjectKind = ObjectKind::SdrSend;

    fn handles(messages: &Messages) -> &Handles<Sending> {
        &messages.sends
    }
}

impl State for SdrReceive {
    const KIND: ObjectKind = ObjectKind::SdrReceive;

    fn handles(messages: &Messages) -> &Handles<SdrReceive> {
        &messages.receives
    }
}

impl<S: State> Object for Message<S> {
    const KIND: ObjectKind = S::KIND;

    unsafe fn identity(this: *const Message<S>) -> (u32, *mut ibv_context) {
        // SAFETY: by the contract; its queue pair goes after it.
        unsafe { (0, (*this).qp.sdr.as_c()) }
    }
}

impl<S: State> Message<S> {
    /// A message of a queue pair, for the program to hold.
    pub(crate) fn hold(qp: &'static SdrQp, state: S) -> *mut Message<S> {
        let mut lists = lock(&S::handles(&qp.messages).0);
        let message = lists.free.pop().unwrap_or_else(|| lists.make(qp));
        drop(lists);
        *message.state() = Some(state);
        handle::add(message);
        (&raw const *message).cast_mut()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, Option<S>> {
        lock(&self.state)
    }

    /// Takes the message away from the program, so that nobody ends it twice. None once its device was closed.
    pub(crate) fn take(this: Pointer<Message<S>>) -> Result<Option<S>, Errno> {
        let found = this.put_back()?;
        let state = found.state().take();
        lock(&S::handles(&found.qp.messages).0).free.push(found);
        Ok(state)
    }
}

impl<S: State> Lists<S> {
    fn make(&mut self, qp: &'static SdrQp) -> &'static Message<S> {
        let made = NonNull::from(Box::leak(Box::new(Message { qp, state: Mutex::default() })));
        self.all.push(made);
        // So that putting one back never allocates.
        self.free.reserve(self.all.len());
        // SAFETY: the box is freed with the queue pair, when nobody uses its messages.
        unsafe { made.as_ref() }
    }
}

impl<S: State> Handles<S> {
    /// The messages are over.
    fn retire(&self) -> Vec<NonNull<Message<S>>> {
        // Messages end when nobody has the lock.
        let Lists { all, free } = std::mem::take(&mut *lock(&self.0));
        drop(free);
        for message in &all {
            // SAFETY: only `free` frees one, after it took it off the list.
            let state = unsafe { message.as_ref() }.state().take();
            drop(state);
        }
        all
    }

    /// The messages are over, and their memory is given back.
    ///
    /// # Safety
    /// Nobody uses one of them any more.
    unsafe fn free(&self) {
        for message in self.retire() {
            // SAFETY: it is a box of `make`, and is freed once: it is on the list no more.
            handle::forget(unsafe { message.as_ref() });
            // SAFETY: the same; nobody uses it, by the contract.
            drop(unsafe { Box::from_raw(message.as_ptr()) });
        }
    }
}

impl Messages {
    /// All messages are over. Their memory stays allocated.
    pub(crate) fn retire(&self) {
        self.sends.retire();
        self.receives.retire();
    }

    /// All messages are over, and their memory is given back.
    ///
    /// # Safety
    /// Nobody uses one of them any more.
    pub(crate) unsafe fn free(&self) {
        // SAFETY: by the contract.
        unsafe {
            self.sends.free();
            self.receives.free();
        }
    }
}
