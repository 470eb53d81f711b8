//! The loop around a Node: frames in, timers, frames out.

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

/// Frames taken in before anything is sent, so that one ACK answers many packets.
const BATCH: usize = 32;
/// Frames sent before anything is taken in again, so that a long message does not keep its own ACKs out.
const BURST: usize = 32;
/// Bytes after which a burst ends: long frames in numbers that fit the second-level cache, from which whoever reads them next takes
/// them, and enough of them to share the cost of a system call.
const BURST_BYTES: usize = 64 << 10;
/// Rounds without anything to do after which to look at the clock again.
const IDLE_ROUNDS: u32 = 16;
/// The same while a timer is due soon, which is how soon.
const NEAR_ROUNDS: u32 = 4;
const NEAR: Duration = Duration::from_micros(200);
/// Of so many rounds in a row with something to do one looks at all ports, and the others only at the one by which the last frame came: a port
/// that stands by costs little.
const STANDBY_ROUNDS: u32 = 8;
/// The longest sleep of an idle loop: whoever waits for a condition looks at it at least this often.
const NAP: Duration = Duration::from_millis(1);

/// Why the loop cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The backend of a port failed.
    #[error("packet IO failed: {error}")]
    Io {
        /// The port's number at the Node.
        port: usize,
        /// Why.
        error: io::Error,
    },
    /// The capture could not be written.
    #[error("the capture cannot be written: {0}")]
    Capture(io::Error),
    /// The trace could not be written.
    #[error("the trace cannot be written: {0}")]
    Trace(io::Error),
    /// A neighbour's MAC address is not to be had.
    #[error(transparent)]
    Neighbour(#[from] NeighbourError),
}

/// A wire port of a Node, with what carries its frames.
pub struct DriverPort<I> {
    /// Its number at the Node.
    pub number: usize,
    /// What carries its frames.
    pub io: I,
    /// What answers everything that is not RoCE there.
    pub stack: Stack,
}

/// A Node on the wires of its ports, driven by whoever calls [`Driver::step`]; single-threaded.
///
/// RoCE packets go to the Node, everything else to the [`Stack`] beside it.
pub struct Driver<N, I> {
    /// The Node: its own calls (making queue pairs, posting work) go here.
    pub node: N,
    /// At least one.
    ports: Vec<DriverPort<I>>,
    /// The port of the Node whose frames come back to it.
    loopback: Option<usize>,
    /// What shows that a frame has come in, where there are several ports.
    readiness: Option<Arc<Readiness>>,
    start: std::time::Instant,
    /// The time of day at `start`.
    epoch: u64,
    /// Who is shown all frames; mostly nobody.
    shown: Option<Box<Shown<N>>>,
    /// The numbers of ports whose links are down: what is sent there is lost.
    cut: Vec<usize>,
    /// How many rounds need not look at the clock, as long as nothing comes in.
    short_rounds: u32,
    /// The last time that frames were to leave, all did.
    drained: bool,
    /// The last round only looked whether a frame came in, and none did.
    in_vain: bool,
    /// The place of the port by which the last frame came: the next one most likely does, too.
    latest: usize,
    /// Rounds in a row that had something to do.
    busy_rounds: u32,
    /// Where a frame lies that does not go to the wire, or that the capture needs in one piece.
    scratch: Box<[u8]>,
}

impl<N: Node, I: PacketIo> Driver<N, I> {
    /// A NIC on one wire. Time begins now.
    pub fn new(node: N, io: I, stack: impl Into<Stack>) -> Driver<N, I> {
        let port = DriverPort { number: Nic::WIRE, io, stack: stack.into() };
        Driver::of(node, port, Vec::new(), None, Some(Nic::LOOPBACK))
    }

    /// A Node on any number of wires: the first and further ports. What leaves by the port `loopback` comes back to it. Time begins now.
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

    /// The time as the Node is told it.
    pub fn now(&self) -> Instant {
        Instant::ZERO + self.start.elapsed()
    }

    /// The backend of the first port.
    pub fn io(&self) -> &I {
        &self.ports[0].io
    }

    /// The backend of the first port, to be changed.
    pub fn io_mut(&mut self) -> &mut I {
        &mut self.ports[0].io
    }

