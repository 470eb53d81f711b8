//! Invariants, whatever the input is: checked in debug builds and with the feature `invariants`, otherwise compiled to nothing.

/// Whether invariants are checked.
pub(crate) const ON: bool = cfg!(any(debug_assertions, feature = "invariants"));

/// Panics if a condition is violated that no packet and no program can violate: a bug in softnic.
macro_rules! invariant {
    ($holds:expr, $($why:tt)+) => {
        if $crate::invariants::ON {
            assert!($holds, $($why)+);
        }
    };
}
pub(crate) use invariant;

/// Counts work requests posted and completed: none may get lost, and none may complete twice.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    #[cfg(any(debug_assertions, feature = "invariants"))]
    open: u64,
}

impl Tally {
    /// A work request was posted.
    #[inline]
    pub(crate) fn posted(&mut self) {
        #[cfg(any(debug_assertions, feature = "invariants"))]
        {
            self.open += 1;
        }
    }

    /// A work request ended: with a completion, or successfully and unsignaled.
    #[inline]
    pub(crate) fn ended(&mut self) {
        #[cfg(any(debug_assertions, feature = "invariants"))]
        {
            assert!(self.open > 0, "a work request ended that was not posted");
            self.open -= 1;
        }
    }

    /// All work was dropped, because the queue pair was reset.
    pub(crate) fn forget(&mut self) {
        *self = Tally::default();
    }

    /// Checks that posted = completed + outstanding.
    #[inline]
    pub(crate) fn check(&self, _outstanding: u32, _what: &str) {
        #[cfg(any(debug_assertions, feature = "invariants"))]
        assert_eq!(self.open, u64::from(_outstanding), "{_what}: posted is completed and outstanding");
    }
}
