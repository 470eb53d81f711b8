//! How many objects of a kind a NIC may have, where somebody else shares its port and says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many there may be, and are.
#[derive(Debug)]
pub(crate) struct Allowance {
    limit: u32,
    used: AtomicU32,
}

/// Room for one object, until this is dropped.
#[derive(Debug)]
pub(crate) struct Permit(Arc<Allowance>);

impl Allowance {
    /// For so many; 0 is as many as one likes.
    pub(crate) fn new(limit: u32) -> Arc<Allowance> {
        let limit = if limit == 0 { u32::MAX } else { limit };
        Arc::new(Allowance { limit, used: AtomicU32::new(0) })
    }

    /// Room for one more, if there is any.
    pub(crate) fn take(self: &Arc<Allowance>) -> Option<Permit> {
        let more = |used: u32| (used < self.limit).then_some(used + 1);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Permit(Arc::clone(self)))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.used.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_as_many_as_allowed_and_again_when_one_goes() {
        let two = Allowance::new(2);
        let first = two.take().unwrap();
        let _second = two.take().unwrap();
        assert!(two.take().is_none());
        drop(first);
        let _third = two.take().unwrap();
        assert!(two.take().is_none());
        let any = Allowance::new(0);
        let many: Vec<_> = (0..1000).map(|_| any.take()).collect();
        assert!(many.iter().all(Option::is_some));
    }
}