    /// The backend of a port, by its number.
    pub(crate) fn io_of(&self, number: usize) -> Option<&I> {
        self.ports.iter().find(|port| port.number == number).map(|port| &port.io)
    }

    /// A port is gone for good, and its backend with it: the others go on. Not the last one, of which nothing would be left; `false` then.
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

    /// From now on a frame that comes in, at whichever port, is shown by the descriptors of the backends; `false` when one is there already.
    pub fn prepare_sleep(&mut self) -> bool {
        let mut nothing = true;
        for port in &mut self.ports {
            nothing &= port.io.prepare_sleep();
        }
        nothing
    }

    /// The descriptors that are readable when a frame has come in.
    pub(crate) fn readiness(&self) -> io::Result<Arc<Readiness>> {
        match &self.readiness {
            None => readiness_of(&self.ports).map(Arc::new),
            Some(readiness) => Ok(Arc::clone(readiness)),
        }
    }

    /// Records all frames of both directions from now on, as a pcap file; an earlier capture ends.
    pub fn record(&mut self, to: Box<dyn Write + Send>) -> Result<(), DriverError> {
        self.stop_recording()?;
        let mut capture = PcapWriter::new(to, LinkType::Ethernet).map_err(DriverError::Capture)?;
        // A disk that is full is better told of now than in the middle of the work.
        capture.flush().map_err(DriverError::Capture)?;
        self.shown().capture = Some(capture);
        Ok(())
    }

    /// Shows all frames of both directions, and the Node behind each batch of them, from now on.
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

    /// Ends the capture; what was recorded is written out.
    pub fn stop_recording(&mut self) -> Result<(), DriverError> {
        match self.shown.as_mut().and_then(|shown| shown.capture.take()) {
            Some(mut capture) => capture.flush().map_err(DriverError::Capture),
            None => Ok(()),
        }
    }

    /// Writes out what was recorded so far, if anything is recorded.
    pub fn flush_recording(&mut self) -> Result<(), DriverError> {
        let Some(shown) = &mut self.shown else { return Ok(()) };
        let capture = shown.capture.as_mut().map_or(Ok(()), |capture| capture.flush());
        let watch = shown.watch.as_mut().map_or(Ok(()), |watch| watch.flush());
        capture.map_err(DriverError::Capture).and(watch.map_err(DriverError::Trace))
    }

    /// The link of a port is down, or up again. While it is down every frame that the Node has for it is taken and lost, as on a cable that is
    /// not plugged in; so the Node counts its retries.
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

    /// One turn: timers that are due, frames out, then a batch of frames in. Says whether there was anything to do.
    ///
    /// In this order a program that runs the loop itself sees what came in before anything is answered: its own answer leaves
    /// in the same turn as the acknowledgement, and before it.
    pub fn step(&mut self) -> Result<bool, DriverError> {
        self.refresh();
        self.step_after(None, &mut |_, _| ())
    }

    /// The same, for whoever just gave the Node something to do, and looked at the clock for it.
    ///
    /// A loop that finds nothing to do only looks whether a frame came in, in most of its rounds: the clock alone is half of what a whole
    /// round takes. What comes in is stamped when it comes; a timer may be a few rounds late, and so may a frame that the backend
    /// kept. Where there are several ports, such a round looks at the one by which the last frame came.
    ///
    /// `before` is called before each frame that comes in is looked at, and after it was there.
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

    /// Whether the last round did nothing that could begin a timer: it only looked for a frame.
    #[inline]
    pub(crate) fn was_in_vain(&self) -> bool {
        self.in_vain
    }

    /// What the Node's time is counted from.
    pub(crate) fn start(&self) -> std::time::Instant {
        self.start
    }

    /// Time has passed, or the Node was given something to do: the next round looks at the clock.
    pub(crate) fn refresh(&mut self) {
        self.short_rounds = 0;
    }

    /// How many rounds may go without a look at the clock, where a timer was due at `due`.
    fn idle_rounds(&self, now: Instant, due: Option<Instant>) -> u32 {
        let near = due.is_some_and(|at| at <= now + NEAR) || self.io_due_in().is_some_and(|d| d <= NEAR);
        if near { NEAR_ROUNDS } else { IDLE_ROUNDS }
    }

