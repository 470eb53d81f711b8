//! Backend `mem`: a wire in memory with two ends, for two NICs of one process, in one thread or in two.
//!
//! Frames lie in boxes that go round: full ones from the sender to the receiver, empty ones back, by a lock-free ring each way. A frame
//! is written where it is read; nothing is copied in between.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use softnic_nic::transports::prefetch_to_write;
use softnic_sync::ring::{Consumer, Producer, ring};
use softnic_wire::TxFrame;

use crate::io::{MAX_FRAME, PacketIo, sleep_until_readable};
use crate::wake::Wake;

/// Frames that one direction of the wire holds; an end that sends more has to wait. Long ones stay in the second-level cache; with fewer, the
/// two ends wait for each other.
const CAPACITY: usize = 256;
/// Bytes of the next box that are fetched from the other end's cache while a frame is written. The processor follows by itself.
const FETCHED: usize = 1024;
/// What stands in front of a frame in its box: so the payload behind the headers that most packets have (Ethernet, IPv4, UDP, BTH: 54
/// bytes) begins a cache line, and neither its copy nor its checksum touches two lines for each block.
const IN_FRONT: usize = 64 - (14 + 20 + 8 + 12);

/// A frame.
///
/// The rings pass boxes on, which fit a register. A value of several words would go through the stack, and a processor that reads it there in
/// other pieces than it was written in waits until everything written before, which is the last frame, has left for the cache.
#[derive(Debug)]
#[repr(C, align(64))]
struct Frame {
    len: u16,
    in_front: [u8; IN_FRONT - size_of::<u16>()],
    bytes: [u8; MAX_FRAME],
}

impl Frame {
    fn new() -> Box<Frame> {
        Box::new(Frame { len: 0, in_front: [0; _], bytes: [0; MAX_FRAME] })
    }
}

/// One direction, as its receiver or its sender has it.
#[derive(Debug)]
pub(crate) struct Incoming {
    full: Consumer<Box<Frame>>,
    free: Producer<Box<Frame>>,
}

#[derive(Debug)]
pub(crate) struct Outgoing {
    full: Producer<Box<Frame>>,
    free: Consumer<Box<Frame>>,
    /// An empty one that was taken and not needed.
    spare: Option<Box<Frame>>,
    /// Boxes that were not made yet: a direction that carries few frames has few.
    unmade: usize,
}

impl Incoming {
    /// Whether no frame has come.
    pub(crate) fn is_empty(&mut self) -> bool {
        self.full.is_empty()
    }

    /// Hands over the frames that have come, at most `limit`; how many.
    pub(crate) fn take(&mut self, limit: usize, take: &mut dyn FnMut(&mut [u8])) -> usize {
        for taken in 0..limit {
            let Some(mut frame) = self.full.pop() else { return taken };
            let len = usize::from(frame.len);
            take(&mut frame.bytes[..len]);
            // All boxes of a direction have room in its ring.
            let _ = self.free.push(frame);
        }
        limit
    }
}

impl Outgoing {
    /// Whether there is no room for a frame.
    fn is_full(&mut self) -> bool {
        self.spare.is_none() && self.free.is_empty() && self.unmade == 0
    }

