//! Congestion control: how much and how fast a queue pair may send.

mod credit;
mod credit_pacer;
pub mod dcqcn;
mod eqds;
mod fixed;
mod notification;
mod point;
mod spec;
pub mod swift;
mod token_bucket;

use std::time::Duration;

pub use credit_pacer::CreditPacer;
pub use dcqcn::{Dcqcn, DcqcnConfig};
pub use eqds::EqdsConfig;
pub use fixed::Fixed;
pub use notification::INTERVAL as CNP_INTERVAL;
pub use spec::{Cc, CcError, Units};

pub(crate) use credit::{frame, longest_frame, on_wire};
pub(crate) use eqds::Credit;
pub(crate) use point::CongestionPoint;
#[cfg(test)]
pub(crate) use point::looked_at;
use softnic_wire::Instant;
use softnic_wire::mad::vendor::Extensions;
pub use swift::{Swift, SwiftConfig};
pub use token_bucket::TokenBucket;

use crate::negotiation::Extension;

/// Credit needs no settings of the peer's.
pub(crate) const EXTENSION: Extension = Extension { bit: Extensions::EQDS, range: 0..0, is_usable: |_| true };

/// A signal of the network or the peer about packets that were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feedback {
    /// Bytes left the window.
    Acknowledged {
        /// How many.
        bytes: u64,
        /// Round-trip time, where a packet that was timed and sent only once tells it.
        rtt: Option<Duration>,
    },
    /// A congestion notification packet came.
    CongestionNotification,
    /// Loss was noticed by a NAK.
    Loss,
    /// Loss was noticed by a timeout.
    Timeout,
}

/// A congestion controller of one queue pair. Without one a queue pair sends at will.
pub trait CongestionControl: Send {
    /// Takes a signal.
    fn on_feedback(&mut self, now: Instant, feedback: Feedback);

    /// A packet of `bytes` on the wire leaves now.
    fn on_sent(&mut self, now: Instant, bytes: u32);

    /// Payload bytes that may be in flight.
    fn window(&self) -> u64;

    /// The next packet may leave at this time: pacing.
    fn next_send(&self) -> Instant;

    /// Whether READ responses wait for [`next_send`](Self::next_send) as requests do, and count as sent: not where the pace follows from a
    /// window, which is of requests alone.
    fn paces_answers(&self) -> bool {
        true
    }

    /// Whether it wants to hear of packets that came, where nothing acknowledges them by itself.
    fn wants_feedback(&self) -> bool {
        self.window() != u64::MAX
    }

    /// Payload bytes after which the next packet asks for an answer, although more may leave: round trips are to be measured that often.
    fn ask_every(&self) -> u64 {
        u64::MAX
    }

    /// The rate that it sends at, in bits a second, where it has one: for whoever watches.
    fn rate(&self) -> Option<u64> {
        None
    }

    /// The queue pair was reset: it begins anew.
    fn reset(&mut self);
}
