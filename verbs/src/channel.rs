//! Completion channels: a descriptor to sleep on until one of several completion queues has something.

use std::os::fd::{AsFd, AsRawFd};

use softnic_runtime::api::CompletionChannel;

use crate::abi::*;
use crate::completion::Cq;
use crate::context::ContextPtr;
use crate::domain::Users;
use crate::errno::{minus_one, pointer, status};
use crate::events::wait_readable;

/// A completion channel.
#[repr(C)]
pub(crate) struct Channel {
    base: ibv_comp_channel,
    pub(crate) ours: ChannelOurs,
}

pub(crate) struct ChannelOurs {
    pub(crate) channel: CompletionChannel,
    pub(crate) users: Users,
}

/// `ibv_create_comp_channel`.
pub(crate) extern "C" fn create(context: ContextPtr<'_>) -> *mut ibv_comp_channel {
    pointer(|| {
        let channel = CompletionChannel::new()?;
        let base = ibv_comp_channel { context: context.as_c(), fd: channel.as_fd().as_raw_fd(), refcnt: 0 };
        Ok(Box::new(Channel { base, ours: ChannelOurs { channel, users: Users::default() } }))
    })
}

/// `ibv_destroy_comp_channel`. EBUSY while completion queues use it.
pub(crate) extern "C" fn destroy(channel: *mut Channel) -> c_int {
    status(|| {
        // SAFETY: it is from `create`, and the program does not use it afterwards.
        unsafe { &(*channel).ours.users }.none()?;
        // SAFETY: `create` made a box of it, and nobody uses it.
        drop(unsafe { Box::from_raw(channel) });
        Ok(())
    })
}

/// `ibv_get_cq_event`.
pub(crate) extern "C" fn get_event(channel: &Channel, cq: &mut *mut ibv_cq, cq_context: &mut *mut c_void) -> c_int {
    minus_one(|| {
        loop {
            let took = |name: u64| {
                let found = std::ptr::with_exposed_provenance::<Cq>(name as usize);
                // SAFETY: its queue is there: it is only freed after `forget`, which waits for the channel's lock that is held now.
                unsafe { &*found }.ours.completion_events.took_one();
            };
            if let Some(name) = channel.ours.channel.next_event_with(took) {
                let found = std::ptr::with_exposed_provenance::<Cq>(name as usize);
                // SAFETY: the event is not acknowledged, so the queue stays.
                (*cq, *cq_context) = unsafe { ((*found).as_c(), (*found).base.cq.cq_context) };
                return Ok(());
            }
            wait_readable(channel.ours.channel.as_fd())?;
        }
    })
}

/// `ibv_ack_cq_events`.
pub(crate) extern "C" fn acknowledge(cq: &Cq, events: c_uint) {
    cq.ours.completion_events.acknowledge(events.into());
}