    /// When the next timer is due.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let stacks = self.ports.iter().filter_map(|port| port.stack.poll_timeout());
        self.node.poll_timeout().into_iter().chain(stacks).min()
    }

    /// After what time a backend has something to do by itself. One whose link is down is not asked to send: what it kept would be due for ever.
    fn io_due_in(&self) -> Option<Duration> {
        self.ports.iter().filter(|port| !self.is_cut(port.number)).filter_map(|port| port.io.due_in()).min()
    }

    /// Frames out, and a batch of frames in.
    fn round(&mut self, begin: Instant, before: &mut dyn FnMut(&mut N, Instant)) -> Result<bool, DriverError> {
        let looped = self.loop_back(begin)?;
        let sent = self.transmit(begin, BURST)?;
        let ports = if self.looks_at_all() { 0..=self.ports.len() - 1 } else { self.latest..=self.latest };
        let received = self.receive(ports, (!sent && !looped).then_some(begin), before)?;
        Ok(received || looped || sent)
    }

    /// Whether this round has a look at ports that stand by.
    #[inline]
    fn looks_at_all(&self) -> bool {
        self.busy_rounds.is_multiple_of(STANDBY_ROUNDS)
    }

    /// Sends what the Node has to send, as far as it goes without taking anything in; at most some hundred frames.
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

    /// After what time the next frame leaves that a fault holds back.
    pub(crate) fn leaves_in(&self) -> Option<Duration> {
        self.ports.iter().filter_map(|port| port.io.leaves_in()).min()
    }

    /// Runs until `done` or until `limit` has passed; says whether it is done. Sleeps while there is nothing to do.
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

    /// Sleeps until there may be something to do.
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
                    // Whatever it says, whoever calls this looks at everything anyway.
                    let _ = sleep_on(readiness.poll_fds(), nap);
                }
                Ok(())
            }
        }
    }

    /// How long an idle loop may sleep: not beyond the next timer.
    fn nap(&self) -> Duration {
        self.due_in().unwrap_or(NAP).min(NAP)
    }

    /// After what time there is something to do although no frame comes in.
    pub fn due_in(&self) -> Option<Duration> {
        let next = self.next_timeout().map(|at| at.saturating_since(self.now()));
        [next, self.io_due_in()].into_iter().flatten().min()
    }

    /// Whether frames wait for room on a wire. Not every wire tells when there is some.
    pub(crate) fn is_held_up(&self) -> bool {
        !self.drained
    }

    /// The MAC address of a neighbour on the link of the first port, if it is known; asks for it if that was not done yet.
    pub fn mac_of(&mut self, address: IpAddr) -> Result<Option<MacAddr>, NeighbourError> {
        self.mac_of_at(self.ports[0].number, address)
    }

    /// The same on the link of a port, by its number.
    pub(crate) fn mac_of_at(&mut self, number: usize, address: IpAddr) -> Result<Option<MacAddr>, NeighbourError> {
        let now = self.now();
        match self.ports.iter_mut().find(|port| port.number == number) {
            Some(port) => port.stack.mac_of(now, address),
            None => Err(NeighbourError::NoAnswer(address)),
        }
    }

    /// The stack of a port, by its number: what it was given to do leaves with the next round.
    pub fn stack(&mut self, number: usize) -> Option<&mut Stack> {
        self.refresh();
        self.ports.iter_mut().find(|port| port.number == number).map(|port| &mut port.stack)
    }

    /// Waits until the MAC address of a neighbour on the link is known, or given up.
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

/// What shows the frames of ports.
fn readiness_of<'a, I: PacketIo + 'a>(ports: impl IntoIterator<Item = &'a DriverPort<I>>) -> io::Result<Readiness> {
    let each = ports.into_iter().map(|port| Ok((port.number, port.io.readiness()?)));
    each.collect::<io::Result<Vec<_>>>().map(Readiness::of)
}

/// The error of a port.
fn failed(port: usize) -> impl FnOnce(io::Error) -> DriverError {
    move |error| DriverError::Io { port, error }
}

#[cfg(test)]
mod tests;
