//! The driver loop around a Node: frames in, timers, frames out.

mod frames;
mod readiness;
mod recorder;

use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub(crate) use readiness::Readiness;
use recorder::Shown;
pub(crate) use recorder::Watch;
use softnic_nic::Nic;
use softnic_pcaps::{LinkType, PcapWriter};
use softnic_wire::{Instant, MacAddr, Node};

use crate::io::{MAX_FRAME, PacketIo, sleep_on};
use crate::neighbours::NeighbourError;
use crate::stack::Stack;

/// Maximum number of frames received before frames are sent, so that one ACK answers many packets.
const BATCH: usize = 32;
/// Maximum number of frames sent before frames are received again, so that a long message does not block its own ACKs.
const BURST: usize = 32;
/// Number of bytes after which a burst ends. A burst of long frames should fit the second-level cache, from which the next reader takes
/// them, and should be long enough to share the cost of a system call.
const BURST_BYTES: usize = 64 << 10;
/// Number of idle rounds between two readings of the clock.
const IDLE_ROUNDS: u32 = 16;
/// Number of idle rounds between two readings of the clock while a timer is due within `NEAR`.
const NEAR_ROUNDS: u32 = 4;
const NEAR: Duration = Duration::from_micros(200);
/// One of this many consecutive busy rounds looks at all ports. The other rounds look only at the port of the last frame, so that a standby
/// port costs little.
const STANDBY_ROUNDS: u32 = 8;
/// The longest sleep of an idle loop: a caller's condition is checked at least this often.
const NAP: Duration = Duration::from_millis(1);

/// Why the driver loop cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The backend of a port failed.
    #[error("packet IO failed: {error}")]
    Io {
        /// The port's number at the Node.
        port: usize,
        /// The error of the backend.
        error: io::Error,
    },
    /// The capture could not be written.
    #[error("the capture cannot be written: {0}")]
    Capture(io::Error),
    /// The trace could not be written.
    #[error("the trace cannot be written: {0}")]
    Trace(io::Error),
    /// The MAC address of a neighbour could not be resolved.
    #[error(transparent)]
    Neighbour(#[from] NeighbourError),
}

/// A wire port of a Node, with its backend.
pub struct DriverPort<I> {
    /// The port's number at the Node.
    pub number: usize,
    /// The backend that carries the frames.
    pub io: I,
    /// The stack that answers all frames of this port that are not RoCE.
    pub stack: Stack,
}

/// A Node on the wires of its ports, driven by the caller of [`Driver::step`]; single-threaded.
///
/// RoCE packets go to the Node, all other frames to the [`Stack`] of the port.
pub struct Driver<N, I> {
    /// The Node. Its own calls (creating queue pairs, posting work) are made directly on this field.
    pub node: N,
    /// The ports; at least one.
    ports: Vec<DriverPort<I>>,
    /// The port of the Node whose frames are looped back to the Node.
    loopback: Option<usize>,
    /// The descriptors that show an incoming frame, if there are several ports.
    readiness: Option<Arc<Readiness>>,
    start: std::time::Instant,
    /// The time of day at `start`, in nanoseconds.
    epoch: u64,
    /// The capture and the observer that see all frames, if there are any.
    shown: Option<Box<Shown<N>>>,
    /// The numbers of the ports whose links are down: frames sent there are lost.
    cut: Vec<usize>,
    /// Number of further rounds that need not read the clock, as long as no frame arrives.
    short_rounds: u32,
    /// The last transmission sent every frame that the Node had.
    drained: bool,
    /// The last round only looked for a frame, and found none.
    in_vain: bool,
    /// The index of the port that received the last frame: the next frame most likely arrives there, too.
    latest: usize,
    /// Number of consecutive rounds with work.
    busy_rounds: u32,
    /// Buffer for a frame that does not go to the wire, or that the capture needs in one piece.
    scratch: Box<[u8]>,
}

impl<N: Node, I: PacketIo> Driver<N, I> {
    /// Creates a driver for a NIC on one wire. The clock starts now.
    pub fn new(node: N, io: I, stack: impl Into<Stack>) -> Driver<N, I> {
        let port = DriverPort { number: Nic::WIRE, io, stack: stack.into() };
        Driver::of(node, port, Vec::new(), None, Some(Nic::LOOPBACK))
    }

