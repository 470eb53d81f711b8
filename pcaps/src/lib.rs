//! Captures: reading and writing pcap and pcapng files, and finding the network layer in their frames.
#![forbid(unsafe_code)]

pub mod link;
pub mod time;
pub mod writer;

pub use link::{LinkType, Payload};
pub use time::Timestamp;
pub use writer::{InterfaceId, PcapWriter, PcapngWriter, Precision};

/// The longest captured packet that is believed, in bytes.
///
/// No link carries frames near this size; a longer claim in a file is damage, and must not become an allocation.
pub const MAX_CAPTURED: usize = 16 << 20;
