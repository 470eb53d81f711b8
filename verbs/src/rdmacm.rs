//! `librdmacm.so.1`: connections by address and port, using the connection manager of the runtime. Sockets over RDMA (the `rsocket`
//! functions) are not supported: they fail with ENOSYS, so that programs that do not need them can be loaded.
//!
//! As in librdmacm, many changes are applied when a program takes an event: an id gets its device and its route, a new connection gets its
//! id, and a reply connects the queue pair. So no thread of the library ever accesses objects that a program has pointers to.

mod addresses;
pub(crate) mod addrinfo;
pub(crate) mod bind;
pub(crate) mod channel;
pub(crate) mod cm_event;
pub(crate) mod connect;
pub(crate) mod devices;
pub(crate) mod endpoint;
pub(crate) mod event;
mod group;
pub(crate) mod id;
mod link;
pub(crate) mod listen;
pub(crate) mod multicast;
pub(crate) mod options;
pub(crate) mod pending;
pub(crate) mod played;
mod ports;
pub(crate) mod qp;
pub(crate) mod resolve;
mod resolved;
pub(crate) mod srq;

use crate::abi::c_int;
use crate::errno::Errno;

/// An unsupported function: returns -1 and sets errno.
pub(crate) extern "C" fn fails() -> c_int {
    Errno(libc::ENOSYS).set();
    -1
}
