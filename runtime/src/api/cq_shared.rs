//! The state of a completion queue that engines and the program share.
//!
//! A file of its own below both: an engine imports this, and the completion queue of the program imports engines.

use std::sync::atomic::{AtomicBool, Ordering};

use softnic_sync::cq_arm::{Batch, CqArm};

use super::completion_channel::ChannelEnd;
use crate::wake::Wake;

/// The part of a completion queue, beside the rings, that engines and the program share.
pub(crate) struct CqShared {
    /// The arm of programs that wait for this queue alone, by its own descriptor.
    pub(super) own: Option<OwnEvents>,
    pub(super) channel: Option<ChannelEnd>,
    pub(super) overflowed: AtomicBool,
}

/// The events of a queue that has a descriptor of its own.
pub(crate) struct OwnEvents {
    pub(super) arm: CqArm,
    pub(super) wake: Wake,
}

impl CqShared {
    /// Completions were put into the ring of an engine before this.
    #[inline]
    pub(crate) fn on_completions(&self, engine: usize, batch: Batch) {
        if let Some(own) = &self.own
            && own.arm.take_if(engine, batch)
        {
            own.wake.wake();
        }
        if let Some(channel) = &self.channel {
            channel.on_completions(engine, batch);
        }
    }

    /// The ring of an engine was replaced ([`CqArm::replace_ring`]).
    pub(super) fn replace_ring(&self, engine: usize, count: impl Fn(usize) -> usize) {
        if let Some(own) = &self.own {
            own.arm.replace_ring(engine, &count);
        }
        if let Some(channel) = &self.channel {
            channel.replace_ring(engine, &count);
        }
    }

    pub(crate) fn set_overflowed(&self) {
        self.overflowed.store(true, Ordering::Release);
    }
}
