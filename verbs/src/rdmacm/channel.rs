//! Event channels: a queue of what happened to ids, and a descriptor that is readable while there is something in it.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::event::{EventfdFlags, eventfd};
use softnic_runtime::api::cm::{Event, Route};

use super::devices::CmDevice;
use super::event::{self, CmEvent};
use super::id::Shared;
use super::multicast::Joined;
use super::resolve::Resolved;
use crate::abi::*;
use crate::c_result::{minus_one, pointer};
use crate::errno::Errno;
use crate::fork;
use crate::objects::event_queue::wait_readable;

/// Something that happened to an id.
pub(crate) struct Entry {
    pub(crate) to: Arc<Shared>,
    pub(crate) what: What,
}

pub(crate) enum What {
    /// Its addresses were found, or not.
    Address(Result<Resolved, Errno>),
    /// Its route was found, or not.
    Route(Result<u8, Errno>),
    /// A listener has a request: who will be the new id, at which device.
    Request { child: Arc<Shared>, device: &'static CmDevice, route: Route, event: Box<Event> },
    /// The connection manager says something.
    Cm(Event),
    /// A group was joined, or not.
    Multicast(Box<Joined>),
}

impl Entry {
    /// Nobody will see it: a request is refused.
    pub(crate) fn refuse(self) {
        if let What::Request { device, event, .. } = self.what {
            device.manager.destroy(event.id());
        }
    }
}

/// The queue of a channel.
pub(crate) struct Queue {
    entries: Mutex<VecDeque<Entry>>,
    /// Blocking, as programs expect: who does not want that sets O_NONBLOCK, which is asked for when there is nothing.
    fd: OwnedFd,
}

/// Channels that were destroyed, so many at most: a thread may still wait for an event of one, as that of `rping` does when its program
/// ends.
static GONE: Mutex<VecDeque<Box<Channel>>> = Mutex::new(VecDeque::new());
const MOST_GONE: usize = 16;

impl Queue {
    fn entries(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        self.entries.lock().unwrap_or_else(|p| p.into_inner())
    }

    pub(crate) fn push(&self, entry: Entry) {
        let mut entries = self.entries();
        entries.push_back(entry);
        if entries.len() == 1 {
            // It cannot be full: it is written to once for every time it is read.
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }

    fn show(&self, entries: &VecDeque<Entry>) {
        if entries.is_empty() {
            let _ = rustix::io::read(&self.fd, &mut [0; 8]);
        }
    }

    /// The oldest entry; from now on its id waits until it is acknowledged.
    fn pop(&self) -> Option<Entry> {
        let mut entries = self.entries();
        let entry = entries.pop_front()?;
        self.show(&entries);
        entry.to.unacknowledged.took_one();
        Some(entry)
    }

    /// Takes out what is about an id.
    pub(crate) fn forget(&self, of: &Arc<Shared>) -> Vec<Entry> {
        let mut entries = self.entries();
        let (gone, left): (Vec<Entry>, Vec<Entry>) = entries.drain(..).partition(|entry| Arc::ptr_eq(&entry.to, of));
        entries.extend(left);
        if !gone.is_empty() {
            self.show(&entries);
        }
        gone
    }
}

/// A channel.
#[repr(C)]
pub(crate) struct Channel {
    base: rdma_event_channel,
    pub(crate) queue: Arc<Queue>,
}

impl Channel {
    pub(crate) fn new() -> Result<Box<Channel>, Errno> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC)?;
        let base = rdma_event_channel { fd: fd.as_raw_fd() };
        Ok(Box::new(Channel { base, queue: Arc::new(Queue { entries: Mutex::default(), fd }) }))
    }

    pub(crate) fn as_c(&self) -> *mut rdma_event_channel {
        (&raw const *self).cast_mut().cast()
    }

    /// The next event that is for the program; waits for it, unless its descriptor says not to.
    pub(crate) fn next(&self) -> Result<Box<CmEvent>, Errno> {
        loop {
            match self.queue.pop() {
                Some(entry) => {
                    if let Some(event) = event::process(entry) {
                        return Ok(event);
                    }
                }
                None => wait_readable(self.queue.fd.as_fd())?,
            }
        }
    }
}

/// `rdma_create_event_channel`.
pub(crate) extern "C" fn create() -> *mut rdma_event_channel {
    pointer(Channel::new)
}

/// `rdma_destroy_event_channel`. Its ids are destroyed before.
pub(crate) extern "C" fn destroy(channel: *mut Channel) {
    // In the child of a fork there is nobody to refuse to.
    if fork::check().is_err() {
        return;
    }
    // SAFETY: it is from `create`, and the program does not use it any more.
    let channel = unsafe { Box::from_raw(channel) };
    let left: Vec<Entry> = channel.queue.entries().drain(..).collect();
    if !left.is_empty() {
        channel.queue.show(&VecDeque::new());
    }
    left.into_iter().for_each(Entry::refuse);
    let mut gone = GONE.lock().unwrap_or_else(|p| p.into_inner());
    gone.push_back(channel);
    if gone.len() > MOST_GONE {
        gone.pop_front();
    }
}

/// `rdma_get_cm_event`.
pub(crate) extern "C" fn get_event(channel: &Channel, out: &mut *mut CmEvent) -> c_int {
    minus_one(|| {
        *out = Box::into_raw(channel.next()?);
        Ok(())
    })
}

/// `rdma_ack_cm_event`: the event is gone.
pub(crate) extern "C" fn acknowledge(event: *mut CmEvent) -> c_int {
    minus_one(|| {
        if event.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: it is from `get_event`, and acknowledged once.
        unsafe { Box::from_raw(event) }.acknowledged();
        Ok(())
    })
}
