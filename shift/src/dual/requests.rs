//! The configuration of a Node with two NICs, its requests to the driver, and its notices.

use std::net::IpAddr;

use softnic_wire::Qpn;
use softnic_wire::failover::{Entry, Object, Side};

use crate::machine::{Reason, Refusal, Times};

/// How connections are protected.
#[derive(Debug, Clone, Copy, Default)]
pub struct Config {
    /// The timing parameters of connections.
    pub times: Times,
    /// How the two ends find each other's backups.
    pub store: Store,
}

/// How the two ends find each other's backups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Store {
    /// By MADs to the peer.
    #[default]
    Peer,
    /// By a store that both ends can reach, through [`Request`]s.
    External {
        /// The nonce of local region entries. NICs that form one device have the same nonce.
        region_nonce: [u8; 16],
    },
}

/// A request that only the driver of the Node can serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Find the path from the backup NIC to the peer's backup, for [`DualNic::set_backup_path`](super::DualNic::set_backup_path).
    Path {
        /// The connection.
        qpn: Qpn,
        /// The address of the peer's backup.
        peer: IpAddr,
    },
    /// Write this entry to the store.
    Put {
        /// The key of the entry.
        object: Object,
        /// The value of the entry.
        entry: Entry,
    },
    /// Delete this entry from the store.
    Delete {
        /// The key of the entry.
        object: Object,
    },
    /// Look up the entry of the peer's queue pair, or of one of the peer's regions, for [`DualNic::set_entry`](super::DualNic::set_entry).
    Get {
        /// The connection.
        qpn: Qpn,
        /// The key of the entry.
        object: Object,
    },
}

/// The result of a lookup in a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// The store has this entry.
    Found(Entry),
    /// The store has no entry, or an invalid one.
    Absent,
    /// The store could not be reached.
    Unavailable,
}

/// A change of a connection, for logs and events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// The connection has a backup from now on; the peer's backup has this address.
    Protected(Qpn, IpAddr),
    /// The connection has no backup.
    Unprotected(Qpn, ProtectError),
    /// The connection's sends use this side from now on.
    Moved(Qpn, Side, Reason),
    /// The connection ends in errors.
    Failed(Qpn, Refusal),
}

/// Why a connection has no backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ProtectError {
    /// There is no backup NIC.
    #[error("there is no backup")]
    NoBackup,
    /// The queue pair is not a reliable connection with receives of its own; only those are protected.
    #[error("only reliable connections without a shared receive queue are protected")]
    Kind,
    /// The queue pair is not connected.
    #[error("the queue pair is not connected")]
    State,
    /// The backup has no protection domain, address, number or memory for the queue pair.
    #[error("the backup cannot have a queue pair like it")]
    Resources,
    /// The MTU of the backup's port is shorter than the connection's path MTU.
    #[error("the path MTU of the connection is longer than the backup's")]
    Mtu,
    /// The backup has no address of the connection's IP version.
    #[error("the backup has no address of the connection's IP version")]
    NoAddress,
    /// Both ends of the connection are on this NIC.
    #[error("both ends are on this NIC")]
    Loopback,
    /// The peer has no backup, or does not support failover.
    #[error("the peer has no backup")]
    Peer,
    /// The peer uses another failover protocol.
    #[error("the peer protects its connections in another way")]
    Mode,
    /// There is no path from the local backup to the peer's.
    #[error("there is no path from our backup to the peer's")]
    NoPath,
    /// The store has no entry of the peer's. The store is asked again.
    #[error("the store has no entry of the peer's; it is asked again")]
    Absent,
    /// The peer's entry is not proven: its author's nonces are unknown at the backup that the entry names. The store is asked again.
    #[error("the peer has not proven that its entry of the store is its own; the store is asked again")]
    Unproven,
}
