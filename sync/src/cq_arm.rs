//! Whether a completion queue is armed: its program asks to be woken by a completion.
//!
//! The program arms and then looks into the rings; an engine puts completions into a ring and then looks for an arm. With a full barrier
//! between the two at least one of them sees the other. One arm wakes once.
//!
//! Mellanox hardware raises an event at arming, too, for completions that came before, were not polled, and raised no event yet; programs rely
//! on that. So each ring has a mark behind the completion that raised the last event, and one behind the last solicited completion.
//! Marks count completions since the ring was made, as the ring's own counts do.

use crate::primitives::{AtomicU8, AtomicUsize, Ordering, fence};

const NONE: u8 = 0;
const SOLICITED: u8 = 1;
const NEXT: u8 = 2;

/// The arm of one completion queue: none, for solicited completions, or for any.
#[derive(Debug)]
pub struct CqArm {
    armed: AtomicU8,
    rings: Box<[Marks]>,
}

/// The marks of one ring.
#[derive(Debug)]
struct Marks {
    /// Behind the completion that raised the last event.
    notified: AtomicUsize,
    /// Behind the last solicited completion. The ring's engine alone writes this one.
    solicited: AtomicUsize,
}

/// Completions that an engine put into its ring together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// Completions that were put into the ring before.
    pub first: usize,
    /// The count behind the last solicited one of them, if there is one. A completion that failed is solicited.
    pub solicited: Option<usize>,
}

/// The later one of two counts, which wrap.
#[inline]
fn later(a: usize, b: usize) -> usize {
    if (a.wrapping_sub(b) as isize) < 0 { b } else { a }
}

impl CqArm {
    /// Not armed, for a queue of so many rings.
    pub fn new(rings: usize) -> CqArm {
        let marks = || Marks { notified: AtomicUsize::new(0), solicited: AtomicUsize::new(0) };
        CqArm { armed: AtomicU8::new(NONE), rings: (0..rings).map(|_| marks()).collect() }
    }

