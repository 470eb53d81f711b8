//! XP in a capture: messages, packets that are missing between others, and messages whose last fragment was not seen.
//!
//! Nothing is sent again there, so a gap in the PSNs is a loss and a PSN behind others came late. How far back that is
//! looked at is bounded: a packet that more than 128 others overtook counts as late, whatever it is.

use softnic_wire::Psn;
use softnic_wire::opcode::Kind;
use softnic_wire::xp::XpEth;

/// Packets, and messages, that are remembered.
const WINDOW: u32 = u128::BITS;
/// A leap this far is that of another connection, which has the queue pair's number now.
const LEAP: u32 = 1 << 16;

/// What was seen of one direction of XP.
#[derive(Debug, Clone, Default)]
pub struct BestEffort {
    /// Packets that ought to lie between others and do not.
    pub missing_packets: u64,
    /// Packets that came behind later ones.
    pub late_packets: u64,
    /// Packets that came twice.
    pub duplicates: u64,
    /// Answers to packets that asked for feedback.
    pub feedback: u64,
    packets: Recent,
    requests: Messages,
    responses: Messages,
}

impl BestEffort {
    /// Takes a packet.
    pub(crate) fn add(&mut self, psn: Psn, kind: Kind, xp: Option<&XpEth>) {
        if kind == Kind::Feedback {
            // Its PSN is the one of the packet that asked.
            self.feedback += 1;
            return;
        }
        // Credit has PSNs of its own.
        if kind == Kind::Credit {
            return;
        }
        match self.packets.add(psn) {
            Came::Next { gap } => self.missing_packets += u64::from(gap),
            Came::Late => {
                self.late_packets += 1;
                self.missing_packets = self.missing_packets.saturating_sub(1);
            }
            Came::Before => self.duplicates += 1,
        }
        let Some(xp) = xp else { return };
        match kind {
            Kind::ReadResponse => self.responses.add(xp.wqe_seq, xp.is_last()),
            // A READ's request is one packet.
            _ => self.requests.add(xp.wqe_seq, xp.is_last() || kind == Kind::ReadRequest),
        }
    }

    /// Messages of which a packet was seen; a READ's request is one, its response another.
    pub fn messages(&self) -> u64 {
        self.requests.count + self.responses.count
    }

    /// Those whose last fragment was not seen.
    pub fn without_last(&self) -> u64 {
        self.requests.without_last() + self.responses.without_last()
    }

    /// Numbers of messages between others of which nothing was seen.
    pub fn unseen_messages(&self) -> u64 {
        self.requests.unseen
    }
}

/// How a number stands to those before.
enum Came {
    /// Behind all others, with so many in between.
    Next { gap: u32 },
    /// Others overtook it.
    Late,
    /// It was there before.
    Before,
}

/// Numbers of 24 bits, and which of the latest ones came.
#[derive(Debug, Clone, Default)]
struct Recent {
    newest: Option<Psn>,
    /// Bit i: the newest less i.
    seen: u128,
}

impl Recent {
    fn add(&mut self, number: Psn) -> Came {
        let Some(newest) = self.newest else {
            (self.newest, self.seen) = (Some(number), 1);
            return Came::Next { gap: 0 };
        };
        let ahead = number.distance(newest);
        if ahead.unsigned_abs() >= LEAP {
            (self.newest, self.seen) = (Some(number), 1);
            return Came::Next { gap: 0 };
        }
        if ahead > 0 {
            let ahead = ahead.unsigned_abs();
            self.seen = self.seen.checked_shl(ahead).unwrap_or(0) | 1;
            self.newest = Some(number);
            return Came::Next { gap: ahead - 1 };
        }
        match bit(ahead.unsigned_abs()) {
            Some(bit) if self.seen & bit != 0 => Came::Before,
            bit => {
                self.seen |= bit.unwrap_or(0);
                Came::Late
            }
        }
    }
}

