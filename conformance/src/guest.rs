//! Small virtual machines with Linux Soft-RoCE (rdma_rxe) or emulated PCI NICs in them: made from Debian packages, booted by QEMU, several at a time.

mod apt;
mod counters;
mod cpio;
mod error;
mod hex;
mod image;
mod kernel;
mod machine;
mod recipe;
mod space;
mod tree;

pub(crate) use counters::{HwCounters, since};
pub use error::Error;
pub(crate) use error::{create_folder, failed};
pub(crate) use hex::{from_hex, to_hex};
pub(crate) use image::Image;
pub(crate) use machine::{Guest, Link, Machine, NO_OFFLOADS};
pub(crate) use recipe::{NICS, SOFT_ROCE};
pub use space::Space;

use error::write;
use std::sync::atomic::{AtomicBool, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Whether Ctrl-C or SIGTERM came: then the guest must be ended before this process is.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// From now on Ctrl-C and SIGTERM are remembered, not obeyed: see [`interrupted`].
pub fn catch_interrupts() {
    // An earlier run in this process has set it already.
    let _ = ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::Relaxed));
}
