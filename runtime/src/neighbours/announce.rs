//! Duplicate detection and announcement of the port's own addresses.
//!
//! An address is probed once, and announced twice, at intervals of a second (RFC 5227, 2.1, 2.3; RFC 4862, 5.4; RFC 4861, 7.2.6). It is in
//! use from the start, as with optimistic detection (RFC 4429), so that opening a device does not take a second.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use softnic_wire::{Instant, MacAddr};

/// The interval between the probe and the announcements.
pub(super) const STEP: Duration = Duration::from_secs(1);
/// The shortest interval between two defences of an address that another host claims (RFC 5227, 2.4).
const DEFEND: Duration = Duration::from_secs(10);
/// When to retry if there was no room for a frame.
const SOON: Duration = Duration::from_millis(1);
/// The number of conflicts that wait to be polled. There is at most one for each address.
const MAX_CONFLICTS: usize = 64;

/// An address of the port that another host has as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{address} is on the link already: {mac} has it")]
pub struct Conflict {
    /// The address.
    pub address: IpAddr,
    /// The MAC address of the other host.
    pub mac: MacAddr,
}

/// A message about an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Message {
    /// Asks whether another host has the address.
    Probe,
    /// Announces that the port has the address.
    Announcement,
}

/// The progress of an address.
#[derive(Debug, Clone, Copy)]
struct Progress {
    /// The number of messages sent.
    sent: u32,
    next: Instant,
}

/// One probe and two announcements.
const MESSAGES: u32 = 3;

/// The addresses that are being probed and announced.
#[derive(Debug, Default)]
pub(super) struct Announcer {
    under_way: BTreeMap<IpAddr, Progress>,
    /// The earliest of their times. Cached, because the driver polls it in every round.
    next: Option<Instant>,
    defended: BTreeMap<IpAddr, Instant>,
    conflicts: VecDeque<Conflict>,
}

impl Announcer {
    /// Starts with an address, or starts again.
    pub(super) fn begin(&mut self, now: Instant, address: IpAddr) {
        self.under_way.insert(address, Progress { sent: 0, next: now });
        self.set_next();
    }

    /// Continues with these addresses only.
    pub(super) fn retain(&mut self, addresses: &[IpAddr]) {
        self.under_way.retain(|address, _| addresses.contains(address));
        self.defended.retain(|address, _| addresses.contains(address));
        self.conflicts.retain(|conflict| addresses.contains(&conflict.address));
        self.set_next();
    }

    /// The messages to send now, at most `room`.
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

    /// When [`Announcer::due`] next has messages.
    #[inline]
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    fn set_next(&mut self) {
        self.next = self.under_way.values().map(|progress| progress.next).min();
    }

    /// Whether an address was not announced yet: another host that probes for it now is a conflict.
    pub(super) fn is_probing(&self, address: IpAddr) -> bool {
        self.under_way.get(&address).is_some_and(|progress| progress.sent <= 1)
    }

    /// Records that another host has an address of the port. Returns whether to announce the address once more.
    pub(super) fn conflict(&mut self, now: Instant, conflict: Conflict) -> bool {
        if self.conflicts.len() < MAX_CONFLICTS && !self.conflicts.iter().any(|c| c.address == conflict.address) {
            self.conflicts.push_back(conflict);
        }
        // The host that had the address first keeps it, so it is not announced.
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

    /// The next conflict that was not polled yet.
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
