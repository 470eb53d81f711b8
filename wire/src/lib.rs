//! RoCEv2 on the wire: every header, the ICRC, PSN arithmetic, MADs, segmentation.
//!
//! No state, no allocation, no unsafe code and no panic on any input. Headers that are read or patched in place are
//! views (`Packet<T>` over borrowed bytes, `check_len` first); beside each stands a plain `Repr` with `parse` and `emit`.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

mod bytes;
pub mod error;
pub mod mad;
pub mod psn;

pub use error::{Error, NotRoce};
pub use psn::Psn;
