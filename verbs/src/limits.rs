//! Limits that programs are told, and that are held.

/// Work requests in a queue.
pub(crate) const MAX_QP_WR: u32 = 32_768;
/// Entries of a completion queue.
pub(crate) const MAX_CQE: u32 = 1 << 22;
/// READs and atomics of a queue pair at a time.
pub(crate) const MAX_RD_ATOMIC: u8 = 16;
