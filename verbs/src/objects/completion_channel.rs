//! Completion channels: a descriptor to sleep on until one of several completion queues has an event.

use std::os::fd::{AsFd, AsRawFd};

use softnic_runtime::api::CompletionChannel;

use crate::abi::*;
use crate::c_result::{pointer, status};
use crate::fork::Generation;
use crate::objects::context::ContextPtr;
use crate::objects::handle::{self, Object, ObjectKind, Pointer};
use crate::objects::users::Users;

/// A completion channel.
#[repr(C)]
pub(crate) struct Channel {
    base: ibv_comp_channel,
    pub(crate) ours: ChannelOurs,
}

pub(crate) struct ChannelOurs {
    /// The process that created it.
    pub(crate) made_in: Generation,
    pub(crate) channel: CompletionChannel,
    pub(crate) users: Users,
}

impl Object for Channel {
    const KIND: ObjectKind = ObjectKind::Channel;

    unsafe fn identity(this: *const Channel) -> (u32, *mut ibv_context) {
        // SAFETY: guaranteed by the contract.
        unsafe { (0, (*this).base.context) }
    }
}

/// `ibv_create_comp_channel`.
pub(crate) extern "C" fn create(context: ContextPtr<'_>) -> *mut ibv_comp_channel {
    pointer(|| {
        context.check_process()?;
        let channel = CompletionChannel::new()?;
        let base = ibv_comp_channel { context: context.as_c(), fd: channel.as_fd().as_raw_fd(), refcnt: 0 };
        let channel = Box::new(Channel {
            base,
            ours: ChannelOurs { made_in: Generation::current(), channel, users: Users::default() },
        });
        handle::add(&*channel);
        Ok(channel)
    })
}

/// `ibv_destroy_comp_channel`. EBUSY while completion queues use it.
pub(crate) extern "C" fn destroy(channel: Pointer<Channel>) -> c_int {
    status(|| {
        channel.remove(|channel| channel.ours.users.none())?;
        // SAFETY: `create` allocated this box, and no code uses it any more.
        drop(unsafe { Box::from_raw(channel.as_ptr()) });
        Ok(())
    })
}
