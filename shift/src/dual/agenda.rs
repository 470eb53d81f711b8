//! Which connections are to be looked at, and when. Each is known by itself: however many there are, a frame costs a look at its own alone.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use softnic_wire::{Instant, Qpn};

/// Connections by the numbers of queue pairs. Our own NICs draw those, so no peer chooses which of them collide.
pub(super) type QpnMap = HashMap<Qpn, usize, BuildHasherDefault<QpnHasher>>;

/// Spreads the 24 bits of a number over 64.
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
        // Fibonacci hashing; the upper bits, which a table looks at first, depend on all others.
        let mixed = (self.0 ^ u64::from(value)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}

/// How a connection stands, as far as looks at it go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Standing {
    /// Something may happen to it that no event tells of: each frame of its queue pairs asks for a look.
    pub(super) unsettled: bool,
    /// A frame of its backup must be looked at before the next one is taken.
    pub(super) wary: bool,
    /// Its frames may be taken late, when time passes: a shim holds them.
    pub(super) holds_frames: bool,
    /// When to look at it although nothing happens.
    pub(super) timeout: Option<Instant>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Place {
    standing: Standing,
    due: bool,
    touched: bool,
}

/// The looks that are to come.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    places: Vec<Place>,
    /// To be looked at next, in this order.
    due: Vec<usize>,
    /// Those of which something completed at the backup: they come before.
    touched: Vec<usize>,
    timers: BTreeSet<(Instant, usize)>,
    unsettled: usize,
    wary: usize,
    /// Those that are unsettled and hold frames.
    holding: BTreeSet<usize>,
    /// How many looks there were.
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

    /// Whether a frame of the backup must be looked at at once.
    #[inline]
    pub(super) fn is_wary(&self) -> bool {
        self.wary > 0
    }

    /// A frame came for a connection; whether it is to be looked at.
    pub(super) fn on_frame(&mut self, at: usize) -> bool {
        let unsettled = self.place(at).standing.unsettled;
        if unsettled {
            self.mark(at);
        }
        unsettled
    }

    /// A connection is to be looked at.
    pub(super) fn mark(&mut self, at: usize) {
        if !std::mem::replace(&mut self.place(at).due, true) {
            self.due.push(at);
        }
    }

    /// Something of a connection completed.
    pub(super) fn touch(&mut self, at: usize) {
        if !std::mem::replace(&mut self.place(at).touched, true) {
            self.touched.push(at);
        }
    }

    /// The connections of which something completed.
    pub(super) fn take_touched(&mut self) -> Vec<usize> {
        let touched = std::mem::take(&mut self.touched);
        touched.iter().for_each(|&at| self.places[at].touched = false);
        touched
    }

    /// The connections that are to be looked at now.
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

    /// Time has passed for the NICs: frames that shims held may have been taken.
    pub(super) fn on_time(&mut self) {
        for at in std::mem::take(&mut self.holding) {
            self.mark(at);
            self.holding.insert(at);
        }
    }

    /// How a connection stands from now on.
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

    /// When the next look is due although nothing happens.
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
