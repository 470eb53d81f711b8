//! Terminals: their size, keys as they are pressed, and lines that are drawn in place.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// Where a terminal does not say its size.
const USUAL: Size = Size { columns: 80, rows: 24 };
/// The other screen, without a cursor; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// Columns and rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
}

impl Size {
    /// The size of the terminal behind a file; the usual one where it has none.
    pub(crate) fn of(file: impl AsFd) -> Size {
        match tcgetwinsize(file) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                Size { columns: size.ws_col.into(), rows: size.ws_row.into() }
            }
            _ => USUAL,
        }
    }
}

/// Whether stdout is a terminal that lines can be drawn on again.
pub(crate) fn can_redraw() -> bool {
    io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|name| name != "dumb")
}

/// A line cut to a width, with a sign that something is missing.
pub(crate) fn fitting(line: &str, columns: usize) -> String {
    match line.chars().count() > columns {
        true => line.chars().take(columns.saturating_sub(1)).chain((columns > 0).then_some('…')).collect(),
        false => line.into(),
    }
}

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    Up,
    Down,
    Left,
    Right,
    Enter,
    Escape,
    Backspace,
    /// Ctrl-U: the whole line.
    EraseLine,
    /// Ctrl-C, or Ctrl-D.
    Interrupt,
    Char(char),
}

/// The keys that a terminal says these bytes for. Sequences of other keys say nothing.
pub(crate) fn keys(bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut rest = bytes;
    while let [first, behind @ ..] = rest {
        rest = behind;
        let key = match (first, behind) {
            (0x1b, [b'[' | b'O', sequence @ ..]) => {
                // Parameters, then one byte that says which.
                let len = sequence.iter().take_while(|byte| (0x20..0x40).contains(*byte)).count();
                rest = sequence.get(len + 1..).unwrap_or_default();
                match (len, sequence.get(len)) {
                    (0, Some(b'A')) => Some(Key::Up),
                    (0, Some(b'B')) => Some(Key::Down),
                    (0, Some(b'C')) => Some(Key::Right),
                    (0, Some(b'D')) => Some(Key::Left),
                    _ => None,
                }
            }
            (0x1b, _) => Some(Key::Escape),
            (b'\r' | b'\n', _) => Some(Key::Enter),
            (0x7f | 0x08, _) => Some(Key::Backspace),
            (0x15, _) => Some(Key::EraseLine),
            (0x03 | 0x04, _) => Some(Key::Interrupt),
            (0x20..0x7f, _) => Some(Key::Char(char::from(*first))),
            _ => None,
        };
        keys.extend(key);
    }
    keys
}

/// How the terminal was, while a [`Screen`] has it.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Gives the terminal back as it was. Nothing happens if that is done already.
fn restore() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(before) = before {
        let mut out = io::stdout();
        // Where the terminal is gone, there is nothing to give back.
        let _ = out.write_all(LEAVE.as_bytes()).and_then(|()| out.flush());
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &before);
    }
}

/// A whole terminal: keys come one by one, and the shell's lines are there again when this goes, or the process panics.
pub(crate) struct Screen(());

