//! What the library says on stderr: in a process that is not its own, where stderr may be full or closed.

use std::fmt;
use std::io::Write;

/// Says one line. That it cannot be written is no reason to end the program.
pub(crate) fn say(text: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "softnic: {text}");
}
