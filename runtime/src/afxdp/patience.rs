//! A device stays busy for a moment after its last user went: that is waited for, a little.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// The kernel takes up to some 30 ms to let go of a queue, on a busy machine more than 100; a program stays attached while another
/// thread starts a process, which has a copy of all file descriptors until it runs its own program.
const PATIENCE: Duration = Duration::from_millis(500);

/// Tries again as long as the system says EBUSY and patience lasts.
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
