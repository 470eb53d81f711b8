//! Retries while a device is busy: a device stays busy for a moment after its last user has closed it.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// The kernel takes up to about 30 ms to release a queue, and more than 500 ms on a machine that is busy with builds. A program stays attached
/// while another thread starts a process, because that process has a copy of all file descriptors until it executes its own program.
const PATIENCE: Duration = Duration::from_secs(2);

/// Retries `attempt` while it returns EBUSY, for at most `PATIENCE`.
pub(super) fn patiently<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let begin = Instant::now();
    loop {
        match attempt() {
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) && begin.elapsed() < PATIENCE => {
                thread::sleep(Duration::from_millis(1));
            }
            result => return result,
        }
    }
}
