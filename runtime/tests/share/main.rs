//! An interface that processes share: `softnic share`'s daemon in one network namespace, its clients, and a peer in another one. Needs root and `ip`:
//! what was left out for want of them is said on stderr.

mod bad_input;
mod clients;
mod ends;
mod groups;
#[path = "../common/process.rs"]
mod process;
mod refusals;
#[path = "../common/veth.rs"]
mod veth;
mod world;
