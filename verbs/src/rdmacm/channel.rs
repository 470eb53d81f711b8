//! Event channels: a queue of events for ids, with a descriptor that is readable while the queue is not empty.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::pending::{Entry, Queue};
use crate::abi::*;
use crate::c_result::pointer;
use crate::errno::Errno;
use crate::per_process::PerProcess;

/// Destroyed channels, up to a maximum number: a thread may still wait for an event of one, as a thread of `rping` does when the program
/// ends.
static GONE: PerProcess<Mutex<VecDeque<Box<Channel>>>> = PerProcess::new();
const MOST_GONE: usize = 16;

/// A channel.
#[repr(C)]
pub(crate) struct Channel {
    base: rdma_event_channel,
    pub(crate) queue: Arc<Queue>,
}

impl Channel {
    pub(crate) fn new() -> Result<Box<Channel>, Errno> {
        let queue = Queue::new()?;
        Ok(Box::new(Channel { base: rdma_event_channel { fd: queue.fd() }, queue: Arc::new(queue) }))
    }

    pub(crate) fn as_c(&self) -> *mut rdma_event_channel {
        (&raw const *self).cast_mut().cast()
    }
}

/// `rdma_create_event_channel`.
pub(crate) extern "C" fn create() -> *mut rdma_event_channel {
    pointer(Channel::new)
}

/// `rdma_destroy_event_channel`. Its ids must be destroyed first.
pub(crate) extern "C" fn destroy(channel: *mut Channel) {
    // SAFETY: the channel is from `create`.
    if unsafe { &*channel }.queue.made_in.check().is_err() {
        return;
    }
    // SAFETY: as above, and the program does not use the channel any more.
    let channel = unsafe { Box::from_raw(channel) };
    channel.queue.drain().into_iter().for_each(Entry::refuse);
    let mut gone = GONE.get().lock().unwrap_or_else(|p| p.into_inner());
    gone.push_back(channel);
    if gone.len() > MOST_GONE {
        gone.pop_front();
    }
}
