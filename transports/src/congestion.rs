//! Congestion control: limits the amount of data in flight, and the send rate, of a queue pair.

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

/// The negotiation of credit exchanges no settings.
pub(crate) const EXTENSION: Extension = Extension { bit: Extensions::EQDS, range: 0..0, is_usable: |_| true };

/// A signal from the network or the peer about sent packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feedback {
    /// Bytes were acknowledged.
    Acknowledged {
        /// The number of bytes.
        bytes: u64,
        /// Round-trip time, if a timed packet that was sent only once was acknowledged.
        rtt: Option<Duration>,
    },
    /// A congestion notification packet arrived.
    CongestionNotification,
    /// A loss was detected by a NAK.
    Loss,
    /// A loss was detected by a timeout.
    Timeout,
}

/// The congestion controller of one queue pair. Without a controller a queue pair sends without limit.
pub trait CongestionControl: Send {
    /// Processes a signal.
    fn on_feedback(&mut self, now: Instant, feedback: Feedback);

    /// A packet of `bytes` bytes on the wire is sent now.
    fn on_sent(&mut self, now: Instant, bytes: u32);

    /// Maximum number of payload bytes in flight.
    fn window(&self) -> u64;

    /// The earliest time for the next packet (pacing).
    fn next_send(&self) -> Instant;

    /// Whether READ responses are paced by [`next_send`](Self::next_send) as requests are, and count as sent. Not if the pace is derived
    /// from a window, which covers requests only.
    fn paces_answers(&self) -> bool {
        true
    }

    /// Whether the controller needs feedback about received packets, on transports that do not acknowledge packets by themselves.
    fn wants_feedback(&self) -> bool {
        self.window() != u64::MAX
    }

    /// Number of payload bytes after which the next packet requests an acknowledgement, although more may be sent: determines how often the
    /// round-trip time is measured.
    fn ask_every(&self) -> u64 {
        u64::MAX
    }

    /// The send rate in bits per second, if the controller has one; for observers.
    fn rate(&self) -> Option<u64> {
        None
    }

    /// The queue pair was reset: returns to the initial state.
    fn reset(&mut self);
}
