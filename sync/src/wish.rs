//! The wish of a program to be woken by a completion.
//!
//! The program wishes and then looks into the ring; an engine puts completions into the ring and then looks for a wish. With a full barrier
//! between the two at least one of them sees the other. A wish is granted once.

use crate::primitives::{AtomicU8, Ordering, fence};

const NONE: u8 = 0;
const SOLICITED: u8 = 1;
const NEXT: u8 = 2;

/// The wish of one program, or none.
#[derive(Debug)]
pub struct Wish(AtomicU8);

impl Wish {
    /// None.
    #[allow(clippy::new_without_default)] // there is nothing to leave out
    pub fn new() -> Wish {
        Wish(AtomicU8::new(NONE))
    }

    /// For any completion, or only for one that the peer asked an event for, or that failed. A wish for any stays one for any. Says
    /// whether there was none before: then this one is granted or withdrawn, once.
    pub fn make(&self, only_solicited: bool) -> bool {
        let before = self.0.fetch_max(if only_solicited { SOLICITED } else { NEXT }, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        before == NONE
    }

    /// Takes the wish back; whether there was one.
    pub fn withdraw(&self) -> bool {
        self.0.swap(NONE, Ordering::Relaxed) != NONE
    }

    /// Completions were put into a ring before this: whether the program is to be woken. Says so once.
    #[inline]
    pub fn is_granted(&self, solicited: bool) -> bool {
        fence(Ordering::SeqCst);
        let wish = self.0.load(Ordering::Relaxed);
        (wish == NEXT || wish == SOLICITED && solicited) && self.0.swap(NONE, Ordering::Relaxed) != NONE
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_wish_is_granted_once_and_the_greater_one_stays() {
        let wish = Wish::new();
        assert!(!wish.is_granted(true), "nobody wished");
        assert!(wish.make(true));
        assert!(!wish.is_granted(false));
        assert!(wish.is_granted(true) && !wish.is_granted(true));
        assert!(wish.make(false) && !wish.make(true), "it is the same wish");
        assert!(wish.is_granted(false) && !wish.is_granted(true));
        assert!(wish.make(true) && wish.withdraw() && !wish.withdraw() && !wish.is_granted(true));
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
            let shared = Arc::new((Wish::new(), AtomicBool::new(false)));
            let (threads, mut rings): (Vec<_>, Vec<_>) = (0..engines)
                .map(|_| {
                    let (mut producer, consumer) = ring(2);
                    let shared = Arc::clone(&shared);
                    let thread = loom::thread::spawn(move || {
                        producer.push(()).unwrap();
                        if shared.0.is_granted(false) {
                            shared.1.store(true, Ordering::Release);
                        }
                    });
                    (thread, consumer)
                })
                .unzip();
            let mut look = || rings.iter_mut().map(|ring| usize::from(ring.pop().is_some())).sum::<usize>();
            shared.0.make(false);
            let taken = look();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            // The wish was made before the look: what the look did not find wakes.
            assert!(taken == engines || shared.1.load(Ordering::Acquire), "it sleeps and nobody wakes it");
            assert_eq!(taken + look(), engines);
        });
    }

    #[test]
    fn a_program_that_wished_before_it_looked_is_woken() {
        model(1);
    }

    #[test]
    fn a_program_that_wished_before_it_looked_is_woken_by_one_of_two_engines() {
        model(2);
    }

    /// A program that wishes is counted before it does, and whoever ends a wish takes the count off: while there is a wish the count is
    /// never 0, and without one it is 0 again.
    #[test]
    fn who_wished_is_counted_as_long_as_the_wish_stands() {
        loom::model(|| {
            let shared = Arc::new((Wish::new(), AtomicU32::new(0), AtomicU32::new(0)));
            let engine = loom::thread::spawn({
                let shared = Arc::clone(&shared);
                move || {
                    for _ in 0..2 {
                        if shared.0.is_granted(false) {
                            shared.2.fetch_add(1, Ordering::Relaxed);
                            shared.1.fetch_sub(1, Ordering::AcqRel);
                        }
                    }
                }
            });
            let mut made = 0;
            for _ in 0..2 {
                shared.1.fetch_add(1, Ordering::AcqRel);
                if shared.0.make(false) {
                    made += 1;
                } else {
                    shared.1.fetch_sub(1, Ordering::AcqRel);
                }
            }
            engine.join().unwrap();
            let stands = shared.0.withdraw();
            assert_eq!(shared.1.load(Ordering::Acquire), u32::from(stands));
            assert_eq!(shared.2.load(Ordering::Acquire) + u32::from(stands), made, "each wish is granted once");
        });
    }
}