fn bit(back: u32) -> Option<u128> {
    (back < WINDOW).then(|| 1 << back)
}

/// Messages of one kind in one direction.
#[derive(Debug, Clone, Default)]
struct Messages {
    numbers: Recent,
    /// Of those that are remembered, whose last fragment was seen.
    ended: u128,
    count: u64,
    unseen: u64,
    /// Those without a last fragment that are remembered no more.
    unended: u64,
}

impl Messages {
    fn add(&mut self, number: u32, last: bool) {
        let (number, before) = (Psn::new(number), self.numbers.clone());
        match self.numbers.add(number) {
            Came::Next { gap } => {
                self.count += 1;
                self.unseen += u64::from(gap);
                let ahead = before.newest.map_or(0, |newest| number.distance(newest).unsigned_abs().min(WINDOW));
                let forgotten = if ahead == 0 { 0 } else { !(u128::MAX >> (ahead - 1) >> 1) };
                self.unended += u64::from((before.seen & !self.ended & forgotten).count_ones());
                self.ended = self.ended.checked_shl(ahead).unwrap_or(0);
            }
            Came::Late => {
                self.count += 1;
                self.unseen = self.unseen.saturating_sub(1);
            }
            Came::Before => {}
        }
        let back = self.numbers.newest.map_or(0, |newest| newest.forward_from(number));
        if last && let Some(bit) = bit(back) {
            self.ended |= bit;
        }
    }

    fn without_last(&self) -> u64 {
        self.unended + u64::from((self.numbers.seen & !self.ended).count_ones())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sends(packets: &[(u32, u32, bool)]) -> BestEffort {
        let mut flow = BestEffort::default();
        for &(psn, wqe_seq, last) in packets {
            let xp = XpEth { wqe_seq, flags: if last { XpEth::LAST } else { 0 }, ..XpEth::default() };
            flow.add(Psn::new(psn), Kind::Send, Some(&xp));
        }
        flow
    }

    #[test]
    fn losses_in_the_middle_and_at_the_end_are_told_apart() {
        // Of message 7 the second of three packets is lost, of message 8 the last of two, of message 9 all.
        let flow = sends(&[(0xfffffe, 7, false), (0, 7, true), (1, 8, false), (4, 10, true)]);
        assert_eq!((flow.missing_packets, flow.late_packets, flow.duplicates), (3, 0, 0));
        assert_eq!((flow.messages(), flow.without_last(), flow.unseen_messages()), (3, 1, 1));
    }

    #[test]
    fn what_comes_late_is_not_missing() {
        let flow = sends(&[(1, 1, false), (3, 2, true), (2, 1, true), (3, 2, true)]);
        assert_eq!((flow.missing_packets, flow.late_packets, flow.duplicates), (0, 1, 1));
        assert_eq!((flow.messages(), flow.without_last()), (2, 0));
    }

    #[test]
    fn a_last_fragment_that_is_sent_twice_is_one_message() {
        let flow = sends(&[(1, 1, false), (2, 1, true), (3, 1, true), (4, 2, true), (5, 2, true)]);
        assert_eq!((flow.missing_packets, flow.messages(), flow.without_last(), flow.duplicates), (0, 2, 0, 0));
    }

    #[test]
    fn messages_without_an_end_are_counted_when_they_are_forgotten() {
        let many: Vec<(u32, u32, bool)> = (0..1000).map(|n| (n, (0xffff00 + n) & 0xffffff, n % 10 == 0)).collect();
        let flow = sends(&many);
        assert_eq!((flow.messages(), flow.without_last(), flow.unseen_messages()), (1000, 900, 0));
    }

    #[test]
    fn a_leap_is_no_loss() {
        let flow = sends(&[(5, 1, true), (5_000_000, 3_000_000, true), (5_000_001, 3_000_001, true)]);
        assert_eq!((flow.missing_packets, flow.messages(), flow.without_last(), flow.unseen_messages()), (0, 3, 0, 0));
    }
}
