//! `librdmacm.so.1`: connections by address and port, over the connection manager of the runtime. Sockets over RDMA (`rsocket` and its
//! family) are not here: they fail with ENOSYS, so that programs load that can do without.
//!
//! As in librdmacm, much happens when a program takes an event: there an id gets its device and its route, a new connection its id, and
//! an answer moves the queue pair on. So no thread of the library ever touches what a program has pointers to.

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

/// A function that is not there: returns -1 and sets errno.
pub(crate) extern "C" fn fails() -> c_int {
    Errno(libc::ENOSYS).set();
    -1
}
