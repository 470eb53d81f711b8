//! Asynchronous events, delivered to the program.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use softnic_nic::transports::Event;

use crate::wake::Wake;

/// Receives asynchronous events: of queue pairs, completion queues and shared receive queues by the names they have
/// ([`super::QueuePair::qpn`], [`super::CompletionQueue::id`], [`super::SharedReceiveQueue::id`]), and of the port.
///
/// It is called by whichever thread finds the event, which may have an engine of the NIC: so it must be short, and must not call the NIC,
/// which would wait for ever. Queueing the event and waking a thread is what it is for.
#[derive(Clone)]
pub struct EventSink(Arc<dyn Fn(Event) + Send + Sync>);

impl EventSink {
    /// Calls `tell` with each event.
    pub fn new(tell: impl Fn(Event) + Send + Sync + 'static) -> EventSink {
        EventSink(Arc::new(tell))
    }
}

impl fmt::Debug for EventSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventSink")
    }
}

pub(crate) struct Events {
    sink: Option<EventSink>,
    queue: Mutex<Queue>,
    wake: Wake,
}

struct Queue {
    events: VecDeque<Event>,
    /// The last port state that was reported.
    up: bool,
}

impl Events {
    pub(crate) fn new(sink: Option<EventSink>) -> io::Result<Events> {
        let queue = Queue { events: VecDeque::new(), up: true };
        Ok(Events { sink, queue: Mutex::new(queue), wake: Wake::new()? })
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(|p| p.into_inner())
    }

    pub(crate) fn push(&self, event: Event) {
        self.tell(&mut self.queue(), event);
    }

    /// The port is up, or down: reported once, however many engines it has.
    pub(crate) fn port(&self, up: bool) {
        let mut queue = self.queue();
        if queue.up != up {
            queue.up = up;
            self.tell(&mut queue, if up { Event::PortActive } else { Event::PortErr });
        }
    }

    /// With the queue at hand, so that events are reported in their order.
    fn tell(&self, queue: &mut Queue, event: Event) {
        match &self.sink {
            Some(EventSink(tell)) => tell(event),
            None => {
                queue.events.push_back(event);
                self.wake.wake();
            }
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