    /// Creates a driver for a Node on any number of wires: the first port and further ones. Frames that leave by the port `loopback` are
    /// returned to the Node. The clock starts now.
    ///
    /// # Errors
    /// When the operating system has no descriptors left.
    pub fn with_ports(
        node: N,
        first: DriverPort<I>,
        further: Vec<DriverPort<I>>,
        loopback: Option<usize>,
    ) -> io::Result<Driver<N, I>> {
        let readiness = match further.is_empty() {
            true => None,
            false => Some(Arc::new(readiness_of([&first].into_iter().chain(&further))?)),
        };
        Ok(Driver::of(node, first, further, readiness, loopback))
    }

    fn of(
        node: N,
        first: DriverPort<I>,
        mut further: Vec<DriverPort<I>>,
        readiness: Option<Arc<Readiness>>,
        loopback: Option<usize>,
    ) -> Driver<N, I> {
        further.insert(0, first);
        let epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Driver {
            node,
            ports: further,
            loopback,
            readiness,
            start: std::time::Instant::now(),
            epoch: epoch.as_nanos() as u64,
            shown: None,
            cut: Vec::new(),
            short_rounds: 0,
            drained: true,
            in_vain: false,
            latest: 0,
            busy_rounds: 0,
            scratch: vec![0; MAX_FRAME].into(),
        }
    }

    /// The current time, as passed to the Node.
    pub fn now(&self) -> Instant {
        Instant::ZERO + self.start.elapsed()
    }

    /// The backend of the first port.
    pub fn io(&self) -> &I {
        &self.ports[0].io
    }

    /// The backend of the first port, as a mutable reference.
    pub fn io_mut(&mut self) -> &mut I {
        &mut self.ports[0].io
    }

    /// The backend of a port, by its number.
    pub(crate) fn io_of(&self, number: usize) -> Option<&I> {
        self.ports.iter().find(|port| port.number == number).map(|port| &port.io)
    }

    /// Removes a port that is gone for good, together with its backend; the other ports continue. Returns `false` for the last port, which
    /// is kept.
    pub(crate) fn retire(&mut self, number: usize) -> bool {
        if self.ports.iter().all(|port| port.number == number) {
            return false;
        }
        self.ports.retain(|port| port.number != number);
        self.latest = 0;
        self.readiness.iter().for_each(|readiness| readiness.remove(number));
        self.refresh();
        true
    }

    /// The backends of all ports.
    pub fn ios(&self) -> impl Iterator<Item = &I> {
        self.ports.iter().map(|port| &port.io)
    }

    /// Call before a sleep: from now on an incoming frame, at any port, makes a descriptor of the backends readable. Returns `false` if a
    /// frame is already there.
    pub fn prepare_sleep(&mut self) -> bool {
        let mut nothing = true;
        for port in &mut self.ports {
            nothing &= port.io.prepare_sleep();
        }
        nothing
    }

    /// The descriptors that become readable when a frame arrives.
    pub(crate) fn readiness(&self) -> io::Result<Arc<Readiness>> {
        match &self.readiness {
            None => readiness_of(&self.ports).map(Arc::new),
            Some(readiness) => Ok(Arc::clone(readiness)),
        }
    }

    /// Records all frames of both directions from now on, as a pcap file. An earlier capture ends.
    pub fn record(&mut self, to: Box<dyn Write + Send>) -> Result<(), DriverError> {
        self.stop_recording()?;
        let mut capture = PcapWriter::new(to, LinkType::Ethernet).map_err(DriverError::Capture)?;
        // A full disk is better reported now than in the middle of the work.
        capture.flush().map_err(DriverError::Capture)?;
        self.shown().capture = Some(capture);
        Ok(())
    }

    /// From now on shows the observer all frames of both directions, and the Node after each batch of them.
    pub(crate) fn watch(&mut self, watch: Box<dyn Watch<N>>) {
        self.shown().watch = Some(watch);
    }

    fn shown(&mut self) -> &mut Shown<N> {
        self.shown.get_or_insert_with(|| Box::new(Shown { capture: None, watch: None }))
    }

    /// The time of day at which the Node's time began, in nanoseconds since 1970.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Ends the capture, and writes out the recorded frames.
    pub fn stop_recording(&mut self) -> Result<(), DriverError> {
        match self.shown.as_mut().and_then(|shown| shown.capture.take()) {
            Some(mut capture) => capture.flush().map_err(DriverError::Capture),
            None => Ok(()),
        }
    }

    /// Writes out the frames recorded so far, if a capture is running.
    pub fn flush_recording(&mut self) -> Result<(), DriverError> {
        let Some(shown) = &mut self.shown else { return Ok(()) };
        let capture = shown.capture.as_mut().map_or(Ok(()), |capture| capture.flush());
        let watch = shown.watch.as_mut().map_or(Ok(()), |watch| watch.flush());
        capture.map_err(DriverError::Capture).and(watch.map_err(DriverError::Trace))
    }

