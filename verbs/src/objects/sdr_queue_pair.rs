//! `softnic_sdr.h`, queue pairs with their sends and receives.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};

use softnic_runtime::api::sdr::{SdrAttr, SdrQueuePair, SdrReceive, SdrSend, SdrStream};

use crate::abi::*;
use crate::c_result::{check_memory, status};
use crate::errno::Errno;
use crate::limits::WORK_REQUEST;
use crate::objects::context::{Kind, Retire};
use crate::objects::handle::{self, Object, ObjectKind, Pointer};
use crate::objects::sdr_context::SdrContext;
use crate::objects::sdr_region::SdrRegion;

/// Bytes that a slot of a generation takes, at most: in its key, and with a receive in it.
const SLOT: usize = 256;

/// A queue pair. It ends all its messages when it goes.
pub(crate) struct SdrQp {
    pub(crate) sdr: &'static SdrContext,
    /// Tells the flows of queue pairs apart.
    pub(crate) number: u32,
    /// None once its device was closed.
    qp: Mutex<Option<SdrQueuePair>>,
    messages: Mutex<Messages>,
}

/// What the program has handles of.
#[derive(Default)]
struct Messages {
    sends: BTreeSet<*mut Send>,
    receives: BTreeSet<*mut Receive>,
}

/// A message that is sent.
pub(crate) struct Send {
    pub(crate) qp: &'static SdrQp,
    /// None once its device was closed.
    state: Mutex<Option<Sending>>,
}

/// How far a message is.
pub(crate) enum Sending {
    /// More parts may follow.
    Stream(SdrStream),
    /// No more parts follow.
    Ended(SdrSend),
}

/// A receive that is posted.
pub(crate) struct Receive {
    qp: &'static SdrQp,
    /// None once its device was closed.
    state: Mutex<Option<SdrReceive>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|p| p.into_inner())
}

impl SdrQp {
    pub(crate) fn make(sdr: &'static SdrContext, attr: &SdrAttr) -> Result<Box<SdrQp>, Errno> {
        let (generations, channels) = (usize::from(attr.generations), usize::from(attr.channels));
        check_memory(attr.slots as usize * generations, SLOT)?;
        check_memory(attr.send_depth as usize * generations * channels, WORK_REQUEST)?;
        let qp = Mutex::new(Some(sdr.sdr()?.create_qp(attr)?));
        sdr.users.add();
        let this = Box::new(SdrQp { sdr, number: handle::next(SdrQp::KIND), qp, messages: Mutex::default() });
        sdr.context().add(Kind::SdrQueuePair, &*this);
        handle::add(&*this);
        Ok(this)
    }

    pub(crate) fn qp(&self) -> Result<SdrQueuePair, Errno> {
        lock(&self.qp).clone().ok_or(Errno::EINVAL)
    }

    /// A region that a program names for a message of this queue pair.
    pub(crate) fn region(&self, mr: *mut c_void) -> Result<&'static SdrRegion, Errno> {
        let region = Pointer::<SdrRegion>::new(mr).get()?;
        match std::ptr::eq(region.sdr, self.sdr) {
            true => Ok(region),
            false => Err(Errno::EINVAL),
        }
    }

    /// A message for the program to hold.
    pub(crate) fn add_send(&'static self, state: Sending) -> *mut Send {
        let send = Box::into_raw(Box::new(Send { qp: self, state: Mutex::new(Some(state)) }));
        lock(&self.messages).sends.insert(send);
        // SAFETY: it was just made.
        handle::add(unsafe { &*send });
        send
    }

    /// A receive for the program to hold.
    pub(crate) fn add_receive(&'static self, state: SdrReceive) -> *mut Receive {
        let receive = Box::into_raw(Box::new(Receive { qp: self, state: Mutex::new(Some(state)) }));
        lock(&self.messages).receives.insert(receive);
        // SAFETY: it was just made.
        handle::add(unsafe { &*receive });
        receive
    }
}

impl Send {
    pub(crate) fn state(&self) -> MutexGuard<'_, Option<Sending>> {
        lock(&self.state)
    }

    /// The message is over, and the program's handle of it.
    pub(crate) fn free(this: Pointer<Send>) -> Result<(), Errno> {
        let found = this.remove(|_| Ok(()))?;
        lock(&found.qp.messages).sends.remove(&this.as_ptr());
        // SAFETY: `add_send` made a box of it, and nobody else took it away.
        drop(unsafe { Box::from_raw(this.as_ptr()) });
        Ok(())
    }
}

impl Receive {
    pub(crate) fn state(&self) -> MutexGuard<'_, Option<SdrReceive>> {
        lock(&self.state)
    }

    /// Takes the receive away from the program, so that nobody completes it twice.
    pub(crate) fn take(this: Pointer<Receive>) -> Result<Option<SdrReceive>, Errno> {
        let found = this.remove(|_| Ok(()))?;
        lock(&found.qp.messages).receives.remove(&this.as_ptr());
        // SAFETY: `add_receive` made a box of it, and nobody else took it away.
        let receive = unsafe { Box::from_raw(this.as_ptr()) };
        Ok(receive.state.into_inner().unwrap_or_else(|p| p.into_inner()))
    }
}

impl Object for SdrQp {
    const KIND: ObjectKind = ObjectKind::SdrQueuePair;

    unsafe fn identity(this: *const SdrQp) -> (u32, *mut ibv_context) {
        // SAFETY: by the contract.
        unsafe { ((*this).number, (*this).sdr.as_c()) }
    }
}

impl Object for Send {
    const KIND: ObjectKind = ObjectKind::SdrSend;

    unsafe fn identity(this: *const Send) -> (u32, *mut ibv_context) {
        // SAFETY: by the contract; its queue pair goes after it.
        unsafe { (0, (*this).qp.sdr.as_c()) }
    }
}

impl Object for Receive {
    const KIND: ObjectKind = ObjectKind::SdrReceive;

    unsafe fn identity(this: *const Receive) -> (u32, *mut ibv_context) {
        // SAFETY: by the contract; its queue pair goes after it.
        unsafe { (0, (*this).qp.sdr.as_c()) }
    }
}

impl Retire for SdrQp {
    /// Nothing of it is on the NIC any more. What the program has handles of stays allocated, as all does that it forgot.
    fn retire(&self) {
        let messages = std::mem::take(&mut *lock(&self.messages));
        for send in messages.sends {
            // SAFETY: a message is taken off the list before it is freed.
            drop(unsafe { &*send }.state().take());
        }
        for receive in messages.receives {
            // SAFETY: the same.
            drop(unsafe { &*receive }.state().take());
        }
        let qp = lock(&self.qp).take();
        drop(qp);
    }
}

/// `softnic_sdr_qp_destroy`, and with it all messages: one may wait for a peer that never posts a receive.
pub(crate) extern "C" fn destroy(qp: Pointer<SdrQp>) -> c_int {
    status(|| {
        if qp.is_null() {
            return Ok(());
        }
        let this = qp.remove(|_| Ok(()))?;
        this.sdr.context().remove(Kind::SdrQueuePair, this);
        let messages = std::mem::take(&mut *lock(&this.messages));
        // One that is gone all the same is another thread's, which had no business here.
        for send in messages.sends {
            let _ = Send::free(Pointer::new(send));
        }
        for receive in messages.receives {
            let _ = Receive::take(Pointer::new(receive));
        }
        this.sdr.users.remove();
        // SAFETY: `make` made a box of it, and nobody uses it.
        drop(unsafe { Box::from_raw(qp.as_ptr()) });
        Ok(())
    })
}
