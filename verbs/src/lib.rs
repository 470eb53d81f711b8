//! `libibverbs.so.1` and `librdmacm.so.1` whose device is a softnic: unmodified RDMA programs run on it.
//!
//! One library carries the symbols of both, so that a process has one NIC. It opens the device that the environment names
//! ([`environment`]), and each verb is a call of the runtime's API on it.
//!
//! **Pointers.** Functions that C calls take references where the header says pointer: that a pointer is valid, and lives for the call,
//! is what libibverbs asks of programs too. Objects are handed out as raw pointers from boxes and taken back when they are destroyed.
//! What a C struct has that both sides write is an atomic.
#![allow(unsafe_code)]

mod abi;
mod c_result;
mod calls;
mod codes;
mod environment;
mod errno;
mod exit;
mod exports;
mod fork;
mod gid;
mod limits;
mod objects;
mod rdmacm;
