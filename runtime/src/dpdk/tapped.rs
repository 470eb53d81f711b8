//! Queues that share the device with the kernel: frames that are not RoCE go to a tap, and the kernel's frames come from there.
//!
//! A thread owns the tap. A bounded ring leads from each queue to the thread, and one from the thread to the first queue. So a polled queue makes
//! no system call for the tap, except to wake the thread: it checks one ring in memory. While its ring is full, the kernel's frames wait in the
//! tap.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use softnic_wire::{Error, TxFrame};

use super::tap::Tap;
use crate::background::{Background, Stop};
use crate::engine::Io;
use crate::io::{Line, MAX_FRAME, PacketIo, TakeLocated, sleep_on};
use crate::memory_wire::{Incoming, Outgoing, direction};
use crate::stack::vlan;
use crate::wake::Wake;

/// Capacity, in frames, of each ring between a queue and the tap's thread.
const UNDER_WAY: usize = 256;
/// Number of the kernel's frames sent before the NIC's turn, and of frames that the thread moves in one direction before the other.
const TURN: usize = 16;
/// The longest frame that the tap may deliver, in case its MTU was raised.
const LONGEST: usize = 1 << 16;
/// How often to check the link, and how soon to retry when a ring was full.
const LOOK: Duration = Duration::from_millis(50);
const NO_ROOM: Duration = Duration::from_micros(500);

/// A queue that shares the device with a tap.
pub(crate) struct Tapped {
    /// Only for the first queue. Dropped before the queue, because its thread queries the link of the device.
    kernel: Option<Kernel>,
    inner: Io,
    vlan: Option<u16>,
    to_tap: Outgoing,
    /// Wakes the thread that owns the tap.
    wake: Arc<Wake>,
    lost: u64,
}

/// The first queue's end of the connection to the tap.
struct Kernel {
    _thread: Background,
    frames: Incoming,
    /// Wakes the thread that sleeps on the queue.
    wake: Arc<Wake>,
    /// The queue's descriptors and that of the wake.
    shown: Vec<OwnedFd>,
    lost: Arc<AtomicU64>,
    descriptors: Vec<RawFd>,
}

impl Tapped {
    /// Connects the queues of a device with a tap. In a VLAN, frames of the kernel are tagged on the wire and untagged in the tap.
    pub(crate) fn among(ios: Vec<Io>, tap: Tap, line: Box<dyn Line>, vlan: Option<u16>) -> io::Result<Vec<Io>> {
        let (to_first, frames) = direction(UNDER_WAY);
        let [of_thread, of_queue] = [Wake::new()?, Wake::new()?].map(Arc::new);
        let (outgoing, incoming): (Vec<_>, Vec<_>) = ios.iter().map(|_| direction(UNDER_WAY)).unzip();
        let lost = Arc::<AtomicU64>::default();
        let mut kernel = match ios.first() {
            None => None,
            Some(first) => {
                let mut shown = first.readiness()?;
                shown.push(of_queue.as_fd().try_clone_to_owned()?);
                let mut descriptors = vec![tap.as_raw_fd()];
                descriptors.extend(shown.iter().map(AsRawFd::as_raw_fd));
                descriptors.extend([&of_thread, &of_queue].map(|wake| wake.as_fd().as_raw_fd()));
                let carrier = Carrier::new(line);
                let carrying = Carrying {
                    tap,
                    carrier,
                    from_queues: incoming,
                    to_first,
                    wake: Arc::clone(&of_thread),
                    first: Arc::clone(&of_queue),
                    lost: Arc::clone(&lost),
                };
                let thread = Background::start("softnic-tap", move |stop| carrying.run(stop))?;
                descriptors.extend(thread.descriptors());
                Some(Kernel { _thread: thread, frames, wake: of_queue, shown, lost, descriptors })
            }
        };
        let tapped = |(inner, to_tap)| {
            let (kernel, wake) = (kernel.take(), Arc::clone(&of_thread));
            Box::new(Tapped { kernel, inner, vlan, to_tap, wake, lost: 0 }) as Io
        };
        Ok(ios.into_iter().zip(outgoing).map(tapped).collect())
    }

    /// Sends some of the kernel's frames.
    #[inline]
    fn send_of_kernel(&mut self) -> io::Result<()> {
        if self.kernel.as_mut().is_none_or(|kernel| kernel.frames.is_empty()) {
            return Ok(());
        }
        self.send_some()
    }

    #[cold]
    fn send_some(&mut self) -> io::Result<()> {
        let Tapped { kernel: Some(kernel), inner, vlan, lost, .. } = self else { return Ok(()) };
        let mut next = |tx: &mut TxFrame<'_>| {
            loop {
                let mut written = false;
                let mut write = |frame: &mut [u8]| {
                    written = tx.put_frame(frame).is_ok() && vlan.is_none_or(|vlan| vlan::tag(vlan, tx));
                };
                if kernel.frames.take(1, &mut write) == 0 {
                    return false;
                }
                if written {
                    return true;
                }
                // The frame is longer than the device supports.
                *lost += 1;
            }
        };
        inner.transmit(TURN, &mut next).map(drop)
    }
}

impl PacketIo for Tapped {
    fn receive(&mut self, limit: usize, take: &mut dyn FnMut(&mut [u8])) -> io::Result<usize> {
        self.receive_located(limit, &mut |frame, _| take(frame))
    }

