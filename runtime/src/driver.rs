//! The loop around a Node: frames in, timers, frames out.

use std::io::{self, Write};
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use softnic_nic::{Nic, Node};
use softnic_pcaps::{LinkType, PcapWriter, Timestamp};
use softnic_wire::{Error, Instant, Layout, MacAddr, TxFrame};

use crate::io::{MAX_FRAME, PacketIo, Sent};
use crate::neighbours::{NeighbourError, Neighbours};

/// Frames taken in before anything is sent, so that one ACK answers many packets.
const BATCH: usize = 32;
/// Frames sent before anything is taken in again, so that a long message does not keep its own ACKs out.
const BURST: usize = 32;
/// The longest sleep of an idle loop: whoever waits for a condition looks at it at least this often.
const NAP: Duration = Duration::from_millis(1);

/// Why the loop cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The backend failed.
    #[error("packet IO failed: {0}")]
    Io(io::Error),
    /// The capture could not be written.
    #[error("the capture cannot be written: {0}")]
    Capture(io::Error),
    /// A neighbour's MAC address is not to be had.
    #[error(transparent)]
    Neighbour(#[from] NeighbourError),
}

/// A NIC, or what has its ports, on a wire, driven by whoever calls [`Driver::step`]; single-threaded.
///
/// RoCE packets go to the Node, everything else to the [`Neighbours`] beside it.
pub struct Driver<N, I> {
    /// The Node: its own calls (making queue pairs, posting work) go here.
    pub node: N,
    io: I,
    neighbours: Neighbours,
    start: std::time::Instant,
    /// The time of day at `start`.
    epoch: u64,
    capture: Option<PcapWriter<Box<dyn Write>>>,
    rx: Box<[u8]>,
    tx: Box<[u8]>,
    /// Bytes of a frame in `tx` for which the backend had no room.
    held: Option<usize>,
}

impl<N: Node, I: PacketIo> Driver<N, I> {
    /// Time begins now.
    pub fn new(node: N, io: I, neighbours: Neighbours) -> Driver<N, I> {
        let epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Driver {
            node,
            io,
            neighbours,
            start: std::time::Instant::now(),
            epoch: epoch.as_nanos() as u64,
            capture: None,
            rx: vec![0; MAX_FRAME + 1].into(),
            tx: vec![0; MAX_FRAME].into(),
            held: None,
        }
    }

    /// The time as the Node is told it.
    pub fn now(&self) -> Instant {
        Instant::ZERO + self.start.elapsed()
    }

    /// The backend.
    pub fn io(&self) -> &I {
        &self.io
    }

    /// The backend, to be changed.
    pub fn io_mut(&mut self) -> &mut I {
        &mut self.io
    }

    /// Records all frames of both directions from now on, as a pcap file; an earlier capture ends.
    pub fn record(&mut self, to: Box<dyn Write>) -> Result<(), DriverError> {
        self.stop_recording()?;
        self.capture = Some(PcapWriter::new(to, LinkType::Ethernet).map_err(DriverError::Capture)?);
        Ok(())
    }

    /// Ends the capture; what was recorded is written out.
    pub fn stop_recording(&mut self) -> Result<(), DriverError> {
        match self.capture.take() {
            Some(mut capture) => capture.flush().map_err(DriverError::Capture),
            None => Ok(()),
        }
    }

    /// One turn: a batch of frames in, timers that are due, frames out. Says whether there was anything to do.
    pub fn step(&mut self) -> Result<bool, DriverError> {
        self.turn(Duration::ZERO)
    }

