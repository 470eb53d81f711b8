//! Failover between NICs on a wire: the work list of a NIC's backup, and discovery of the peers' backups.

pub(crate) mod kv;
pub(crate) mod list;
pub(crate) mod store;
