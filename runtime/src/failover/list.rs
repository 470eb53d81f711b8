//! What the backup of a NIC is to have, recorded by verbs that do not wait for it, and lines for people.
//!
//! A file of its own below the engines, which import this; the thread that takes from the list imports engines.

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

/// How long shadows wait for another verb behind theirs. Verbs come in rows; making a shadow takes the engine's lock, for which the next verb
/// of the row would wait.
pub(crate) const PAUSE: Duration = Duration::from_millis(2);
/// How long the oldest shadow waits at most, however many verbs follow.
const LONGEST: Duration = Duration::from_millis(20);
/// Shadows that the list has room for without asking for memory.
const ROW: usize = 32;

/// Something of the NIC that the backup is to have, too. What goes is taken from the backup at once, by whoever takes it from the NIC.
pub(crate) enum Shadow {
    /// A protection domain.
    Pd(PdId),
    /// A region; without a buffer one that reads as zeros.
    Mr {
        key: u32,
        pd: PdId,
        buffer: Option<Arc<Buffer>>,
        access: Access,
        /// Whether it is still registered. Changes only while its owner has all engines.
        live: Arc<AtomicBool>,
    },
    /// A queue pair that became ready to send.
    Protect {
        /// The number of its engine.
        engine: usize,
        qpn: Qpn,
    },
    /// What verbs have left to be done at the backup ([`DualNic::catch_up`](softnic_shift::DualNic::catch_up)): nobody may use the backup for long.
    Rest,
}

/// The list of what is to be done.
pub(crate) struct Control {
    pub(crate) list: Mutex<List>,
    /// Verbs have left something to be done at the backup.
    rest: AtomicBool,
    /// An engine, or the store, has something to say.
    pub(crate) asked: AtomicBool,
    pub(crate) wake: Wake,
    /// Who gets lines for people.
    pub(crate) lines: Option<LineSink>,
}

/// What waits to be done, and to be said.
#[derive(Default)]
pub(crate) struct List {
    pub(crate) shadows: Vec<Shadow>,
    /// When the oldest and the newest of the shadows were recorded.
    recorded: Option<[Instant; 2]>,
    /// Lines of those who must not wait for a terminal.
    pub(crate) lines: Vec<String>,
}

impl List {
    /// Records a shadow.
    fn add(&mut self, now: Instant, shadow: Shadow) {
        // What was recorded last may be gone by now.
        let oldest = self.recorded.filter(|_| !self.shadows.is_empty()).map_or(now, |[oldest, _]| oldest);
        self.recorded = Some([oldest, now]);
        self.shadows.push(shadow);
    }

    /// Verbs have left something: it is done when their row ends.
    fn add_rest(&mut self, now: Instant) {
        self.add(now, Shadow::Rest);
        let mut any = false;
        self.shadows.retain(|shadow| !matches!(shadow, Shadow::Rest) || !std::mem::replace(&mut any, true));
    }

    /// After what time its shadows can be made, where there are some: not while a row of verbs is going on.
    fn due_in(&self, now: Instant) -> Option<Duration> {
        let due = self.recorded.map(|[oldest, newest]| (newest + PAUSE).min(oldest + LONGEST));
        let wait = due.map_or(Duration::ZERO, |due| due.saturating_duration_since(now));
        (!self.shadows.is_empty()).then_some(wait)
    }

    /// The shadows that can be made now.
    pub(crate) fn take_due(&mut self, now: Instant) -> Vec<Shadow> {
        if self.due_in(now).is_none_or(|wait| !wait.is_zero()) {
            return Vec::new();
        }
        self.recorded = None;
        // No verb of the next row asks for memory.
        std::mem::replace(&mut self.shadows, Vec::with_capacity(ROW))
    }
}

impl Control {
    pub(crate) fn new(lines: Option<LineSink>) -> io::Result<Arc<Control>> {
        let list = Mutex::new(List { shadows: Vec::with_capacity(ROW), ..List::default() });
        let (rest, asked) = (AtomicBool::new(false), AtomicBool::new(true));
        Ok(Arc::new(Control { list, rest, asked, wake: Wake::new()?, lines }))
    }

    /// The backup is to have this, too.
    pub(crate) fn record(&self, shadow: Shadow) {
        lock(&self.list).add(Instant::now(), shadow);
        self.wake.wake_sleeper();
    }

    /// A verb has left something to be done at the backup. Whoever sees to the backup puts it into the list, at the time when it sees that:
    /// a verb of a row touches nothing but this.
    #[inline]
    pub(crate) fn leave_rest(&self) {
        if !self.rest.load(Ordering::Relaxed) {
            self.rest.store(true, Ordering::Release);
            self.wake.wake_sleeper();
        }
    }

    /// What is due of the list, and all lines; whether there was anything in it.
    pub(crate) fn take(&self, now: Instant) -> (bool, Vec<Shadow>, Vec<String>) {
        let left = self.rest.swap(false, Ordering::AcqRel);
        let mut list = lock(&self.list);
        if left {
            list.add_rest(now);
        }
        let any = !(list.shadows.is_empty() && list.lines.is_empty());
        (any, list.take_due(now), std::mem::take(&mut list.lines))
    }

    /// After what time there is something to do of the list.
    pub(crate) fn due_in(&self, now: Instant) -> Option<Duration> {
        lock(&self.list).due_in(now)
    }

    /// A line for people.
    pub(crate) fn say(&self, line: String) {
        lock(&self.list).lines.push(line);
        self.wake.wake_sleeper();
    }

    /// An engine, or the store, has something to say.
    #[inline]
    pub(crate) fn wake(&self) {
        self.asked.store(true, Ordering::Release);
        self.wake.wake_sleeper();
    }
}

/// Receives lines for people, by calls from a thread of the NIC's own.
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
