//! Failover across NICs on a wire: what a NIC with a backup needs beside its engines, and where it finds what its peers have at theirs.

#[cfg_attr(not(test), allow(dead_code, reason = "backups are found by asking the peer itself"))]
pub(crate) mod kv;
pub(crate) mod list;
#[cfg_attr(not(test), expect(dead_code, reason = "backups are found by asking the peer itself"))]
pub(crate) mod store;
