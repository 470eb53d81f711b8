//! The standard's queue pair below one of XP: used until the peer has agreed, and permanently if it did not.
//!
//! Queues can be moved, because they are plain data. The sends are with XP until it is known that the peer does not support XP, and then
//! here. The receives are here, because requests of the standard may arrive, until the first packet of XP has arrived. When both are gone,
//! this queue pair is dropped.

use super::SUPPORTED;
use crate::congestion::CongestionPoint;
use crate::posting::{Operations, Supported};
use crate::qp::{Config, QpKind};
use crate::rc::Rc;
use crate::recv_queue::Receives;
use crate::send_queue::SendQueue;
use crate::uc::Uc;
use crate::{Host, QueuePair};

/// RC or UC.
pub(super) enum Standard {
    Rc(Box<Rc>),
    Uc(Box<Uc>),
}

/// Calls the same method of either one.
macro_rules! either {
    ($standard:expr, $qp:ident => $call:expr) => {
        match $standard {
            $crate::xp::standard::Standard::Rc($qp) => $call,
            $crate::xp::standard::Standard::Uc($qp) => $call,
        }
    };
}
pub(super) use either;

/// The work requests that a queue pair supports if its program sees this kind.
pub(super) fn supported(kind: QpKind) -> Supported {
    match kind {
        QpKind::Uc => Supported { operations: Operations::Unanswered, ..SUPPORTED },
        _ => SUPPORTED,
    }
}

impl Standard {
    /// Creates a queue pair in the reset state, without room for sends.
    pub(super) fn new(kind: QpKind, config: &Config) -> Standard {
        let supported = supported(kind);
        let mut caps = config.caps;
        caps.max_send_wr = 0;
        let config = Config { caps, ..*config };
        match kind {
            QpKind::Uc => Standard::Uc(Box::new(Uc::supporting(&config, supported))),
            _ => Standard::Rc(Box::new(Rc::supporting(&config, 1, supported))),
        }
    }

    /// The receives, if they are still here.
    pub(super) fn receives(&self) -> &Receives {
        match self {
            Standard::Rc(rc) => &rc.responder.receives,
            Standard::Uc(uc) => &uc.common.receives,
        }
    }

    pub(super) fn receives_mut(&mut self) -> &mut Receives {
        match self {
            Standard::Rc(rc) => &mut rc.responder.receives,
            Standard::Uc(uc) => &mut uc.common.receives,
        }
    }

    /// The send queue, which is moved here and back.
    pub(super) fn sends_mut(&mut self) -> &mut SendQueue {
        match self {
            Standard::Rc(rc) => &mut rc.requester.queue,
            Standard::Uc(uc) => &mut uc.common.queue,
        }
    }

    /// Whether a message of the standard is partly received.
    pub(super) fn is_receiving(&self) -> bool {
        match self {
            Standard::Rc(rc) => rc.responder.is_receiving(),
            Standard::Uc(uc) => uc.message.received().is_some(),
        }
    }

    /// Whether none of its sends was executed.
    pub(super) fn is_untouched(&self) -> bool {
        match self {
            Standard::Rc(rc) => rc.requester.is_untouched(),
            Standard::Uc(uc) => uc.common.next == 0 && uc.common.queue.is_untouched(),
        }
    }

    /// The congestion control of the sends, which moves with the send queue.
    pub(super) fn congestion_mut(&mut self) -> &mut CongestionPoint {
        match self {
            Standard::Rc(rc) => &mut rc.requester.congestion,
            Standard::Uc(uc) => &mut uc.congestion,
        }
    }

    pub(super) fn fail(&mut self, host: &mut impl Host) {
        either!(self, qp => qp.fail(host));
    }
}
