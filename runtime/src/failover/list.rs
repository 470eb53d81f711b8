//! Work at the backup that verbs record without waiting for it, and messages for the user.
//!
//! The list is a module below the engines, because they import it; the control thread, which empties the list, imports the engines.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use softnic_nic::Buffer;
use softnic_nic::transports::memory::{Access, PdId};
use softnic_wire::Qpn;

use crate::locked::lock;
use crate::wake::Wake;

/// How long shadows wait for another verb after the latest one. Programs call verbs in bursts; the control thread would take the engine's
/// lock, for which the next verb of the burst would wait.
pub(crate) const PAUSE: Duration = Duration::from_millis(2);
/// The longest time that the oldest shadow waits, however many verbs follow.
const LONGEST: Duration = Duration::from_millis(20);
/// Number of shadows that the list holds without an allocation.
const ROW: usize = 32;

/// An object of the NIC that the backup needs as well. Removals are not listed: the verb that removes an object removes its shadow.
pub(crate) enum Shadow {
    /// A protection domain.
    Pd(PdId),
    /// A region; without a buffer, a region that reads as zeros.
    Mr {
        key: u32,
        pd: PdId,
        buffer: Option<Arc<Buffer>>,
        access: Access,
        /// Whether the region is still registered. Changes only while the region's owner has locked all engines.
        live: Arc<AtomicBool>,
    },
    /// A queue pair that became ready to send.
    Protect {
        /// The index of its engine.
        engine: usize,
        qpn: Qpn,
    },
    /// Verbs have deferred work at the backup ([`DualNic::catch_up`](softnic_shift::DualNic::catch_up)), which may not be used for long.
    Rest,
}

/// The list shared by verbs and the control thread.
pub(crate) struct Control {
    pub(crate) list: Mutex<List>,
    /// Verbs have deferred work at the backup.
    rest: AtomicBool,
    /// An engine, or the store, has news for the control thread.
    pub(crate) asked: AtomicBool,
    pub(crate) wake: Wake,
    /// Receives the messages for the user.
    pub(crate) lines: Option<LineSink>,
}

/// Work and messages that wait for the control thread.
#[derive(Default)]
pub(crate) struct List {
    pub(crate) shadows: Vec<Shadow>,
    /// When the oldest and the newest of the shadows were recorded.
    recorded: Option<[Instant; 2]>,
    /// Messages of threads that must not wait for a terminal.
    pub(crate) lines: Vec<String>,
}

impl List {
    /// Records a shadow.
    fn add(&mut self, now: Instant, shadow: Shadow) {
        // The times are stale if the shadows they belong to were taken.
        let oldest = self.recorded.filter(|_| !self.shadows.is_empty()).map_or(now, |[oldest, _]| oldest);
        self.recorded = Some([oldest, now]);
        self.shadows.push(shadow);
    }

    /// Records that verbs have deferred work. It is done at the end of the burst of verbs.
    fn add_rest(&mut self, now: Instant) {
        self.add(now, Shadow::Rest);
        let mut any = false;
        self.shadows.retain(|shadow| !matches!(shadow, Shadow::Rest) || !std::mem::replace(&mut any, true));
    }

    /// How long until the shadows can be made, if there are any: not during a burst of verbs.
    fn due_in(&self, now: Instant) -> Option<Duration> {
        let due = self.recorded.map(|[oldest, newest]| (newest + PAUSE).min(oldest + LONGEST));
        let wait = due.map_or(Duration::ZERO, |due| due.saturating_duration_since(now));
        (!self.shadows.is_empty()).then_some(wait)
    }

    /// Takes the shadows that can be made now.
    pub(crate) fn take_due(&mut self, now: Instant) -> Vec<Shadow> {
        if self.due_in(now).is_none_or(|wait| !wait.is_zero()) {
            return Vec::new();
        }
        self.recorded = None;
        // The verbs of the next burst need no allocation.
        std::mem::replace(&mut self.shadows, Vec::with_capacity(ROW))
    }
}

impl Control {
    pub(crate) fn new(lines: Option<LineSink>) -> io::Result<Arc<Control>> {
        let list = Mutex::new(List { shadows: Vec::with_capacity(ROW), ..List::default() });
        let (rest, asked) = (AtomicBool::new(false), AtomicBool::new(true));
        Ok(Arc::new(Control { list, rest, asked, wake: Wake::new()?, lines }))
    }

