//! The library that `softnic run` preloads: programs find softnic where they look for it by other names than ld.so knows.
//!
//! - Programs that bring copies of libibverbs under names of their own load these by `dlopen`: [`libraries`].
//! - Programs look for devices in /sys/class/infiniband and /dev/infiniband, where the kernel has none of ours. They ask the C library and not
//!   libibverbs, so only a library that is loaded before the C library hears of it. [`location`] has another path for such a path, by asking the
//!   library that has the NIC; [`paths`], [`real_path`] and [`globbing`] are functions that take paths.
//!
//! Everything else is left as it is.
#![allow(unsafe_code)]

pub mod globbing;
pub mod libraries;
mod location;
mod next;
pub mod paths;
pub mod real_path;
