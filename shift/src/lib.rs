//! SHIFT: a connection goes on by a second NIC of its host when the first one, its link, its switch or the peer's NIC fails, and comes
//! back when that is over (Lin et al., *SHIFT: Exploring the Boundary of RDMA Network Fault Tolerance*).
//!
//! [`DualNic`] is two NICs as one Node: a program has its queue pairs at the first, and those that are protected have another one, at the
//! second, of which it knows nothing. [`machine`] has the states of a connection; what they ask for is done by `dual`.

mod connection;
mod counters;
mod dual;
pub mod machine;
mod work;

pub use counters::FailoverCounters;
pub use dual::{Config, DualNic, Lookup, Notice, ProtectError, Request, Store};
pub use machine::{Reason, Refusal, Times};