impl Screen {
    /// Takes the terminal behind stdin and stdout.
    ///
    /// # Errors
    /// When they are none.
    pub(crate) fn take() -> io::Result<Screen> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            // Where a panic ends the process, nothing is dropped.
            let earlier = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                restore();
                earlier(panic);
            }));
        });
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        let screen = Screen(());
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        io::stdout().write_all(ENTER.as_bytes())?;
        Ok(screen)
    }

    pub(crate) fn size(&self) -> Size {
        Size::of(io::stdout())
    }

    /// Draws lines from the top, each no longer than the terminal is wide.
    pub(crate) fn draw(&self, lines: &[String]) -> io::Result<()> {
        let mut out = String::from("\x1b[H");
        for (n, line) in lines.iter().enumerate() {
            // A newline behind the last row would scroll.
            let _ = write!(out, "{}{line}\x1b[K", if n > 0 { "\r\n" } else { "" });
        }
        out.push_str("\x1b[J");
        let mut stdout = io::stdout();
        stdout.write_all(out.as_bytes()).and_then(|()| stdout.flush())
    }

    /// The keys that were pressed, or none after a while; `None` when nobody can press any more.
    pub(crate) fn keys(&self, patience: Duration) -> io::Result<Option<Vec<Key>>> {
        let stdin = io::stdin();
        let patience = Timespec { tv_sec: 0, tv_nsec: patience.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&patience)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(Some(Vec::new())),
            Ok(_) => {}
            Err(e) => return Err(e.into()),
        }
        let mut bytes = [0; 256];
        match rustix::io::read(&stdin, &mut bytes) {
            Ok(0) | Err(rustix::io::Errno::IO) => Ok(None),
            Ok(n) => Ok(Some(keys(&bytes[..n]))),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => Ok(Some(Vec::new())),
            Err(e) => Err(e.into()),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Lines at the end of what a terminal shows, that are drawn again over themselves.
#[derive(Debug, Default)]
pub(crate) struct InPlace {
    drawn: usize,
}

impl InPlace {
    /// What to write so that the lines stand where those before them stood. Lines are cut to the width and, with a note, to the height; `style` paints
    /// one after that.
    pub(crate) fn draw(&mut self, lines: &[String], size: Size, style: impl Fn(&str) -> String) -> String {
        let mut out = String::new();
        if self.drawn > 0 {
            let _ = write!(out, "\x1b[{}A", self.drawn);
        }
        // The row below them is the cursor's.
        let room = size.rows.saturating_sub(1).max(1);
        let shown = if lines.len() > room { room - 1 } else { lines.len() };
        let note = (shown < lines.len()).then(|| format!("… {} more lines", lines.len() - shown));
        for line in lines[..shown].iter().chain(&note) {
            let _ = writeln!(out, "{}\x1b[K", style(&fitting(line, size.columns)));
        }
        self.drawn = shown + usize::from(note.is_some());
        out.push_str("\x1b[J");
        out
    }

    /// Something else was written below them: they stay, and the next ones stand below.
    pub(crate) fn leave(&mut self) {
        self.drawn = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_terminal_are_keys_and_unknown_sequences_are_none() {
        let all = keys(b"\x1b[A\x1bOB\x1b[C\x1b[Dq\r\x7f\x15\x03\x1b[5~\x1b[1;5Ax\x1b");
        let expected = [
            Key::Up,
            Key::Down,
            Key::Right,
            Key::Left,
            Key::Char('q'),
            Key::Enter,
            Key::Backspace,
            Key::EraseLine,
            Key::Interrupt,
            Key::Char('x'),
            Key::Escape,
        ];
        assert_eq!(all, expected);
        assert_eq!(keys("é\u{1}".as_bytes()), []);
        assert_eq!(keys(b"\x1b["), [], "cut off");
    }

    #[test]
    fn lines_in_place_go_up_over_themselves_and_fit_the_terminal() {
        let mut place = InPlace::default();
        let size = Size { columns: 5, rows: 4 };
        let lines = |all: &[&str]| all.iter().map(|line| line.to_string()).collect::<Vec<_>>();
        let plain = |line: &str| line.to_string();
        assert_eq!(place.draw(&lines(&["abc", "abcdefg"]), size, plain), "abc\x1b[K\nabcd…\x1b[K\n\x1b[J");
        assert_eq!(place.draw(&lines(&["x"]), size, plain), "\x1b[2Ax\x1b[K\n\x1b[J");
        let five = place.draw(&lines(&["1", "2", "3", "4", "5"]), Size { columns: 20, ..size }, plain);
        assert_eq!(five, "\x1b[1A1\x1b[K\n2\x1b[K\n… 3 more lines\x1b[K\n\x1b[J");
        place.leave();
        assert_eq!(place.draw(&lines(&["x"]), size, |line| format!("<{line}>")), "<x>\x1b[K\n\x1b[J");
    }

    #[test]
    fn a_line_is_cut_to_any_width() {
        assert_eq!(
            ["abc", "ab…", "…", ""].map(String::from),
            [9, 3, 1, 0].map(|n| fitting(if n == 9 { "abc" } else { "abcd" }, n))
        );
    }
}
