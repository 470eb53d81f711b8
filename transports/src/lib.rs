//! Queue-pair state machines, loss recovery and congestion control.
//!
//! Sans-IO: a queue pair takes packets and time as arguments and writes frames when asked; it reads no clock, opens no
//! socket, spawns no thread, and allocates only when it is created. What it needs from the NIC above it is the trait
//! [`Host`]: memory and a place for completions.

pub mod completion;
pub mod congestion;
pub mod counters;
mod deadlines;
mod endpoint;
pub mod event;
pub mod host;
mod invariants;
pub mod lowar;
pub mod memory;
mod message;
pub mod negotiation;
pub mod outstanding;
#[doc(hidden)]
pub mod planted;
pub mod posting;
pub mod prefetch;
pub mod qp;
mod queue_pairs;
pub mod rc;
pub mod recv_queue;
mod send_queue;
pub mod shim;
pub mod sr;
#[cfg(feature = "timed")]
mod timed;
mod timers;
mod transport;
pub mod uc;
pub mod ud;
mod unreliable;
pub mod wr;

pub use completion::{Completion, CompletionSink, CqOverflow, PartialReason, Status, WcOpcode};
pub use counters::Counters;
pub use endpoint::Endpoint;
pub use event::Event;
pub use host::Host;
pub use memory::{Access, AccessError, Memory, Region};
pub use qp::{Inbound, QpKind, QpState, QueuePair};
pub use queue_pairs::{AnyQp, ShimPools};
pub use softnic_wire::Instant;
pub use transport::{Transport, TransportError};
pub use wr::{PostError, RecvWr, SendFlags, SendOp, SendWr, Sge};
