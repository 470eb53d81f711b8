//! Network namespaces: that of this thread, and fresh ones without a name, which last as long as a socket in them.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::thread;

/// The network namespace of this thread.
pub(super) fn here() -> io::Result<File> {
    File::open("/proc/thread-self/ns/net")
}

/// The number of this thread's network namespace, which is the same for everybody who looks.
pub(super) fn number() -> io::Result<u64> {
    Ok(std::fs::metadata("/proc/thread-self/ns/net")?.ino())
}

/// Does something in a fresh network namespace, which ends when nothing is left that was opened there.
pub(super) fn in_a_fresh_one<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("softnic-port".into()).spawn_scoped(scope, || {
            // SAFETY: no address is passed; the thread alone moves, and ends in the namespace.
            match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
                0 => Ok(work()),
                _ => Err(io::Error::last_os_error()),
            }
        })?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
