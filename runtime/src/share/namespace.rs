//! Network namespaces: that of this thread, and fresh unnamed ones, which exist as long as a socket in them.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::thread;

/// Opens the network namespace of this thread.
pub(super) fn here() -> io::Result<File> {
    File::open("/proc/thread-self/ns/net")
}

/// The inode number of this thread's network namespace, which is the same for all observers.
pub(super) fn number() -> io::Result<u64> {
    Ok(std::fs::metadata("/proc/thread-self/ns/net")?.ino())
}

/// Runs `work` in a fresh network namespace, which ends when no object opened there is left.
pub(super) fn in_a_fresh_one<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("softnic-port".into()).spawn_scoped(scope, || {
            // SAFETY: no address is passed; only this thread changes its namespace, and it ends there.
            match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
                0 => Ok(work()),
                _ => Err(io::Error::last_os_error()),
            }
        })?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
