//! A port of a switch and its interface, which may go and come back.

use std::io;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};

use softnic_pcaps::Direction;
use softnic_switch::Switch;
use softnic_wire::{Instant, Node, TxFrame};

use super::recorder::Recorder;
use super::report::PortReport;
use super::resolver::Resolver;
use super::serialiser::Serialiser;
use super::{PortOptions, SwitchError};
use crate::afxdp::{AfXdp, AfXdpError};
use crate::io::{MAX_FRAME, PacketIo};
use crate::port::{Dropped, HEADERS, Port, PortError, checksum, exceeds, exceeds_as};
use crate::threads::spawn_own;

/// Frames taken in from each queue before other ports have their turn.
const BATCH: usize = 32;
/// Frames sent before anything is taken in again: what a ring holds.
const BURST: usize = 1024;
/// Bytes of a piece of memory of AF_XDP.
const CHUNK: usize = 4096;

/// What is on the way of a frame besides its port.
pub(super) struct Way<'a> {
    pub(super) now: Instant,
    pub(super) switch: &'a mut Switch,
    pub(super) resolver: &'a mut Resolver,
    pub(super) recorder: &'a mut Option<Recorder>,
}

impl Way<'_> {
    fn record(&mut self, port: usize, pieces: [&[u8]; 2], direction: Direction) {
        if let Some(recorder) = self.recorder {
            recorder.write(self.now, port, pieces, direction);
        }
    }
}

/// A port.
pub(super) struct Seat {
    number: usize,
    interface: String,
    port: Option<Port>,
    /// Where the interface is being opened again: that may take its time, and others have frames.
    opening: Option<Receiver<Result<Port, PortError>>>,
    /// Why it could not be opened, as was said last.
    refused: String,
    /// The MTU that memory and rings were made for; a longer one later counts as this.
    most: usize,
    serialiser: Option<Serialiser>,
    /// Kept here; the switch and the kernel keep the rest.
    counted: PortReport,
    /// What the kernel dropped at sockets that are gone.
    before: Dropped,
    /// Where a frame lies that does not fit the memory of one or two pieces.
    scratch: Box<[u8]>,
}

impl Seat {
    /// Opens the interface.
    pub(super) fn open(number: usize, options: &PortOptions) -> Result<Seat, SwitchError> {
        let port = Port::open(&options.interface)?;
        let most = port.mtu;
        Ok(Seat {
            number,
            interface: options.interface.clone(),
            port: Some(port),
            opening: None,
            refused: String::new(),
            most,
            serialiser: options.rate.map(Serialiser::new),
            counted: PortReport::default(),
            before: Dropped::default(),
            scratch: vec![0; most + HEADERS].into(),
        })
    }

    /// The interface, where it is there.
    pub(super) fn port(&self) -> Option<&Port> {
        self.port.as_ref()
    }

    /// Nothing waits before the port: an idle time is not made up for.
    #[inline]
    pub(super) fn rest(&mut self, now: Instant, switch: &Switch) {
        if let Some(serialiser) = &mut self.serialiser
            && switch.queued(self.number) == 0
        {
            serialiser.idle(now);
        }
    }

    /// Takes in a batch; how many.
    pub(super) fn receive(&mut self, way: &mut Way<'_>) -> io::Result<usize> {
        let (number, counted) = (self.number, &mut self.counted);
        let Some(port) = &mut self.port else { return Ok(0) };
        let (mtu, mut all) = (port.mtu.min(self.most), 0);
        for queue in &mut port.queues {
            all += queue.receive(BATCH, &mut |frame| {
                counted.rx += 1;
                counted.rx_bytes += frame.len() as u64;
                counted.checksums_completed += u64::from(checksum::complete(frame));
                way.record(number, [frame, &[]], Direction::Inbound);
                if exceeds(frame, mtu) {
                    counted.unsegmented += 1;
                } else if way.resolver.hear(way.now, frame) {
                    way.switch.take_own(number, frame);
                } else {
                    way.switch.handle_frame(way.now, number, frame);
                }
            })?;
        }
        Ok(all)
    }

