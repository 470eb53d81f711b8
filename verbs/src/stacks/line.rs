//! A line of JSON in preallocated memory: for signal handlers, which must not allocate.

use std::ffi::CStr;
use std::fmt::{self, Write};

/// The bytes so far. Data that does not fit is an error, and is not added even partly.
pub(super) struct Line<'a> {
    room: &'a mut [u8],
    len: usize,
}

impl<'a> Line<'a> {
    pub(super) fn new(room: &'a mut [u8]) -> Line<'a> {
        Line { room, len: 0 }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.room[..self.len]
    }

    /// Adds everything that `add` writes, or nothing of it.
    pub(super) fn try_add(&mut self, add: impl FnOnce(&mut Line<'_>) -> fmt::Result) -> bool {
        let mut more = Line { room: &mut *self.room, len: self.len };
        let added = add(&mut more).is_ok();
        let len = more.len;
        if added {
            self.len = len;
        }
        added
    }

    /// Adds a string in JSON form. Non-ASCII bytes are added unchanged.
    pub(super) fn text(&mut self, text: &[u8]) -> fmt::Result {
        self.bytes(b"\"")?;
        for &byte in text {
            match byte {
                b'"' | b'\\' => self.bytes(&[b'\\', byte])?,
                0..0x20 | 0x7f => write!(self, "\\u{byte:04x}")?,
                _ => self.bytes(&[byte])?,
            }
        }
        self.bytes(b"\"")
    }

    /// Adds a C string in JSON form.
    pub(super) fn c_text(&mut self, text: &CStr) -> fmt::Result {
        self.text(text.to_bytes())
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> fmt::Result {
        let to = self.room.get_mut(self.len..self.len + bytes.len()).ok_or(fmt::Error)?;
        to.copy_from_slice(bytes);
        self.len += bytes.len();
        Ok(())
    }
}

impl Write for Line<'_> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        self.bytes(s.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_leaves_the_line_as_it_was() {
        let mut room = [0; 16];
        let mut line = Line::new(&mut room);
        line.text(b"a\"\n").unwrap();
        assert!(!line.try_add(|line| line.bytes(b"1234").and_then(|()| line.bytes(b"56"))));
        assert!(line.try_add(|line| write!(line, ",{}", 1)));
        assert_eq!(line.as_bytes(), b"\"a\\\"\\u000a\",1");
        assert!(!line.try_add(|line| line.c_text(c"abc")), "it ends there");
    }
}
