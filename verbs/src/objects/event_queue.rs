//! Asynchronous events for the program: queued for the context that owns the object, and acknowledged before the object is destroyed.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use softnic_runtime::api::{Event, Qpn};

use crate::abi::*;
use crate::errno::Errno;
use crate::fork::Generation;

/// The subject of an event, by the NIC's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    Qp(u32),
    Cq(u32),
    Srq(u32),
}

pub(crate) const IBV_EVENT_CQ_ERR: c_int = 0;
pub(crate) const IBV_EVENT_QP_FATAL: c_int = 1;
const IBV_EVENT_QP_REQ_ERR: c_int = 2;
const IBV_EVENT_QP_ACCESS_ERR: c_int = 3;
const IBV_EVENT_COMM_EST: c_int = 4;
const IBV_EVENT_SQ_DRAINED: c_int = 5;
const IBV_EVENT_PATH_MIG: c_int = 6;
const IBV_EVENT_PATH_MIG_ERR: c_int = 7;
pub(crate) const IBV_EVENT_DEVICE_FATAL: c_int = 8;
pub(crate) const IBV_EVENT_PORT_ACTIVE: c_int = 9;
pub(crate) const IBV_EVENT_PORT_ERR: c_int = 10;
pub(crate) const IBV_EVENT_SM_CHANGE: c_int = 13;
pub(crate) const IBV_EVENT_SRQ_ERR: c_int = 14;
pub(crate) const IBV_EVENT_SRQ_LIMIT_REACHED: c_int = 15;
const IBV_EVENT_QP_LAST_WQE_REACHED: c_int = 16;
pub(crate) const IBV_EVENT_CLIENT_REREGISTER: c_int = 17;
pub(crate) const IBV_EVENT_GID_CHANGE: c_int = 18;

/// The verbs code of an event, and its subject; `None` as the subject means the port. Returns `None` for an event that verbs do not have.
pub(crate) fn of(event: Event) -> Option<(c_int, Option<Subject>)> {
    let qp = |kind, qpn: Qpn| (kind, Some(Subject::Qp(qpn.value())));
    Some(match event {
        Event::FellBack(..) | Event::QpHalted(..) => return None,
        Event::CommEst(qpn) => qp(IBV_EVENT_COMM_EST, qpn),
        Event::LastWqeReached(qpn) => qp(IBV_EVENT_QP_LAST_WQE_REACHED, qpn),
        Event::SqDrained(qpn) => qp(IBV_EVENT_SQ_DRAINED, qpn),
        Event::QpFatal(qpn) | Event::Unauthenticated(qpn, ..) => qp(IBV_EVENT_QP_FATAL, qpn),
        Event::QpReqErr(qpn) => qp(IBV_EVENT_QP_REQ_ERR, qpn),
        Event::QpAccessErr(qpn) => qp(IBV_EVENT_QP_ACCESS_ERR, qpn),
        Event::PathMig(qpn) => qp(IBV_EVENT_PATH_MIG, qpn),
        Event::PathMigErr(qpn) => qp(IBV_EVENT_PATH_MIG_ERR, qpn),
        Event::CqErr(cq) => (IBV_EVENT_CQ_ERR, Some(Subject::Cq(cq.0))),
        Event::SrqLimit(srq) => (IBV_EVENT_SRQ_LIMIT_REACHED, Some(Subject::Srq(srq.0))),
        Event::PortActive => (IBV_EVENT_PORT_ACTIVE, None),
        Event::PortErr => (IBV_EVENT_PORT_ERR, None),
        Event::GidChange => (IBV_EVENT_GID_CHANGE, None),
    })
}

/// The number of events that a program took and has not acknowledged: their object must not be destroyed meanwhile.
pub(crate) struct Unacknowledged {
    /// The process that created the object.
    made_in: Generation,
    count: Mutex<u64>,
    none: Condvar,
}

impl Default for Unacknowledged {
    fn default() -> Unacknowledged {
        Unacknowledged { made_in: Generation::current(), count: Mutex::default(), none: Condvar::default() }
    }
}

impl Unacknowledged {
    fn count(&self) -> MutexGuard<'_, u64> {
        self.count.lock().unwrap_or_else(|p| p.into_inner())
    }

    pub(crate) fn took_one(&self) {
        *self.count() += 1;
    }

    /// Acknowledging more events than were taken is an error of the program, and harmless. In the child of a fork there is no wait for
    /// events of the parent's objects.
    pub(crate) fn acknowledge(&self, events: u64) {
        if self.made_in.check().is_err() {
            return;
        }
        let mut count = self.count();
        *count = count.saturating_sub(events);
        if *count == 0 {
            self.none.notify_all();
        }
    }

    pub(crate) fn wait_for_none(&self) {
        let mut count = self.count();
        while *count > 0 {
            count = self.none.wait(count).unwrap_or_else(|p| p.into_inner());
        }
    }
}

/// The events of a context. The descriptor is readable while there are any.
pub(crate) struct EventQueue {
    events: Mutex<VecDeque<(c_int, usize)>>,
    fd: OwnedFd,
}

impl EventQueue {
    pub(crate) fn new() -> Result<EventQueue, Errno> {
        // Blocking, as programs expect. A program that does not want that sets O_NONBLOCK, which `wait` checks.
        Ok(EventQueue { events: Mutex::default(), fd: eventfd(0, EventfdFlags::CLOEXEC)? })
    }

    pub(crate) fn fd(&self) -> c_int {
        self.fd.as_raw_fd()
    }

    /// Waits until there is an event; EAGAIN if the program requested not to wait.
    pub(crate) fn wait(&self) -> Result<(), Errno> {
        wait_readable(self.fd.as_fd())
    }

    fn events(&self) -> MutexGuard<'_, VecDeque<(c_int, usize)>> {
        self.events.lock().unwrap_or_else(|p| p.into_inner())
    }

    pub(crate) fn push(&self, kind: c_int, element: usize) {
        let mut events = self.events();
        events.push_back((kind, element));
        if events.len() == 1 {
            // The eventfd cannot be full: it is written once for every read.
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }

    fn drain(&self, events: &VecDeque<(c_int, usize)>) {
        if events.is_empty() {
            let _ = rustix::io::read(&self.fd, &mut [0; 8]);
        }
    }

    /// The oldest event; `took` is called while the object cannot be destroyed.
    pub(crate) fn pop(&self, took: impl FnOnce(c_int, usize)) -> Option<(c_int, usize)> {
        let mut events = self.events();
        let (kind, element) = events.pop_front()?;
        self.drain(&events);
        took(kind, element);
        Some((kind, element))
    }

    /// Drops the queued events of an object that is being destroyed.
    pub(crate) fn forget(&self, element: usize) {
        let mut events = self.events();
        if !events.is_empty() {
            events.retain(|&(_, e)| e != element);
            self.drain(&events);
        }
    }
}

/// Waits until a descriptor can be read; EAGAIN if the program requested not to wait.
pub(crate) fn wait_readable(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    if rustix::fs::fcntl_getfl(fd)?.contains(rustix::fs::OFlags::NONBLOCK) {
        return Err(Errno(libc::EAGAIN));
    }
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], None)?;
    Ok(())
}
