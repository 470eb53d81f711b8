//! `--color`: whether what is printed has colours.

use std::ffi::{OsStr, OsString};
use std::sync::OnceLock;

use clap::ColorChoice;

/// The option, as it was given; not set in tests of functions.
static CHOICE: OnceLock<ColorChoice> = OnceLock::new();

/// Keeps what `--color` says, for [`wanted`].
pub(crate) fn choose(choice: ColorChoice) {
    // Set once, at the start.
    let _ = CHOICE.set(choice);
}

/// Whether to print colours to an output that is, or is not, a terminal.
pub(crate) fn wanted(terminal: bool) -> bool {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    match CHOICE.get() {
        Some(ColorChoice::Always) => true,
        Some(ColorChoice::Never) => false,
        _ if variable("NO_COLOR").is_some() => false,
        _ if variable("CLICOLOR_FORCE").is_some_and(|value| value != "0") => true,
        _ => terminal && variable("TERM").is_none_or(|value| value != "dumb"),
    }
}

/// Text in red, or as it is.
pub(crate) fn red(text: &str, wanted: bool) -> String {
    if wanted { format!("\x1b[1;31m{text}\x1b[0m") } else { text.into() }
}

/// What `--color` says among arguments that nobody has parsed yet: help and errors of the parser have colours, too.
pub(crate) fn among(arguments: impl Iterator<Item = OsString>) -> ColorChoice {
    let mut choice = ColorChoice::Auto;
    let mut arguments = arguments.take_while(|argument| argument != "--");
    while let Some(argument) = arguments.next() {
        let value = match argument.to_str() {
            Some("--color") => arguments.next(),
            Some(text) => text.strip_prefix("--color=").map(OsString::from),
            None => None,
        };
        match value.as_deref().and_then(OsStr::to_str) {
            Some("always") => choice = ColorChoice::Always,
            Some("never") => choice = ColorChoice::Never,
            _ => {}
        }
    }
    choice
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_colour_of_help_is_told_from_arguments_before_the_program_of_run() {
        let of = |line: &str| among(line.split_whitespace().map(OsString::from));
        assert_eq!(of("softnic sim --color always"), ColorChoice::Always);
        assert_eq!(of("softnic --color=never sim"), ColorChoice::Never);
        assert_eq!(of("softnic sim"), ColorChoice::Auto);
        assert_eq!(of("softnic run -- ls --color always"), ColorChoice::Auto);
    }
}
