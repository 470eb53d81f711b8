//! Backend `shm`: a network between any number of processes of one host, without privileges.
//!
//! Each pair of communicating processes has one ring in shared memory per direction. The sender creates the ring when it has the first
//! frame, hands the ring over by the receiver's socket, and continues at once: the ring holds the frames until they are read. No third
//! process is involved. All processes have the same addresses; [`softnic_nic::sharing`] determines which process a frame is for.
//!
//! A process that is stopped, slow or gone blocks no other process. When its ring stays full for 20 ms, frames for it are lost and counted
//! until the process reads again.

mod attendant;
mod directory;
mod error;
mod inlet;
mod meeting;
mod outlet;
mod place;
mod ring;
mod trust;

use std::io;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use softnic_nic::sharing::{Addressee, Process, addressee};
use softnic_wire::{Layout, TxFrame};

use directory::is_gone;
pub(crate) use directory::{Directory, GroupMember};
pub use error::ShmError;
pub use place::{ShmSpec, ShmSpecError};

use attendant::Door;
use inlet::Inlet;
use outlet::{Outlet, Put};
use ring::IN_FRONT;

use crate::background::Background;
use crate::io::{MAX_FRAME, PacketIo, TakeLocated, sleep_until_readable};
use crate::memory_wire::{Incoming, Outgoing, direction};

/// How long the ring of a process may stay full before frames for it are lost: longer than a live process waits for a core. The sender's
/// other frames are delayed by as much, once.
const PATIENCE: Duration = Duration::from_millis(20);
/// How long to keep the core while a ring is full; afterwards the sender yields, because the reader may be waiting for this core.
const SPIN: Duration = Duration::from_micros(20);
/// Number of idle rounds after which the process yields its core, once per `ROUNDS_TO_YIELD` rounds. A peer is a process of this host, too,
/// and may be waiting for the core.
const IDLE_ROUNDS: u32 = 1024;
const ROUNDS_TO_YIELD: u32 = 32;
/// Interval between checks whether a full ring has room.
const RETRY: Duration = Duration::from_micros(50);
/// How long a process that was not found is not looked up again.
const ABSENT: Duration = Duration::from_millis(10);
/// Number of frames that a process may have queued to itself.
const TO_OURSELVES: usize = 64;
/// Number of rounds between checks for ended connections, if the process is not woken.
const ROUNDS_TO_LOOK: u32 = 4096;
/// Number of connection events read in one call.
const EVENTS: usize = 32;
/// Marks an epoll name as that of a connection whose ring this process writes.
const WRITTEN: u64 = 1 << 32;

/// The state of the connection to a process.
#[derive(Debug)]
enum Way {
    /// Never tried.
    Unknown,
    /// The process was not there; do not try again before this time.
    Absent(Instant),
    /// The process may be there, but the system refused a resource that a ring needs; do not try again before this time.
    Refused(Instant),
    /// A ring is open.
    Ring(Box<Outlet>),
}

/// A buffer for a received frame, whose payload starts at a cache line.
#[repr(C, align(64))]
struct Frame([u8; IN_FRONT + MAX_FRAME]);

/// A process's port on a network in shared memory.
pub(crate) struct Shm {
    directory: Arc<Directory>,
    door: Arc<Door>,
    attendant: Background,
    /// Frames from this process to itself.
    to_ourselves: Outgoing,
    from_ourselves: Incoming,
    /// The state of the connection to each process, by process number.
    ways: Vec<Way>,
    /// The destination of the last frame. The next frame most likely has this destination, too, so it is written into that ring.
    last: Option<Process>,
    /// The processes that were sent frames in this batch.
    touched: Vec<Process>,
    /// The processes that a multicast frame has still to be sent to.
    members: Vec<Process>,
    inlets: Vec<Inlet>,
    /// The inlet that is read first in the next round, and the epoll name of the next inlet.
    turn: usize,
    next_name: u64,
    /// An epoll set: shows that a connection or the door was written to since the last sleep.
    woken: OwnedFd,
    /// An epoll set: shows connections that have ended.
    ended: OwnedFd,
    rounds: u32,
    /// Number of rounds since the last frame.
    idle: u32,
    /// Buffer for a frame that was not written directly into the ring of its destination.
    scratch: Box<[u8; MAX_FRAME]>,
    /// `scratch` holds a frame of this length for a process whose ring is full.
    held: Option<(Process, usize)>,
    read: Box<Frame>,
    lost: u64,
}

