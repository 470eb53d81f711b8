//! What a Node with two NICs is told at the beginning, what it asks of whoever drives it, and what it tells.

use std::net::IpAddr;

use softnic_wire::Qpn;
use softnic_wire::failover::{Entry, Object, Side};

use crate::machine::{Reason, Refusal, Times};

/// How connections are protected.
#[derive(Debug, Clone, Copy, Default)]
pub struct Config {
    /// Their times.
    pub times: Times,
    /// Where two ends find each other's backups.
    pub store: Store,
}

/// Where two ends find each other's backups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Store {
    /// The peer itself is asked.
    #[default]
    Peer,
    /// A store that both ends reach, by [`Request`]s.
    External {
        /// What was drawn for entries about regions; NICs that are one device have the same.
        region_nonce: [u8; 16],
    },
}

/// Something that only whoever drives the Node can say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// The way from the backup NIC to the peer's, for [`DualNic::set_backup_path`](super::DualNic::set_backup_path).
    Path {
        /// The connection.
        qpn: Qpn,
        /// The peer's backup.
        peer: IpAddr,
    },
    /// The store is to have this entry.
    Put {
        /// What it is about.
        object: Object,
        /// What it says.
        entry: Entry,
    },
    /// The store is to have no such entry any more.
    Delete {
        /// What it is about.
        object: Object,
    },
    /// The entry of the peer's queue pair, or of a region of the peer's, for [`DualNic::set_entry`](super::DualNic::set_entry).
    Get {
        /// The connection.
        qpn: Qpn,
        /// What the entry is about.
        object: Object,
    },
}

/// What a store has under a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// This entry.
    Found(Entry),
    /// None, or something that is no entry.
    Absent,
    /// It could not be asked.
    Unavailable,
}

/// Something that happened to a connection, for people and for events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// It has a backup from now on, at this address of the peer.
    Protected(Qpn, IpAddr),
    /// It has none.
    Unprotected(Qpn, ProtectError),
    /// Its sends go by this side from now on.
    Moved(Qpn, Side, Reason),
    /// It ends in errors.
    Failed(Qpn, Refusal),
}

/// Why a connection has no backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ProtectError {
    /// There is no backup NIC.
    #[error("there is no backup")]
    NoBackup,
    /// Only reliable connections with receives of their own are protected.
    #[error("only reliable connections without a shared receive queue are protected")]
    Kind,
    /// It is not connected.
    #[error("the queue pair is not connected")]
    State,
    /// The backup has no protection domain, address, number or memory for it.
    #[error("the backup cannot have a queue pair like it")]
    Resources,
    /// The backup's links carry shorter packets.
    #[error("the path MTU of the connection is longer than the backup's")]
    Mtu,
    /// The backup has no address of the connection's IP version.
    #[error("the backup has no address of the connection's IP version")]
    NoAddress,
    /// Both ends of the connection are on this NIC.
    #[error("both ends are on this NIC")]
    Loopback,
    /// The peer has no backup, or knows nothing of such.
    #[error("the peer has no backup")]
    Peer,
    /// The peer protects connections in another way.
    #[error("the peer protects its connections in another way")]
    Mode,
    /// The peer's backup is not reached from ours.
    #[error("there is no path from our backup to the peer's")]
    NoPath,
    /// The store has no entry of the peer's: it is asked again.
    #[error("the store has no entry of the peer's; it is asked again")]
    Absent,
    /// Nobody at the backup that the peer's entry names knows what the entry was written with: it is asked for again.
    #[error("the peer has not proven that its entry of the store is its own; the store is asked again")]
    Unproven,
}
