//! A wire with faults on it: what is sent and what is received passes an injector, each direction its own.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use softnic_fault_injector::{Direction, Fate, Injector, Spec};
use softnic_wire::Instant;

use crate::io::{PacketIo, Sent};

/// One direction.
#[derive(Debug)]
struct Lane {
    injector: Injector,
    /// Frames that go on, in this order.
    ready: VecDeque<Vec<u8>>,
    /// Frames that are held, each until so many more have passed.
    held: Vec<(u32, Vec<u8>)>,
}

impl Lane {
    fn new(spec: &Spec, direction: Direction, seed: u64) -> Lane {
        Lane { injector: Injector::new(spec, direction, seed), ready: VecDeque::new(), held: Vec::new() }
    }

    fn offer(&mut self, now: Instant, frame: &[u8]) {
        match self.injector.offer(now, frame) {
            Fate::Pass => self.pass(frame.to_vec()),
            Fate::Drop => {}
            Fate::Duplicate => {
                self.pass(frame.to_vec());
                self.pass(frame.to_vec());
            }
            Fate::Corrupt(bit) => {
                let mut frame = frame.to_vec();
                let bit = bit % (8 * frame.len().max(1) as u64);
                if let Some(byte) = frame.get_mut(bit as usize / 8) {
                    *byte ^= 1 << (bit % 8);
                }
                self.pass(frame);
            }
            Fate::Hold(behind) => self.held.push((behind, frame.to_vec())),
        }
    }

    /// A frame goes on, and those behind it that have waited for enough others.
    fn pass(&mut self, frame: Vec<u8>) {
        self.ready.push_back(frame);
        for (left, _) in &mut self.held {
            *left = left.saturating_sub(1);
        }
        let ready = &mut self.ready;
        ready.extend(self.held.extract_if(.., |(left, _)| *left == 0).map(|(_, frame)| frame));
    }
}

/// A backend with faults in both directions. A frame that is held goes on only when later ones do.
#[derive(Debug)]
pub struct Faulty<I> {
    inner: I,
    tx: Lane,
    rx: Lane,
    start: std::time::Instant,
}

/// What we send and what we receive.
fn lanes(spec: &Spec, seed: u64) -> (Lane, Lane) {
    (Lane::new(spec, Direction::Ab, 2 * seed), Lane::new(spec, Direction::Ba, 2 * seed + 1))
}

impl<I: PacketIo> Faulty<I> {
    /// Faults of `spec` in both directions, as independent streams that `seed` decides; for a script we are a.
    pub fn new(inner: I, spec: &Spec, seed: u64) -> Faulty<I> {
        let (tx, rx) = lanes(spec, seed);
        Faulty { inner, tx, rx, start: std::time::Instant::now() }
    }

    /// Other faults from now on; frames that are held are lost.
    pub fn set_faults(&mut self, spec: &Spec, seed: u64) {
        (self.tx, self.rx) = lanes(spec, seed);
    }

    /// The backend below.
    pub fn inner(&self) -> &I {
        &self.inner
    }

    /// Sends what is ready; `false` when the backend has no room for all of it.
    fn flush(&mut self) -> io::Result<bool> {
        while let Some(frame) = self.tx.ready.front() {
            if self.inner.send(frame)? == Sent::Full {
                return Ok(false);
            }
            self.tx.ready.pop_front();
        }
        Ok(true)
    }
}

impl<I: PacketIo> PacketIo for Faulty<I> {
    fn receive(&mut self, buffer: &mut [u8], wait: Duration) -> io::Result<Option<usize>> {
        // Frames that found no room when they were sent must not wait for the next one.
        self.flush()?;
        if self.rx.ready.is_empty()
            && let Some(len) = self.inner.receive(buffer, wait)?
        {
            self.rx.offer(Instant::ZERO + self.start.elapsed(), &buffer[..len]);
        }
        let Some(frame) = self.rx.ready.pop_front() else { return Ok(None) };
        let Some(room) = buffer.get_mut(..frame.len()) else { return Ok(None) };
        room.copy_from_slice(&frame);
        Ok(Some(frame.len()))
    }

    fn send(&mut self, frame: &[u8]) -> io::Result<Sent> {
        if !self.flush()? {
            return Ok(Sent::Full);
        }
        self.tx.offer(Instant::ZERO + self.start.elapsed(), frame);
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
    fn a_frame_is_held_until_as_many_others_have_passed() {
        let mut lane = Lane::new(&Spec::default(), Direction::Ab, 1);
        lane.held.push((2, vec![9]));
        for n in 0..3 {
            lane.offer(Instant::ZERO, &[n]);
        }
        assert_eq!(lane.ready, [vec![0], vec![1], vec![9], vec![2]]);
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