    /// Arms for any completion, or only for one that the peer asked an event for, or that failed. An arm for any stays one for any.
    /// Whether there was none before: then [`CqArm::take_if`], [`CqArm::take_missed`] or [`CqArm::disarm`] says `true` for this one, once.
    pub fn arm(&self, only_solicited: bool) -> bool {
        let before = self.armed.fetch_max(if only_solicited { SOLICITED } else { NEXT }, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        before == NONE
    }

    /// Takes the arm away; whether there was one.
    pub fn disarm(&self) -> bool {
        self.armed.swap(NONE, Ordering::Relaxed) != NONE
    }

    /// Takes the arm if completions that were put into a ring before this call fulfil it; the program is woken if so.
    #[inline]
    pub fn take_if(&self, ring: usize, batch: Batch) -> bool {
        if let Some(solicited) = batch.solicited {
            self.rings[ring].solicited.store(solicited, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
        match (self.armed.load(Ordering::Relaxed), batch.solicited) {
            (NEXT, _) => self.take(ring, batch.first.wrapping_add(1)),
            (SOLICITED, Some(solicited)) => self.take(ring, solicited),
            _ => false,
        }
    }

    /// Takes the arm, after [`CqArm::arm`], if a completion is in a ring that was neither polled nor raised an event; the program is woken
    /// if so. `polled` completions of the ring were taken out, and `written` were put in.
    pub fn take_missed(&self, ring: usize, polled: usize, written: usize) -> bool {
        let marks = &self.rings[ring];
        let done = later(polled, marks.notified.load(Ordering::Relaxed));
        let mark = match self.armed.load(Ordering::Relaxed) {
            // One at a time: a program may take one completion for each event.
            NEXT if later(done, written) != done => done.wrapping_add(1),
            SOLICITED => marks.solicited.load(Ordering::Relaxed),
            _ => done,
        };
        later(done, mark) != done && self.take(ring, mark)
    }

    #[cold]
    fn take(&self, ring: usize, mark: usize) -> bool {
        if self.armed.swap(NONE, Ordering::Relaxed) == NONE {
            return false;
        }
        let notified = &self.rings[ring].notified;
        // Where both ends raise an event at a time the later mark stays, or the earlier one, which costs one event too many.
        notified.store(later(notified.load(Ordering::Relaxed), mark), Ordering::Relaxed);
        true
    }

    /// A ring was replaced by one that holds what was left in it, while its engine stood still: `count` has each old count as the new one.
    pub fn replace_ring(&self, ring: usize, count: impl Fn(usize) -> usize) {
        let Marks { notified, solicited } = &self.rings[ring];
        for mark in [notified, solicited] {
            mark.store(count(mark.load(Ordering::Relaxed)), Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// One completion, put in behind `first` others.
    fn one(first: usize, solicited: bool) -> Batch {
        Batch { first, solicited: solicited.then(|| first.wrapping_add(1)) }
    }

    #[test]
    fn an_arm_is_taken_once_and_the_greater_one_stays() {
        let arm = CqArm::new(1);
        let take_if = |solicited| arm.take_if(0, one(0, solicited));
        assert!(!take_if(true), "nobody armed");
        assert!(arm.arm(true));
        assert!(!take_if(false));
        assert!(take_if(true) && !take_if(true));
        assert!(arm.arm(false) && !arm.arm(true), "there is one arm");
        assert!(take_if(false) && !take_if(true));
        assert!(arm.arm(true) && arm.disarm() && !arm.disarm() && !take_if(true));
    }

    #[test]
    fn a_completion_that_raised_no_event_and_is_not_polled_raises_one_at_arming() {
        // Counts wrap on the way.
        let start = usize::MAX - 1;
        let arm = CqArm::new(2);
        arm.replace_ring(1, |_| start);
        let at = |n: usize| start.wrapping_add(n);
        let missed = |polled, written| arm.arm(false) && arm.take_missed(1, at(polled), at(written)) || !arm.disarm();
        assert!(!missed(0, 0), "there is none");
        assert!(!arm.take_if(1, Batch { first: at(0), solicited: None }), "three come unasked");
        assert!(missed(0, 3) && missed(0, 3) && missed(0, 3), "one event for each of them");
        assert!(!missed(0, 3), "all were told of");
        assert!(!missed(3, 3) && missed(3, 4) && !missed(4, 4));
        // What an engine raised an event for is not told of again; what came with it is.
        assert!(arm.arm(false) && arm.take_if(1, Batch { first: at(4), solicited: None }));
        assert!(!missed(4, 5));
        assert!(missed(4, 6) && !missed(4, 6));
        assert!(!missed(6, 6) && !missed(7, 7), "polled");
    }

    #[test]
    fn a_program_that_waits_for_solicited_completions_alone_is_told_of_the_last_that_it_missed() {
        let arm = CqArm::new(1);
        let missed = |polled, written| arm.arm(true) && arm.take_missed(0, polled, written) || !arm.disarm();
        assert!(!arm.take_if(0, one(0, false)) && !missed(0, 1), "none is solicited");
        assert!(!arm.take_if(0, one(1, true)) && !arm.take_if(0, one(2, false)));
        assert!(missed(0, 3) && !missed(0, 3), "once");
        assert!(arm.arm(false) && arm.take_missed(0, 0, 3), "the one behind it is there for whoever waits for any");
        assert!(!arm.take_if(0, one(3, true)) && !missed(4, 4), "polled");
        // A ring that took over what was left of this one.
        assert!(!arm.take_if(0, one(4, true)));
        arm.replace_ring(0, |count| count.saturating_sub(4));
        assert!(missed(0, 1) && !missed(0, 1));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::primitives::{Arc, AtomicBool, AtomicU32};
    use crate::ring::{Consumer, ring};

    const FIRST: Batch = Batch { first: 0, solicited: None };

    /// Engines complete one thing each while the program goes to sleep, as `arm` and `poll` would have it.
    fn model(engines: usize) {
        loom::model(move || {
            let shared = Arc::new((CqArm::new(engines), AtomicBool::new(false)));
            let (threads, mut rings): (Vec<_>, Vec<_>) = (0..engines)
                .map(|i| {
                    let (mut producer, consumer) = ring(2);
                    let shared = Arc::clone(&shared);
                    let thread = loom::thread::spawn(move || {
                        producer.push(()).unwrap();
                        if shared.0.take_if(i, FIRST) {
                            shared.1.store(true, Ordering::Release);
                        }
                    });
                    (thread, consumer)
                })
                .unzip();
            let mut look = || rings.iter_mut().map(|ring| usize::from(ring.pop().is_some())).sum::<usize>();
            shared.0.arm(false);
            let taken = look();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            // The queue was armed before the look: what the look did not find wakes.
            assert!(taken == engines || shared.1.load(Ordering::Acquire), "it sleeps and nobody wakes it");
            assert_eq!(taken + look(), engines);
        });
    }

    #[test]
    fn a_program_that_armed_before_it_looked_is_woken() {
        model(1);
    }

    #[test]
    fn a_program_that_armed_before_it_looked_is_woken_by_one_of_two_engines() {
        model(2);
    }

    /// The program never looks itself: whatever comes, before the arming or after it, raises one event, by one end or the other.
    fn arms_and_sleeps(only_solicited: bool) {
        loom::model(move || {
            let shared = Arc::new((CqArm::new(1), AtomicU32::new(0)));
            let (mut producer, mut consumer) = ring(2);
            let engine = loom::thread::spawn({
                let shared = Arc::clone(&shared);
                move || {
                    producer.push(()).unwrap();
                    if shared.0.take_if(0, Batch { first: 0, solicited: Some(1) }) {
                        shared.1.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
            let arm = |consumer: &mut Consumer<()>| {
                shared.0.arm(only_solicited);
                let written = consumer.read().wrapping_add(consumer.len());
                if shared.0.take_missed(0, consumer.read(), written) {
                    shared.1.fetch_add(1, Ordering::Relaxed);
                }
            };
            arm(&mut consumer);
            engine.join().unwrap();
            assert_eq!(shared.1.load(Ordering::Relaxed), 1, "there is a completion");
            arm(&mut consumer);
            assert_eq!(shared.1.load(Ordering::Relaxed), 1, "and its event was raised");
        });
    }

    #[test]
    fn a_program_that_arms_and_sleeps_without_polling_is_woken_once() {
        arms_and_sleeps(false);
    }

    #[test]
    fn a_program_that_arms_for_solicited_completions_and_sleeps_without_polling_is_woken_once() {
        arms_and_sleeps(true);
    }

    /// A program is counted before it arms, and whoever ends an arm takes the count off: while there is an arm the count is never 0, and
    /// without one it is 0 again.
    #[test]
    fn an_armed_program_is_counted_as_long_as_the_arm_stands() {
        loom::model(|| {
            let shared = Arc::new((CqArm::new(1), AtomicU32::new(0), AtomicU32::new(0)));
            let engine = loom::thread::spawn({
                let shared = Arc::clone(&shared);
                move || {
                    for _ in 0..2 {
                        if shared.0.take_if(0, FIRST) {
                            shared.2.fetch_add(1, Ordering::Relaxed);
                            shared.1.fetch_sub(1, Ordering::AcqRel);
                        }
                    }
                }
            });
            let mut made = 0;
            for _ in 0..2 {
                shared.1.fetch_add(1, Ordering::AcqRel);
                if shared.0.arm(false) {
                    made += 1;
                } else {
                    shared.1.fetch_sub(1, Ordering::AcqRel);
                }
            }
            engine.join().unwrap();
            let stands = shared.0.disarm();
            assert_eq!(shared.1.load(Ordering::Acquire), u32::from(stands));
            assert_eq!(shared.2.load(Ordering::Acquire) + u32::from(stands), made, "each arm is taken once");
        });
    }
}
