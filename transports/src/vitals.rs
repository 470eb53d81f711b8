//! The state of a queue pair for observers: the progress of its work, and what delays it.
//!
//! A queue pair reports nothing by itself, so that a packet costs nothing without an observer. An observer reads the state after each frame
//! and each timer, and compares.

/// The state of a queue pair. Values that a transport does not have are 0 or `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Vitals {
    /// Number of posted send work requests; wraps around.
    pub posted: u32,
    /// Number of completed ones; wraps around.
    pub completed: u32,
    /// Number of receives posted to the queue pair itself, not to a shared queue; wraps around.
    pub receives_posted: u32,
    /// Number of receives used by messages or flushed; wraps around.
    pub receives_completed: u32,
    /// Number of its request packets that are done: acknowledged, or sent if packets are not acknowledged. Includes READ responses.
    pub requested: u64,
    /// Grows by one with each packet of the peer's requests that is accepted in order; wraps around at 2^24, and starts with any value.
    pub answered: u32,
    /// Number of packets sent and not acknowledged.
    pub in_flight: u32,
    /// Maximum number of packets in flight, if the transport limits it.
    pub window: Option<u32>,
    /// Number of payload bytes that a congestion controller permits in flight.
    pub congestion_window: Option<u64>,
    /// The send rate of a congestion controller, in bits per second.
    pub rate: Option<u64>,
    /// Number of retries since the last progress, after timeouts and NAKs.
    pub retries: u8,
    /// Number of retries since the last progress because the peer had no receive posted.
    pub rnr_retries: u8,
    /// Number of packets of messages that had ended, on transports of best effort; wraps around.
    pub late_packets: u32,
}
