//! Why a command is refused.

use crate::State;

/// Why a command is refused; nothing has changed then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The id was never given out, or all is over with it.
    #[error("there is no such connection (any more)")]
    NoSuchId,
    /// There is no such listener.
    #[error("there is no such listener")]
    NoSuchListener,
    /// The connection is in a state in which this makes no sense.
    #[error("this cannot be done to a connection in state {0:?}")]
    WrongState(State),
    /// Private data or additional information is longer than the message has room for.
    #[error("{len} bytes of private data: this message has room for {room}")]
    TooLong {
        /// Bytes that were given.
        len: usize,
        /// Bytes that there is room for.
        room: usize,
    },
    /// The queue pair belongs to a connection, or to one that ended so recently that its packets may still be on the way.
    #[error("the queue pair belongs to another connection, or to one that ended a moment ago")]
    QpnInUse,
    /// Somebody listens there already.
    #[error("this service is listened to already")]
    ServiceInUse,
    /// As many connections as the limit allows.
    #[error("there are as many connections as the limit allows")]
    TooMany,
    /// IPv4 on one side, IPv6 on the other.
    #[error("the two addresses are of different IP versions")]
    Versions,
    /// The number of a queue pair that cannot be connected: 0, 1 or the one of multicast.
    #[error("a queue pair with this number cannot be connected")]
    BadQpn,
}
