//! Taking and acknowledging events: asynchronous events, and those of completion channels.

use std::os::fd::AsFd;

use crate::abi::*;
use crate::c_result::minus_one;
use crate::objects::completion_channel::Channel;
use crate::objects::completion_queue::Cq;
use crate::objects::context::ContextPtr;
use crate::objects::event_queue::{
    IBV_EVENT_CLIENT_REREGISTER, IBV_EVENT_CQ_ERR, IBV_EVENT_DEVICE_FATAL, IBV_EVENT_GID_CHANGE, IBV_EVENT_PORT_ACTIVE,
    IBV_EVENT_SM_CHANGE, IBV_EVENT_SRQ_ERR, IBV_EVENT_SRQ_LIMIT_REACHED, Unacknowledged, wait_readable,
};
use crate::objects::queue_pair::Qp;
use crate::objects::shared_receive::Srq;

/// The counter of unacknowledged events of the object of an event.
///
/// # Safety
/// The element is of the kind of the event, and alive.
unsafe fn count_of<'a>(kind: c_int, element: usize) -> Option<&'a Unacknowledged> {
    // SAFETY: guaranteed by the contract, in each case.
    unsafe {
        match kind {
            IBV_EVENT_CQ_ERR => Some(&(*(element as *const Cq)).ours.async_events),
            IBV_EVENT_SRQ_LIMIT_REACHED | IBV_EVENT_SRQ_ERR => Some(&(*(element as *const Srq)).ours.async_events),
            // Events of the device, or of its port.
            IBV_EVENT_DEVICE_FATAL
            | IBV_EVENT_PORT_ACTIVE..=IBV_EVENT_SM_CHANGE
            | IBV_EVENT_CLIENT_REREGISTER
            | IBV_EVENT_GID_CHANGE => None,
            _ => Some(&(*(element as *const Qp)).ours.async_events),
        }
    }
}

/// `ibv_get_async_event`.
pub(crate) extern "C" fn get_async(context: ContextPtr<'_>, event: &mut ibv_async_event) -> c_int {
    minus_one(|| {
        context.check_process()?;
        let queue = &context.ours.events;
        let took = |kind, element| {
            // SAFETY: the object exists: it is only freed after `forget`, which waits for the lock that is held now.
            if let Some(count) = unsafe { count_of(kind, element) } {
                count.took_one();
            }
        };
        loop {
            if let Some((event_type, element)) = queue.pop(took) {
                *event = ibv_async_event { element, event_type };
                return Ok(());
            }
            queue.wait()?;
        }
    })
}

/// `ibv_ack_async_event`.
pub(crate) extern "C" fn acknowledge_async(event: &ibv_async_event) {
    // SAFETY: the program got this event, so its object is kept until the acknowledgement.
    if let Some(count) = unsafe { count_of(event.event_type, event.element) } {
        count.acknowledge(1);
    }
}

/// `ibv_get_cq_event`.
pub(crate) extern "C" fn get_completion(
    channel: &Channel,
    cq: &mut *mut ibv_cq,
    cq_context: &mut *mut c_void,
) -> c_int {
    minus_one(|| {
        channel.ours.made_in.check()?;
        loop {
            let took = |name: u64| {
                let found = std::ptr::with_exposed_provenance::<Cq>(name as usize);
                // SAFETY: the queue exists: it is only freed after `forget`, which waits for the channel's lock that is held now.
                unsafe { &*found }.ours.completion_events.took_one();
            };
            if let Some(name) = channel.ours.channel.next_event_with(took) {
                let found = std::ptr::with_exposed_provenance::<Cq>(name as usize);
                // SAFETY: the event is not acknowledged, so the queue is kept.
                (*cq, *cq_context) = unsafe { ((*found).as_c(), (*found).base.cq.cq_context) };
                return Ok(());
            }
            wait_readable(channel.ours.channel.as_fd())?;
        }
    })
}

/// `ibv_ack_cq_events`.
pub(crate) extern "C" fn acknowledge_completions(cq: &Cq, events: c_uint) {
    cq.ours.completion_events.acknowledge(events.into());
}
