//! The packets sent in one direction that are not all acknowledged: which have arrived, which count as lost, and how many are in flight.
//! One value is used for requests, another for the READ responses of a responder.
//!
//! A packet counts as lost when a packet that was sent after it has arrived (IRN, section 3.1: a selective acknowledgement of a higher
//! number). That applies to retransmissions, too: the order of sending counts, not that of the numbers. So a lost retransmission is
//! detected by any packet sent after it, one round trip later, without a timeout.

use std::time::Duration;

use softnic_wire::Instant;

use super::bitmap::Bitmap;
use crate::invariants::invariant;
use crate::planted::{Bug, planted};

/// Number of retransmission times that are recorded; enough for two round trips.
const MARKS: usize = 32;
/// The interval between two recorded times, as a fraction of the round-trip time.
const MARK_EVERY: u32 = 16;
/// Maximum number of transmissions that may overtake a packet before it counts as lost, on a network that reorders.
const MAX_TOLERANCE: u32 = 256;

/// A part of the bitmap in an acknowledgement: bit i, lowest first, is packet `first` + i.
#[derive(Debug, Clone, Copy)]
pub(super) struct Selective<'a> {
    pub(super) first: u64,
    pub(super) bits: u32,
    pub(super) bytes: &'a [u8],
    /// No packet after them has arrived.
    pub(super) furthest: bool,
}

impl Selective<'_> {
    pub(super) const NONE: Selective<'static> = Selective { first: 0, bits: 0, bytes: &[], furthest: false };

    /// 64 bits from bit `i` on; bits after the end are clear.
    #[inline]
    fn word(&self, i: u32) -> u64 {
        let mut word = [0; 8];
        let bytes = self.bytes.get(i as usize / 8..).unwrap_or_default();
        let n = bytes.len().min(8);
        word[..n].copy_from_slice(&bytes[..n]);
        let left = self.bits - i;
        u64::from_le_bytes(word) & if left < 64 { (1 << left) - 1 } else { u64::MAX }
    }
}

/// The effect of an acknowledgement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// Number of packets newly known to have arrived.
    pub(super) came: u32,
    /// Number of packets that newly count as lost.
    pub(super) lost: u32,
}

#[derive(Debug)]
pub(super) struct Flight {
    /// The oldest unacknowledged packet, and the next packet to be sent for the first time.
    una: u64,
    next: u64,
    /// For the packets between: whether each has arrived, and whether it counts as lost and was not sent again.
    acked: Bitmap,
    lost: Bitmap,
    /// Packets that were sent more than once, and more than twice.
    resent: Bitmap,
    resent_twice: Bitmap,
    lost_count: u32,
    /// There is no lost packet before this one.
    lost_from: u64,
    /// For each packet: the transmission that sent it last, counted from the first.
    order: Box<[u32]>,
    /// For each transmission: the packet that it sent, by the lower bits of its number.
    log: Box<[u32]>,
    /// Transmissions before this one are judged: their packets have arrived, or count as lost, or were sent again.
    judged: u32,
    /// The number after the last transmission that is known to have arrived.
    newest: u32,
    /// The next transmission.
    sent: u32,
    /// Number of packets that were sent, are not acknowledged, and do not count as lost.
    in_flight: u32,
    /// Maximum number of packets in flight: one bandwidth-delay product.
    limit: u32,
    /// Maximum distance of `next` from `una`: the size of the peer's bitmap.
    span: u32,
    /// Number of transmissions that may overtake a packet before it counts as lost.
    tolerance: u32,
    /// When all packets before this one have arrived, the tolerance shrinks.
    tolerant_until: u64,
    /// Some of the times at which packets were sent again, with their transmissions.
    marks: [(u32, Instant); MARKS],
    mark: usize,
}

impl Flight {
    pub(super) fn new(span: u32, limit: u32) -> Flight {
        let size = Bitmap::size(span) as usize;
        Flight {
            una: 0,
            next: 0,
            acked: Bitmap::new(span),
            lost: Bitmap::new(span),
            resent: Bitmap::new(span),
            resent_twice: Bitmap::new(span),
            lost_count: 0,
            lost_from: 0,
            order: vec![0; size].into(),
            log: vec![0; size].into(),
            judged: 0,
            newest: 0,
            sent: 0,
            in_flight: 0,
            limit: limit.max(1),
            span,
            tolerance: 0,
            tolerant_until: 0,
            marks: [(0, Instant::from_nanos(0)); MARKS],
            mark: 0,
        }
    }

    pub(super) fn una(&self) -> u64 {
        self.una
    }

    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Whether all packets sent have arrived.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.una == self.next
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Maximum number of packets in flight.
    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// Sets the limit to one bandwidth-delay product, in packets.
    pub(super) fn set_limit(&mut self, limit: u32) {
        self.limit = limit.max(1);
    }

