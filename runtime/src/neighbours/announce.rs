//! The port's own addresses: whether somebody else has one of them, and telling everybody that the port has them.
//!
//! An address is probed once, and announced twice, all a second apart (RFC 5227, 2.1, 2.3; RFC 4862, 5.4; RFC 4861, 7.2.6). Meanwhile it is
//! in use, as with optimistic detection (RFC 4429): who opens a device does not wait for a second.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use softnic_wire::{Instant, MacAddr};

/// The time between a probe, an announcement and the other.
pub(super) const STEP: Duration = Duration::from_secs(1);
/// An address that somebody else claims is defended no more often (RFC 5227, 2.4).
const DEFEND: Duration = Duration::from_secs(10);
/// When it is tried again where there was no room for a frame.
const SOON: Duration = Duration::from_millis(1);
/// Conflicts that wait to be taken; an address that is among them is not added again.
const MAX_CONFLICTS: usize = 64;

/// An address of the port that somebody else has, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{address} is on the link already: {mac} has it")]
pub struct Conflict {
    /// The address.
    pub address: IpAddr,
    /// Who has it.
    pub mac: MacAddr,
}

/// What is sent about an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Message {
    /// "Does anybody have it?"
    Probe,
    /// "I have it."
    Announcement,
}

/// How far an address is.
#[derive(Debug, Clone, Copy)]
struct Progress {
    /// Messages that were sent.
    sent: u32,
    next: Instant,
}

/// Probe, announcement, announcement.
const MESSAGES: u32 = 3;

/// The addresses that are probed and announced.
#[derive(Debug, Default)]
pub(super) struct Announcer {
    under_way: BTreeMap<IpAddr, Progress>,
    /// The earliest of their times: a loop asks in every round.
    next: Option<Instant>,
    defended: BTreeMap<IpAddr, Instant>,
    conflicts: VecDeque<Conflict>,
}

impl Announcer {
    /// Begins with an address, or anew.
    pub(super) fn begin(&mut self, now: Instant, address: IpAddr) {
        self.under_way.insert(address, Progress { sent: 0, next: now });
        self.set_next();
    }

    /// Goes on with these addresses alone.
    pub(super) fn retain(&mut self, addresses: &[IpAddr]) {
        self.under_way.retain(|address, _| addresses.contains(address));
        self.defended.retain(|address, _| addresses.contains(address));
        self.conflicts.retain(|conflict| addresses.contains(&conflict.address));
        self.set_next();
    }

    /// What to send now, at most so many messages.
    pub(super) fn due(&mut self, now: Instant, room: usize) -> Vec<(IpAddr, Message)> {
        let mut due = Vec::new();
        for (&address, progress) in &mut self.under_way {
            if progress.next > now {
                continue;
            }
            if due.len() == room {
                progress.next = now + SOON;
                continue;
            }
            due.push((address, if progress.sent == 0 { Message::Probe } else { Message::Announcement }));
            *progress = Progress { sent: progress.sent + 1, next: now + STEP };
        }
        self.under_way.retain(|_, progress| progress.sent < MESSAGES);
        self.set_next();
        due
    }

    /// When [`Announcer::due`] has something.
    #[inline]
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    fn set_next(&mut self) {
        self.next = self.under_way.values().map(|progress| progress.next).min();
    }

    /// Whether an address was probed and not announced: who else probes it now wants it, too.
    pub(super) fn is_probing(&self, address: IpAddr) -> bool {
        self.under_way.get(&address).is_some_and(|progress| progress.sent <= 1)
    }

    /// Somebody else has an address of the port. Whether to say once more that it is the port's.
    pub(super) fn conflict(&mut self, now: Instant, conflict: Conflict) -> bool {
        if self.conflicts.len() < MAX_CONFLICTS && !self.conflicts.iter().any(|c| c.address == conflict.address) {
            self.conflicts.push_back(conflict);
        }
        // Who had it first keeps it: it is not announced.
        if self.is_probing(conflict.address) {
            self.under_way.remove(&conflict.address);
            self.set_next();
            return false;
        }
        let before = self.defended.get(&conflict.address);
        let defend = before.is_none_or(|&before| now >= before + DEFEND);
        if defend {
            self.defended.insert(conflict.address, now);
        }
        defend
    }

    #[inline]
    pub(super) fn has_conflict(&self) -> bool {
        !self.conflicts.is_empty()
    }

    /// A conflict that nobody was told of yet.
    pub(super) fn poll_conflict(&mut self) -> Option<Conflict> {
        self.conflicts.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

    fn ip(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    #[test]
    fn an_address_is_probed_and_then_announced_twice() {
        let mut announcer = Announcer::default();
        announcer.begin(Instant::ZERO, ip(1));
        let mut sent = Vec::new();
        while let Some(next) = announcer.next() {
            sent.extend(announcer.due(next, 9).into_iter().map(|(_, message)| (next - Instant::ZERO, message)));
        }
        let at = Duration::from_secs;
        assert_eq!(sent, [(at(0), Message::Probe), (at(1), Message::Announcement), (at(2), Message::Announcement)]);
    }

    #[test]
    fn an_address_that_another_has_is_not_announced_and_told_once() {
        let mut announcer = Announcer::default();
        announcer.begin(Instant::ZERO, ip(1));
        announcer.due(Instant::ZERO, 9);
        let conflict = Conflict { address: ip(1), mac: MAC };
        assert!(!announcer.conflict(Instant::ZERO, conflict) && announcer.next().is_none());
        announcer.conflict(Instant::ZERO, conflict);
        assert_eq!((announcer.poll_conflict(), announcer.poll_conflict()), (Some(conflict), None));
        assert_eq!(conflict.to_string(), "10.0.0.1 is on the link already: 02:00:00:00:00:09 has it");
    }

    #[test]
    fn an_address_in_use_is_defended_once_in_ten_seconds() {
        let mut announcer = Announcer::default();
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let defended = [0, 1, 9, 10, 11].map(|s| announcer.conflict(at(s), Conflict { address: ip(1), mac: MAC }));
        assert_eq!(defended, [true, false, false, true, false]);
    }

    #[test]
    fn what_finds_no_room_is_sent_soon() {
        let mut announcer = Announcer::default();
        (1..=5).for_each(|n| announcer.begin(Instant::ZERO, ip(n)));
        assert_eq!(announcer.due(Instant::ZERO, 2).len(), 2);
        assert_eq!(announcer.next(), Some(Instant::ZERO + SOON));
        assert_eq!(announcer.due(Instant::ZERO + SOON, 9).len(), 3);
    }
}
