//! A wire with faults on it: what is sent and what is received passes an emulated link, each direction its own.

use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::time::Duration;

use softnic_fault_injector::{Direction, EmulatedLink, Offered, Spec, SpecError};
use softnic_wire::{Instant, TxFrame};

use crate::io::{MAX_FRAME, PacketIo};

/// Frames that each direction holds back at a time; more are lost. Memory for them is taken when they come.
const MAX_HELD: usize = 4096;

/// A backend with faults, delay and a bottleneck in both directions. A frame that is held goes on only when later ones do.
#[derive(Debug)]
pub struct Faulty<I> {
    inner: I,
    tx: EmulatedLink,
    rx: EmulatedLink,
    /// A frame to be sent, in one piece: the faults are decided before the backend's memory is written.
    scratch: Box<[u8]>,
    /// Frames too long for the backend below.
    too_long: u64,
    start: std::time::Instant,
}

/// The two directions: frames that we send, and frames that we receive.
fn lanes(spec: &Spec, seed: u64) -> [EmulatedLink; 2] {
    let link = |direction, seed| EmulatedLink::new(spec, direction, seed, MAX_HELD, MAX_FRAME);
    [link(Direction::Ab, 2 * seed), link(Direction::Ba, 2 * seed + 1)]
}

impl<I: PacketIo> Faulty<I> {
    /// Faults of `spec` in both directions, as independent streams that `seed` decides; for a script we are a.
    pub fn new(inner: I, spec: &Spec, seed: u64) -> Faulty<I> {
        let [tx, rx] = lanes(spec, seed);
        let scratch = vec![0; MAX_FRAME].into();
        Faulty { inner, tx, rx, scratch, too_long: 0, start: std::time::Instant::now() }
    }

    /// Faults of `spec` as a device has them: for what it sends, and after `rx.` for what it receives.
    ///
    /// # Errors
    /// When the SPEC speaks of the directions `ab.` and `ba.`, which a device does not have.
    pub fn for_device(inner: I, spec: &Spec, seed: u64) -> Result<Faulty<I>, SpecError> {
        let [sent, received] = spec.for_device()?;
        let link = |spec, seed| EmulatedLink::new(spec, Direction::Ab, seed, MAX_HELD, MAX_FRAME);
        let (tx, rx) = (link(&sent, 2 * seed), link(&received, 2 * seed + 1));
        let scratch = vec![0; MAX_FRAME].into();
        Ok(Faulty { inner, tx, rx, scratch, too_long: 0, start: std::time::Instant::now() })
    }

    /// Other faults from now on; frames that are under way or held are lost.
    pub fn set_faults(&mut self, spec: &Spec, seed: u64) {
        [self.tx, self.rx] = lanes(spec, seed);
    }

    /// The backend below.
    pub fn inner(&self) -> &I {
        &self.inner
    }

    fn now(&self) -> Instant {
        Instant::ZERO + self.start.elapsed()
    }
}

impl<I: PacketIo> PacketIo for Faulty<I> {
    fn receive(&mut self, limit: usize, take: &mut dyn FnMut(&mut [u8])) -> io::Result<usize> {
        let (now, link) = (self.now(), &mut self.rx);
        let mut taken = 0;
        while taken < limit {
            let Some(frame) = link.poll(now) else { break };
            take(frame);
            taken += 1;
        }
        self.inner.receive(limit - taken, &mut |frame| {
            // At most one for each that comes keeps to the limit; a copy that follows it waits in the link.
            if link.offer(now, frame) == Offered::Pass {
                take(frame);
                taken += 1;
            } else if let Some(frame) = link.poll(now) {
                take(frame);
                taken += 1;
            }
        })?;
        while taken < limit {
            let Some(frame) = link.poll(now) else { break };
            take(frame);
            taken += 1;
        }
        Ok(taken)
    }

