//! NICs on real wires: packet IO backends, the responder for neighbours, and the loop that drives a Node.
//!
//! Everything below this crate is free of IO and clocks; here is where frames come from and go to. A backend is a
//! [`PacketIo`]; [`Driver`] runs a [`Node`](softnic_wire::Node) over it, beside the [`Stack`] that answers everything else.

pub mod afxdp;
pub mod api;
mod background;
mod bpf;
#[cfg(target_os = "linux")]
pub mod bump;
pub mod capabilities;
mod capture_file;
mod dgram;
pub mod dpdk;
mod driver;
mod engine;
mod failover;
mod faulty;
pub mod forked;
#[cfg(target_os = "linux")]
pub mod host_network;
mod io;
mod key_file;
mod locked;
mod mapping;
mod memory_wire;
mod neighbours;
mod peer;
#[cfg(target_os = "linux")]
mod port;
mod random;
mod remedy;
mod sent;
#[cfg(target_os = "linux")]
pub mod share;
#[cfg(target_os = "linux")]
pub mod shm;
mod stack;
mod steering;
#[cfg(target_os = "linux")]
pub mod switch;
mod threads;
mod wake;

pub use dgram::{Dgram, DgramError, DgramSpec};
pub use driver::{Driver, DriverError, DriverPort};
pub use faulty::Faulty;
pub use io::{MAX_FRAME, PacketIo, TakeLocated};
pub use memory_wire::MemoryWire;
#[doc(hidden)]
pub use neighbours::fuzz_neighbours;
pub use neighbours::{Conflict, Links, NeighbourError, Neighbours, link_local};
#[cfg(target_os = "linux")]
pub use port::{MAX_MTU, PortError};
pub use random::{Generator, OsRandom};
pub use stack::{Stack, StreamError, StreamId, StreamState, Streams, TooManyGroups};
