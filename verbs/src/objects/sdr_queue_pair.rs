//! `softnic_sdr.h`, queue pairs with their sends and receives.

use std::sync::{Mutex, MutexGuard};

use softnic_runtime::api::sdr::{self, SdrAttr, SdrError, SdrQueuePair, SdrReceive, SdrSend, SdrStream};

use crate::abi::*;
use crate::c_result::{check_memory, status};
use crate::errno::Errno;
use crate::limits::WORK_REQUEST;
use crate::message::refused;
use crate::objects::context::{Kind, Retire};
use crate::objects::handle::{self, Object, ObjectKind, Pointer};
use crate::objects::kept::Kept;
use crate::objects::sdr_context::SdrContext;
use crate::objects::sdr_end::SdrEnd;
use crate::objects::sdr_region::SdrRegion;

/// Maximum number of bytes of a slot of a generation: in its key, and with a receive in it.
const SLOT: usize = 256;

/// A queue pair. When it is destroyed it ends all its messages.
pub(crate) struct SdrQp {
    pub(crate) sdr: &'static SdrContext,
    /// Distinguishes the flows of queue pairs.
    pub(crate) number: u32,
    /// `None` once its device was closed.
    end: Mutex<Option<SdrEnd>>,
    sends: Kept<Send>,
    receives: Kept<Receive>,
    /// The reason last reported for not having met the peer.
    said: Mutex<Option<SdrError>>,
}

/// A program's handle of a message.
pub(crate) struct Message<S: 'static> {
    pub(crate) qp: &'static SdrQp,
    /// `None` while the program does not have it, and once its device was closed.
    state: Mutex<Option<S>>,
}

/// A message that is being sent.
pub(crate) type Send = Message<Sending>;

/// A posted receive.
pub(crate) type Receive = Message<SdrReceive>;

/// The progress of a message that is being sent.
pub(crate) enum Sending {
    /// More parts may follow.
    Stream(SdrStream),
    /// No more parts follow.
    Ended(SdrSend),
}

/// The states of messages.
pub(crate) trait State: Sized + 'static {
    const KIND: ObjectKind;

    /// The list in which a queue pair keeps such messages.
    fn kept(qp: &SdrQp) -> &Kept<Message<Self>>;
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|p| p.into_inner())
}

impl SdrQp {
    /// Creates a queue pair from attributes; `create` creates the NIC's object.
    pub(crate) fn make(
        sdr: &'static SdrContext,
        attr: &SdrAttr,
        create: impl FnOnce(&sdr::SdrContext) -> Result<SdrEnd, Errno>,
    ) -> Result<Box<SdrQp>, Errno> {
        let (generations, channels) = (usize::from(attr.generations), usize::from(attr.channels));
        check_memory(attr.slots as usize * generations, SLOT)?;
        check_memory(attr.send_depth as usize * generations * channels, WORK_REQUEST)?;
        let end = create(&sdr.sdr()?)?;
        sdr.users.add();
        let this = Box::new(SdrQp {
            sdr,
            number: handle::next(SdrQp::KIND),
            end: Mutex::new(Some(end)),
            sends: Kept::default(),
            receives: Kept::default(),
            said: Mutex::default(),
        });
        sdr.context().add(Kind::SdrQueuePair, &*this);
        handle::add(&*this);
        Ok(this)
    }

    pub(crate) fn end(&self) -> Result<SdrEnd, Errno> {
        lock(&self.end).clone().ok_or(Errno::EINVAL)
    }

    /// The queue pair, if the program makes its messages reliable itself.
    pub(crate) fn qp(&self) -> Result<SdrQueuePair, Errno> {
        self.end()?.plain()
    }

    /// Reports why the queue pair has not met its peer, once per reason: programs ask repeatedly.
    pub(crate) fn say_once(&self, why: SdrError) -> Errno {
        // In this state no peer was asked yet.
        let is_news = why != SdrError::NotConnected && lock(&self.said).replace(why) != Some(why);
        if is_news { refused("softnic_sdr_qp_is_met")(why) } else { why.into() }
    }

    /// The region that a program gives for a message of this queue pair.
    pub(crate) fn region(&self, mr: *mut c_void) -> Result<&'static SdrRegion, Errno> {
        let region = Pointer::<SdrRegion>::new(mr).get()?;
        match std::ptr::eq(region.sdr, self.sdr) {
            true => Ok(region),
            false => Err(Errno::EINVAL),
        }
    }
}

impl State for Sending {
    const KIND: ObjectKind = ObjectKind::SdrSend;

    fn kept(qp: &SdrQp) -> &Kept<Send> {
        &qp.sends
    }
}

impl State for SdrReceive {
    const KIND: ObjectKind = ObjectKind::SdrReceive;

    fn kept(qp: &SdrQp) -> &Kept<Receive> {
        &qp.receives
    }
}

impl<S: State> Message<S> {
    /// A message of a queue pair, for the program.
    pub(crate) fn hold(qp: &'static SdrQp, state: S) -> *mut Message<S> {
        let make = || Message { qp, state: Mutex::default() };
        S::kept(qp).hold(make, |message| *message.state() = Some(state))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, Option<S>> {
        lock(&self.state)
    }

    /// Takes the message away from the program, so that it is not ended twice. `None` once its device was closed.
    pub(crate) fn take(this: Pointer<Message<S>>) -> Result<Option<S>, Errno> {
        S::kept(this.get()?.qp).put_back(this, |message| message.state().take())
    }

    /// Ends the message.
    fn end(&self) {
        let state = self.state().take();
        drop(state);
    }
}

impl<S: State> Object for Message<S> {
    const KIND: ObjectKind = S::KIND;

    unsafe fn identity(this: *const Message<S>) -> (u32, *mut ibv_context) {
        // SAFETY: guaranteed by the contract; the queue pair is destroyed after the message.
        unsafe { (0, (*this).qp.sdr.as_c()) }
    }
}

impl Object for SdrQp {
    const KIND: ObjectKind = ObjectKind::SdrQueuePair;

    unsafe fn identity(this: *const SdrQp) -> (u32, *mut ibv_context) {
        // SAFETY: guaranteed by the contract.
        unsafe { ((*this).number, (*this).sdr.as_c()) }
    }
}

impl Retire for SdrQp {
    /// Removes its objects from the NIC. Objects to which the program has handles stay allocated, as all objects that it did not destroy.
    fn retire(&self) {
        self.sends.retire(Send::end);
        self.receives.retire(Receive::end);
        let end = lock(&self.end).take();
        drop(end);
    }
}

/// `softnic_sdr_qp_destroy`. Ends all messages, because one may wait for a peer that never posts a receive.
pub(crate) extern "C" fn destroy(qp: Pointer<SdrQp>) -> c_int {
    status(|| {
        if qp.is_null() {
            return Ok(());
        }
        let this = qp.remove(|_| Ok(()))?;
        this.sdr.context().remove(Kind::SdrQueuePair, this);
        // SAFETY: the program, which destroys the queue pair, does not use its messages any more.
        unsafe {
            this.sends.free(Send::end);
            this.receives.free(Receive::end);
        }
        this.sdr.users.remove();
        // SAFETY: `make` allocated this box, and no code uses it any more.
        drop(unsafe { Box::from_raw(qp.as_ptr()) });
        Ok(())
    })
}