    /// Runs until `done` or until `limit` has passed; says whether it is done. Sleeps while there is nothing to do.
    pub fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&mut N) -> bool) -> Result<bool, DriverError> {
        let end = self.now() + limit;
        let mut wait = Duration::ZERO;
        loop {
            let busy = self.turn(wait)?;
            if done(&mut self.node) {
                return Ok(true);
            }
            if self.now() >= end {
                return Ok(false);
            }
            wait = if busy { Duration::ZERO } else { self.nap() };
        }
    }

    /// How long an idle loop may sleep: not beyond the next timer.
    fn nap(&self) -> Duration {
        let timers = [self.node.poll_timeout(), self.neighbours.poll_timeout()];
        let next = timers.into_iter().flatten().min().map(|at| at.saturating_since(self.now()));
        next.unwrap_or(NAP).min(NAP)
    }

    /// The MAC address of a neighbour on the link, if it is known; asks for it if that was not done yet.
    pub fn mac_of(&mut self, address: IpAddr) -> Result<Option<MacAddr>, NeighbourError> {
        let now = self.now();
        self.neighbours.mac_of(now, address)
    }

    /// Waits until the MAC address of a neighbour on the link is known, or given up.
    pub fn resolve(&mut self, address: IpAddr) -> Result<MacAddr, DriverError> {
        loop {
            if let Some(mac) = self.mac_of(address)? {
                return Ok(mac);
            }
            let nap = self.nap();
            self.turn(nap)?;
        }
    }

    /// One turn that waits for the first frame as long as `wait` says.
    fn turn(&mut self, wait: Duration) -> Result<bool, DriverError> {
        let mut busy = false;
        for i in 0..BATCH {
            let wait = if i == 0 { wait } else { Duration::ZERO };
            let Some(len) = self.io.receive(&mut self.rx, wait).map_err(DriverError::Io)? else { break };
            busy = true;
            let now = self.now();
            write_frame(&mut self.capture, self.epoch, now, &self.rx[..len])?;
            let frame = &mut self.rx[..len];
            match Layout::locate(frame) {
                Err(Error::NotRoce(_)) => self.neighbours.handle_frame(now, 0, frame),
                _ => self.node.handle_frame(now, Nic::WIRE, frame),
            }
        }
        let now = self.now();
        for node in [&mut self.node as &mut dyn Node, &mut self.neighbours] {
            if node.poll_timeout().is_some_and(|at| at <= now) {
                node.handle_timeout(now);
            }
        }
        busy |= self.loop_back()?;
        Ok(self.transmit()? || busy)
    }

    /// Frames among the NIC's own queue pairs never reach the wire, but the capture shows them.
    fn loop_back(&mut self) -> Result<bool, DriverError> {
        for i in 0..BURST {
            let now = self.now();
            let mut tx = TxFrame::new(&mut self.rx);
            if !self.node.poll_transmit(now, Nic::LOOPBACK, &mut tx) {
                return Ok(i > 0);
            }
            let len = tx.len();
            write_frame(&mut self.capture, self.epoch, now, &self.rx[..len])?;
            self.node.handle_frame(now, Nic::LOOPBACK, &mut self.rx[..len]);
        }
        Ok(true)
    }

    fn transmit(&mut self) -> Result<bool, DriverError> {
        let mut busy = false;
        for _ in 0..BURST {
            let now = self.now();
            let len = match self.held.take() {
                Some(len) => len,
                None => {
                    let mut tx = TxFrame::new(&mut self.tx);
                    if !self.neighbours.poll_transmit(now, 0, &mut tx)
                        && !self.node.poll_transmit(now, Nic::WIRE, &mut tx)
                    {
                        break;
                    }
                    tx.len()
                }
            };
            match self.io.send(&self.tx[..len]).map_err(DriverError::Io)? {
                Sent::Full => {
                    self.held = Some(len);
                    break;
                }
                // A lost frame is in the capture: it left the Node, and the peer's silence has its explanation.
                Sent::Yes | Sent::Lost => write_frame(&mut self.capture, self.epoch, now, &self.tx[..len])?,
            }
            busy = true;
        }
        Ok(busy)
    }
}

fn write_frame(
    capture: &mut Option<PcapWriter<Box<dyn Write>>>,
    epoch: u64,
    now: Instant,
    frame: &[u8],
) -> Result<(), DriverError> {
    let Some(capture) = capture else { return Ok(()) };
    let time = Timestamp::from_nanos((epoch + now.as_nanos()).into());
    capture.write(time, frame, frame.len() as u32).map_err(DriverError::Capture)
}
