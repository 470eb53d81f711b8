//! How far it is, on stderr: a line that is rewritten on a terminal, else one every ten seconds.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::terminal::{Size, fitting};

const EVERY: Duration = Duration::from_secs(10);
const EVERY_ON_TERMINAL: Duration = Duration::from_millis(200);

/// What is told from time to time.
pub(super) struct Progress {
    is_terminal: bool,
    last: Instant,
    is_drawn: bool,
}

impl Progress {
    pub(super) fn new() -> Progress {
        let is_terminal = io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|name| name != "dumb");
        Progress { is_terminal, last: Instant::now(), is_drawn: false }
    }

    /// Tells a line if it is time for one.
    pub(super) fn tick(&mut self, line: impl FnOnce() -> String) {
        let every = if self.is_terminal { EVERY_ON_TERMINAL } else { EVERY };
        if self.last.elapsed() < every {
            return;
        }
        self.last = Instant::now();
        let line = format!("softnic: {}", line());
        // Nobody may be there to read it.
        let _ = match self.is_terminal {
            true => {
                self.is_drawn = true;
                let columns = Size::of(io::stderr()).columns.saturating_sub(1);
                write!(io::stderr(), "\r{}\x1b[K", fitting(&line, columns))
            }
            false => writeln!(io::stderr(), "{line}"),
        };
    }

    /// Something that stays.
    pub(super) fn say(&mut self, line: &str) {
        self.clear();
        let _ = writeln!(io::stderr(), "softnic: {line}");
    }

    /// Takes the line away.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// A time as people say it.
pub(super) fn about(time: Duration) -> String {
    match time.as_secs() {
        0 if time.as_millis() < 100 => format!("{} ms", time.as_millis()),
        0..=9 => format!("{:.1} s", time.as_secs_f64()),
        s @ 10..=119 => format!("{s} s"),
        s @ 120..=7199 => format!("{} min", s / 60),
        s => format!("{} h", s / 3600),
    }
}

/// `1 class`, `2 classes`.
pub(super) fn counted(count: usize, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_said_as_exactly_as_matters() {
        let of = |ms| about(Duration::from_millis(ms));
        assert_eq!(of(48), "48 ms");
        assert_eq!([of(312), of(17_800), of(300_000), of(9_000_000)], ["0.3 s", "17 s", "5 min", "2 h"]);
    }
}