    /// Whether one more packet may be in flight.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.in_flight < self.limit && self.sent.wrapping_sub(self.judged) < self.log.len() as u32
    }

    /// Whether a packet may be sent for the first time.
    #[inline]
    pub(super) fn has_room_for_new(&self) -> bool {
        self.has_room() && self.next - self.una < u64::from(self.span)
    }

    /// Whether there is room for at most one more new packet.
    #[inline]
    pub(super) fn is_nearly_full(&self) -> bool {
        self.in_flight + 1 >= self.limit
            || self.next - self.una + 1 >= u64::from(self.span)
            || self.sent.wrapping_sub(self.judged) + 1 >= self.log.len() as u32
    }

    #[inline]
    pub(super) fn has_lost(&self) -> bool {
        self.lost_count > 0
    }

    /// Number of packets that count as lost.
    pub(super) fn lost(&self) -> u32 {
        self.lost_count
    }

    /// The oldest packet that counts as lost.
    #[inline]
    pub(super) fn next_lost(&mut self) -> Option<u64> {
        if self.lost_count == 0 {
            return None;
        }
        let n = self.lost.first_set(self.lost_from.max(self.una), self.next)?;
        self.lost_from = n;
        Some(n)
    }

    /// Whether a packet that was sent has arrived.
    pub(super) fn has_come(&self, n: u64) -> bool {
        n < self.una || n < self.next && self.acked.get(n)
    }

    #[inline]
    fn place(&self, n: u64) -> usize {
        n as usize & (self.order.len() - 1)
    }

    fn note_transmission(&mut self, n: u64) {
        if self.in_flight == 0 {
            self.judge_all();
        }
        let (at, entry) = (self.place(n), self.sent as usize & (self.log.len() - 1));
        self.order[at] = self.sent;
        self.log[entry] = n as u32;
        self.sent = self.sent.wrapping_add(1);
        self.in_flight += 1;
    }

    /// The next packet was sent for the first time.
    #[inline]
    pub(super) fn on_sent(&mut self) {
        self.note_transmission(self.next);
        self.next += 1;
    }

    /// A lost packet was sent again.
    pub(super) fn on_resent(&mut self, now: Instant, n: u64, rtt: Option<Duration>) {
        if self.lost.take(n) {
            self.lost_count -= 1;
        }
        if self.resent.get(n) {
            self.resent_twice.set(n);
        }
        self.resent.set(n);
        let (_, last) = self.marks[self.mark];
        if rtt.is_none_or(|rtt| now.saturating_since(last) >= rtt / MARK_EVERY) {
            self.mark = (self.mark + 1) % MARKS;
            self.marks[self.mark] = (self.sent, now);
        }
        self.note_transmission(n);
    }

    /// Whether an acknowledgement of a packet that transmission `t` sent again can be the answer to `t`, and not to an earlier transmission
    /// that was taken for lost: a round trip must have passed.
    fn can_be_answered(&self, now: Instant, t: u32, rtt: Option<Duration>) -> bool {
        let Some(rtt) = rtt else { return false };
        // The last mark that is not after `t`; `t` was sent at most one interval after it.
        let before = |&&(mark, _): &&(u32, Instant)| t.wrapping_sub(mark) as i32 >= 0;
        let Some(&(_, at)) = self.marks.iter().filter(before).max_by_key(|&&(_, at)| at) else { return true };
        now.saturating_since(at) >= rtt - rtt / MARK_EVERY
    }

    /// All packets before `expected` have arrived, and those in `selective`. `rtt` is the shortest measured round-trip time.
    pub(super) fn acknowledge(
        &mut self,
        now: Instant,
        expected: u64,
        selective: Selective<'_>,
        rtt: Option<Duration>,
    ) -> Progress {
        let mut came = 0;
        let expected = expected.min(self.next);
        while self.una < expected {
            if !self.acked.take(self.una) {
                came += 1;
                self.note_came(now, self.una, rtt);
            }
            self.resent.take(self.una);
            self.resent_twice.take(self.una);
            self.una += 1;
        }
        let mut i = 0;
        while i < selective.bits {
            let n = selective.first + u64::from(i);
            let mut new =
                if n + 64 > self.una && n < self.next { selective.word(i) & !self.acked.word_at(n) } else { 0 };
            while new != 0 {
                let m = n + u64::from(new.trailing_zeros());
                new &= new - 1;
                if m > self.una && m < self.next {
                    self.acked.set(m);
                    came += 1;
                    self.note_came(now, m, rtt);
                }
            }
            i += 64;
        }
        if self.tolerance > 0 && self.una > self.tolerant_until {
            self.tolerance /= 2;
            self.tolerant_until = self.next;
        }
        let end = match (selective.furthest, selective.bits) {
            (true, _) => u64::MAX,
            // There is no information about packets after the bitmap.
            (false, 0) => expected,
            (false, bits) => selective.first + u64::from(bits),
        };
        let lost = self.judge(end);
        if self.in_flight == 0 {
            self.judge_all();
        }
        Progress { came, lost }
    }

    /// A packet has arrived: it is neither in flight nor lost.
    fn note_came(&mut self, now: Instant, n: u64, rtt: Option<Duration>) {
        if self.lost.take(n) {
            self.lost_count -= 1;
        } else {
            self.in_flight -= 1;
        }
        let t = self.order[self.place(n)];
        if self.resent.get(n) && !self.can_be_answered(now, t, rtt) {
            // The packet was late, not lost: the network reorders packets. For a packet that was sent again before, it may be an
            // acknowledgement that was lost.
            if !self.resent_twice.get(n) {
                // The tolerance is limited by the length of the log.
                self.tolerance = (2 * self.tolerance + 1).min(MAX_TOLERANCE).min(self.log.len() as u32 / 4);
                self.tolerant_until = self.next;
            }
        } else if t.wrapping_sub(self.newest) as i32 >= 0 {
            self.newest = t.wrapping_add(1);
        }
    }

    /// Packets that were sent before the newest arrived one, and are missing, are lost; the peer gave no information about packets from
    /// `end` on.
    fn judge(&mut self, end: u64) -> u32 {
        let mut lost = 0;
        loop {
            let overtaken = self.newest.wrapping_sub(self.judged) as i32 - 1;
            if overtaken < 0 {
                return lost;
            }
            if let Some(n) = self.under_way(self.judged) {
                // The peer acknowledges a retransmission as soon as it arrives; a new packet is acknowledged together with others.
                if overtaken <= self.tolerance as i32 || n >= end && !self.resent.get(n) {
                    return lost;
                }
                lost += u32::from(self.mark_lost(n));
            }
            self.judged = self.judged.wrapping_add(1);
        }
    }

    /// The packet that transmission `t` sent, if it is still in flight by this transmission.
    fn under_way(&self, t: u32) -> Option<u64> {
        let low = self.log[t as usize & (self.log.len() - 1)];
        let ahead = u64::from(low.wrapping_sub(self.una as u32));
        // Acknowledged packets are before `una`; a packet that was sent again since has another transmission.
        let n = self.una + ahead;
        let still = ahead < self.next - self.una && self.order[self.place(n)] == t;
        (still && !self.acked.get(n) && !self.lost.get(n)).then_some(n)
    }

    /// All packets in flight have arrived or count as lost.
    fn judge_all(&mut self) {
        (self.judged, self.newest) = (self.sent, self.sent);
    }

    /// Marks a packet as lost, if it is in flight; returns whether it was.
    pub(super) fn mark_lost(&mut self, n: u64) -> bool {
        let unnoticed = planted(Bug::SrResentOnce) && self.resent.get(n);
        if n < self.una || n >= self.next || self.acked.get(n) || self.lost.get(n) || unnoticed {
            return false;
        }
        self.lost.set(n);
        self.lost_count += 1;
        self.lost_from = self.lost_from.min(n);
        self.in_flight -= 1;
        true
    }

    /// No packet arrived for a short time. The oldest packet in flight counts as lost, because the peer answers it in any case. So does the
    /// newest, whose loss no later packet would show. The peer's answers to these two give information about the others.
    pub(super) fn probe(&mut self) {
        let under_way = |n: &u64| !self.acked.get(*n) && !self.lost.get(*n);
        let (oldest, newest) = ((self.una..self.next).find(under_way), (self.una..self.next).rfind(under_way));
        for n in [oldest, newest].into_iter().flatten() {
            self.mark_lost(n);
        }
        self.ask_again();
    }

    /// All packets that are not lost have arrived, according to selective acknowledgements, but the acknowledgement that they were executed
    /// is missing: the oldest packet is sent once more, to get another acknowledgement.
    fn ask_again(&mut self) {
        if !planted(Bug::SrNotAsked) && self.lost_count == 0 && self.una < self.next && self.acked.take(self.una) {
            self.lost.set(self.una);
            (self.lost_count, self.lost_from) = (1, self.una);
        }
    }

    /// No packet arrived for a long time: all unacknowledged packets count as lost.
    pub(super) fn give_up(&mut self) {
        let mut n = self.una;
        while let Some(missing) = self.acked.first_clear(n, self.next) {
            self.mark_lost(missing);
            n = missing + 1;
        }
        self.judge_all();
        self.ask_again();
    }

    /// Checks the invariants between two calls.
    pub(super) fn check_invariants(&self) {
        invariant!(self.next - self.una <= u64::from(self.span), "{} packets in a bitmap", self.next - self.una);
        if self.next - self.una > 256 && !self.next.is_multiple_of(64) {
            return;
        }
        let (mut flying, mut lost) = (0, 0);
        for n in self.una..self.next {
            invariant!(!(self.acked.get(n) && self.lost.get(n)), "packet {n} has come, and is lost");
            flying += u32::from(!self.acked.get(n) && !self.lost.get(n));
            lost += u32::from(self.lost.get(n));
        }
        invariant!(
            (flying, lost) == (self.in_flight, self.lost_count),
            "{flying} under way, {lost} lost, counted {} and {}",
            self.in_flight,
            self.lost_count
        );
    }
}

#[cfg(test)]
mod tests;
