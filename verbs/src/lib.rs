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
mod address;
mod builder;
mod channel;
mod completion;
mod completion_ex;
mod context;
mod device;
mod domain;
mod environment;
mod errno;
mod events;
mod exports;
mod files;
mod fork;
mod modify;
mod nic;
mod post;
mod query;
mod queue_pair;
mod rates;
mod rdmacm;
mod region;
mod shared_receive;
mod strings;
mod unsupported;
mod vendor;
mod window;
