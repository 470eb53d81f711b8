//! A single-producer, single-consumer ring between two threads. Neither side ever waits.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use crate::primitives::{Arc, AtomicUsize, Ordering, UnsafeCell};

/// Aligns a value to a cache line of its own (two lines, because processors fetch pairs), so that the two ends do not share a line.
#[derive(Debug)]
#[repr(align(128))]
struct Apart<T>(T);

#[derive(Debug)]
struct Shared<T> {
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
    /// Number of values read. Both counts only grow, and wrap around.
    head: Apart<AtomicUsize>,
    /// Number of values written.
    tail: Apart<AtomicUsize>,
}

// SAFETY: the one writer writes a value before it publishes the value by `tail`. The one reader reads the value after it saw that `tail`,
// and before it returns the slot by `head`. So the two threads never access a slot at the same time. The ring moves values between threads,
// which `T: Send` allows.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as for `Send` above.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    #[inline]
    fn slot(&self, at: usize) -> &UnsafeCell<MaybeUninit<T>> {
        &self.slots[at & (self.slots.len() - 1)]
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let (head, tail) = (self.head.0.load(Ordering::Relaxed), self.tail.0.load(Ordering::Relaxed));
        let mut at = head;
        while at != tail {
            // SAFETY: both ends are dropped, so no other thread accesses the ring; the slots from `head` to `tail` hold values.
            self.slot(at).with_mut(|slot| unsafe { (*slot).assume_init_drop() });
            at = at.wrapping_add(1);
        }
    }
}

/// The writing end.
#[derive(Debug)]
pub struct Producer<T> {
    shared: Arc<Shared<T>>,
    tail: usize,
    /// The reader's count when it was last read.
    head: usize,
}

/// The reading end.
#[derive(Debug)]
pub struct Consumer<T> {
    shared: Arc<Shared<T>>,
    head: usize,
    /// The writer's count when it was last read.
    tail: usize,
}

/// Creates a ring for at least `capacity` values.
pub fn ring<T>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    let size = capacity.max(1).next_power_of_two();
    let slots = (0..size).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect();
    let shared = Arc::new(Shared { slots, head: Apart(AtomicUsize::new(0)), tail: Apart(AtomicUsize::new(0)) });
    (Producer { shared: Arc::clone(&shared), tail: 0, head: 0 }, Consumer { shared, head: 0, tail: 0 })
}

impl<T> Producer<T> {
    /// The maximum number of values in the ring.
    pub fn capacity(&self) -> usize {
        self.shared.slots.len()
    }

    /// Number of values written since the ring was created; the count wraps around.
    #[inline]
    pub fn written(&self) -> usize {
        self.tail
    }

    /// A lower bound on the number of free slots. Slots that the reader has freed since this was last 0 are not counted.
    #[inline]
    pub fn room(&mut self) -> usize {
        let size = self.shared.slots.len();
        if self.tail.wrapping_sub(self.head) == size {
            self.head = self.shared.head.0.load(Ordering::Acquire);
        }
        size - self.tail.wrapping_sub(self.head)
    }

    /// Whether the ring has `wanted` free slots now. Reads the reader's count only if the last known count does not show enough room.
    pub fn has_room(&mut self, wanted: usize) -> bool {
        if self.room() < wanted {
            self.head = self.shared.head.0.load(Ordering::Acquire);
        }
        self.room() >= wanted
    }

    /// Writes a value; returns it if the ring is full.
    #[inline]
    pub fn push(&mut self, value: T) -> Result<(), T> {
        if self.room() == 0 {
            return Err(value);
        }
        // SAFETY: the reader has returned this slot (`room` checked), and this is the only writer.
        self.shared.slot(self.tail).with_mut(|slot| unsafe { (*slot).write(value) });
        self.tail = self.tail.wrapping_add(1);
        self.shared.tail.0.store(self.tail, Ordering::Release);
        Ok(())
    }
}

