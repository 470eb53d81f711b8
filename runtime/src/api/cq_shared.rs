//! The state of a completion queue that engines and the program share.
//!
//! A file of its own below both: an engine imports this, and the completion queue of the program imports engines.

use std::sync::atomic::{AtomicBool, Ordering};

use softnic_sync::cq_arm::CqArm;

use super::completion_channel::ChannelEnd;
use crate::wake::Wake;

/// The part of a completion queue, beside the rings, that engines and the program share.
pub(crate) struct CqShared {
    /// The arm of programs that wait for this queue alone.
    pub(super) arm: CqArm,
    pub(super) wake: Wake,
    pub(super) channel: Option<ChannelEnd>,
    pub(super) overflowed: AtomicBool,
}

impl CqShared {
    /// Completions were put into a ring before this.
    #[inline]
    pub(crate) fn on_completions(&self, solicited: bool) {
        if self.arm.take_if(solicited) {
            self.wake.wake();
        }
        if let Some(channel) = &self.channel {
            channel.on_completions(solicited);
        }
    }

    pub(crate) fn set_overflowed(&self) {
        self.overflowed.store(true, Ordering::Release);
    }
}
