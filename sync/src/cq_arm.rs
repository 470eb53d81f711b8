//! The arm of a completion queue: the program's request to be woken by a completion.
//!
//! The program arms and then looks into the rings. An engine puts completions into a ring and then looks for an arm. A full barrier between
//! the two steps on each side ensures that at least one side sees the other. One arm causes one wake-up.
//!
//! Mellanox hardware also raises an event at arming, for completions that arrived earlier, were not polled, and have raised no event yet.
//! Programs rely on this. So each ring has a mark behind the completion that raised the last event, and a mark behind the last solicited
//! completion. Marks count completions since the ring was created, as the ring's own counts do.

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
    /// Behind the last solicited completion. Written only by the ring's engine.
    solicited: AtomicUsize,
}

/// Completions that an engine put into its ring in one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// Number of completions put into the ring before this batch.
    pub first: usize,
    /// The count behind the last solicited completion of the batch, if there is one. A failed completion counts as solicited.
    pub solicited: Option<usize>,
}

/// The later of two counts, which wrap around.
#[inline]
fn later(a: usize, b: usize) -> usize {
    if (a.wrapping_sub(b) as isize) < 0 { b } else { a }
}

impl CqArm {
    /// Creates an unarmed queue of `rings` rings.
    pub fn new(rings: usize) -> CqArm {
        let marks = || Marks { notified: AtomicUsize::new(0), solicited: AtomicUsize::new(0) };
        CqArm { armed: AtomicU8::new(NONE), rings: (0..rings).map(|_| marks()).collect() }
    }

    /// Arms for any completion, or only for solicited and failed ones. An arm for any completion is never narrowed to solicited ones.
    /// Returns whether the queue was unarmed before. If so, one call of [`CqArm::take_if`], [`CqArm::take_missed`] or [`CqArm::disarm`]
    /// returns `true` for this arm.
    pub fn arm(&self, only_solicited: bool) -> bool {
        let before = self.armed.fetch_max(if only_solicited { SOLICITED } else { NEXT }, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        before == NONE
    }

    /// Removes the arm; returns whether there was one.
    pub fn disarm(&self) -> bool {
        self.armed.swap(NONE, Ordering::Relaxed) != NONE
    }

    /// Takes the arm if the completions that were put into a ring before this call satisfy it. The caller then wakes the program.
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

    /// Takes the arm, after [`CqArm::arm`], if a ring holds a completion that was not polled and raised no event. The caller then wakes the
    /// program. `polled` is the number of completions taken out of the ring, `written` the number put in.
    pub fn take_missed(&self, ring: usize, polled: usize, written: usize) -> bool {
        let marks = &self.rings[ring];
        let done = later(polled, marks.notified.load(Ordering::Relaxed));
        let mark = match self.armed.load(Ordering::Relaxed) {
            // One completion per event: a program may poll only one completion for each event.
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
        // When both sides raise an event at once, either the later mark remains, or the earlier one, which causes one event too many.
        notified.store(later(notified.load(Ordering::Relaxed), mark), Ordering::Relaxed);
        true
    }

    /// A ring was replaced, while its engine was stopped, by a ring that holds the remaining completions. `count` maps each old count to
    /// the new one.
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

    /// A batch of one completion, put in behind `first` others.
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
        // The counts wrap around during the test.
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
        // A completion for which an engine raised an event raises no second one; other completions of the same batch still do.
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
        // A new ring takes over the remaining completions of this one.
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

    /// Each engine completes one request while the program goes to sleep, in the order of `arm` and `poll`.
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
            // The queue was armed before the look, so a completion that the look did not find wakes the program.
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

    /// The program never polls. A completion raises one event, whether it arrives before the arming or after it, from one side or the
    /// other.
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

    /// A program is counted before it arms, and the side that ends an arm removes the count. While an arm exists the count is never 0;
    /// without an arm the count is 0 again.
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
