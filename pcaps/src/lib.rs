//! Captures: reading and writing pcap and pcapng files, and decoding the RoCE packets in them.
//!
//! [`Reader`] takes any `Read`, a pipe as well as a file, and hands out each [`Frame`] as soon as its bytes are there.
//! [`PcapWriter`] and [`PcapngWriter`] write to any `Write` without allocating per packet. [`payload`] says where
//! the network layer of a frame begins. No input makes any of them panic.
#![forbid(unsafe_code)]

pub mod analysis;
mod authenticated;
pub mod best_effort;
pub mod decode;
mod error;
pub mod faults;
#[doc(hidden)]
pub mod fuzz;
pub mod groups;
mod link;
mod number;
mod pcapng;
mod reader;
pub mod sack;
pub mod sdr;
pub mod sequence;
mod source;
pub mod summary;
mod time;
mod writer;

pub use error::Error;
pub use link::{LinkType, Payload, payload};
pub use number::PacketNumber;
pub use reader::{Frame, Reader};
pub use time::Timestamp;
pub use writer::{Direction, InterfaceId, PcapWriter, PcapngWriter, Precision};

/// The longest captured packet that is believed, in bytes.
///
/// No link carries frames near this size; a longer claim in a file is damage, and must not become an allocation.
pub const MAX_CAPTURED: usize = 16 << 20;
