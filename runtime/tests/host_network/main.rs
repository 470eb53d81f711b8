//! The kernel's view of an interface, in network namespaces over veth pairs.
#![cfg(target_os = "linux")]

mod control;
mod interface;
mod namespaces;
mod neighbours;
mod routes;
