//! The arrivals in one direction: which packets have arrived, which is expected, and the contents of an acknowledgement.

use super::bitmap::Bitmap;

/// The position of a packet relative to those that have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PacketOrder {
    /// The expected packet.
    InOrder,
    /// An earlier packet is missing.
    Early,
    /// The packet has arrived before.
    Duplicate,
    /// The packet is too far ahead for the bitmap.
    Beyond,
}

/// The part of the bitmap in an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BitmapSpan {
    /// The packet of the bitmap's first bit, and the number of bits.
    pub(super) first: u64,
    pub(super) bits: u32,
    /// No packet after them has arrived.
    pub(super) furthest: bool,
}

#[derive(Debug)]
pub(super) struct Arrivals {
    /// All packets before this one have arrived.
    expected: u64,
    /// The number after the furthest packet that has arrived.
    end: u64,
    came: Bitmap,
    window: u32,
    /// An acknowledgement is due, because of this packet.
    due: Option<u64>,
}

impl Arrivals {
    pub(super) fn new(window: u32) -> Arrivals {
        Arrivals { expected: 0, end: 0, came: Bitmap::new(window), window, due: None }
    }

    #[inline]
    pub(super) fn expected(&self) -> u64 {
        self.expected
    }

    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.due.is_some()
    }

    #[inline]
    pub(super) fn judge(&self, n: u64) -> PacketOrder {
        if n == self.expected {
            PacketOrder::InOrder
        } else if n < self.expected {
            PacketOrder::Duplicate
        } else if n - self.expected >= u64::from(self.window) {
            PacketOrder::Beyond
        } else if self.came.get(n) {
            PacketOrder::Duplicate
        } else {
            PacketOrder::Early
        }
    }

    /// A packet arrived that must be acknowledged again.
    pub(super) fn on_duplicate(&mut self, n: u64) {
        self.due = Some(n);
    }

    /// Requests an acknowledgement, whatever has arrived.
    pub(super) fn demand(&mut self) {
        self.due = Some(self.expected);
    }

    /// Records a packet that was classified as in order or early, and was processed. The sender is notified of a new gap at once.
    #[inline]
    pub(super) fn take(&mut self, n: u64, ack_req: bool) {
        if ack_req || n > self.end {
            self.due = Some(n);
        }
        self.end = self.end.max(n + 1);
        if n == self.expected {
            self.expected += 1;
        } else {
            self.came.set(n);
        }
    }

    /// Whether the packet that is now expected arrived earlier: then the next one is expected.
    #[inline]
    pub(super) fn advance(&mut self) -> bool {
        if self.end <= self.expected || !self.came.take(self.expected) {
            return false;
        }
        self.expected += 1;
        true
    }

    /// Drops the acknowledgement that is due.
    pub(super) fn fall_silent(&mut self) {
        self.due = None;
    }

    /// The acknowledgement that is due, with a bitmap of at most `room` bits. If the bitmap cannot cover all arrived packets, it ends with
    /// the packet that caused the acknowledgement, and a second one follows that ends with the furthest packet: only then does a sender
    /// know which packets are missing.
    pub(super) fn acknowledge(&mut self, room: u32) -> BitmapSpan {
        let about = self.due.take().unwrap_or(self.expected);
        let span = self.end.saturating_sub(self.expected);
        if span <= u64::from(room) {
            return BitmapSpan { first: self.expected, bits: span as u32, furthest: true };
        }
        let first = (about + 1).saturating_sub(u64::from(room)).max(self.expected);
        let bits = room.min((self.end - first) as u32);
        let furthest = first + u64::from(bits) == self.end;
        if !furthest {
            self.due = Some(self.end - 1);
        }
        BitmapSpan { first, bits, furthest }
    }

    /// Writes the bits from `first` on; `out` ends with the last byte that contains one.
    pub(super) fn write_bits(&self, first: u64, bits: u32, out: &mut [u8]) {
        for (i, chunk) in out.chunks_mut(8).enumerate() {
            let at = i as u32 * 64;
            let left = bits.saturating_sub(at);
            let word = self.came.word_at(first + u64::from(at)) & if left < 64 { (1 << left) - 1 } else { u64::MAX };
            chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(a: &Arrivals, first: u64, bits: u32) -> Vec<u64> {
        let mut bytes = vec![0; bits.div_ceil(8) as usize];
        a.write_bits(first, bits, &mut bytes);
        (0..u64::from(bits)).filter(|i| bytes[*i as usize / 8] >> (i % 8) & 1 == 1).map(|i| first + i).collect()
    }

    fn span(first: u64, bits: u32, furthest: bool) -> BitmapSpan {
        BitmapSpan { first, bits, furthest }
    }

    #[test]
    fn a_gap_is_told_at_once_and_what_comes_behind_it_when_asked_for() {
        let mut a = Arrivals::new(64);
        a.take(0, false);
        assert!(!a.is_due() && a.expected() == 1);
        assert_eq!(a.judge(2), PacketOrder::Early);
        a.take(2, false);
        assert!(a.is_due());
        assert_eq!(a.acknowledge(1000), span(1, 2, true));
        assert_eq!(bits(&a, 1, 2), [2]);
        a.take(3, false);
        assert!(!a.is_due(), "the same gap");
        a.take(5, false);
        assert!(a.is_due(), "another");
        assert_eq!(
            (a.judge(2), a.judge(0), a.judge(4), a.judge(65)),
            (PacketOrder::Duplicate, PacketOrder::Duplicate, PacketOrder::Early, PacketOrder::Beyond)
        );
    }

    #[test]
    fn what_was_early_counts_when_the_gap_closes() {
        let mut a = Arrivals::new(64);
        for n in [1, 2, 4] {
            a.take(n, false);
        }
        assert!(!a.advance());
        a.take(0, true);
        assert!(a.advance() && a.advance() && !a.advance());
        assert_eq!(a.expected(), 3);
        assert_eq!(a.acknowledge(1000), span(3, 2, true));
    }

    #[test]
    fn a_bitmap_that_does_not_fit_ends_with_what_is_new() {
        let mut a = Arrivals::new(1 << 12);
        for n in 1..1000 {
            a.take(n, false);
        }
        a.take(1001, false);
        assert_eq!(a.acknowledge(64), span(1001 + 1 - 64, 64, true));
        assert!(!a.is_due());
        a.on_duplicate(500);
        assert_eq!(a.acknowledge(64), span(500 + 1 - 64, 64, false));
        assert!(a.is_due(), "what is furthest is still to be told");
        assert_eq!(a.acknowledge(64), span(1001 + 1 - 64, 64, true));
    }
}
