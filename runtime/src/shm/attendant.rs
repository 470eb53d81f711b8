//! The thread that accepts the rings which other processes bring. It sleeps until one arrives.

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

/// How long a process that has connected may take to send its ring.
const PATIENCE: Duration = Duration::from_secs(1);
/// Maximum number of processes that have connected and sent nothing yet.
const WAITING: usize = 64;
/// Maximum number of rings that one process may bring: a process has one or two NICs.
const RINGS_OF_A_PROCESS: usize = 16;
/// Maximum number of rings of all processes in other containers, whose process IDs are not visible: one for each possible process.
const RINGS_OF_THE_UNSEEN: usize = SharingProcess::COUNT;
/// How long to wait if the system has no file descriptor left.
const BREATH: Duration = Duration::from_millis(10);

/// A ring that another process brought.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) reader: Reader,
    pub(super) connection: Kept<UnixStream>,
    /// The ring's share of the limit for its process.
    pub(super) _seat: Arc<()>,
}

/// The state that the thread shares with the backend.
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

    /// The rings that arrived since the last call.
    #[inline]
    pub(super) fn arrivals(&self) -> Option<Vec<Arrival>> {
        if !self.came.load(Ordering::Acquire) {
            return None;
        }
        self.came.store(false, Ordering::Relaxed);
        Some(std::mem::take(&mut *lock(&self.arrivals)))
    }

    /// Whether rings have arrived that were not taken yet.
    pub(super) fn has_arrivals(&self) -> bool {
        self.came.load(Ordering::Acquire)
    }

    /// Number of processes that were turned away: not trusted, of another version, with a file that is not a ring, or with too many rings.
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
    /// Connections on which nothing was received yet, with the process ID and the time limit.
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
                        // The oldest waiting connection is dropped: a cooperative process would have sent its message long ago.
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
                // No descriptor is left: pending connections stay in the backlog.
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
                // A process that only tested whether this process is alive.
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
