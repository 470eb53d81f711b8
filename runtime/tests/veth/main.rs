//! The API over AF_XDP, as programs use it: two NICs in two network namespaces, joined by a veth pair. Needs root and `ip`: what was
//! left out for want of them is said on stderr.

mod auth;
mod before_6_6;
mod capture;
mod errors;
mod failover;
mod faults;
mod fork;
mod link;
mod lowar;
mod many;
mod multicast;
mod operations;
mod peer;
#[path = "../common/process.rs"]
mod process;
mod queues;
mod sr;
mod stop;
#[path = "../common/veth.rs"]
mod veth;
mod vlan;
mod world;