    /// Lets `write` write a frame; `None` when there is no room, else whether it did.
    fn offer(&mut self, write: impl FnOnce(&mut TxFrame<'_>) -> bool) -> Option<bool> {
        let mut frame = self.spare.take().or_else(|| self.free.pop()).or_else(|| self.make())?;
        self.free.peek(|next| prefetch_to_write(&next.bytes[..FETCHED]));
        let mut tx = TxFrame::new(&mut frame.bytes);
        if !write(&mut tx) {
            self.spare = Some(frame);
            return Some(false);
        }
        frame.len = tx.len() as u16;
        // All boxes of a direction have room in its ring.
        let _ = self.full.push(frame);
        Some(true)
    }

    /// Another box, as long as there are not all.
    #[cold]
    fn make(&mut self) -> Option<Box<Frame>> {
        self.unmade = self.unmade.checked_sub(1)?;
        Some(Frame::new())
    }

    /// Copies a frame; `false` when there is no room.
    pub(crate) fn put(&mut self, frame: &[u8]) -> bool {
        self.offer(|tx| tx.put_frame(frame).is_ok()) == Some(true)
    }
}

/// A new direction that holds so many frames: its two ends. Its boxes are made as they are needed.
pub(crate) fn direction(capacity: usize) -> (Outgoing, Incoming) {
    let (full_out, full_in) = ring(capacity);
    let (free_in, free_out) = ring(capacity);
    let outgoing = Outgoing { full: full_out, free: free_out, spare: None, unmade: capacity };
    (outgoing, Incoming { full: full_in, free: free_in })
}

/// A new direction with all its boxes. The sender that has many seldom asks whether the receiver gave some back: that is in the other core's
/// cache.
fn stocked_direction(capacity: usize) -> (Outgoing, Incoming) {
    let (mut outgoing, mut incoming) = direction(capacity);
    while let Some(frame) = outgoing.make() {
        // All boxes of a direction have room in its ring.
        let _ = incoming.free.push(frame);
    }
    (outgoing, incoming)
}

/// What an end tells the other.
#[derive(Debug)]
struct End {
    wake: Wake,
    gone: AtomicBool,
}

/// One end of a wire in memory.
#[derive(Debug)]
pub struct MemoryWire {
    incoming: Incoming,
    outgoing: Outgoing,
    mine: Arc<End>,
    peer: Arc<End>,
    lost: u64,
}

impl MemoryWire {
    /// The two ends of a new wire.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub fn pair() -> io::Result<(MemoryWire, MemoryWire)> {
        let end = || Ok::<_, io::Error>(Arc::new(End { wake: Wake::new()?, gone: AtomicBool::new(false) }));
        let (a, b) = (end()?, end()?);
        let ((out_ab, in_ab), (out_ba, in_ba)) = (stocked_direction(CAPACITY), stocked_direction(CAPACITY));
        let one = |incoming, outgoing, mine: &Arc<End>, peer: &Arc<End>| MemoryWire {
            incoming,
            outgoing,
            mine: Arc::clone(mine),
            peer: Arc::clone(peer),
            lost: 0,
        };
        Ok((one(in_ba, out_ab, &a, &b), one(in_ab, out_ba, &b, &a)))
    }
}

impl Drop for MemoryWire {
    fn drop(&mut self) {
        self.mine.gone.store(true, Ordering::Relaxed);
    }
}

impl PacketIo for MemoryWire {
    fn receive(&mut self, limit: usize, take: &mut dyn FnMut(&mut [u8])) -> io::Result<usize> {
        Ok(self.incoming.take(limit, take))
    }

    fn transmit(&mut self, limit: usize, next: &mut dyn FnMut(&mut TxFrame<'_>) -> bool) -> io::Result<usize> {
        let mut sent = 0;
        while sent < limit {
            // Of an end that is gone nobody brings boxes back: what goes there is lost, as on a cable that is not plugged in.
            if self.outgoing.is_full() && self.peer.gone.load(Ordering::Relaxed) {
                let mut nowhere = [0; MAX_FRAME];
                if !next(&mut TxFrame::new(&mut nowhere)) {
                    break;
                }
                self.lost += 1;
            } else if self.outgoing.offer(&mut *next) != Some(true) {
                break;
            }
            sent += 1;
        }
        if sent > 0 {
            self.peer.wake.wake_sleeper();
        }
        Ok(sent)
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        match self.prepare_sleep() {
            true => sleep_until_readable(&self.mine.wake, timeout),
            false => Ok(()),
        }
    }

    fn prepare_sleep(&mut self) -> bool {
        self.mine.wake.prepare_sleep();
        self.incoming.is_empty()
    }

    fn descriptors(&self) -> Vec<RawFd> {
        vec![self.mine.wake.as_fd().as_raw_fd()]
    }

    fn readiness(&self) -> io::Result<Vec<OwnedFd>> {
        Ok(vec![self.mine.wake.as_fd().try_clone_to_owned()?])
    }

    fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_direction_has_as_many_boxes_as_frames_were_under_way_at_a_time() {
        let (mut out, mut come) = direction(CAPACITY);
        for _ in 0..1000 {
            assert!(out.put(&[7; 60]) && out.put(&[8; 60]));
            assert_eq!(come.take(8, &mut |_| ()), 2);
        }
        assert_eq!(CAPACITY - out.unmade, 2);
        let sent = (0..2 * CAPACITY).filter(|_| out.put(&[9; 60])).count();
        assert_eq!((sent, out.is_full()), (CAPACITY, true));
    }
}
