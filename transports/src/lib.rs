//! Queue-pair state machines, loss recovery and congestion control.
//!
//! Sans-IO: a queue pair takes packets and time as arguments and writes frames when polled. It reads no clock, opens no socket, spawns no
//! thread, and allocates only when it is created. Its interface to the NIC is the trait [`Host`]: memory and a destination for completions.

mod auth;
mod best_effort;
mod completion;
pub mod congestion;
mod counters;
mod endpoint;
mod event;
#[cfg(test)]
mod footprint;
mod host;
mod invariants;
pub mod lowar;
pub mod memory;
mod message;
pub mod negotiation;
mod outstanding;
#[doc(hidden)]
pub mod planted;
mod posting;
mod prefetch;
pub mod qp;
mod queue_pairs;
mod rc;
mod recv_queue;
mod recv_ring;
mod round_trip;
mod sdr;
mod send_queue;
pub mod shim;
pub mod sr;
mod state_size;
mod timers;
mod transport;
mod uc;
mod ud;
mod unreliable;
mod vitals;
mod wr;
pub mod xp;

pub use auth::{AuthError, Secret, SecretError};
#[doc(hidden)]
pub use auth::{Unsealed, fuzz_unseal};
pub use completion::{Arrival, Completion, CompletionSink, CqId, CqOverflow, PartialReason, Status, WcOpcode};
pub use counters::{Counters, Misfits};
pub use endpoint::Endpoint;
pub use event::Event;
pub use host::Host;
pub(crate) use memory::Memory;
pub use outstanding::{OutstandingRecvs, OutstandingSend, OutstandingSends, RecvsKept, SendProgress};
pub use posting::{RecvRules, SendRules};
pub use prefetch::{prefetch, prefetch_to_write};
pub(crate) use qp::{Inbound, QpState, QueuePair};
pub use queue_pairs::AnyQp;
pub use recv_queue::{RecvQueue, SrqId};
pub use sdr::{SdrOfferError, SdrOutcome};
pub use state_size::StateSize;
pub use timers::ack_timeout;
pub use transport::{Transport, TransportError};
pub use ud::QKEY_GSI;
pub use vitals::Vitals;
pub use wr::{AhId, BestEffort, Data, Datagram, PostError, RecvWr, SendFlags, SendOp, SendWr, Sge};