    /// Sets the link of a port down, or up again. While the link is down, every frame that the Node sends there is taken and lost, as on an
    /// unplugged cable; so the Node counts its retries.
    pub fn set_cut(&mut self, number: usize, cut: bool) {
        self.cut.retain(|&other| other != number);
        if cut {
            self.cut.push(number);
        }
        self.refresh();
    }

    /// Whether the link of a port is down.
    pub fn is_cut(&self, number: usize) -> bool {
        self.cut.contains(&number)
    }

    /// Makes one round: due timers, frames out, then a batch of frames in. Returns whether there was work.
    ///
    /// With this order, a program that runs the loop itself sees the received messages before they are acknowledged. Its reply leaves in
    /// the same round as the acknowledgement, and before it.
    pub fn step(&mut self) -> Result<bool, DriverError> {
        self.refresh();
        self.step_after(None, &mut |_, _| ())
    }

    /// Makes one round for a caller that has just posted work to the Node, and has read the clock for it (`now`).
    ///
    /// Most rounds of an idle loop only look for an incoming frame, because reading the clock takes half the time of a whole round. A frame
    /// is stamped when it arrives. A timer may fire a few rounds late, and so may a frame that the backend has kept. With several ports,
    /// such a round looks only at the port of the last frame.
    ///
    /// `before` is called before each incoming frame is handled, and after the frame has arrived.
    pub(crate) fn step_after(
        &mut self,
        now: Option<Instant>,
        before: &mut dyn FnMut(&mut N, Instant),
    ) -> Result<bool, DriverError> {
        if now.is_none() && self.drained && self.short_rounds > 0 {
            let received = self.receive(self.latest..=self.latest, None, before)?;
            self.short_rounds = if received { 0 } else { self.short_rounds - 1 };
            self.in_vain = !received;
            return Ok(received);
        }
        self.in_vain = false;
        let begin = now.unwrap_or_else(|| self.now());
        let due = self.next_timeout();
        if due.is_some_and(|at| at <= begin) {
            self.node.handle_timeout(begin);
            self.ports.iter_mut().for_each(|port| port.stack.handle_timeout(begin));
        }
        let busy = self.round(begin, before)?;
        self.busy_rounds = if busy { self.busy_rounds.wrapping_add(1) } else { 0 };
        self.short_rounds = if busy { 0 } else { self.idle_rounds(begin, due) };
        Ok(busy)
    }

    /// Whether the last round only looked for a frame, so that it cannot have started a timer.
    #[inline]
    pub(crate) fn was_in_vain(&self) -> bool {
        self.in_vain
    }

    /// The start of the Node's clock.
    pub(crate) fn start(&self) -> std::time::Instant {
        self.start
    }

    /// The next round reads the clock, because time has passed or the Node got new work.
    pub(crate) fn refresh(&mut self) {
        self.short_rounds = 0;
    }

    /// Number of rounds that need not read the clock, if the next timer is due at `due`.
    fn idle_rounds(&self, now: Instant, due: Option<Instant>) -> u32 {
        let near = due.is_some_and(|at| at <= now + NEAR) || self.io_due_in().is_some_and(|d| d <= NEAR);
        if near { NEAR_ROUNDS } else { IDLE_ROUNDS }
    }

