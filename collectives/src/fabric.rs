//! What a rank needs of the world: messages, memory, and the time.

use std::ops::Range;

use softnic_wire::Instant;

use crate::plan::{Plan, Step};

/// The most bytes of a control message: below every MTU.
pub const MAX_CONTROL: usize = 64;

/// Memory of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Region {
    /// The buffer that the collective is about.
    Buffer,
    /// Where bytes wait for their turn.
    Scratch,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FabricEvent {
    /// The bytes of a step have left, and the buffer may change.
    Sent {
        /// The step.
        step: u32,
    },
    /// A step has received what it will.
    Received {
        /// The step.
        step: u32,
        /// Whether all that its sender sent is there; if not, [`Fabric::missing`] knows what is not.
        whole: bool,
        /// The bytes that its sender sent, which may be too few.
        len: u32,
    },
    /// A rank says something: [`Fabric::heard`] has the words.
    Control {
        /// The rank.
        peer: usize,
        /// Bytes.
        len: usize,
    },
    /// Messages with a rank come to an end.
    Failed {
        /// The rank.
        peer: usize,
        /// How a work request ended.
        why: String,
    },
}

/// Where the bytes of a message go, where its sender has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The address of the first one.
    pub addr: u64,
    /// The key, good for this message alone.
    pub key: u32,
}

/// Something could not be posted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// The queue pairs of a rank to all others, its memory and its clock.
///
/// Messages to a rank arrive in the order in which they were sent, in whole where they are reliable. What was received in part ends by its
/// deadline at the latest.
pub trait Fabric {
    /// The time.
    fn now(&self) -> Instant;

    /// Has [`Member::advance`](crate::member::Member::advance) called at a time, or before it: the member then asks again.
    fn wake_at(&mut self, at: Instant);

    /// Makes room for the steps of a plan. Nothing of an earlier plan is under way.
    ///
    /// # Errors
    /// When there is none.
    fn prepare(&mut self, plan: &Plan) -> Result<(), Refused>;

    /// Expects the message of a step, by a deadline if there is one.
    ///
    /// # Errors
    /// When it is not taken.
    fn post_receive(&mut self, index: u32, step: &Step, deadline: Option<Instant>) -> Result<(), Refused>;

    /// Where the message of a step that was posted goes, where its sender has to know.
    fn window(&self, _index: u32, _step: &Step) -> Option<Window> {
        None
    }

    /// A rank says where its n-th message from here goes, n from 0; whether there is such a message.
    fn learn(&mut self, _peer: usize, _message: u32, _window: Window) -> bool {
        false
    }

    /// Sends the message of a step, by a deadline if there is one.
    ///
    /// # Errors
    /// When it is not taken.
    fn post_send(&mut self, index: u32, step: &Step, deadline: Option<Instant>) -> Result<(), Refused>;

    /// Says something to a rank, reliably; at most [`MAX_CONTROL`] bytes.
    ///
    /// # Errors
    /// When it cannot be said.
    fn tell(&mut self, peer: usize, message: &[u8]) -> Result<(), Refused>;

    /// What happened since, one thing at a time.
    fn poll(&mut self) -> Option<FabricEvent>;

    /// The words of the [`FabricEvent::Control`] that was polled last.
    fn heard(&self) -> &[u8];

    /// The bytes of a step's message that did not come, in any order; of the last [`FabricEvent::Received`] that was not whole.
    fn missing(&mut self, index: u32, step: &Step, tell: &mut dyn FnMut(Range<u32>));

    /// Whether there are bytes in the memory at all: where frames carry none, nothing is to be computed.
    fn has_bytes(&self) -> bool;

    /// Reads memory.
    fn read(&self, region: Region, at: u64, into: &mut [u8]);

    /// Writes memory.
    fn write(&mut self, region: Region, at: u64, bytes: &[u8]);
}
