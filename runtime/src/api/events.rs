//! Events beside all completions, on their way to the program.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard};

use softnic_nic::transports::Event;

use crate::wake::Wake;

pub(crate) struct Events {
    queue: Mutex<Queue>,
    wake: Wake,
}

struct Queue {
    events: VecDeque<Event>,
    /// What was told last of the port.
    up: bool,
}

impl Events {
    pub(crate) fn new() -> io::Result<Events> {
        let queue = Queue { events: VecDeque::new(), up: true };
        Ok(Events { queue: Mutex::new(queue), wake: Wake::new()? })
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(|p| p.into_inner())
    }

    pub(crate) fn push(&self, event: Event) {
        self.queue().events.push_back(event);
        self.wake.wake();
    }

    /// The port is up, or down: told once, however many engines it has.
    pub(crate) fn port(&self, up: bool) {
        let mut queue = self.queue();
        if queue.up != up {
            queue.up = up;
            queue.events.push_back(if up { Event::PortActive } else { Event::PortErr });
            self.wake.wake();
        }
    }

    pub(crate) fn poll(&self) -> Option<Event> {
        let mut queue = self.queue();
        let event = queue.events.pop_front();
        if queue.events.is_empty() {
            self.wake.drain();
        }
        event
    }
}

/// Readable while there is an event.
impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
