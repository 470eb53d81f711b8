//! Sizes of fields, for tests that check how much of a queue pair's state a packet accesses.

/// The size of a field.
pub(crate) const fn of_field<T, F>(_: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

/// The sum of the sizes of fields of a type.
macro_rules! of_fields {
    ($of:ty: $($field:ident),+) => { 0 $(+ crate::footprint::of_field(|it: &$of| &it.$field))+ };
}
pub(crate) use of_fields;
