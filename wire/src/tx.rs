//! The frame that a driver lends to be filled: one or two segments of its memory.

use crate::Error;

/// Room for one outgoing frame, in one or two segments.
///
/// A path MTU of 4096 does not fit one AF_XDP chunk, so a frame may continue in a second one. Headers always lie in the
/// first; payload and ICRC may straddle.
#[derive(Debug)]
pub struct TxFrame<'a> {
    first: &'a mut [u8],
    second: &'a mut [u8],
    len: usize,
    /// Bytes at the end of the frame that stand only in its length fields.
    elided: usize,
}

impl<'a> TxFrame<'a> {
    /// Bytes that the first segment must have: every header there can be.
    pub const MIN_FIRST: usize = 128;

    /// Room in one piece.
    #[inline]
    pub fn new(buffer: &'a mut [u8]) -> TxFrame<'a> {
        TxFrame { first: buffer, second: &mut [], len: 0, elided: 0 }
    }

    /// Room in two pieces.
    #[inline]
    pub fn new_split(first: &'a mut [u8], second: &'a mut [u8]) -> TxFrame<'a> {
        TxFrame { first, second, len: 0, elided: 0 }
    }

    /// Bytes of room.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.first.len() + self.second.len()
    }

    /// Bytes of the frame so far.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that the frame takes on the wire: more than [`TxFrame::len`] where the payload is elided.
    #[inline]
    pub fn wire_len(&self) -> usize {
        self.len + self.elided
    }

    /// Sets the bytes written and the bytes that the frame would take whole.
    #[inline]
    pub(crate) fn set_elided(&mut self, len: usize, wire_len: usize) {
        self.set_len(len);
        self.elided = wire_len - self.len;
    }

    #[inline]
    pub(crate) fn set_len(&mut self, len: usize) {
        self.len = len.min(self.capacity());
        self.elided = 0;
    }

    /// The frame: what of it lies in the first and in the second segment.
    #[inline]
    pub fn segments(&self) -> (&[u8], &[u8]) {
        let n = self.len.min(self.first.len());
        (&self.first[..n], &self.second[..self.len - n])
    }

    /// Makes the frame a copy of `bytes`: for frames that were built elsewhere.
    #[inline]
    pub fn put_frame(&mut self, bytes: &[u8]) -> Result<(), Error> {
        Error::check_len("frame", bytes.len(), self.capacity())?;
        self.put(0, bytes);
        self.set_len(bytes.len());
        Ok(())
    }

    /// Makes the frame a copy of `bytes`, the beginning of one that takes `wire_len` on the wire: for frames whose payload was
    /// elided elsewhere.
    #[inline]
    pub fn put_frame_elided(&mut self, bytes: &[u8], wire_len: usize) -> Result<(), Error> {
        self.put_frame(bytes)?;
        self.elided = wire_len.saturating_sub(self.len);
        Ok(())
    }

    /// Puts bytes behind those that were written of a frame whose payload is elided: what of the payload is there after all.
    pub fn append_to_elided(&mut self, bytes: &[u8]) {
        let n = bytes.len().min(self.elided).min(self.capacity() - self.len);
        self.put(self.len, &bytes[..n]);
        self.len += n;
        self.elided -= n;
    }

    /// Makes the frame longer by `more` bytes, of whatever lies there; `false` when there is no room.
    #[inline]
    pub fn extend(&mut self, more: usize) -> bool {
        let fits = self.len + more <= self.capacity();
        if fits {
            self.len += more;
        }
        fits
    }

    /// The first segment, whole.
    #[inline]
    pub(crate) fn first_mut(&mut self) -> &mut [u8] {
        self.first
    }

    /// `len` bytes from offset `at`, as they lie in the two segments; what exceeds the room is left out.
    #[inline]
    pub fn slices_mut(&mut self, at: usize, len: usize) -> (&mut [u8], &mut [u8]) {
        let split = self.first.len();
        // Nearly always.
        if at <= at + len && at + len <= split {
            return (&mut self.first[at..at + len], &mut []);
        }
        let end = (at + len).min(split + self.second.len());
        let at = at.min(end);
        (
            &mut self.first[at.min(split)..end.min(split)],
            &mut self.second[at.saturating_sub(split)..end.saturating_sub(split)],
        )
    }

    /// Copies `bytes` to offset `at`; what exceeds the room is left out.
    #[inline]
    pub fn put(&mut self, at: usize, bytes: &[u8]) {
        let (a, b) = self.slices_mut(at, bytes.len());
        let (head, tail) = bytes.split_at(a.len());
        a.copy_from_slice(head);
        if !b.is_empty() {
            let n = b.len();
            b.copy_from_slice(&tail[..n]);
        }
    }

    /// [`TxFrame::put`] of four bytes: one store where they lie in the first segment.
    #[inline(always)]
    pub(crate) fn put_word(&mut self, at: usize, bytes: [u8; 4]) {
        if at < self.first.len() && self.first.len() - at >= 4 {
            self.first[at..at + 4].copy_from_slice(&bytes);
        } else {
            self.put(at, &bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_straddles_the_segments_and_stops_at_the_end() {
        for split in 0..=8 {
            let mut bytes = [0u8; 8];
            let (a, b) = bytes.split_at_mut(split);
            let mut tx = TxFrame::new_split(a, b);
            tx.put(2, &[1, 2, 3]);
            tx.put(6, &[7, 8, 9]);
            tx.set_len(7);
            let (x, y) = tx.segments();
            assert_eq!([x, y].concat(), [0, 0, 1, 2, 3, 0, 7], "split at {split}");
            assert_eq!(bytes, [0, 0, 1, 2, 3, 0, 7, 8]);
        }
    }

    #[test]
    fn a_frame_built_elsewhere_keeps_its_length_on_the_wire() {
        let mut buffer = [0; 4];
        let mut tx = TxFrame::new(&mut buffer);
        tx.put_frame_elided(&[1, 2, 3], 1000).unwrap();
        assert_eq!((tx.len(), tx.wire_len()), (3, 1000));
        tx.put_frame(&[9]).unwrap();
        assert_eq!((tx.len(), tx.wire_len(), tx.put_frame(&[0; 5]).is_err()), (1, 1, true));
    }
}
