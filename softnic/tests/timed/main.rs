//! The transport of docs/adding-a-transport.md: between two NICs packet by packet, in the simulator, by the API, and in `softnic inspect`.
//!
//! A program of its own, for builds with the feature `timed` alone: `cargo test -p softnic --features timed --test timed`.

mod api;
#[path = "../../../nic/tests/common/mod.rs"]
mod common;
mod inspect;
mod packets;
mod simulated;
