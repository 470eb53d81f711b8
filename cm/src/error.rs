//! Why a command is refused.

use crate::State;

/// Why a command is refused. A refused command has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The id was never assigned, or is no longer valid.
    #[error("there is no such connection (any more)")]
    NoSuchId,
    /// There is no such listener.
    #[error("there is no such listener")]
    NoSuchListener,
    /// The command is not possible in the state of the connection.
    #[error("this cannot be done to a connection in state {0:?}")]
    WrongState(State),
    /// Private data or additional information exceeds the room in the message.
    #[error("{len} bytes of private data: this message has room for {room}")]
    TooLong {
        /// Length of the given data in bytes.
        len: usize,
        /// Number of bytes that there is room for.
        room: usize,
    },
    /// The queue pair belongs to a connection, or to one that ended so recently that its packets may still be in flight.
    #[error("the queue pair belongs to another connection, or to one that ended a moment ago")]
    QpnInUse,
    /// There is a listener for this service already.
    #[error("this service is listened to already")]
    ServiceInUse,
    /// The limit on connections is reached.
    #[error("there are as many connections as the limit allows")]
    TooMany,
    /// One address is IPv4, the other IPv6.
    #[error("the two addresses are of different IP versions")]
    Versions,
    /// A queue pair with this number cannot be connected: it is 0, 1 or the multicast number.
    #[error("a queue pair with this number cannot be connected")]
    BadQpn,
}
