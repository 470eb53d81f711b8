//! Tables whose functions an upper layer can wrap: calls by the table reach the wrapper first.

use std::sync::OnceLock;

/// The wrapper of a kind of table, if there is one.
pub(crate) struct Wrapped<T>(OnceLock<fn(&mut T)>);

impl<T> Wrapped<T> {
    pub(crate) const fn new() -> Wrapped<T> {
        Wrapped(OnceLock::new())
    }

    /// Wraps the tables created from now on.
    pub(crate) fn wrap(&self, with: fn(&mut T)) {
        // An earlier caller has set the same wrapper.
        let _ = self.0.set(with);
    }

    /// Creates a table.
    pub(crate) fn make(&self, mut table: T) -> T {
        if let Some(with) = self.0.get() {
            with(&mut table);
        }
        table
    }
}
