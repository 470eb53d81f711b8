//! The bytes of a capture as they come in: a buffer that never waits for more than is asked of it.

use std::io::{self, Read};

/// Reads of this size keep system calls rare and fit many packets.
const INITIAL: usize = 64 << 10;

/// A `Read` with a window of unread bytes.
#[derive(Debug)]
pub(crate) struct Source<R> {
    inner: R,
    buffer: Vec<u8>,
    /// The unread bytes are `buffer[start..end]`.
    start: usize,
    end: usize,
    /// How many bytes of the capture lie before the unread ones.
    offset: u64,
}

impl<R: Read> Source<R> {
    pub(crate) fn new(inner: R) -> Source<R> {
        Source { inner, buffer: vec![0; INITIAL], start: 0, end: 0, offset: 0 }
    }

    /// The unread bytes.
    pub(crate) fn data(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Where the unread bytes begin in the capture.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads until `need` bytes are unread, and not once more: the next read of a pipe may block for hours.
    /// `false` when the capture ends first.
    pub(crate) fn fill(&mut self, need: usize) -> io::Result<bool> {
        if self.start + need > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        while self.end - self.start < need {
            if self.end == self.buffer.len() {
                // By what has come in, not by `need`: that is only what a perhaps damaged file claims.
                self.buffer.resize(need.min(2 * self.buffer.len()), 0);
            }
            match self.inner.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Ok(false),
                Ok(n) => self.end += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    /// Drops `n` unread bytes, at most those there are.
    pub(crate) fn consume(&mut self, n: usize) {
        let n = n.min(self.end - self.start);
        self.start += n;
        self.offset += n as u64;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its bytes three at a time, each after an interruption, and fails the test when asked once too often.
    struct Dribble(Vec<u8>, bool);

    impl Read for Dribble {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            assert!(!out.is_empty());
            let n = self.0.len().min(out.len()).min(3);
            out[..n].copy_from_slice(&self.0[..n]);
            self.0.drain(..n);
            Ok(n)
        }
    }

    #[test]
    fn asks_for_no_more_than_needed() {
        let mut source = Source::new(Dribble((0..10).collect(), false));
        assert!(source.fill(4).unwrap());
        assert_eq!(source.data(), [0, 1, 2, 3, 4, 5]);
        source.consume(4);
        assert!(source.fill(2).unwrap());
        assert_eq!(source.data(), [4, 5]);
        assert!(!source.fill(7).unwrap());
        assert_eq!((source.data(), source.offset()), (&[4, 5, 6, 7, 8, 9][..], 4));
        source.consume(100);
        assert_eq!(source.offset(), 10);
    }

    #[test]
    fn grows_with_what_comes_in() {
        let mut source = Source::new(&[7u8; INITIAL + 1][..]);
        assert!(!source.fill(1 << 30).unwrap());
        assert_eq!(source.data().len(), INITIAL + 1);
        assert!(source.buffer.len() <= 2 * INITIAL);
    }
}
