//! What a queue pair tells whoever watches it: how far its work is, and what holds it back.
//!
//! A queue pair reports nothing by itself, so that a packet costs nothing for nobody's sake: whoever watches asks after each frame and each timer,
//! and sees what changed.

/// How a queue pair stands. What a transport does not have is 0 or `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Vitals {
    /// Send work requests that were posted; counts round.
    pub posted: u32,
    /// Those of them that are done; counts round.
    pub completed: u32,
    /// Receives that were posted to it, and not to a shared queue; counts round.
    pub receives_posted: u32,
    /// Receives that messages have used, or that were flushed; counts round.
    pub receives_completed: u32,
    /// Packets of its requests that are done: acknowledged, or sent where nothing is. READ responses are among them.
    pub requested: u64,
    /// Grows by one with each packet of the peer's requests that is taken in order; counts round at 2^24, and begins anywhere.
    pub answered: u32,
    /// Packets that were sent and not acknowledged.
    pub in_flight: u32,
    /// Packets that may be, where the transport limits them.
    pub window: Option<u32>,
    /// Bytes of payload that a congestion controller lets be in flight.
    pub congestion_window: Option<u64>,
    /// The rate that a congestion controller sends at, in bits a second.
    pub rate: Option<u64>,
    /// Retries since the last progress, after timeouts and NAKs.
    pub retries: u8,
    /// The same because the peer had no receive posted.
    pub rnr_retries: u8,
    /// Packets of messages that were over, of transports of best effort; counts round.
    pub late_packets: u32,
}
