//! Why there is no stream, or no more of it.

use super::{HANDSHAKE, MAX_LISTENERS, MAX_STREAMS, TIMEOUT};
use crate::neighbours::NeighbourError;

/// Why there is no stream, or no more of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// There is no such stream, or it was given back.
    #[error("no such stream")]
    NoSuchStream,
    /// Nobody listens at the peer's port.
    #[error("the peer refused the connection")]
    Refused,
    /// The peer ended it without a word.
    #[error("the peer reset the connection")]
    Reset,
    /// The peer did not answer when it was to be connected to.
    #[error("the peer did not answer within {} s", HANDSHAKE.as_secs())]
    NoAnswer,
    /// The peer is gone.
    #[error("nothing was heard of the peer for {} s", TIMEOUT.as_secs())]
    TimedOut,
    /// The owner has shut it down and cannot write any more.
    #[error("the stream was shut down")]
    ShutDown,
    /// The port has no TCP.
    #[error("the port has no streams")]
    NoStreams,
    /// A port is listened to already.
    #[error("port {0} is listened to already")]
    PortInUse(u16),
    /// No TCP port, or no address of a host.
    #[error("no address and port that can be connected to")]
    NoEndpoint,
    /// There are as many listeners as there can be.
    #[error("there are {MAX_LISTENERS} listeners already")]
    TooManyListeners,
    /// There are as many streams as there can be.
    #[error("there are {MAX_STREAMS} streams already")]
    TooManyStreams,
    /// The peer's MAC address is not to be had.
    #[error(transparent)]
    Neighbour(#[from] NeighbourError),
}
