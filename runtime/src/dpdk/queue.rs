//! One queue of a device of DPDK's as a packet IO backend.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use softnic_nic::transports::prefetch;
use softnic_wire::TxFrame;

use super::device::Dpdk;
use super::nap::Nap;
use super::sys::{self, BURST, Frame};
use crate::io::{PacketIo, sleep_until_readable};

/// Bytes of a frame that are fetched at once.
const FIRST_LINES: usize = 256;
/// How soon to try again to send what the driver had no room for.
const RETRY: Duration = Duration::from_micros(20);

/// One queue.
#[derive(Debug)]
pub(crate) struct Queue {
    number: u16,
    /// Empty buffers to write frames into.
    spare: Vec<Frame>,
    /// Written frames that the driver had no room for.
    waiting: Vec<Frame>,
    received: Vec<Frame>,
    /// Frames that came in pieces and were copied together, and those that were too long for that.
    counted: [u64; 2],
    sleep: Sleep,
    // The last to go: its pools are given back when nobody has buffers of them.
    device: Arc<Dpdk>,
}

/// How to wait for a frame.
#[derive(Debug)]
enum Sleep {
    /// The eventfd of the queue's interrupt, and whether the interrupt may come.
    Interrupt(OwnedFd, bool),
    Nap(Nap),
}

impl Queue {
    pub(super) fn new(device: &Arc<Dpdk>, number: u16) -> io::Result<Queue> {
        let fd = device.port.interrupt_fd(number).filter(|_| device.has_interrupts());
        let sleep = match fd {
            Some(fd) => Sleep::Interrupt(duplicate(fd)?, false),
            None => Sleep::Nap(Nap::new()?),
        };
        let [spare, waiting, received] = [(); 3].map(|()| Vec::with_capacity(BURST));
        Ok(Queue { number, spare, waiting, received, counted: [0; 2], sleep, device: Arc::clone(device) })
    }

    /// Gives the driver what waits; whether it took everything.
    #[inline]
    fn flush(&mut self) -> bool {
        while !self.waiting.is_empty() {
            if self.device.port.send(self.number, &mut self.waiting) == 0 {
                return false;
            }
        }
        true
    }
}

/// A descriptor of our own for the driver's interrupt.
#[allow(unsafe_code)]
fn duplicate(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the driver has it open as long as the port is, which we keep.
    unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()
}

impl PacketIo for Queue {
    fn receive(&mut self, limit: usize, take: &mut dyn FnMut(&mut [u8])) -> io::Result<usize> {
        sys::enter_thread();
        if let Sleep::Interrupt(_, armed @ true) = &mut self.sleep {
            // Whoever polls needs none.
            self.device.port.disarm(self.number);
            *armed = false;
        }
        let mut taken = 0;
        while taken < limit {
            let pool = &self.device.pools[usize::from(self.number)];
            self.device.port.receive(self.number, pool, &mut self.received, limit - taken, &mut self.counted);
            let count = self.received.len();
            if count == 0 {
                break;
            }
            for at in 0..count {
                if let Some(next) = self.received.get_mut(at + 1) {
                    let bytes = next.bytes();
                    prefetch(&bytes[..bytes.len().min(FIRST_LINES)]);
                }
                take(self.received[at].bytes());
            }
            sys::free(&mut self.received);
            taken += count;
            if count < BURST {
                break;
            }
        }
        if taken > 0
            && let Sleep::Nap(nap) = &mut self.sleep
        {
            nap.reset();
        }
        Ok(taken)
    }

    /// The first frame leaves before the next is written: in a ping-pong it is the reply, which the peer waits for, and behind it comes the
    /// acknowledgement, which nobody does. To a burst it is one more call of the driver.
    fn transmit(&mut self, limit: usize, next: &mut dyn FnMut(&mut TxFrame<'_>) -> bool) -> io::Result<usize> {
        sys::enter_thread();
        let mut sent = 0;
        while self.flush() && sent < limit {
            let burst = (limit - sent).min(BURST);
            let pool = &self.device.pools[usize::from(self.number)];
            if self.spare.is_empty() && !pool.take(&mut self.spare, BURST) {
                // All buffers are in the rings of the driver, or of a peer that does not take them.
                break;
            }
            let mut wrote = 0;
            while wrote < burst
                && let Some(mut frame) = self.spare.pop()
            {
                let room = frame.room();
                let longest = room.len().min(self.device.max_frame);
                let mut tx = TxFrame::new(&mut room[..longest]);
                if !next(&mut tx) {
                    self.spare.push(frame);
                    self.flush();
                    return Ok(sent + wrote);
                }
                let len = tx.len();
                frame.set_len(len);
                self.waiting.push(frame);
                wrote += 1;
                if sent + wrote == 1 {
                    self.flush();
                }
            }
            sent += wrote;
        }
        Ok(sent)
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let timeout = if self.waiting.is_empty() { timeout } else { timeout.min(RETRY) };
        if !self.prepare_sleep() {
            return Ok(());
        }
        match &self.sleep {
            Sleep::Interrupt(fd, _) => sleep_until_readable(fd, timeout),
            Sleep::Nap(nap) => sleep_until_readable(nap, timeout),
        }
    }

    fn readiness(&self) -> io::Result<Vec<OwnedFd>> {
        match &self.sleep {
            Sleep::Interrupt(fd, _) => fd.try_clone(),
            Sleep::Nap(nap) => nap.as_fd().try_clone_to_owned(),
        }
        .map(|fd| vec![fd])
    }

    fn prepare_sleep(&mut self) -> bool {
        match &mut self.sleep {
            Sleep::Interrupt(fd, armed) => {
                // An interrupt of before this may be of a frame that was polled, or of one that was not: arming tells.
                let _ = rustix::io::read(&*fd, &mut [0; 8]);
                *armed = true;
                self.device.port.arm(self.number).unwrap_or(false)
            }
            Sleep::Nap(nap) => nap.begin().is_ok(),
        }
    }

    fn due_in(&self) -> Option<Duration> {
        (!self.waiting.is_empty()).then_some(RETRY)
    }

    fn unsent(&self) -> usize {
        self.waiting.len()
    }

    fn lost(&self) -> u64 {
        let of_port = if self.number == 0 { self.device.port.lost() } else { 0 };
        of_port + self.counted[1]
    }

    fn joined(&self) -> u64 {
        self.counted[0]
    }

    fn descriptors(&self) -> Vec<RawFd> {
        match &self.sleep {
            Sleep::Interrupt(fd, _) => vec![fd.as_raw_fd()],
            Sleep::Nap(nap) => vec![nap.as_fd().as_raw_fd()],
        }
    }

    fn max_frame(&self) -> usize {
        self.device.max_frame
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        sys::enter_thread();
        sys::free(&mut self.spare);
        sys::free(&mut self.waiting);
        sys::free(&mut self.received);
    }
}
