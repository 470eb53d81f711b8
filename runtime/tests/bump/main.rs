//! A bump in the wire between two namespaces, in a third: what the kernel and our NICs send through it. Needs root and `ip`: what was
//! left out for want of them is said on stderr.

mod frames;
mod kernel;
mod path;
#[path = "../common/process.rs"]
mod process;
mod rdma;
mod trouble;
mod unsegmented;
#[path = "../common/veth.rs"]
mod veth;
#[allow(dead_code)] // the tests of the API use more of it
#[path = "../veth/world.rs"]
mod world;