impl<T> Consumer<T> {
    /// Whether there is no value to read now.
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        if self.head == self.tail {
            self.tail = self.shared.tail.0.load(Ordering::Acquire);
        }
        self.head == self.tail
    }

    /// Number of values read since the ring was created; the count wraps around.
    pub fn read(&self) -> usize {
        self.head
    }

    /// Number of values that can be read now; the writer may add more.
    pub fn len(&mut self) -> usize {
        self.tail = self.shared.tail.0.load(Ordering::Acquire);
        self.tail.wrapping_sub(self.head)
    }

    /// Passes the oldest value to `look`, and leaves it in the ring.
    #[inline]
    pub fn peek<R>(&mut self, look: impl FnOnce(&T) -> R) -> Option<R> {
        if self.is_empty() {
            return None;
        }
        // SAFETY: the slot holds a value that the writer published (`is_empty` checked), and this is the only reader.
        Some(self.shared.slot(self.head).with(|slot| look(unsafe { (*slot).assume_init_ref() })))
    }

    /// Removes the oldest value.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        // SAFETY: as in `peek`. The value is read once, because the slot is returned to the writer afterwards.
        let value = self.shared.slot(self.head).with(|slot| unsafe { (*slot).assume_init_read() });
        self.head = self.head.wrapping_add(1);
        self.shared.head.0.store(self.head, Ordering::Release);
        Some(value)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn values_come_out_in_order_and_the_ring_says_when_it_is_full() {
        let (mut p, mut c) = ring(4);
        for round in 0..100 {
            let pushed = (0..9).take_while(|i| p.push(round * 10 + i).is_ok()).count();
            assert_eq!((pushed, p.room(), c.len()), (4, 0, 4));
            assert_eq!(c.peek(|v| *v), Some(round * 10));
            assert_eq!(
                std::iter::from_fn(|| c.pop()).collect::<Vec<_>>(),
                (0..4).map(|i| round * 10 + i).collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn there_is_room_for_as_many_as_the_reader_has_taken() {
        let (mut p, mut c) = ring(8);
        assert_eq!(p.capacity(), 8);
        (0..6).for_each(|i| p.push(i).unwrap());
        assert!(p.has_room(2) && !p.has_room(3));
        (0..4).for_each(|i| assert_eq!(c.pop(), Some(i)));
        assert!(p.has_room(6) && !p.has_room(7));
    }

    #[test]
    fn what_is_never_read_is_dropped_once() {
        let value = std::sync::Arc::new(());
        let (mut p, mut c) = ring(8);
        (0..6).for_each(|_| p.push(std::sync::Arc::clone(&value)).unwrap());
        drop((c.pop(), c.pop()));
        assert_eq!(std::sync::Arc::strong_count(&value), 5);
        drop((p, c));
        assert_eq!(std::sync::Arc::strong_count(&value), 1);
    }

    #[test]
    fn two_threads() {
        let (mut p, mut c) = ring(8);
        let writer = std::thread::spawn(move || {
            for i in 0..100_000u64 {
                let mut value = Box::new(i);
                while let Err(back) = p.push(value) {
                    value = back;
                    std::thread::yield_now();
                }
            }
        });
        let mut expected = 0;
        while expected < 100_000 {
            match c.pop() {
                Some(value) => {
                    assert_eq!(*value, expected);
                    expected += 1;
                }
                None => std::thread::yield_now(),
            }
        }
        writer.join().unwrap();
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;

    #[test]
    fn every_order_of_two_threads() {
        loom::model(|| {
            let (mut p, mut c) = ring(2);
            let writer = loom::thread::spawn(move || {
                let mut sent = 0;
                for i in 0..3 {
                    if p.push(Box::new(i)).is_err() {
                        break;
                    }
                    sent += 1;
                }
                sent
            });
            let mut got: Vec<i32> = Vec::new();
            for _ in 0..2 {
                got.extend(c.pop().map(|v| *v));
                loom::thread::yield_now();
            }
            let sent = writer.join().unwrap();
            got.extend(std::iter::from_fn(|| c.pop()).map(|v| *v));
            assert_eq!(got, (0..sent).collect::<Vec<_>>());
        });
    }

    /// Slots are reused, and both ends are dropped while values are in the ring: each value is dropped once, by the end that is dropped
    /// last.
    #[test]
    fn places_are_used_again_and_what_is_left_is_dropped_once() {
        loom::model(|| {
            // loom reports a value that is never dropped, or that is used after it was dropped.
            let value = Arc::new(());
            let (mut p, mut c) = ring(2);
            p.push(Arc::clone(&value)).unwrap();
            let writer = loom::thread::spawn({
                let value = Arc::clone(&value);
                move || (0..3).filter(|_| p.push(Arc::clone(&value)).is_ok()).count()
            });
            let read = (0..2).filter(|_| c.pop().is_some()).count();
            let left_early = c.is_empty();
            drop(c);
            let sent = 1 + writer.join().unwrap();
            assert!(read <= sent && (left_early || read < sent));
            assert_eq!(Arc::strong_count(&value), 1, "what nobody read is dropped with the ring");
        });
    }
}
