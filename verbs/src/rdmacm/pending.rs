//! Events on their way to the program: what happened to an id, queued until the program takes it.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use rustix::event::{EventfdFlags, eventfd};
use softnic_runtime::api::CmSink;
use softnic_runtime::api::cm::{Event, Route};

use super::devices::CmDevice;
use super::ports::Port;
use crate::abi::c_int;
use crate::errno::Errno;
use crate::fork::Generation;
use crate::objects::event_queue::{Unacknowledged, wait_readable};

/// Who may hold events back on their way to the program, if anybody does. Whether the event was queued, or will be.
pub(crate) static HOLD: OnceLock<fn(&Arc<Shared>, IdEvent) -> bool> = OnceLock::new();

/// Something that happened to an id.
pub(crate) struct Entry {
    pub(crate) to: Arc<Shared>,
    pub(crate) what: IdEvent,
}

/// What happened to an id.
pub(crate) enum IdEvent {
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
    /// A fault that is played: an event, and its status.
    Played(c_int, c_int),
}

impl Entry {
    /// Nobody will see it: a request is refused.
    pub(crate) fn refuse(self) {
        if let IdEvent::Request { device, event, .. } = self.what {
            device.manager.destroy(event.id());
        }
    }
}

/// The way to an address.
pub(crate) struct Resolved {
    pub(crate) device: &'static CmDevice,
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    /// A port that was taken for it.
    pub(crate) port: Option<Port>,
}

/// A group that was asked for; the program has not seen the answer.
pub(crate) struct Joined {
    pub(crate) group: IpAddr,
    pub(crate) listens: bool,
    pub(crate) context: usize,
}

/// The queue of a channel.
pub(crate) struct Queue {
    /// The process that made it.
    pub(crate) made_in: Generation,
    entries: Mutex<VecDeque<Entry>>,
    /// Blocking, as programs expect: who does not want that sets O_NONBLOCK, which is asked for when there is nothing.
    fd: OwnedFd,
}

impl Queue {
    pub(crate) fn new() -> Result<Queue, Errno> {
        Ok(Queue { made_in: Generation::current(), entries: Mutex::default(), fd: eventfd(0, EventfdFlags::CLOEXEC)? })
    }

    pub(crate) fn fd(&self) -> c_int {
        self.fd.as_raw_fd()
    }

    /// Waits until there is an entry; EAGAIN where the program asked not to wait.
    pub(crate) fn wait(&self) -> Result<(), Errno> {
        wait_readable(self.fd.as_fd())
    }

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
    pub(crate) fn pop(&self) -> Option<Entry> {
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

    /// The channel is destroyed: takes out all that is left.
    pub(crate) fn drain(&self) -> Vec<Entry> {
        let left: Vec<Entry> = self.entries().drain(..).collect();
        if !left.is_empty() {
            self.show(&VecDeque::new());
        }
        left
    }
}

/// What threads of the library know of an id: where its events go.
pub(crate) struct Shared {
    /// The process that has it.
    pub(crate) made_in: Generation,
    /// `None` when it is destroyed.
    queue: Mutex<Option<Arc<Queue>>>,
    /// The address of the id, or 0.
    me: AtomicUsize,
    pub(crate) unacknowledged: Unacknowledged,
}

impl Shared {
    pub(crate) fn new(queue: &Arc<Queue>) -> Arc<Shared> {
        Arc::new(Shared {
            made_in: Generation::current(),
            queue: Mutex::new(Some(Arc::clone(queue))),
            me: AtomicUsize::new(0),
            unacknowledged: Unacknowledged::default(),
        })
    }

    /// Where its events go; `None` when it is destroyed.
    pub(crate) fn queue(&self) -> MutexGuard<'_, Option<Arc<Queue>>> {
        self.queue.lock().unwrap_or_else(|p| p.into_inner())
    }

    /// Where its events go now.
    pub(crate) fn current_queue(&self) -> Option<Arc<Queue>> {
        self.queue().clone()
    }

    /// Queues something for the program, unless somebody holds it back; nothing any more once the id is destroyed. Whether it was queued.
    pub(crate) fn push(self: &Arc<Shared>, what: IdEvent) -> bool {
        match HOLD.get() {
            Some(hold) if self.queue().is_some() => hold(self, what),
            _ => self.push_now(what).is_ok(),
        }
    }

    /// Queues it at once; it comes back once the id is destroyed.
    pub(crate) fn push_now(self: &Arc<Shared>, what: IdEvent) -> Result<(), Entry> {
        let entry = Entry { to: Arc::clone(self), what };
        match &*self.queue() {
            Some(queue) => {
                queue.push(entry);
                Ok(())
            }
            None => Err(entry),
        }
    }

    /// The address of the id, from now on.
    pub(crate) fn is_at(&self, address: usize) {
        self.me.store(address, Ordering::Release);
    }

    /// The address of the id; 0 as long as the program has not seen the request that brought it.
    pub(crate) fn address(&self) -> usize {
        self.me.load(Ordering::Acquire)
    }

    /// Queues what the connection manager says of a connection.
    pub(crate) fn sink(self: &Arc<Shared>) -> CmSink {
        let of = Arc::clone(self);
        CmSink::new(move |event| {
            of.push(IdEvent::Cm(event));
            None
        })
    }
}