    fn transmit(&mut self, limit: usize, next: &mut dyn FnMut(&mut TxFrame<'_>) -> bool) -> io::Result<usize> {
        let now = self.now();
        let Faulty { inner, tx: link, scratch, too_long, .. } = self;
        let mut sent = 0;
        // What is due goes first, and does not count: `next` did not write it now.
        inner.transmit(usize::MAX, &mut |frame| {
            loop {
                let due = match link.poll(now) {
                    Some(due) => due,
                    None => {
                        let mut tx = TxFrame::new(scratch);
                        if sent == limit || !next(&mut tx) {
                            return false;
                        }
                        sent += 1;
                        let len = tx.len();
                        if link.offer(now, &mut scratch[..len]) == Offered::Taken {
                            continue;
                        }
                        &mut scratch[..len]
                    }
                };
                match frame.put_frame(due) {
                    Ok(()) => return true,
                    Err(_) => *too_long += 1,
                }
            }
        })?;
        Ok(sent)
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        match self.due_in().map_or(timeout, |due| due.min(timeout)) {
            Duration::ZERO => Ok(()),
            timeout => self.inner.wait(timeout),
        }
    }

    fn readiness(&self) -> io::Result<Vec<OwnedFd>> {
        self.inner.readiness()
    }

    fn prepare_sleep(&mut self) -> bool {
        self.inner.prepare_sleep()
    }

    fn descriptors(&self) -> Vec<RawFd> {
        self.inner.descriptors()
    }

    fn due_in(&self) -> Option<Duration> {
        let next = [self.tx.next_due(), self.rx.next_due()].into_iter().flatten().min();
        let mine = next.map(|at| at.saturating_since(self.now()));
        [mine, self.inner.due_in()].into_iter().flatten().min()
    }

    fn leaves_in(&self) -> Option<Duration> {
        self.tx.next_due().map(|at| at.saturating_since(self.now()))
    }

    fn unsent(&self) -> usize {
        self.inner.unsent()
    }

    /// Those of the backend below, and those that found no place in the emulated link; none that a fault was meant for.
    fn lost(&self) -> u64 {
        self.inner.lost() + self.tx.overflowed() + self.rx.overflowed() + self.too_long
    }

    fn joined(&self) -> u64 {
        self.inner.joined()
    }

    fn max_frame(&self) -> usize {
        self.inner.max_frame()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryWire;

    fn received(io: &mut impl PacketIo) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        let taken = io.receive(1000, &mut |frame| frames.push(frame.to_vec())).unwrap();
        assert_eq!(taken, frames.len());
        frames
    }

    /// Sends one frame, if there is room.
    fn send(io: &mut impl PacketIo, frame: &[u8]) -> bool {
        io.transmit(1, &mut |tx| tx.put_frame(frame).is_ok()).unwrap() == 1
    }

    /// Sends what is due.
    fn flush(io: &mut impl PacketIo) {
        assert_eq!(io.transmit(0, &mut |_| unreachable!("nothing is asked for")).unwrap(), 0);
    }

    #[test]
    fn every_fault_in_both_directions() {
        let one = |spec: &str| {
            let (a, mut b) = MemoryWire::pair().unwrap();
            let mut a = Faulty::new(a, &spec.parse().unwrap(), 1);
            for n in 0..3 {
                assert!(send(&mut a, &[n; 10]) && send(&mut b, &[n; 10]));
            }
            (received(&mut b), received(&mut a))
        };
        let frames = |ids: &[u8]| ids.iter().map(|&n| vec![n; 10]).collect::<Vec<_>>();
        assert_eq!(one(""), (frames(&[0, 1, 2]), frames(&[0, 1, 2])));
        assert_eq!(one("loss=1"), (vec![], vec![]));
        assert_eq!(one("dup=1"), (frames(&[0, 0, 1, 1, 2, 2]), frames(&[0, 0, 1, 1, 2, 2])));
        assert_eq!(one("reorder=1:1"), (vec![], vec![]), "all are held");
        let (there, back) = one("corrupt=1");
        for (n, frame) in [&there, &back].into_iter().flat_map(|f| (0..).zip(f)) {
            let flipped: u32 = frame.iter().map(|b| (b ^ n as u8).count_ones()).sum();
            assert_eq!(flipped, 1);
        }
        assert_eq!((there.len(), back.len()), (3, 3));
    }

    #[test]
    fn a_frame_that_is_held_follows_the_one_that_lets_it_go() {
        let (a, mut b) = MemoryWire::pair().unwrap();
        let mut a = Faulty::new(a, &"reorder=1:2".parse().unwrap(), 1);
        send(&mut a, &[9; 10]);
        a.tx.set_enabled(false);
        (0..3).for_each(|n| assert!(send(&mut a, &[n; 10])));
        assert_eq!(received(&mut b).iter().map(|f| f[0]).collect::<Vec<_>>(), [0, 1, 9, 2]);
    }

    #[test]
    fn a_delayed_frame_comes_when_it_is_due_though_nothing_else_does() {
        let (a, mut b) = MemoryWire::pair().unwrap();
        let (ab, ba) = (Duration::from_millis(30), Duration::from_millis(50));
        let mut a = Faulty::new(a, &"ab.delay=30ms,ba.delay=50ms".parse().unwrap(), 1);
        let start = std::time::Instant::now();
        send(&mut a, &[1; 10]);
        send(&mut b, &[2; 10]);
        let (mut there, mut back) = (None, None);
        while there.is_none() || back.is_none() {
            flush(&mut a);
            if !received(&mut a).is_empty() {
                back = Some(start.elapsed());
            }
            if !received(&mut b).is_empty() {
                there = Some(start.elapsed());
            }
        }
        assert!(there >= Some(ab) && back >= Some(ba), "{there:?} {back:?}");
    }

    #[test]
    fn a_full_wire_makes_the_sender_wait_and_loses_nothing() {
        let (a, mut b) = MemoryWire::pair().unwrap();
        let mut a = Faulty::new(a, &"dup=1".parse().unwrap(), 1);
        let sent = (0..1000).take_while(|_| send(&mut a, &[7; 10])).count();
        assert!((1..1000).contains(&sent));
        let mut frames = received(&mut b).len();
        flush(&mut a);
        frames += received(&mut b).len();
        assert_eq!(frames, 2 * sent);
    }

    #[test]
    fn a_batch_keeps_to_its_limit_though_every_frame_comes_twice() {
        let (a, mut b) = MemoryWire::pair().unwrap();
        let mut a = Faulty::new(a, &"ba.dup=1".parse().unwrap(), 1);
        (0..3).for_each(|n| assert!(send(&mut b, &[n; 10])));
        let mut seen = Vec::new();
        for expected in [2, 2, 2, 0] {
            assert_eq!(a.receive(2, &mut |frame| seen.push(frame[0])).unwrap(), expected);
        }
        assert_eq!(seen, [0, 0, 1, 1, 2, 2]);
    }
}
