//! The AF_XDP backend over veth pairs between network namespaces that the tests make themselves. Needs root and `ip`: what
//! was left out for want of them is said on stderr.

mod errors;
mod frames;
mod helper;
#[path = "../common/process.rs"]
mod process;
mod rates;
mod rdma;
#[path = "../common/veth.rs"]
mod veth;
