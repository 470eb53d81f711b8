//! Checks that a struct has the layout of the header.

/// Checks offsets and sizes against those of the header.
macro_rules! layout {
    ($type:ty, $size:expr $(, $field:ident $offset:expr)* $(,)?) => {
        const _: () = {
            assert!(size_of::<$type>() == $size, concat!("size of ", stringify!($type)));
            $(assert!(
                std::mem::offset_of!($type, $field) == $offset,
                concat!("offset of ", stringify!($type), ".", stringify!($field))
            );)*
        };
    };
}
pub(crate) use layout;
