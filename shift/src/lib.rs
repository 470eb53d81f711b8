//! SHIFT: failover of RDMA connections to a second NIC of the host. A connection moves to the backup NIC when the default NIC, its link,
//! its switch or the peer's NIC fails, and returns when the default path works again (Lin et al., *SHIFT: Exploring the Boundary of RDMA
//! Network Fault Tolerance*).
//!
//! [`DualNic`] presents two NICs as one Node. A program creates its queue pairs at the default NIC. Each protected queue pair has a
//! counterpart at the backup NIC, which the program does not see. [`machine`] holds the states of a connection; `dual` carries out the
//! actions that these states request.

mod connection;
mod counters;
mod dual;
pub mod machine;
mod work;

pub use counters::FailoverCounters;
pub use dual::{Config, DualNic, Lookup, Notice, ProtectError, Request, Store};
pub use machine::{Reason, Refusal, Times};
