//! What the library says on stderr: in a process that is not its own, where stderr may be full or closed.

use std::fmt;

use softnic_runtime::api::LogLevel;

use crate::environment::said;
use crate::errno::Errno;

/// Says why a call of the program fails.
pub(crate) fn error(text: fmt::Arguments<'_>) {
    say(LogLevel::Error, text);
}

/// Says why a call of the program is refused, and what would not be; the program gets the errno.
pub(crate) fn refused<E: fmt::Display + Into<Errno>>(call: &'static str) -> impl Fn(E) -> Errno {
    move |why| {
        error(format_args!("{call}: {why}"));
        why.into()
    }
}

/// Says what the program would not notice.
pub(crate) fn warn(text: fmt::Arguments<'_>) {
    say(LogLevel::Warn, text);
}

/// Says one line, unless `SOFTNIC_LOG` is for less. That it cannot be written is no reason to end the program. Without the lock of the standard library, which a thread of the parent may have held when this
/// process was forked.
fn say(level: LogLevel, text: fmt::Arguments<'_>) {
    if said() < Some(level) {
        return;
    }
    let line = format!("softnic: {text}\n");
    // SAFETY: the bytes are those of the line.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}
