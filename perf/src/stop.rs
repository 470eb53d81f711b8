//! When polling loops stop: at Ctrl-C, with what was measured so far, and for a moment when there is nothing to do.

use std::sync::atomic::{AtomicBool, Ordering};

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// What a wait that Ctrl-C ended says.
pub(crate) const MESSAGE: &str = "interrupted";
/// The exit code, as shells have it.
pub const EXIT_CODE: u8 = 130;

/// From now on Ctrl-C and SIGTERM ask for an early end instead of ending the process.
pub fn install() {
    // It fails only where a handler is already there.
    let _ = ctrlc::set_handler(|| REQUESTED.store(true, Ordering::Relaxed));
}

/// Whether an early end was asked for.
#[inline]
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// Polls without anything after which another thread gets its turn: the peer's may wait for this very core.
const PATIENCE: u32 = 256;

/// To be called after every poll, with the number of polls that found nothing.
#[inline]
pub(crate) fn yield_if_idle(idle: u32) {
    if idle % PATIENCE == PATIENCE - 1 {
        std::thread::yield_now();
    }
}
