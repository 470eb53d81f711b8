//! A network interface shared by many processes: the daemon `softnic share` serves it, and `shared:IF` is a NIC on it without privileges.
//!
//! The daemon creates what needs privileges, hands it over, and is not in the data path. Each client gets a pair of virtual devices. The
//! inner end, in a network namespace of the client's own, has the client's AF_XDP sockets; the outer end is beside the interface. A program
//! on the interface redirects every RoCE packet to the outer end of the client that it is for ([`softnic_nic::sharing`]), and so into that
//! client's sockets. A program on the outer end handles every packet that the client sends: it drops packets that do not come from the
//! port's own addresses, and forwards the others to the interface, or to another client.
//!
//! All resources of a client are held by its sockets alone. When its process ends, in whatever way, the sockets are closed, and with them
//! the namespace, its devices and their programs are removed. The programs on the interface stay when the daemon is killed, and the next
//! daemon takes them over.

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

/// The limits of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Number of queue pairs; 0 is as many as its number space allows.
    pub queue_pairs: u32,
    /// Number of memory regions; 0 is unlimited.
    pub regions: u32,
    /// Send rate in bits per second; 0 is the rate of the interface.
    pub rate: u64,
}

/// The state of a client, as the daemon sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClientStatus {
    /// The process number: the upper bits of the client's queue pair numbers.
    pub process: u32,
    /// The process ID.
    pub pid: u32,
    /// The user ID.
    pub uid: u32,
    /// Number of frames sent.
    pub tx_frames: u64,
    /// Number of bytes sent.
    pub tx_bytes: u64,
    /// Number of frames that were not permitted: from addresses or queue pairs that are not the client's own, or not RoCE packets.
    pub tx_denied: u64,
    /// Number of frames above the client's rate, or above the rate of datagrams to QP1.
    pub tx_policed: u64,
    /// Number of frames received for the client.
    pub rx_frames: u64,
    /// Number of bytes received for the client.
    pub rx_bytes: u64,
}

/// The state of a shared interface, as the daemon reports it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Served {
    /// Number of received RoCE packets that were for no client.
    pub nobody: u64,
    /// All clients, including the daemon's own.
    pub clients: Vec<ClientStatus>,
}

impl ClientStatus {
    /// The counters with their names.
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
