//! Errors of streams.

use super::{HANDSHAKE, MAX_LISTENERS, MAX_STREAMS, TIMEOUT};
use crate::neighbours::NeighbourError;

/// Why a stream could not be opened, or has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// There is no such stream, or it was closed.
    #[error("no such stream")]
    NoSuchStream,
    /// The peer does not listen to the port.
    #[error("the peer refused the connection")]
    Refused,
    /// The peer reset the connection.
    #[error("the peer reset the connection")]
    Reset,
    /// The peer did not answer the connection request.
    #[error("the peer did not answer within {} s", HANDSHAKE.as_secs())]
    NoAnswer,
    /// The peer has been silent for too long.
    #[error("nothing was heard of the peer for {} s", TIMEOUT.as_secs())]
    TimedOut,
    /// The owner has shut the stream down and cannot write any more.
    #[error("the stream was shut down")]
    ShutDown,
    /// The port has no TCP.
    #[error("the port has no streams")]
    NoStreams,
    /// The port is already listened to.
    #[error("port {0} is listened to already")]
    PortInUse(u16),
    /// Not a TCP port, or not the address of a host.
    #[error("no address and port that can be connected to")]
    NoEndpoint,
    /// The limit on listeners is reached.
    #[error("there are {MAX_LISTENERS} listeners already")]
    TooManyListeners,
    /// The limit on streams is reached.
    #[error("there are {MAX_STREAMS} streams already")]
    TooManyStreams,
    /// The peer's MAC address cannot be resolved.
    #[error(transparent)]
    Neighbour(#[from] NeighbourError),
}
