//! Tables whose functions somebody above wraps: what is called by them is called there first.

use std::sync::OnceLock;

/// Who wraps a kind of table, if anybody does.
pub(crate) struct Wrapped<T>(OnceLock<fn(&mut T)>);

impl<T> Wrapped<T> {
    pub(crate) const fn new() -> Wrapped<T> {
        Wrapped(OnceLock::new())
    }

    /// From now on tables that are made are wrapped so.
    pub(crate) fn wrap(&self, with: fn(&mut T)) {
        // Whoever came before did the same.
        let _ = self.0.set(with);
    }

    /// A new table.
    pub(crate) fn make(&self, mut table: T) -> T {
        if let Some(with) = self.0.get() {
            with(&mut table);
        }
        table
    }
}
