//! Structures shared between threads: a ring with one writer and one reader, the token of an engine and its takeover, the flag of a
//! sleeping thread, the doorbells of queues, the arm of a completion queue, the user count of an object, bits that several threads set, and
//! the progress of numbered work.
//!
//! They are small so that loom can try every order of their steps: `RUSTFLAGS="--cfg loom" cargo test -p softnic-sync
//! --lib`, with a target directory of its own (`cargo xtask test` does so).

pub mod bits;
pub mod cq_arm;
pub mod done;
pub mod doorbell;
pub mod ring;
pub mod sleeper;
pub mod takeover;
mod token;
pub mod users;

/// The primitives of the standard library, or those of loom.
pub(crate) mod primitives {
    #[cfg(loom)]
    pub(crate) use loom::{
        cell::UnsafeCell,
        sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
        sync::{Arc, Mutex, MutexGuard},
    };
    #[cfg(not(loom))]
    pub(crate) use std::{
        sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
        sync::{Arc, Mutex, MutexGuard},
    };

    /// The standard cell with the interface of loom's cell.
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