impl Shm {
    /// Joins a network.
    pub(crate) fn open(spec: &ShmSpec) -> Result<Shm, ShmError> {
        let (directory, listener) = Directory::join(&spec.folder()?, spec.mode)?;
        let door = Arc::new(Door::new()?);
        let set = || epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from);
        let (woken, ended) = (set()?, set()?);
        let door_is = epoll::EventData::new_u64(u64::MAX);
        epoll::add(&woken, door.wake.as_fd(), door_is, epoll::EventFlags::IN).map_err(io::Error::from)?;
        let attendant = attendant::start(listener, *directory.trust(), &door)?;
        let (to_ourselves, from_ourselves) = direction(TO_OURSELVES);
        Ok(Shm {
            directory: Arc::new(directory),
            door,
            attendant,
            to_ourselves,
            from_ourselves,
            ways: (0..=Process::COUNT).map(|_| Way::Unknown).collect(),
            last: None,
            touched: Vec::new(),
            members: Vec::new(),
            inlets: Vec::new(),
            turn: 0,
            next_name: 0,
            woken,
            ended,
            rounds: 0,
            idle: 0,
            scratch: Box::new([0; MAX_FRAME]),
            held: None,
            read: Box::new(Frame([0; _])),
            lost: 0,
        })
    }

    /// The network's folder, with the place of this process in it.
    pub(crate) fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// The number of this process on the network.
    pub(crate) fn process(&self) -> Process {
        self.directory.me()
    }

    /// Lets `next` write one frame, and sends it; returns `false` if there was no frame.
    fn send_one(&mut self, next: &mut dyn FnMut(&mut TxFrame<'_>) -> bool) -> bool {
        let mut written = None;
        if let Some(process) = self.last
            && let Way::Ring(outlet) = &mut self.ways[process.number() as usize]
        {
            match outlet.writer.place() {
                Ok(Some(place)) => {
                    let mut tx = TxFrame::new(place);
                    if !next(&mut tx) {
                        return false;
                    }
                    let len = tx.len();
                    let located = Layout::locate(&place[..len]);
                    if located.is_ok_and(|layout| addressee(&place[..len], &layout) == Addressee::Process(process)) {
                        outlet.commit(len, process, &mut self.touched);
                        return true;
                    }
                    self.scratch[..len].copy_from_slice(&place[..len]);
                    written = Some(len);
                }
                Ok(None) => {}
                Err(_) => self.forget(process),
            }
        }
        let len = match written {
            Some(len) => len,
            None => {
                let mut tx = TxFrame::new(&mut self.scratch[..]);
                if !next(&mut tx) {
                    return false;
                }
                tx.len()
            }
        };
        self.send_on(len);
        true
    }

    /// Sends the frame in `scratch` to its destination, or destinations.
    fn send_on(&mut self, len: usize) {
        let frame = &self.scratch[..len];
        let Ok(layout) = Layout::locate(frame) else {
            // Only RoCE frames have a destination.
            self.lost += 1;
            return;
        };
        match addressee(frame, &layout) {
            Addressee::Process(process) => self.put_or_hold(process, len),
            Addressee::Service(service) => match self.directory.owner_of(service) {
                Ok(Some(owner)) if self.way_to(owner).is_some() => self.put_or_hold(owner, len),
                Ok(Some(owner)) if matches!(self.ways[owner.number() as usize], Way::Refused(_)) => self.lost += 1,
                // A request for a service that no process has is returned to this process, whose own NIC rejects it.
                Ok(_) => self.put_or_hold(self.process(), len),
                Err(_) => self.lost += 1,
            },
            Addressee::Everybody => {
                if let Some((_, group)) = layout.addresses(frame) {
                    self.put_to_members(group, len);
                }
            }
            Addressee::Nobody => self.lost += 1,
        }
    }

    fn put_to_members(&mut self, group: IpAddr, len: usize) {
        self.directory.members(group, &mut self.members);
        while let Some(process) = self.members.pop() {
            // A full ring of a group member does not block the sender.
            if self.put(process, len) != Put::Done {
                self.lost += 1;
            }
        }
    }

    fn put_or_hold(&mut self, process: Process, len: usize) {
        match self.put(process, len) {
            Put::Done => {}
            Put::Full => self.held = Some((process, len)),
            Put::Lost => self.lost += 1,
        }
    }

    /// Sends the held frame; returns `false` if there is still no room for it.
    fn send_held(&mut self) -> bool {
        let Some((process, len)) = self.held.take() else { return true };
        self.put_or_hold(process, len);
        self.held.is_none()
    }

    /// Puts the frame in `scratch` into the ring to a process.
    fn put(&mut self, process: Process, len: usize) -> Put {
        if process == self.process() {
            return if self.to_ourselves.put(&self.scratch[..len]) { Put::Done } else { Put::Full };
        }
        if self.way_to(process).is_none() {
            return Put::Lost;
        }
        let Way::Ring(outlet) = &mut self.ways[process.number() as usize] else { return Put::Lost };
        match outlet.writer.place() {
            Ok(Some(place)) => {
                place[..len].copy_from_slice(&self.scratch[..len]);
                outlet.commit(len, process, &mut self.touched);
                self.last = Some(process);
                Put::Done
            }
            Ok(None) => outlet.wait_for_room(),
            Err(_) => {
                self.forget(process);
                Put::Lost
            }
        }
    }

    /// Makes sure that there is a ring to a process; returns `None` if the process is not there.
    fn way_to(&mut self, process: Process) -> Option<()> {
        if process == self.process() {
            return Some(());
        }
        match &self.ways[process.number() as usize] {
            Way::Ring(_) => return Some(()),
            Way::Absent(until) | Way::Refused(until) if Instant::now() < *until => return None,
            _ => {}
        }
        self.make_way(process)
    }

    #[cold]
    fn make_way(&mut self, process: Process) -> Option<()> {
        let name = WRITTEN | u64::from(process.number());
        let way = match Outlet::open(&self.directory, process).and_then(|o| self.watch(&o.connection, name).map(|()| o))
        {
            Ok(outlet) => Way::Ring(Box::new(outlet)),
            Err(e) if is_gone(&e) => Way::Absent(Instant::now() + ABSENT),
            Err(_) => Way::Refused(Instant::now() + ABSENT),
        };
        let is_there = matches!(way, Way::Ring(_)).then_some(());
        self.ways[process.number() as usize] = way;
        is_there
    }

    /// Closes the ring to a process that is gone, or that violates the ring protocol.
    #[cold]
    fn forget(&mut self, process: Process) {
        self.ways[process.number() as usize] = Way::Absent(Instant::now() + ABSENT);
        if self.last == Some(process) {
            self.last = None;
        }
    }

    fn wake_touched(&mut self) {
        while let Some(process) = self.touched.pop() {
            if let Way::Ring(outlet) = &mut self.ways[process.number() as usize]
                && outlet.wake().is_err()
            {
                self.forget(process);
            }
        }
    }

    /// Takes over the rings that other processes have brought.
    #[cold]
    fn take_over(&mut self, arrivals: Vec<attendant::Arrival>) {
        for arrival in arrivals {
            let name = self.next_name % WRITTEN;
            self.next_name += 1;
            match self.watch(&arrival.connection, name) {
                Ok(()) => self.inlets.push(Inlet::new(arrival, name)),
                Err(_) => self.lost += 1,
            }
        }
    }

    /// Adds a connection to both epoll sets.
    fn watch(&self, connection: &UnixStream, name: u64) -> io::Result<()> {
        let name = epoll::EventData::new_u64(name);
        // Edge-triggered: one event for each write. The bytes stay in the socket until this process goes to sleep.
        epoll::add(&self.woken, connection, name, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        Ok(epoll::add(&self.ended, connection, name, epoll::EventFlags::RDHUP)?)
    }

    /// Finds the connections that have ended.
    #[cold]
    fn forget_ended(&mut self) {
        for name in names(&self.ended) {
            if name & WRITTEN == 0 {
                if let Some(inlet) = self.inlets.iter_mut().find(|inlet| inlet.name == name) {
                    inlet.end(&self.ended);
                }
            } else if let Some(process) = Process::new((name % WRITTEN) as u32) {
                self.forget(process);
            }
        }
        // The next receive, which also drops ended inlets, may be far away.
        self.drop_inlets();
    }

    /// Drops the rings that will receive nothing more.
    #[cold]
    fn drop_inlets(&mut self) {
        self.lost += self.inlets.iter().filter(|inlet| inlet.is_over()).map(|inlet| inlet.lost).sum::<u64>();
        self.inlets.retain(|inlet| !inlet.is_over());
    }

    /// Clears the wake-ups. Called only by the thread that goes to sleep: other threads may make rounds while that thread prepares to
    /// sleep.
    #[cold]
    fn drain(&mut self) {
        self.door.wake.drain();
        for name in names(&self.woken).filter(|name| name & WRITTEN == 0) {
            if let Some(inlet) = self.inlets.iter().find(|inlet| inlet.name == name) {
                meeting::drain(&inlet.connection);
            }
        }
    }
}

/// The names of connections with an event in an epoll set; at most `EVENTS` of them.
fn names(set: &OwnedFd) -> impl Iterator<Item = u64> + use<> {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let (mut room, mut names) = ([const { MaybeUninit::<epoll::Event>::uninit() }; EVENTS], [0; EVENTS]);
    // If the call is interrupted, a later call finds the events.
    let count = epoll::wait(set, &mut room[..], Some(&now)).map_or(0, |(events, _)| {
        names.iter_mut().zip(events.iter()).for_each(|(name, event)| *name = event.data.u64());
        events.len()
    });
    names.into_iter().take(count)
}

impl PacketIo for Shm {
    fn receive(&mut self, limit: usize, take: &mut dyn FnMut(&mut [u8])) -> io::Result<usize> {
        self.receive_located(limit, &mut |frame, _| take(frame))
    }

    fn receive_located(&mut self, limit: usize, take: &mut TakeLocated<'_>) -> io::Result<usize> {
        self.rounds = self.rounds.wrapping_add(1);
        if self.rounds.is_multiple_of(ROUNDS_TO_LOOK) {
            self.forget_ended();
        }
        if let Some(arrivals) = self.door.arrivals() {
            self.take_over(arrivals);
        }
        let mut taken = self.from_ourselves.take(limit, &mut |frame| {
            let layout = Layout::locate(frame);
            take(frame, layout);
        });
        let count = self.inlets.len();
        let (mut ended, first) = (false, self.turn);
        for at in (first..count).chain(0..first.min(count)) {
            if taken >= limit {
                break;
            }
            let inlet = &mut self.inlets[at];
            taken += inlet.read(limit - taken, &mut self.read.0, take);
            ended |= inlet.is_over();
        }
        self.turn = if self.turn + 1 < count { self.turn + 1 } else { 0 };
        if ended {
            self.drop_inlets();
        }
        self.idle = if taken > 0 { 0 } else { self.idle.saturating_add(1) };
        if self.idle > IDLE_ROUNDS && self.idle.is_multiple_of(ROUNDS_TO_YIELD) {
            std::thread::yield_now();
        }
        Ok(taken)
    }

    fn transmit(&mut self, limit: usize, next: &mut dyn FnMut(&mut TxFrame<'_>) -> bool) -> io::Result<usize> {
        let mut sent = 0;
        while sent < limit && self.send_held() && self.send_one(next) {
            sent += 1;
        }
        self.wake_touched();
        Ok(sent)
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let timeout = self.due_in().map_or(timeout, |due| due.min(timeout));
        match self.prepare_sleep() {
            true => sleep_until_readable(&self.woken, timeout),
            false => Ok(()),
        }
    }

    fn readiness(&self) -> io::Result<Vec<OwnedFd>> {
        Ok(vec![self.woken.try_clone()?])
    }

    fn prepare_sleep(&mut self) -> bool {
        // This order matters: the end of a connection that is drained here is found afterwards.
        self.drain();
        self.forget_ended();
        self.inlets.iter().for_each(|inlet| inlet.reader.sleep());
        fence(Ordering::SeqCst);
        self.from_ourselves.is_empty()
            && !self.door.has_arrivals()
            && self.inlets.iter().all(|inlet| inlet.reader.is_empty())
    }

    fn due_in(&self) -> Option<Duration> {
        self.held.map(|_| RETRY)
    }

    /// The sum of: frames for processes that were absent or whose ring stayed full, frames that violate the protocol, and rings of
    /// processes that were turned away.
    fn lost(&self) -> u64 {
        self.lost + self.door.refused() + self.inlets.iter().map(|inlet| inlet.lost).sum::<u64>()
    }

    fn descriptors(&self) -> Vec<RawFd> {
        // Connections come and go; each registers its own descriptor for processes that fork.
        let own = [
            self.woken.as_raw_fd(),
            self.ended.as_raw_fd(),
            self.door.wake.as_fd().as_raw_fd(),
            self.directory.descriptor(),
        ];
        own.into_iter().chain(self.attendant.descriptors().iter().copied()).collect()
    }
}

#[cfg(test)]
mod tests;