    fn receive_located(&mut self, limit: usize, take: &mut TakeLocated<'_>) -> io::Result<usize> {
        self.send_of_kernel()?;
        let Tapped { inner, vlan, to_tap, lost, .. } = self;
        let mut handed = false;
        let mut hand_over = |frame: &mut [u8]| {
            let frame = if vlan.is_some() { vlan::untagged(*vlan, frame) } else { Some(frame) };
            let Some(frame) = frame else { return };
            match to_tap.put(frame) {
                true => handed = true,
                false => *lost += 1,
            }
        };
        let received = inner.receive_located(limit, &mut |frame, layout| match layout {
            Err(Error::NotRoce(_)) => hand_over(frame),
            layout => take(frame, layout),
        })?;
        if handed {
            self.wake.wake_sleeper();
        }
        Ok(received)
    }

    fn transmit(&mut self, limit: usize, next: &mut dyn FnMut(&mut TxFrame<'_>) -> bool) -> io::Result<usize> {
        self.send_of_kernel()?;
        self.inner.transmit(limit, next)
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        if !self.prepare_sleep() {
            return Ok(());
        }
        match &self.kernel {
            Some(kernel) => sleep_on(kernel.shown.iter().map(|fd| PollFd::new(fd, PollFlags::IN)), timeout).map(drop),
            None => self.inner.wait(timeout),
        }
    }

    fn readiness(&self) -> io::Result<Vec<OwnedFd>> {
        match &self.kernel {
            Some(kernel) => kernel.shown.iter().map(OwnedFd::try_clone).collect(),
            None => self.inner.readiness(),
        }
    }

    fn prepare_sleep(&mut self) -> bool {
        let nothing = self.kernel.as_mut().is_none_or(|kernel| {
            kernel.wake.prepare_sleep();
            kernel.frames.is_empty()
        });
        self.inner.prepare_sleep() && nothing
    }

    fn due_in(&self) -> Option<Duration> {
        self.inner.due_in()
    }

    fn leaves_in(&self) -> Option<Duration> {
        self.inner.leaves_in()
    }

    fn unsent(&self) -> usize {
        self.inner.unsent()
    }

    fn lost(&self) -> u64 {
        let of_thread = self.kernel.as_ref().map_or(0, |kernel| kernel.lost.load(Ordering::Relaxed));
        self.inner.lost() + self.lost + of_thread
    }

    fn joined(&self) -> u64 {
        self.inner.joined()
    }

    fn descriptors(&self) -> Vec<RawFd> {
        let of_kernel = self.kernel.iter().flat_map(|kernel| kernel.descriptors.iter().copied());
        self.inner.descriptors().into_iter().chain(of_kernel).collect()
    }

    fn max_frame(&self) -> usize {
        self.inner.max_frame()
    }
}

/// Copies the state of the device's link to the tap's carrier.
struct Carrier {
    line: Box<dyn Line>,
    up: bool,
    next: Instant,
}

impl Carrier {
    fn new(line: Box<dyn Line>) -> Carrier {
        Carrier { line, up: true, next: Instant::now() }
    }

    /// Queries the link, if that is due.
    fn look(&mut self, tap: &Tap) {
        if Instant::now() < self.next {
            return;
        }
        let up = self.line.look();
        // A removed interface has no carrier, and an old kernel cannot change it: then the carrier always appears up.
        if up != self.up && tap.set_carrier(up).is_ok() {
            self.up = up;
        }
        self.next = Instant::now() + LOOK;
    }
}

/// State of the thread that carries frames between the queues and the tap.
struct Carrying {
    tap: Tap,
    carrier: Carrier,
    from_queues: Vec<Incoming>,
    to_first: Outgoing,
    wake: Arc<Wake>,
    first: Arc<Wake>,
    lost: Arc<AtomicU64>,
}

impl Carrying {
    fn run(mut self, stop: &Stop) {
        let mut room = vec![0; LONGEST].into_boxed_slice();
        // The length of a frame in `room` that found no space in the ring; and whether the interface was deleted.
        let (mut held, mut gone) = (None, false);
        while !stop.is_told() {
            self.carrier.look(&self.tap);
            let handed = self.deliver();
            let read = !gone && self.fetch(&mut room, &mut held, &mut gone);
            if handed || read {
                continue;
            }
            self.wake.prepare_sleep();
            if self.from_queues.iter_mut().all(Incoming::is_empty) {
                let wake = self.wake.as_fd();
                match (gone, held) {
                    (true, _) => stop.wait_on(&[wake], Some(LOOK)),
                    (false, Some(_)) => stop.wait_on(&[wake], Some(NO_ROOM)),
                    (false, None) => stop.wait_on(&[wake, self.tap.as_fd()], Some(LOOK)),
                }
            }
        }
    }

    /// Hands received frames to the kernel. Returns whether there were any.
    fn deliver(&mut self) -> bool {
        let mut any = false;
        for queue in &mut self.from_queues {
            any |= queue.take(TURN, &mut |frame| {
                // An interface that is down accepts no frames.
                if self.tap.write(frame).is_err() {
                    self.lost.fetch_add(1, Ordering::Relaxed);
                }
            }) > 0;
        }
        any
    }

    /// Takes frames from the kernel while there is room for them. Returns whether there were any.
    fn fetch(&mut self, room: &mut [u8], held: &mut Option<usize>, gone: &mut bool) -> bool {
        let mut any = false;
        for _ in 0..TURN {
            let len = match held.take() {
                Some(len) => len,
                None => match self.tap.read(room) {
                    Ok(len) => len,
                    Err(Errno::AGAIN | Errno::INTR) => break,
                    // The interface was deleted. The watcher of the interface is notified as well.
                    Err(_) => {
                        *gone = true;
                        break;
                    }
                },
            };
            if len > MAX_FRAME {
                self.lost.fetch_add(1, Ordering::Relaxed);
            } else if !self.to_first.put(&room[..len]) {
                *held = Some(len);
                break;
            }
            any = true;
        }
        if any {
            self.first.wake_sleeper();
        }
        any
    }
}
