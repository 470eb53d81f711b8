//! softnic held against other implementations: Linux Soft-RoCE in virtual machines, unmodified verbs programs, rdma-core's own tests,
//! tshark. `cargo xtask` has a command for each; what its other commands share with them is here too.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)] // what these commands print is what they are for

pub mod between;
mod findings;
pub mod guest;
pub mod guest_tests;
pub mod interop;
pub mod nic_tests;
mod processors;
pub mod programs;
pub mod project;
pub mod pyverbs;
mod scenarios;
pub mod setup;
pub mod steps;
pub mod switch;
pub mod tshark;
pub mod verbs;