    /// Records an object that the backup needs as well.
    pub(crate) fn record(&self, shadow: Shadow) {
        lock(&self.list).add(Instant::now(), shadow);
        self.wake.wake_sleeper();
    }

    /// Records that a verb has deferred work at the backup. The control thread adds the list entry when it sees the flag: a verb of a burst
    /// touches only this flag.
    #[inline]
    pub(crate) fn leave_rest(&self) {
        if !self.rest.load(Ordering::Relaxed) {
            self.rest.store(true, Ordering::Release);
            self.wake.wake_sleeper();
        }
    }

    /// Takes the shadows that are due, and all messages. Also returns whether the list held anything.
    pub(crate) fn take(&self, now: Instant) -> (bool, Vec<Shadow>, Vec<String>) {
        let left = self.rest.swap(false, Ordering::AcqRel);
        let mut list = lock(&self.list);
        if left {
            list.add_rest(now);
        }
        let any = !(list.shadows.is_empty() && list.lines.is_empty());
        (any, list.take_due(now), std::mem::take(&mut list.lines))
    }

    /// How long until the list has work that is due.
    pub(crate) fn due_in(&self, now: Instant) -> Option<Duration> {
        lock(&self.list).due_in(now)
    }

    /// Queues a message for the user.
    pub(crate) fn say(&self, line: String) {
        lock(&self.list).lines.push(line);
        self.wake.wake_sleeper();
    }

    /// Wakes the control thread, because an engine or the store has news.
    #[inline]
    pub(crate) fn wake(&self) {
        self.asked.store(true, Ordering::Release);
        self.wake.wake_sleeper();
    }
}

/// Receives messages for the user, line by line, on a thread of the NIC.
#[derive(Clone)]
pub struct LineSink(Arc<dyn Fn(&str) + Send + Sync>);

impl LineSink {
    /// Calls `say` with each line.
    pub fn new(say: impl Fn(&str) + Send + Sync + 'static) -> LineSink {
        LineSink(Arc::new(say))
    }

    pub(crate) fn say(&self, line: &str) {
        (self.0)(line);
    }
}

impl fmt::Debug for LineSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LineSink")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shadows_are_made_when_a_row_of_verbs_ends_and_in_a_long_row_at_a_bound() {
        let start = Instant::now();
        let mut list = List::default();
        list.add(start, Shadow::Pd(PdId(1)));
        let second = start + PAUSE * 9 / 10;
        list.add(second, Shadow::Pd(PdId(2)));
        assert_eq!(list.take_due(start + PAUSE * 3 / 2).len(), 0, "the second verb was less than a pause ago");
        assert_eq!(list.due_in(start + PAUSE * 3 / 2), Some(PAUSE * 4 / 10));
        assert_eq!(list.take_due(second + PAUSE).len(), 2);
        let row = second + PAUSE;
        for n in 0..=20 {
            let now = row + LONGEST / 20 * n;
            list.add(now, Shadow::Pd(PdId(3)));
            let made = list.take_due(now).len();
            assert_eq!(made, if n == 20 { 21 } else { 0 }, "verb {n} of the row");
        }
    }

    #[test]
    fn what_verbs_leave_is_in_the_list_once_until_their_row_ends() {
        let control = Control::new(None).unwrap();
        let start = Instant::now();
        for n in 0..3 {
            control.leave_rest();
            control.leave_rest();
            assert_eq!(control.take(start + PAUSE / 2 * n).1.len(), 0, "verb {n} of the row");
        }
        let end = start + PAUSE * 2;
        assert!(matches!(control.take(end).1[..], [Shadow::Rest]));
        assert!(!control.take(end).0, "nothing is left");
    }

    #[test]
    fn a_shadow_that_could_not_be_made_is_tried_again_without_a_pause() {
        let start = Instant::now();
        let mut list = List::default();
        list.add(start, Shadow::Pd(PdId(1)));
        let left = list.take_due(start + PAUSE);
        list.shadows.extend(left);
        assert_eq!(list.take_due(start + PAUSE).len(), 1);
    }
}
