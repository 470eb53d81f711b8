//! What threads share: a ring with one writer and one reader, the token of an engine, and the flag of a sleeper.
//!
//! The three are small so that loom can try every order of their steps: `RUSTFLAGS="--cfg loom" cargo test -p softnic-runtime --lib
//! --release sync`.

pub(crate) mod ring;
pub(crate) mod sleeper;
pub(crate) mod token;

/// The standard library's, or loom's.
pub(crate) mod primitives {
    #[cfg(loom)]
    pub(crate) use loom::{
        cell::UnsafeCell,
        sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence},
        sync::{Arc, Mutex, MutexGuard},
        thread::yield_now,
    };
    #[cfg(not(loom))]
    pub(crate) use std::{
        sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence},
        sync::{Arc, Mutex, MutexGuard},
        thread::yield_now,
    };

    /// The standard cell with loom's face.
    #[cfg(not(loom))]
    #[derive(Debug)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    #[cfg(not(loom))]
    impl<T> UnsafeCell<T> {
        pub(crate) fn new(value: T) -> UnsafeCell<T> {
            UnsafeCell(std::cell::UnsafeCell::new(value))
        }

        #[inline(always)]
        pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}
