//! What the library says on stderr: in a process that is not its own, where stderr may be full or closed.

use std::fmt;

/// Says one line. That it cannot be written is no reason to end the program. Without the lock of the standard library, which a thread of the parent may have held when this
/// process was forked.
pub(crate) fn say(text: fmt::Arguments<'_>) {
    let line = format!("softnic: {text}\n");
    // SAFETY: the bytes are those of the line.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}