    /// Sends what the switch has for this port, as far as rate and ring let it; how many frames.
    pub(super) fn transmit(&mut self, way: &mut Way<'_>) -> io::Result<usize> {
        let Seat { number, port, most, serialiser, counted, scratch, .. } = self;
        let waiting = way.switch.queued(*number) > 0;
        let Some(port) = port else {
            return Ok(if waiting { lose(*number, way, counted, scratch) } else { 0 });
        };
        let mtu = port.mtu.min(*most);
        // All leave by one queue, so that they keep their order.
        let Some(out) = port.queues.first_mut() else { return Ok(0) };
        if !waiting {
            if out.is_stuck() {
                out.flush()?;
            }
            return Ok(0);
        }
        let mut next = |tx: &mut TxFrame<'_>| loop {
            if serialiser.as_ref().is_some_and(|s| !s.is_free(way.now)) {
                return false;
            }
            if !way.switch.poll_transmit(way.now, *number, tx) {
                return false;
            }
            let (head, tail) = tx.segments();
            let kind = head.get(12..14).map_or(0, |kind| u16::from_be_bytes([kind[0], kind[1]]));
            if exceeds_as(kind, tx.len(), mtu) {
                counted.too_long += 1;
                continue;
            }
            way.record(*number, [head, tail], Direction::Outbound);
            if let Some(serialiser) = serialiser {
                serialiser.send(tx.len());
            }
            counted.tx += 1;
            counted.tx_bytes += tx.len() as u64;
            return true;
        };
        match fits_pieces(out, mtu) {
            true => out.transmit(BURST, &mut next),
            false => transmit_whole(out, scratch, &mut next),
        }
    }

    /// When a frame may leave that waits for the rate; `None` when none does.
    pub(super) fn due(&self, switch: &Switch) -> Option<Instant> {
        let serialiser = self.serialiser.as_ref().filter(|_| self.port.is_some())?;
        (switch.queued(self.number) > 0).then(|| serialiser.free_at())
    }

    /// Whether something waits to be sent that the system had no room for; no event says when it has.
    pub(super) fn is_stuck(&mut self) -> bool {
        self.port.as_mut().and_then(|port| port.queues.first_mut()).is_some_and(|queue| queue.is_stuck())
    }

    /// Looks at the interface: one that is gone makes the port silent, one that is back is used again. What a person is
    /// told of that.
    pub(super) fn look(&mut self) -> Option<String> {
        match &mut self.port {
            Some(port) => port.look().err().map(|error| self.close(&error.to_string())),
            None => self.open_again(),
        }
    }

    /// Opens the interface on a thread of its own; what a person is told of that.
    fn open_again(&mut self) -> Option<String> {
        let Some(opening) = &self.opening else {
            let (sender, opening) = sync_channel(1);
            let interface = self.interface.clone();
            // Where there is no thread left, the next look tries again.
            spawn_own("softnic-port", move || {
                // Nobody waits for it any more where the switch has ended.
                let _ = sender.send(Port::open(&interface));
            })
            .ok()?;
            self.opening = Some(opening);
            return None;
        };
        let opened = match opening.try_recv() {
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => Err(String::new()),
            // That it is not there, or not up, is no news.
            Ok(Err(PortError::Interface(AfXdpError::NoInterface(_)) | PortError::Down(_))) => Err(String::new()),
            Ok(result) => result.map_err(|error| error.to_string()),
        };
        self.opening = None;
        match opened {
            Ok(port) => {
                self.port = Some(port);
                self.refused = String::new();
                Some(format!("the interface {} is back", self.interface))
            }
            Err(why) if why == self.refused => None,
            Err(why) => {
                self.refused.clone_from(&why);
                (!why.is_empty()).then(|| format!("{why}; the port of {} is still silent", self.interface))
            }
        }
    }

    /// Moving frames failed.
    pub(super) fn fail(&mut self, error: &io::Error) -> String {
        match self.port.as_mut().map(Port::look) {
            Some(Err(gone @ PortError::Gone(_))) => self.close(&gone.to_string()),
            _ => self.close(&format!("packet IO at {} failed: {error}", self.interface)),
        }
    }

    fn close(&mut self, why: &str) -> String {
        if let Some(port) = self.port.take() {
            self.before = sum(self.before, port.dropped());
        }
        format!("{why}; its port is silent until it is back")
    }

    /// What it did.
    pub(super) fn report(&self, switch: &Switch) -> PortReport {
        let stats = switch.port_stats(self.number);
        let kernel = self.port.as_ref().map_or(self.before, |port| sum(self.before, port.dropped()));
        PortReport {
            interface: self.interface.clone(),
            up: self.port.is_some(),
            dropped: stats.dropped,
            marked: stats.marked,
            queue: switch.queued(self.number),
            max_queue: stats.max_queue,
            too_long: self.counted.too_long + stats.too_long,
            unsegmented: self.counted.unsegmented + kernel.too_long,
            rx_missed: kernel.missed,
            tx_refused: kernel.refused,
            ..self.counted.clone()
        }
    }
}

/// Whether the longest frame of the interface fits what [`PacketIo::transmit`] has room for.
fn fits_pieces(out: &AfXdp, mtu: usize) -> bool {
    let longest = mtu + HEADERS;
    longest <= CHUNK || out.multi_buffer() && out.max_frame() > CHUNK && longest <= MAX_FRAME
}

/// [`PacketIo::transmit`] for longer frames: these are made in one piece first.
fn transmit_whole(
    out: &mut AfXdp,
    scratch: &mut [u8],
    next: &mut dyn FnMut(&mut TxFrame<'_>) -> bool,
) -> io::Result<usize> {
    let mut sent = 0;
    for _ in 0..out.room(BURST) {
        let mut tx = TxFrame::new(scratch);
        if !next(&mut tx) {
            break;
        }
        let len = tx.len();
        out.put(&scratch[..len]);
        sent += 1;
    }
    if sent > 0 {
        out.publish();
    }
    out.flush().map(|()| sent)
}

/// Takes what waits before a port without an interface, so that others have its memory.
fn lose(number: usize, way: &mut Way<'_>, counted: &mut PortReport, scratch: &mut [u8]) -> usize {
    let mut lost = 0;
    while way.switch.poll_transmit(way.now, number, &mut TxFrame::new(scratch)) {
        lost += 1;
    }
    counted.silent += lost as u64;
    lost
}

fn sum(a: Dropped, b: Dropped) -> Dropped {
    Dropped { missed: a.missed + b.missed, too_long: a.too_long + b.too_long, refused: a.refused + b.refused }
}
