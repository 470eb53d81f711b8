//! Schedules when connections are checked. Each connection is tracked separately, so a frame costs one check, for any number of connections.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use softnic_wire::{Instant, Qpn};

/// Connections by queue pair number. The local NICs draw these numbers, so no peer can provoke collisions.
pub(super) type QpnMap = HashMap<Qpn, usize, BuildHasherDefault<QpnHasher>>;

/// Spreads the 24 bits of a queue pair number over 64.
#[derive(Default)]
pub(super) struct QpnHasher(u64);

impl Hasher for QpnHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(u32::from(byte)));
    }

    fn write_u32(&mut self, value: u32) {
        // Fibonacci hashing; the upper bits, which a hash table examines first, depend on all others.
        let mixed = (self.0 ^ u64::from(value)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}

/// The state of a connection that decides when it is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Standing {
    /// The connection may change without an event: each frame of its queue pairs schedules a check.
    pub(super) unsettled: bool,
    /// After a frame at the backup the connection must be checked before the next frame is handled.
    pub(super) wary: bool,
    /// A shim holds frames of this connection: they may be handled later, by a timer.
    pub(super) holds_frames: bool,
    /// When to check the connection without an event.
    pub(super) timeout: Option<Instant>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Place {
    standing: Standing,
    due: bool,
    touched: bool,
}

/// The pending checks.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    places: Vec<Place>,
    /// Connections to be checked next, in this order.
    due: Vec<usize>,
    /// Connections with completions at the backup. They are checked first.
    touched: Vec<usize>,
    timers: BTreeSet<(Instant, usize)>,
    unsettled: usize,
    wary: usize,
    /// Unsettled connections that hold frames.
    holding: BTreeSet<usize>,
    /// The number of checks so far.
    pub(super) looks: u64,
}

impl Agenda {
    fn place(&mut self, at: usize) -> &mut Place {
        if at >= self.places.len() {
            self.places.resize(at + 1, Place::default());
        }
        &mut self.places[at]
    }

    /// Whether any connection is unsettled.
    #[inline]
    pub(super) fn any_unsettled(&self) -> bool {
        self.unsettled > 0
    }

    /// Whether a frame at the backup must be followed by a check at once.
    #[inline]
    pub(super) fn is_wary(&self) -> bool {
        self.wary > 0
    }

    /// Records a frame for a connection. Returns whether a check was scheduled.
    pub(super) fn on_frame(&mut self, at: usize) -> bool {
        let unsettled = self.place(at).standing.unsettled;
        if unsettled {
            self.mark(at);
        }
        unsettled
    }

    /// Schedules a check of a connection.
    pub(super) fn mark(&mut self, at: usize) {
        if !std::mem::replace(&mut self.place(at).due, true) {
            self.due.push(at);
        }
    }

    /// Records a completion for a connection.
    pub(super) fn touch(&mut self, at: usize) {
        if !std::mem::replace(&mut self.place(at).touched, true) {
            self.touched.push(at);
        }
    }

    /// Takes the connections with completions.
    pub(super) fn take_touched(&mut self) -> Vec<usize> {
        let touched = std::mem::take(&mut self.touched);
        touched.iter().for_each(|&at| self.places[at].touched = false);
        touched
    }

    /// Takes the connections to be checked now.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<usize> {
        while let Some(&(_, at)) = self.timers.first().filter(|(timeout, _)| *timeout <= now) {
            self.timers.pop_first();
            self.places[at].standing.timeout = None;
            self.mark(at);
        }
        let due = std::mem::take(&mut self.due);
        due.iter().for_each(|&at| self.places[at].due = false);
        due
    }

    /// Time has passed for the NICs: shims may have released frames.
    pub(super) fn on_time(&mut self) {
        for at in std::mem::take(&mut self.holding) {
            self.mark(at);
            self.holding.insert(at);
        }
    }

    /// Sets the state that decides when a connection is checked.
    pub(super) fn note(&mut self, at: usize, standing: Standing) {
        let before = std::mem::replace(&mut self.place(at).standing, standing);
        if before == standing {
            return;
        }
        self.unsettled = self.unsettled + usize::from(standing.unsettled) - usize::from(before.unsettled);
        self.wary = self.wary + usize::from(standing.wary) - usize::from(before.wary);
        match standing.unsettled && standing.holds_frames {
            true => self.holding.insert(at),
            false => self.holding.remove(&at),
        };
        if before.timeout != standing.timeout {
            before.timeout.into_iter().for_each(|timeout| _ = self.timers.remove(&(timeout, at)));
            standing.timeout.into_iter().for_each(|timeout| _ = self.timers.insert((timeout, at)));
        }
    }

    /// When the next check is due without an event.
    #[inline]
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|&(timeout, _)| timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: Instant = Instant::from_nanos(50);

    fn unsettled(timeout: Option<Instant>) -> Standing {
        Standing { unsettled: true, timeout, ..Standing::default() }
    }

    #[test]
    fn a_frame_asks_for_a_look_at_its_own_connection_once_and_only_where_it_is_unsettled() {
        let mut agenda = Agenda::default();
        for at in 0..1000 {
            agenda.note(at, unsettled(None));
        }
        agenda.note(7, Standing::default());
        assert!(agenda.on_frame(3) && agenda.on_frame(3) && !agenda.on_frame(7));
        assert_eq!(agenda.take_due(Instant::ZERO), [3]);
        assert!(agenda.take_due(Instant::ZERO).is_empty());
    }

    #[test]
    fn timers_come_in_order_and_one_that_was_moved_does_not_come_at_its_old_time() {
        let mut agenda = Agenda::default();
        for (at, nanos) in [(0, 30), (1, 10), (2, 20)] {
            agenda.note(at, unsettled(Some(Instant::from_nanos(nanos))));
        }
        agenda.note(1, unsettled(Some(LATER)));
        assert_eq!(agenda.poll_timeout(), Some(Instant::from_nanos(20)));
        assert_eq!(agenda.take_due(Instant::from_nanos(30)), [2, 0]);
        assert_eq!(agenda.poll_timeout(), Some(LATER));
        agenda.note(1, Standing::default());
        assert_eq!(agenda.poll_timeout(), None);
        assert!(agenda.any_unsettled(), "two are, though their times have come");
    }
}
