//! NICs on real wires: packet IO backends, the responder for neighbours, and the loop that drives a Node.
//!
//! Everything below this crate is free of IO and clocks; here is where frames come from and go to. A backend is a
//! [`PacketIo`]; [`Driver`] runs a [`Node`](softnic_wire::Node) over it, beside the [`Neighbours`] that answer ARP and NDP.

pub mod afxdp;
pub mod api;
mod background;
#[cfg(target_os = "linux")]
pub mod bump;
pub mod dgram;
pub mod driver;
mod engine;
pub mod faulty;
#[cfg(target_os = "linux")]
pub mod host_network;
pub mod io;
pub mod memory_wire;
pub mod neighbours;
pub mod random;
mod steering;
mod wake;

pub use afxdp::{AfXdp, AfXdpError};
#[cfg(target_os = "linux")]
pub use bump::{Bump, BumpError};
pub use dgram::{Dgram, DgramError};
pub use driver::{Driver, DriverError, DriverPort};
pub use faulty::Faulty;
#[cfg(target_os = "linux")]
pub use host_network::{HostNetwork, HostNetworkError};
pub use io::PacketIo;
pub use memory_wire::MemoryWire;
pub use neighbours::{NeighbourError, Neighbours};
pub use random::{Generator, OsRandom};
