//! Failover across NICs on a wire: where an end finds what its peer has on the backup NIC.

pub(crate) mod kv;
pub(crate) mod store;
