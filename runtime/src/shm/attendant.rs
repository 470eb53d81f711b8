//! The thread that takes over the rings which other processes bring. It sleeps until one comes.

use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use std::{io, thread};

use softnic_nic::sharing::Process as SharingProcess;

use super::meeting;
use super::ring::Reader;
use super::trust::Trust;
use crate::background::{Background, Stop};
use crate::forked::Kept;
use crate::locked::lock;
use crate::wake::Wake;

/// How long a process may take to say what it brings.
const PATIENCE: Duration = Duration::from_secs(1);
/// Processes that have connected and said nothing yet.
const WAITING: usize = 64;
/// Rings that one process may bring: it has a NIC or two.
const RINGS_OF_A_PROCESS: usize = 16;
/// Rings of all processes of other containers, which are not told apart: one of each process that can be there.
const RINGS_OF_THE_UNSEEN: usize = SharingProcess::COUNT;
/// How long to wait where the system has no descriptor left.
const BREATH: Duration = Duration::from_millis(10);

/// A ring that somebody brought.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) reader: Reader,
    pub(super) connection: Kept<UnixStream>,
    /// Its place among those of its process.
    pub(super) _seat: Arc<()>,
}

/// What the thread shares with the backend.
#[derive(Debug)]
pub(super) struct Door {
    came: AtomicBool,
    arrivals: Mutex<Vec<Arrival>>,
    /// Wakes the backend.
    pub(super) wake: Wake,
    refused: AtomicU64,
}

impl Door {
    pub(super) fn new() -> io::Result<Door> {
        Ok(Door {
            came: AtomicBool::new(false),
            arrivals: Mutex::default(),
            wake: Wake::new()?,
            refused: AtomicU64::new(0),
        })
    }

    /// Rings that came since the last call.
    #[inline]
    pub(super) fn arrivals(&self) -> Option<Vec<Arrival>> {
        if !self.came.load(Ordering::Acquire) {
            return None;
        }
        self.came.store(false, Ordering::Relaxed);
        Some(std::mem::take(&mut *lock(&self.arrivals)))
    }

    /// Whether rings came that nobody has taken.
    pub(super) fn has_arrivals(&self) -> bool {
        self.came.load(Ordering::Acquire)
    }

    /// Processes that were turned away: not trusted, of another version, with something that is no ring, or with too many.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn let_in(&self, arrival: Arrival) {
        lock(&self.arrivals).push(arrival);
        self.came.store(true, Ordering::Release);
        self.wake.wake();
    }

    fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}

pub(super) fn start(listener: UnixListener, trust: Trust, door: &Arc<Door>) -> io::Result<Background> {
    let (fd, door) = (listener.as_raw_fd(), Arc::clone(door));
    let mut attendant = Attendant { listener, trust, door, waiting: Vec::new(), seats: Vec::new() };
    let thread = Background::start("softnic-shm", move |stop| attendant.run(stop))?;
    Ok(thread.holding(fd))
}

struct Attendant {
    listener: UnixListener,
    trust: Trust,
    door: Arc<Door>,
    /// Connections on which nothing was said yet, with the process and the end of its time.
    waiting: Vec<(Kept<UnixStream>, Option<u32>, Instant)>,
    /// The rings that processes have brought, as long as they are read.
    seats: Vec<(Option<u32>, Weak<()>)>,
}

impl Attendant {
    fn run(&mut self, stop: &Stop) {
        while !stop.is_told() {
            self.accept();
            self.listen_to_waiting();
            let waiting = self.waiting.iter().map(|w| w.0.as_fd());
            let fds: Vec<BorrowedFd<'_>> = [self.listener.as_fd()].into_iter().chain(waiting).collect();
            let end = self.waiting.iter().map(|w| w.2).min();
            stop.wait_on(&fds, end.map(|end| end.saturating_duration_since(Instant::now())));
        }
    }

    fn accept(&mut self) {
        for _ in 0..WAITING {
            match self.listener.accept() {
                Ok((connection, _)) => match self.trust.admits(&connection) {
                    Ok(Some(peer)) => {
                        // Who has something to say has said it long ago.
                        if self.waiting.len() >= WAITING {
                            self.waiting.remove(0);
                            self.door.refuse();
                        }
                        self.waiting.push((Kept::new(connection), peer.pid, Instant::now() + PATIENCE));
                    }
                    _ => self.door.refuse(),
                },
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                // No descriptor left: whoever waits goes on waiting.
                Err(_) => {
                    thread::sleep(BREATH);
                    return;
                }
            }
        }
    }

    fn listen_to_waiting(&mut self) {
        let now = Instant::now();
        for (connection, pid, end) in std::mem::take(&mut self.waiting) {
            match meeting::take_over(&connection) {
                Ok(reader) => self.seat(reader, connection, pid),
                Err(e) if e.kind() == ErrorKind::WouldBlock && now < end => self.waiting.push((connection, pid, end)),
                // Somebody who only looked whether this process lives.
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => {}
                Err(_) => self.door.refuse(),
            }
        }
    }

    fn seat(&mut self, reader: Reader, connection: Kept<UnixStream>, pid: Option<u32>) {
        self.seats.retain(|(_, seat)| seat.strong_count() > 0);
        let limit = if pid.is_some() { RINGS_OF_A_PROCESS } else { RINGS_OF_THE_UNSEEN };
        if self.seats.iter().filter(|(of, _)| *of == pid).count() >= limit {
            self.door.refuse();
            return;
        }
        let seat = Arc::new(());
        self.seats.push((pid, Arc::downgrade(&seat)));
        self.door.let_in(Arrival { reader, connection, _seat: seat });
    }
}
