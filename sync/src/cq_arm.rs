//! Whether a completion queue is armed: its program asks to be woken by a completion.
//!
//! The program arms and then looks into the ring; an engine puts completions into the ring and then looks for an arm. With a full barrier
//! between the two at least one of them sees the other. One arm wakes once.

use crate::primitives::{AtomicU8, Ordering, fence};

const NONE: u8 = 0;
const SOLICITED: u8 = 1;
const NEXT: u8 = 2;

/// The arm of one completion queue: none, for solicited completions, or for any.
#[derive(Debug)]
pub struct CqArm(AtomicU8);

impl CqArm {
    /// Not armed.
    #[allow(clippy::new_without_default)] // there is nothing to leave out
    pub fn new() -> CqArm {
        CqArm(AtomicU8::new(NONE))
    }

    /// Arms for any completion, or only for one that the peer asked an event for, or that failed. An arm for any stays one for any.
    /// Whether there was none before: then [`CqArm::take_if`] or [`CqArm::disarm`] says `true` for this one, once.
    pub fn arm(&self, only_solicited: bool) -> bool {
        let before = self.0.fetch_max(if only_solicited { SOLICITED } else { NEXT }, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        before == NONE
    }

    /// Takes the arm away; whether there was one.
    pub fn disarm(&self) -> bool {
        self.0.swap(NONE, Ordering::Relaxed) != NONE
    }

    /// Takes the arm if completions that were put into a ring before this call fulfil it; the program is woken if so.
    #[inline]
    pub fn take_if(&self, solicited: bool) -> bool {
        fence(Ordering::SeqCst);
        let armed = self.0.load(Ordering::Relaxed);
        (armed == NEXT || armed == SOLICITED && solicited) && self.0.swap(NONE, Ordering::Relaxed) != NONE
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_arm_is_taken_once_and_the_greater_one_stays() {
        let arm = CqArm::new();
        assert!(!arm.take_if(true), "nobody armed");
        assert!(arm.arm(true));
        assert!(!arm.take_if(false));
        assert!(arm.take_if(true) && !arm.take_if(true));
        assert!(arm.arm(false) && !arm.arm(true), "there is one arm");
        assert!(arm.take_if(false) && !arm.take_if(true));
        assert!(arm.arm(true) && arm.disarm() && !arm.disarm() && !arm.take_if(true));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::primitives::{Arc, AtomicBool, AtomicU32};
    use crate::ring::ring;

    /// Engines complete one thing each while the program goes to sleep, as `arm` and `poll` would have it.
    fn model(engines: usize) {
        loom::model(move || {
            let shared = Arc::new((CqArm::new(), AtomicBool::new(false)));
            let (threads, mut rings): (Vec<_>, Vec<_>) = (0..engines)
                .map(|_| {
                    let (mut producer, consumer) = ring(2);
                    let shared = Arc::clone(&shared);
                    let thread = loom::thread::spawn(move || {
                        producer.push(()).unwrap();
                        if shared.0.take_if(false) {
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

    /// A program is counted before it arms, and whoever ends an arm takes the count off: while there is an arm the count is never 0, and
    /// without one it is 0 again.
    #[test]
    fn an_armed_program_is_counted_as_long_as_the_arm_stands() {
        loom::model(|| {
            let shared = Arc::new((CqArm::new(), AtomicU32::new(0), AtomicU32::new(0)));
            let engine = loom::thread::spawn({
                let shared = Arc::clone(&shared);
                move || {
                    for _ in 0..2 {
                        if shared.0.take_if(false) {
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
