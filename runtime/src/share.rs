//! A network interface that many processes share: `softnic share` serves it, and `shared:IF` is a NIC on it without privileges.
//!
//! The daemon makes what needs privileges, hands it over and is out of the way. Each client gets a pair of virtual devices: the inner end,
//! in a network namespace of the client's own, has its AF_XDP sockets; the outer end stands beside the interface. A program on the interface sends every
//! RoCE packet to the outer end of the client that it is for ([`softnic_nic::sharing`]), and so into its sockets. A program on the outer end sees every
//! packet that the client sends: one that does not come from the port's own addresses goes nowhere, and the others go out by the interface, or to another client.
//!
//! Everything of a client is held by its sockets alone: when its process ends, in whatever way, they are closed, its namespace goes, and with that its devices
//! and their programs. The programs on the interface stay when the daemon is killed, and the next one takes them over.

mod client_port;
mod daemon;
mod error;
mod links;
mod maps;
mod message;
mod namespace;
mod place;
mod roll;
mod rules;
mod seat;
mod uplink;

pub use daemon::{Share, ShareOptions};
pub use error::ShareError;
pub use place::served_here;
pub use seat::served;
pub(crate) use seat::{GroupSeat, Seat};

/// What a client may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Queue pairs; 0 is as many as its numbers allow.
    pub queue_pairs: u32,
    /// Memory regions; 0 is as many as it likes.
    pub regions: u32,
    /// Bits a second that it may send; 0 is as many as the interface carries.
    pub rate: u64,
}

/// A client as the daemon sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClientStatus {
    /// Its number: the upper bits of its queue pair numbers.
    pub process: u32,
    /// Its process.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Frames that it has sent.
    pub tx_frames: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Frames that it may not send: from addresses or queue pairs that are not its own, or no RoCE packets.
    pub tx_denied: u64,
    /// Frames above its rate, or above that of datagrams to QP1.
    pub tx_policed: u64,
    /// Frames that came for it.
    pub rx_frames: u64,
    /// Their bytes.
    pub rx_bytes: u64,
}

/// What a daemon knows of the interface that it serves.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Served {
    /// RoCE packets that came in and were for no client.
    pub nobody: u64,
    /// All clients, its own among them.
    pub clients: Vec<ClientStatus>,
}

impl ClientStatus {
    /// Its counters by their names.
    pub fn counters(&self) -> [(&'static str, u64); 6] {
        [
            ("tx_frames", self.tx_frames),
            ("tx_bytes", self.tx_bytes),
            ("tx_denied", self.tx_denied),
            ("tx_policed", self.tx_policed),
            ("rx_frames", self.rx_frames),
            ("rx_bytes", self.rx_bytes),
        ]
    }
}
