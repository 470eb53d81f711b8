//! Events for the program: queued until the program takes them.

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

/// A callback that may delay events, if one is set. Returns whether the event was queued, or will be.
pub(crate) static HOLD: OnceLock<fn(&Arc<Shared>, IdEvent) -> bool> = OnceLock::new();

/// An event of an id.
pub(crate) struct Entry {
    pub(crate) to: Arc<Shared>,
    pub(crate) what: IdEvent,
}

/// The kinds of events.
pub(crate) enum IdEvent {
    /// The addresses were resolved, or not.
    Address(Result<Resolved, Errno>),
    /// The route was resolved, or not.
    Route(Result<u8, Errno>),
    /// A listener has a request: the shared state of the new id, and its device.
    Request { child: Arc<Shared>, device: &'static CmDevice, route: Route, event: Box<Event> },
    /// An event of the connection manager.
    Cm(Event),
    /// A group was joined, or not.
    Multicast(Box<Joined>),
    /// A simulated fault: an event, and its status.
    Played(c_int, c_int),
}

impl Entry {
    /// The program will not see the entry: a request is refused.
    pub(crate) fn refuse(self) {
        if let IdEvent::Request { device, event, .. } = self.what {
            device.manager.destroy(event.id());
        }
    }
}

/// The result of an address resolution.
pub(crate) struct Resolved {
    pub(crate) device: &'static CmDevice,
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    /// A port that was taken for it.
    pub(crate) port: Option<Port>,
}

/// A requested group; the program has not taken the result yet.
pub(crate) struct Joined {
    pub(crate) group: IpAddr,
    pub(crate) listens: bool,
    pub(crate) context: usize,
}

/// The queue of a channel.
pub(crate) struct Queue {
    /// The process that created it.
    pub(crate) made_in: Generation,
    entries: Mutex<VecDeque<Entry>>,
    /// Blocking, as programs expect. A program that does not want that sets O_NONBLOCK, which is checked when the queue is empty.
    fd: OwnedFd,
}

impl Queue {
    pub(crate) fn new() -> Result<Queue, Errno> {
        Ok(Queue { made_in: Generation::current(), entries: Mutex::default(), fd: eventfd(0, EventfdFlags::CLOEXEC)? })
    }

    pub(crate) fn fd(&self) -> c_int {
        self.fd.as_raw_fd()
    }

    /// Waits until there is an entry; EAGAIN if the program requested not to wait.
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
            // The eventfd cannot be full: it is written once for every read.
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }

    fn show(&self, entries: &VecDeque<Entry>) {
        if entries.is_empty() {
            let _ = rustix::io::read(&self.fd, &mut [0; 8]);
        }
    }

    /// Takes the oldest entry; from now on its id waits for the acknowledgement.
    pub(crate) fn pop(&self) -> Option<Entry> {
        let mut entries = self.entries();
        let entry = entries.pop_front()?;
        self.show(&entries);
        entry.to.unacknowledged.took_one();
        Some(entry)
    }

    /// Takes out the entries of an id.
    pub(crate) fn forget(&self, of: &Arc<Shared>) -> Vec<Entry> {
        let mut entries = self.entries();
        let (gone, left): (Vec<Entry>, Vec<Entry>) = entries.drain(..).partition(|entry| Arc::ptr_eq(&entry.to, of));
        entries.extend(left);
        if !gone.is_empty() {
            self.show(&entries);
        }
        gone
    }

    /// The channel is destroyed: takes out all remaining entries.
    pub(crate) fn drain(&self) -> Vec<Entry> {
        let left: Vec<Entry> = self.entries().drain(..).collect();
        if !left.is_empty() {
            self.show(&VecDeque::new());
        }
        left
    }
}

/// The part of an id that the library's threads use: the queue for its events.
pub(crate) struct Shared {
    /// The process that owns the id.
    pub(crate) made_in: Generation,
    /// `None` when the id is destroyed.
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

    /// The queue for its events; `None` when the id is destroyed.
    pub(crate) fn queue(&self) -> MutexGuard<'_, Option<Arc<Queue>>> {
        self.queue.lock().unwrap_or_else(|p| p.into_inner())
    }

    /// The current queue for its events.
    pub(crate) fn current_queue(&self) -> Option<Arc<Queue>> {
        self.queue().clone()
    }

    /// Queues an event for the program, unless it is delayed; none any more once the id is destroyed. Returns whether it was queued, or
    /// will be.
    pub(crate) fn push(self: &Arc<Shared>, what: IdEvent) -> bool {
        match HOLD.get() {
            Some(hold) if self.queue().is_some() => hold(self, what),
            _ => self.push_now(what).is_ok(),
        }
    }

    /// Queues an event at once; returns it if the id is destroyed.
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

    /// Sets the address of the id.
    pub(crate) fn is_at(&self, address: usize) {
        self.me.store(address, Ordering::Release);
    }

    /// The address of the id; 0 until the program has taken the request for which the id is created.
    pub(crate) fn address(&self) -> usize {
        self.me.load(Ordering::Acquire)
    }

    /// A sink that queues the connection manager's events about a connection.
    pub(crate) fn sink(self: &Arc<Shared>) -> CmSink {
        let of = Arc::clone(self);
        CmSink::new(move |event| {
            of.push(IdEvent::Cm(event));
            None
        })
    }
}