    /// The time of the next timer.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let stacks = self.ports.iter().filter_map(|port| port.stack.poll_timeout());
        self.node.poll_timeout().into_iter().chain(stacks).min()
    }

    /// The time until a backend has work of its own. A backend whose link is down is not asked to send: a frame that it kept would be due
    /// forever.
    fn io_due_in(&self) -> Option<Duration> {
        self.ports.iter().filter(|port| !self.is_cut(port.number)).filter_map(|port| port.io.due_in()).min()
    }

    /// Sends frames, then receives a batch of frames.
    fn round(&mut self, begin: Instant, before: &mut dyn FnMut(&mut N, Instant)) -> Result<bool, DriverError> {
        let looped = self.loop_back(begin)?;
        let sent = self.transmit(begin, BURST)?;
        let ports = if self.looks_at_all() { 0..=self.ports.len() - 1 } else { self.latest..=self.latest };
        let received = self.receive(ports, (!sent && !looped).then_some(begin), before)?;
        Ok(received || looped || sent)
    }

    /// Whether this round looks at the standby ports as well.
    #[inline]
    fn looks_at_all(&self) -> bool {
        self.busy_rounds.is_multiple_of(STANDBY_ROUNDS)
    }

    /// Sends the frames that the Node has, as far as that is possible without receiving any; at most a few hundred frames.
    pub(crate) fn send_owed(&mut self) -> Result<(), DriverError> {
        const ROUNDS: usize = 8;
        let now = self.now();
        for _ in 0..ROUNDS {
            let looped = self.loop_back(now)?;
            if !self.transmit(now, BURST)? && !looped {
                break;
            }
        }
        Ok(())
    }

    /// The time until the next frame leaves that a fault holds back.
    pub(crate) fn leaves_in(&self) -> Option<Duration> {
        self.ports.iter().filter_map(|port| port.io.leaves_in()).min()
    }

    /// Runs until `done` returns true or `limit` has passed; returns whether `done` did. Sleeps while there is no work.
    pub fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&mut N) -> bool) -> Result<bool, DriverError> {
        let end = self.now() + limit;
        loop {
            let busy = self.step()?;
            if done(&mut self.node) {
                return Ok(true);
            }
            if self.now() >= end {
                return Ok(false);
            }
            if !busy {
                self.sleep()?;
            }
        }
    }

    /// Sleeps until there may be work.
    fn sleep(&mut self) -> Result<(), DriverError> {
        let nap = self.nap();
        match &self.readiness {
            _ if nap.is_zero() => Ok(()),
            None => {
                let DriverPort { number, io, .. } = &mut self.ports[0];
                io.wait(nap).map_err(failed(*number))
            }
            Some(readiness) => {
                if self.ports.iter_mut().all(|port| port.io.prepare_sleep()) {
                    // The result is not needed: every caller looks at all ports afterwards.
                    let _ = sleep_on(readiness.poll_fds(), nap);
                }
                Ok(())
            }
        }
    }

    /// How long an idle loop may sleep: no longer than until the next timer.
    fn nap(&self) -> Duration {
        self.due_in().unwrap_or(NAP).min(NAP)
    }

    /// The time until there is work even if no frame arrives.
    pub fn due_in(&self) -> Option<Duration> {
        let next = self.next_timeout().map(|at| at.saturating_since(self.now()));
        [next, self.io_due_in()].into_iter().flatten().min()
    }

    /// Whether frames wait for room on a wire. Not every wire notifies when room becomes free.
    pub(crate) fn is_held_up(&self) -> bool {
        !self.drained
    }

    /// The MAC address of a neighbour on the link of the first port, if it is known. Sends a request if none was sent yet.
    pub fn mac_of(&mut self, address: IpAddr) -> Result<Option<MacAddr>, NeighbourError> {
        self.mac_of_at(self.ports[0].number, address)
    }

    /// The MAC address of a neighbour on the link of a port, given by the port's number.
    pub(crate) fn mac_of_at(&mut self, number: usize, address: IpAddr) -> Result<Option<MacAddr>, NeighbourError> {
        let now = self.now();
        match self.ports.iter_mut().find(|port| port.number == number) {
            Some(port) => port.stack.mac_of(now, address),
            None => Err(NeighbourError::NoAnswer(address)),
        }
    }

    /// The stack of a port, by its number. Frames that the stack is given to send leave in the next round.
    pub fn stack(&mut self, number: usize) -> Option<&mut Stack> {
        self.refresh();
        self.ports.iter_mut().find(|port| port.number == number).map(|port| &mut port.stack)
    }

    /// Waits until the MAC address of a neighbour on the link is known, or until its resolution has failed.
    pub fn resolve(&mut self, address: IpAddr) -> Result<MacAddr, DriverError> {
        loop {
            if let Some(mac) = self.mac_of(address)? {
                return Ok(mac);
            }
            if !self.step()? {
                self.sleep()?;
            }
        }
    }
}

/// The descriptors that show incoming frames of the ports.
fn readiness_of<'a, I: PacketIo + 'a>(ports: impl IntoIterator<Item = &'a DriverPort<I>>) -> io::Result<Readiness> {
    let each = ports.into_iter().map(|port| Ok((port.number, port.io.readiness()?)));
    each.collect::<io::Result<Vec<_>>>().map(Readiness::of)
}

/// Maps an error to the port where it occurred.
fn failed(port: usize) -> impl FnOnce(io::Error) -> DriverError {
    move |error| DriverError::Io { port, error }
}

#[cfg(test)]
mod tests;
