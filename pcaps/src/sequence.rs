//! Following PSNs through a capture: what came in order, what again, what too early.

use softnic_wire::{PathMtu, Psn};

/// How a packet stands to those before it in its flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// It is the next one, or the first that was seen.
    Next,
    /// Its PSN was passed before: a retransmission (or a reordered packet, which looks the same).
    Again,
    /// PSNs before it are missing.
    Early,
}

/// The PSNs of one direction of a connection.
///
/// A READ request takes as many PSNs as its response has packets, which depends on the path MTU. A capture does not say
/// that, so as long as no full packet was seen the next PSN is known only as a range.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sequence {
    /// The least and the greatest PSN that could be next.
    next: Option<(Psn, Psn)>,
}

impl Sequence {
    /// Takes a packet that uses from `least` to `most` PSNs.
    pub fn follow(&mut self, psn: Psn, least: u32, most: u32) -> Order {
        let after = (psn.add(least), psn.add(most));
        let Some((low, high)) = self.next else {
            self.next = Some(after);
            return Order::Next;
        };
        if psn.is_before(low) {
            // A retransmission that goes beyond what was seen (its first copies were lost before the capture point).
            if after.1.is_after(high) && after.0.is_after(low) {
                self.next = Some(after);
            }
            return Order::Again;
        }
        self.next = Some(after);
        if psn.is_after(high) { Order::Early } else { Order::Next }
    }
}

/// How many PSNs a READ of `len` bytes takes, least and most, by what is known of the path MTU.
pub(crate) fn read_span(len: u32, mtu: Option<PathMtu>) -> (u32, u32) {
    match mtu {
        Some(m) => (m.packets(len), m.packets(len)),
        None => (PathMtu::B4096.packets(len), PathMtu::B256.packets(len)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_then_going_back() {
        let mut s = Sequence::default();
        let mut follow = |v| s.follow(Psn::new(v), 1, 1);
        assert_eq!([0xfffffe, 0xffffff, 1, 2].map(&mut follow), [Order::Next, Order::Next, Order::Early, Order::Next]);
        assert_eq!([0, 1, 2, 3].map(follow), [Order::Again, Order::Again, Order::Again, Order::Next]);
    }

    #[test]
    fn a_read_takes_the_psns_of_its_response() {
        let mut s = Sequence::default();
        let (least, most) = read_span(4101, None);
        assert_eq!((least, most), (2, 17));
        assert_eq!(s.follow(Psn::new(100), least, most), Order::Next);
        assert_eq!(s.follow(Psn::new(105), 1, 1), Order::Next, "MTU 1024 would make it 105");
        let (least, most) = read_span(4101, Some(PathMtu::B1024));
        s.follow(Psn::new(106), least, most);
        assert_eq!(s.follow(Psn::new(112), 1, 1), Order::Early);
        assert_eq!(s.follow(Psn::new(106), least, most), Order::Again);
    }
}
