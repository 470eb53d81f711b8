//! Validation of work requests that does not depend on the queue pair's state: done once, when a work request is posted.

use softnic_wire::PathMtu;
use softnic_wire::segment::MAX_MESSAGE;

use crate::qp::Caps;
use crate::wr::Data;
use crate::{BestEffort, PostError, RecvWr, SendOp, SendWr};

/// The operations that a transport supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operations {
    /// All operations.
    All,
    /// Operations that tolerate partial loss: no atomic, and no SEND with invalidate, because the invalidation could be lost.
    BestEffort,
    /// Operations without an answer: no READ, no atomic, and no SEND with invalidate, which is for RC only (IBA table 38).
    Unanswered,
    /// SENDs, each to the address in its work request.
    Datagrams,
}

/// The operations of a transport, equal for all of its queue pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Supported {
    /// Its operations.
    pub operations: Operations,
    /// Whether it supports the deadlines of work requests; if not, they are refused.
    pub deadlines: bool,
}

/// The rules for the send work requests of one queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendRules {
    pub(crate) max_inline: u16,
    pub(crate) max_sge: u8,
    /// The longest message, if it is limited to one packet.
    packet: Option<PathMtu>,
    supported: Supported,
}

impl SendRules {
    /// For messages of any length.
    pub(crate) fn new(caps: &Caps, supported: Supported) -> SendRules {
        let Caps { max_send_sge, max_inline, .. } = *caps;
        let (max_sge, max_inline) = (max_send_sge.min(u8::MAX.into()) as u8, max_inline.min(u16::MAX.into()) as u16);
        SendRules { max_inline, max_sge, packet: None, supported }
    }

    /// For messages of one packet.
    pub(crate) fn of_one_packet(self, mtu: PathMtu) -> SendRules {
        SendRules { packet: Some(mtu), ..self }
    }

    /// Whether work requests may have deadlines.
    pub fn deadlines(&self) -> bool {
        self.supported.deadlines
    }

    pub(crate) fn set_deadlines(&mut self, keeps: bool) {
        self.supported.deadlines = keeps;
    }

    #[cold]
    fn check_best_effort(&self, work: &BestEffort, takes_data: bool) -> Result<(), PostError> {
        if !self.supported.deadlines {
            return Err(PostError::NoDeadlines);
        }
        if work.stride > BestEffort::MAX_STRIDE || work.stride > 0 && !work.stride.is_power_of_two() {
            return Err(PostError::Stride);
        }
        if work.bitmap.is_some() && !takes_data { Err(PostError::Bitmap) } else { Ok(()) }
    }

    /// Whether a work request follows the rules. Room in the queue and the state of the queue pair are not checked.
    ///
    /// # Errors
    /// All of [`PostError`] except [`PostError::QueueFull`] and [`PostError::State`].
    #[inline]
    pub fn check(&self, wr: &SendWr<'_>) -> Result<(), PostError> {
        let takes_data = wr.op.awaits_data();
        if let Some(work) = wr.best_effort {
            self.check_best_effort(work, takes_data)?;
        }
        let exists = match self.supported.operations {
            Operations::All => true,
            Operations::BestEffort => {
                !matches!(wr.op, SendOp::SendInv { .. } | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. })
            }
            Operations::Unanswered => !takes_data && !matches!(wr.op, SendOp::SendInv { .. }),
            Operations::Datagrams => matches!(wr.op, SendOp::Send | SendOp::SendImm { .. }),
        };
        if !exists {
            return Err(PostError::NoSuchOperation);
        }
        if wr.to.is_some() != (self.supported.operations == Operations::Datagrams) {
            return Err(PostError::Address);
        }
        match wr.data {
            Data::Inline(_) if takes_data || wr.op.is_local() => return Err(PostError::InlineNotAllowed),
            Data::Inline(bytes) if bytes.len() > usize::from(self.max_inline) => return Err(PostError::InlineTooLong),
            Data::Gather(sges) if sges.len() > usize::from(self.max_sge) => return Err(PostError::TooManySges),
            _ => {}
        }
        let len = wr.data.len();
        if len > u64::from(self.packet.map_or(MAX_MESSAGE, PathMtu::bytes)) {
            return Err(PostError::MessageTooLong);
        }
        if takes_data && !matches!(wr.op, SendOp::Read { .. }) && len != 8 {
            return Err(PostError::AtomicLength);
        }
        Ok(())
    }
}

/// The rules for the work requests of a receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecvRules {
    /// Maximum number of elements of a receive.
    pub max_sge: u16,
    /// Whether receives may have deadlines.
    pub deadlines: bool,
}

impl RecvRules {
    /// Permits no receive that has an element.
    pub(crate) const NONE: RecvRules = RecvRules { max_sge: 0, deadlines: false };

    /// Permits receives of at most `max_sge` elements, without deadlines.
    pub fn new(max_sge: u32) -> RecvRules {
        RecvRules { max_sge: max_sge.min(u16::MAX.into()) as u16, deadlines: false }
    }

    /// Also permits deadlines.
    pub fn with_deadlines(self) -> RecvRules {
        RecvRules { deadlines: true, ..self }
    }

    /// Whether a work request follows the rules.
    ///
    /// # Errors
    /// [`PostError::NoDeadlines`], [`PostError::Stride`] and [`PostError::TooManySges`].
    #[inline]
    pub fn check(&self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        if let Some(work) = wr.best_effort {
            if !self.deadlines {
                return Err(PostError::NoDeadlines);
            }
            if work.stride > 1 {
                return Err(PostError::Stride);
            }
        }
        if wr.sges.len() > usize::from(self.max_sge) {
            return Err(PostError::TooManySges);
        }
        Ok(())
    }
}
