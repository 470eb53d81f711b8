//! Failover across NICs on a wire: what a NIC with a backup needs beside its engines, and where it finds what its peers have at theirs.

pub(crate) mod kv;
pub(crate) mod list;
pub(crate) mod store;
