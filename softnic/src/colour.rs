//! Colours, where they are seen: on a terminal, unless NO_COLOR says otherwise.

use std::io::IsTerminal;

/// Whether a stream takes colours.
pub(crate) fn is_wanted(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Text in red, or as it is.
pub(crate) fn red(text: &str, wanted: bool) -> String {
    if wanted { format!("\x1b[1;31m{text}\x1b[0m") } else { text.into() }
}
