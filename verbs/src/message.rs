//! The library's messages on stderr. The process belongs to the program, and its stderr may be full or closed.

use std::fmt;

use softnic_runtime::api::LogLevel;

use crate::environment::said;
use crate::errno::Errno;

/// Reports why a call of the program fails.
pub(crate) fn error(text: fmt::Arguments<'_>) {
    say(LogLevel::Error, text);
}

/// Reports why a call of the program is refused, and what would be accepted; the program gets the errno.
pub(crate) fn refused<E: fmt::Display + Into<Errno>>(call: &'static str) -> impl Fn(E) -> Errno {
    move |why| {
        error(format_args!("{call}: {why}"));
        why.into()
    }
}

/// Reports a fact that the program would not notice.
pub(crate) fn warn(text: fmt::Arguments<'_>) {
    say(LogLevel::Warn, text);
}

/// Prints one line, unless `SOFTNIC_LOG` is set to a lower level. A write error does not end the program. The lock of the standard library
/// is not used, because a thread of the parent may have held it when this process was forked.
fn say(level: LogLevel, text: fmt::Arguments<'_>) {
    if said() < Some(level) {
        return;
    }
    let line = format!("softnic: {text}\n");
    // SAFETY: the pointer and length are those of the line.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}
