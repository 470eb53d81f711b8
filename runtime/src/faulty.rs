//! A wire with faults on it: what is sent and what is received passes an emulated link, each direction its own.

use std::io;
use std::time::Duration;

use softnic_fault_injector::link::Offered;
use softnic_fault_injector::{Direction, EmulatedLink, Spec};
use softnic_wire::Instant;

use crate::io::{MAX_FRAME, PacketIo, Sent};

/// Frames that each direction holds back at a time; more are lost. Memory for them is taken when they come.
const MAX_HELD: usize = 4096;

/// A backend with faults, delay and a bottleneck in both directions. A frame that is held goes on only when later ones do.
#[derive(Debug)]
pub struct Faulty<I> {
    inner: I,
    tx: EmulatedLink,
    rx: EmulatedLink,
    /// A frame to be sent, and its length while the backend has no room for it.
    scratch: Box<[u8]>,
    waiting: Option<usize>,
    start: std::time::Instant,
}

/// What we send and what we receive.
fn lanes(spec: &Spec, seed: u64) -> [EmulatedLink; 2] {
    let link = |direction, seed| EmulatedLink::new(spec, direction, seed, MAX_HELD, MAX_FRAME);
    [link(Direction::Ab, 2 * seed), link(Direction::Ba, 2 * seed + 1)]
}

impl<I: PacketIo> Faulty<I> {
    /// Faults of `spec` in both directions, as independent streams that `seed` decides; for a script we are a.
    pub fn new(inner: I, spec: &Spec, seed: u64) -> Faulty<I> {
        let [tx, rx] = lanes(spec, seed);
        let scratch = vec![0; MAX_FRAME].into();
        Faulty { inner, tx, rx, scratch, waiting: None, start: std::time::Instant::now() }
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

    /// Sends what is due; `false` when the backend has no room for all of it.
    fn flush(&mut self) -> io::Result<bool> {
        if let Some(len) = self.waiting {
            if self.inner.send(&self.scratch[..len])? == Sent::Full {
                return Ok(false);
            }
            self.waiting = None;
        }
        let now = self.now();
        while let Some(frame) = self.tx.poll(now) {
            if self.inner.send(frame)? == Sent::Full {
                self.scratch[..frame.len()].copy_from_slice(frame);
                self.waiting = Some(frame.len());
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The next frame that has come in.
    fn due(&mut self, buffer: &mut [u8]) -> Option<usize> {
        let now = self.now();
        let frame = self.rx.poll(now)?;
        buffer.get_mut(..frame.len())?.copy_from_slice(frame);
        Some(frame.len())
    }
}

impl<I: PacketIo> PacketIo for Faulty<I> {
    fn receive(&mut self, buffer: &mut [u8], wait: Duration) -> io::Result<Option<usize>> {
        // Frames that found no room when they were sent, or are due by now, must not wait for the next one.
        self.flush()?;
        if let Some(len) = self.due(buffer) {
            return Ok(Some(len));
        }
        let now = self.now();
        let next = [self.tx.next_due(), self.rx.next_due()].into_iter().flatten().min();
        let wait = next.map_or(wait, |at| at.saturating_since(now).min(wait));
        if let Some(len) = self.inner.receive(buffer, wait)? {
            let now = self.now();
            if self.rx.offer(now, &mut buffer[..len]) == Offered::Pass {
                return Ok(Some(len));
            }
        }
        self.flush()?;
        Ok(self.due(buffer))
    }

    fn send(&mut self, frame: &[u8]) -> io::Result<Sent> {
        if !self.flush()? {
            return Ok(Sent::Full);
        }
        let Some(copy) = self.scratch.get_mut(..frame.len()) else { return Ok(Sent::Lost) };
        copy.copy_from_slice(frame);
        let now = Instant::ZERO + self.start.elapsed();
        if self.tx.offer(now, copy) == Offered::Pass {
            self.waiting = Some(frame.len());
        }
        self.flush()?;
        Ok(Sent::Yes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryWire;

    fn received(io: &mut impl PacketIo) -> Vec<Vec<u8>> {
        let mut room = [0; 100];
        let mut frames = Vec::new();
        // A frame that is lost on the way in gives nothing, and others may come behind it.
        for _ in 0..1000 {
            frames.extend(io.receive(&mut room, Duration::ZERO).unwrap().map(|len| room[..len].to_vec()));
        }
        frames
    }

    #[test]
    fn every_fault_in_both_directions() {
        let one = |spec: &str| {
            let (a, mut b) = MemoryWire::pair();
            let mut a = Faulty::new(a, &spec.parse().unwrap(), 1);
            for n in 0..3 {
                assert_eq!(a.send(&[n; 10]).unwrap(), Sent::Yes);
                b.send(&[n; 10]).unwrap();
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
        let (a, mut b) = MemoryWire::pair();
        let mut a = Faulty::new(a, &"reorder=1:2".parse().unwrap(), 1);
        a.send(&[9; 10]).unwrap();
        a.tx.set_enabled(false);
        (0..3).for_each(|n| assert_eq!(a.send(&[n; 10]).unwrap(), Sent::Yes));
        assert_eq!(received(&mut b).iter().map(|f| f[0]).collect::<Vec<_>>(), [0, 1, 9, 2]);
    }

    #[test]
    fn a_delayed_frame_comes_when_it_is_due_though_nothing_else_does() {
        let (a, mut b) = MemoryWire::pair();
        let (ab, ba) = (Duration::from_millis(30), Duration::from_millis(50));
        let mut a = Faulty::new(a, &"ab.delay=30ms,ba.delay=50ms".parse().unwrap(), 1);
        let start = std::time::Instant::now();
        let mut room = [0; 100];
        a.send(&[1; 10]).unwrap();
        b.send(&[2; 10]).unwrap();
        let (mut there, mut back) = (None, None);
        while there.is_none() || back.is_none() {
            if a.receive(&mut room, Duration::ZERO).unwrap().is_some() {
                back = Some(start.elapsed());
            }
            if b.receive(&mut room, Duration::ZERO).unwrap().is_some() {
                there = Some(start.elapsed());
            }
        }
        assert!(there >= Some(ab) && back >= Some(ba), "{there:?} {back:?}");
    }

    #[test]
    fn a_full_wire_makes_the_sender_wait_and_loses_nothing() {
        let (a, mut b) = MemoryWire::pair();
        let mut a = Faulty::new(a, &"dup=1".parse().unwrap(), 1);
        let sent = (0..1000).take_while(|_| a.send(&[7; 10]).unwrap() == Sent::Yes).count();
        assert!((1..1000).contains(&sent));
        let mut frames = received(&mut b).len();
        received(&mut a);
        frames += received(&mut b).len();
        assert_eq!(frames, 2 * sent);
    }
}
