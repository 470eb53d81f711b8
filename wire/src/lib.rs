//! RoCEv2 on the wire: every header, the ICRC, PSN arithmetic, MADs, segmentation.
//!
//! No state, no allocation, no unsafe code and no panic on any input. Headers that are read or patched in place are
//! views (`Packet<T>` over borrowed bytes, `check_len` first); beside each stands a plain `Repr` with `parse` and `emit`.
//! Receiving: [`Layout::locate`], [`icrc::verify`], [`RocePacket::parse_at`]. Sending: a [`Template`] per queue pair.
//! Passing on: [`transit`] and [`rewrite::Passing`].
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod aeth;
pub mod auth;
pub mod bth;
mod bytes;
mod error;
pub mod ethernet;
pub mod ext;
pub mod failover;
#[doc(hidden)]
pub mod fuzz;
pub mod grh;
pub mod icrc;
pub mod ipv4;
pub mod ipv6;
mod layout;
pub mod lowar;
pub mod mad;
mod node;
pub mod opcode;
mod packet;
pub mod pause;
mod psn;
mod qpn;
pub mod rewrite;
pub mod sdr;
pub mod segment;
mod settings;
pub mod sr;
mod template;
#[cfg(test)]
pub(crate) mod tests;
mod time;
pub mod transit;
mod tx;
pub mod udp;
pub mod xp;

pub use aeth::Aeth;
pub use error::{Error, NotRoce};
pub use ethernet::MacAddr;
pub use ext::ExtHeaders;
pub use layout::{Carrier, Layout};
pub use node::Node;
pub use opcode::Opcode;
pub use packet::{RoceHeaders, RocePacket};
pub use psn::Psn;
pub use qpn::Qpn;
pub use segment::PathMtu;
pub use template::{Addresses, PacketFields, Path, Template};
pub use time::Instant;
pub use tx::TxFrame;
