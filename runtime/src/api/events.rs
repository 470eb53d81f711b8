//! Events beside all completions, on their way to the program.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;

use softnic_nic::transports::Event;

use crate::wake::Wake;

pub(crate) struct Events {
    queue: Mutex<VecDeque<Event>>,
    wake: Wake,
}

impl Events {
    pub(crate) fn new() -> io::Result<Events> {
        Ok(Events { queue: Mutex::default(), wake: Wake::new()? })
    }

    pub(crate) fn push(&self, event: Event) {
        self.queue.lock().unwrap_or_else(|p| p.into_inner()).push_back(event);
        self.wake.wake();
    }

    pub(crate) fn poll(&self) -> Option<Event> {
        let mut queue = self.queue.lock().unwrap_or_else(|p| p.into_inner());
        let event = queue.pop_front();
        if queue.is_empty() {
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
