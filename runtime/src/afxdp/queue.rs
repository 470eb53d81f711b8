//! One queue of a device as a packet IO backend.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use softnic_nic::transports::prefetch;
use softnic_wire::TxFrame;

use super::attachment::Attachment;
use super::bind::bind;
use super::device::Device;
use super::error::AfXdpError;
use super::handed::{Handed, Shape};
use super::registered::{RINGS, register, ring_size};
use super::rings::{CompletionRing, FillRing, Piece, RxRing, TxRing};
use super::socket::{Kick, Socket};
use super::umem::{CHUNK, Chunk, Umem};
use super::{CopyMode, FEW_RX_CHUNKS, Options, Statistics, drivers, enough_for};
use crate::io::{MAX_FRAME, PacketIo, sleep_until_readable};

/// Bytes that the kernel leaves free before a frame in its chunk (headroom).
const HEADROOM: usize = 256;
/// Bytes that drivers keep free behind a frame (the kernel's `skb_shared_info`). A longer frame spans several buffers.
const TAILROOM: usize = 320;
/// Length of the Ethernet header, which an MTU does not include.
const ETHERNET: usize = 14;
/// Length of two VLAN tags.
const TAGS: usize = 8;
/// Interval between retries when the kernel had no room for a frame: no event reports new room.
const RETRY: Duration = Duration::from_micros(100);
/// Interval between checks whether the driver waits for chunks that it was given. A sleep ends when a frame arrives, and no frame arrives
/// while the driver waits.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// Number of bytes of a frame that are prefetched at once.
const FIRST_LINES: usize = 256;
/// Maximum number of consecutive kicks, so that a device that loses every frame cannot block the caller.
const MAX_KICKS: u32 = 64;

/// One queue of a device: receives frames for UDP port 4791, and sends any frames.
///
/// All queues of a device share its XDP program, which is detached when the last of them is dropped.
#[derive(Debug)]
pub struct AfXdp {
    device: Arc<Device>,
    queue: u32,
    fill: FillRing,
    rx: RxRing,
    tx: TxRing,
    completions: CompletionRing,
    umem: Umem,
    /// Chunks that are free to write frames into.
    free: Vec<Chunk>,
    socket: Socket,
    zero_copy: bool,
    /// Whether the mode allows copies, but zero-copy is preferred.
    may_copy: bool,
    rx_chunks: u32,
    /// Whether a frame may span two chunks.
    multi_buffer: bool,
    max_frame: usize,
    /// Number of chunks for the longest frame that [`AfXdp::put`] may be given.
    per_frame: usize,
    /// Whether the last frame to send found no room.
    starved: bool,
    /// Number of descriptors that the kernel had not started with at the last check.
    unsent: u32,
    /// Buffer in which a frame is assembled whose chunks are not adjacent.
    linear: Box<[u8]>,
    counted: Counted,
    /// The program on the device, if this process attached it. A queue that was handed over is fed by the program of another process.
    attachment: Option<Arc<Attachment>>,
}

/// The counters kept here; the kernel keeps the others.
#[derive(Debug, Default)]
struct Counted {
    moved: u64,
    copied: u64,
    too_long: u64,
    tx_lost: u64,
}

/// Whether frames of the device may be too long for one chunk.
pub(super) fn needs_two_chunks(device: &Device) -> bool {
    device.mtu + ETHERNET + TAGS > CHUNK - HEADROOM
}

impl AfXdp {
    /// Opens a queue, and makes the program redirect frames to its socket.
    pub(super) fn open_queue(
        device: &Arc<Device>,
        queue: u32,
        options: &Options,
        attachment: &Arc<Attachment>,
    ) -> Result<AfXdp, AfXdpError> {
        let (rx_size, tx_size) = (ring_size(options.rx_chunks), ring_size(options.tx_chunks));
        let least = if options.all_rx_chunks { rx_size } else { FEW_RX_CHUNKS };
        let (socket, umem, free, rx_size) = register(rx_size, least, tx_size)?;
        // In zero-copy, the frames that wait must leave chunks for the entries of the NIC's ring; see `enough_for`.
        let may_be_zero_copy = device.rx_places.is_some() && attachment.native() && options.mode != CopyMode::Copy;
        let waiting = if may_be_zero_copy { rx_size / 2 } else { rx_size };
        socket.make_rings(2 * rx_size, waiting, tx_size).map_err(AfXdpError::when(RINGS))?;
        let bind = |socket: &Socket| {
            // A program that runs behind the driver (generic mode) always copies, whatever the driver supports.
            let mode = if attachment.native() { options.mode } else { CopyMode::Copy };
            let multi_buffer = bind(socket, device, queue, mode, attachment.fragments())?;
            attachment.insert(queue, socket.as_fd())?;
            Ok((multi_buffer, attachment.fragments()))
        };
        let mut opened =
            AfXdp::over(device, queue, socket, (umem, free), [rx_size, waiting, tx_size], options.max_frame, bind)?;
        opened.attachment = Some(Arc::clone(attachment));
        opened.may_copy = options.mode == CopyMode::Auto;
        Ok(opened)
    }

    /// A queue that another process created and handed over. `device` is the device that its frames finally arrive from and leave by.
    pub(crate) fn handed(device: &Arc<Device>, queue: u32, handed: Handed) -> Result<AfXdp, AfXdpError> {
        let Handed { socket, memory, shape: Shape { rx_chunks, tx_chunks, multi_buffer, fragments } } = handed;
        let memory = Umem::in_file(memory.as_fd(), rx_chunks + tx_chunks);
        let memory = memory.map_err(AfXdpError::when("map the memory for frames"))?;
        let is_bound = |_: &Socket| Ok((multi_buffer, fragments));
        AfXdp::over(device, queue, Socket::from(socket), memory, [rx_chunks, rx_chunks, tx_chunks], MAX_FRAME, is_bound)
    }

    /// Creates a queue over a socket with `rx_chunks` chunks for incoming frames, of which the RX ring can hold `waiting`, and `tx_chunks`
    /// chunks for frames to send. `bind` binds the socket if it is not bound yet, and returns whether frames may span two chunks, and
    /// whether frames may arrive in several buffers. The rings are mapped first, because older kernels refuse to map them later.
    fn over(
        device: &Arc<Device>,
        queue: u32,
        socket: Socket,
        (umem, mut free): (Umem, Vec<Chunk>),
        [rx_chunks, waiting, tx_chunks]: [u32; 3],
        max_frame: usize,
        bind: impl FnOnce(&Socket) -> Result<(bool, bool), AfXdpError>,
    ) -> Result<AfXdp, AfXdpError> {
        let rings = AfXdpError::when(RINGS);
        let offsets = socket.ring_offsets().map_err(&rings)?;
        let mut fill = FillRing::new(socket.as_fd(), &offsets, 2 * rx_chunks).map_err(&rings)?;
        let rx = RxRing::new(socket.as_fd(), &offsets, waiting).map_err(&rings)?;
        let tx = TxRing::new(socket.as_fd(), &offsets, tx_chunks).map_err(&rings)?;
        let completions = CompletionRing::new(socket.as_fd(), &offsets, tx_chunks).map_err(&rings)?;
        // In address order, so that the two chunks of a frame are mostly adjacent.
        free.drain(..rx_chunks as usize).for_each(|chunk| fill.push(chunk));
        let is_waited_for = fill.publish();
        let (multi_buffer, fragments) = bind(&socket)?;
        if is_waited_for {
            socket.wake_receiver();
        }
        let zero_copy = socket.zero_copy().map_err(AfXdpError::when("ask for the mode of an AF_XDP socket"))?;
        let longest = max_frame.max(MAX_FRAME);
        let room = match (multi_buffer, fragments) {
            (true, _) => MAX_FRAME,
            // The program accepts frames in several buffers, but the socket gets only the first buffer of such a frame.
            (false, true) => CHUNK - HEADROOM - TAILROOM,
            (false, false) => CHUNK - HEADROOM,
        };
        Ok(AfXdp {
            device: Arc::clone(device),
            queue,
            fill,
            rx,
            tx,
            completions,
            umem,
            free,
            socket,
            zero_copy,
            may_copy: false,
            rx_chunks,
            multi_buffer,
            max_frame: room.min(device.mtu + ETHERNET),
            per_frame: longest.min(device.mtu + ETHERNET + TAGS).div_ceil(CHUNK),
            starved: false,
            unsent: 0,
            linear: vec![0; longest].into(),
            counted: Counted::default(),
            attachment: None,
        })
    }

    /// The device of the queue.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The index of this queue among the device's queues.
    pub fn queue(&self) -> u32 {
        self.queue
    }

    /// Whether the device itself reads and writes the frames (zero-copy); otherwise the kernel copies them.
    pub fn zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// Advice on how to get zero-copy, if the mode does not ask for copies and the driver is known to support zero-copy.
    pub fn zero_copy_advice(&self) -> Option<String> {
        if self.may_copy && !self.zero_copy { drivers::advice(&self.device) } else { None }
    }

    /// A warning if there are too few chunks for incoming frames: the NIC's ring may hold all of them, and then frames are lost.
    pub fn chunks_advice(&self) -> Option<String> {
        let places = self.device.rx_places.filter(|_| self.zero_copy)?;
        let enough = enough_for(places);
        (self.rx_chunks < enough).then(|| {
            format!("{} chunks are few: its ring has {places} places, chunks={enough} is enough", self.rx_chunks)
        })
    }

    /// Number of chunks for incoming frames.
    pub fn rx_chunks(&self) -> u32 {
        self.rx_chunks
    }

    /// Whether the XDP program runs in the driver (native mode); otherwise it runs behind the driver.
    pub fn native(&self) -> bool {
        self.attachment.as_ref().is_none_or(|attachment| attachment.native())
    }

    /// Whether a frame may span two chunks, as path MTU 4096 requires.
    pub fn multi_buffer(&self) -> bool {
        self.multi_buffer
    }

    /// Counters since the socket was opened.
    pub fn statistics(&self) -> io::Result<Statistics> {
        let kernel = self.socket.statistics()?;
        Ok(Statistics {
            rx_dropped: kernel.rx_dropped,
            rx_ring_full: kernel.rx_ring_full,
            rx_fill_ring_empty: kernel.rx_fill_ring_empty_descs,
            rx_too_long: self.counted.too_long,
            rx_moved: self.counted.moved,
            rx_copied: self.counted.copied,
            tx_lost: self.counted.tx_lost,
            tx_invalid: kernel.tx_invalid_descs,
        })
    }

    /// Makes the kernel send the frames in the TX ring.
    fn kick(&mut self) -> io::Result<()> {
        for _ in 0..MAX_KICKS {
            let before = self.tx.pending();
            if before == 0 {
                break;
            }
            let kick = self.socket.kick(self.zero_copy)?;
            match kick {
                // The device continues by itself.
                Kick::Done if self.zero_copy => break,
                Kick::Done | Kick::Again if self.tx.pending() == before => break,
                Kick::Done | Kick::Again => {}
                Kick::Lost => self.counted.tx_lost += 1,
                Kick::Later => break,
            }
        }
        Ok(())
    }

    /// Passes a frame in one chunk to `take`.
    #[inline]
    fn take_one(&mut self, mut piece: Piece, take: &mut dyn FnMut(&mut [u8])) {
        let frame = &mut self.umem.bytes(&mut piece.chunk)[piece.offset..piece.offset + piece.len];
        // Another core wrote these cache lines. Without the prefetch, the misses on headers and payload would be serial.
        prefetch(&frame[..frame.len().min(FIRST_LINES)]);
        take(frame);
        self.fill.push(piece.chunk);
    }

    /// Passes a frame in two chunks to `take`, as one slice. If the chunks are adjacent, only the second part, which is the shorter one, is
    /// moved down to follow the first.
    fn take_two(&mut self, mut a: Piece, mut b: Piece, take: &mut dyn FnMut(&mut [u8])) {
        if a.chunk.is_before(&b.chunk) {
            let bytes = self.umem.bytes_of_both(&mut a.chunk, &mut b.chunk);
            let from = CHUNK + b.offset;
            bytes.copy_within(from..from + b.len, a.offset + a.len);
            take(&mut bytes[a.offset..a.offset + a.len + b.len]);
            self.counted.moved += 1;
        } else {
            let (head, tail) = self.linear[..a.len + b.len].split_at_mut(a.len);
            head.copy_from_slice(&self.umem.bytes(&mut a.chunk)[a.offset..a.offset + a.len]);
            tail.copy_from_slice(&self.umem.bytes(&mut b.chunk)[b.offset..b.offset + b.len]);
            take(&mut self.linear[..a.len + b.len]);
            self.counted.copied += 1;
        }
        self.fill.push(a.chunk);
        self.fill.push(b.chunk);
    }

    /// Passes a frame in more than two chunks to `take`, as one slice, and returns true. A frame longer than the maximum is dropped.
    fn take_many(&mut self, first: Piece, pieces: u32, take: &mut dyn FnMut(&mut [u8])) -> bool {
        let mut len = 0;
        let mut next = Some(first);
        for left in (0..pieces).rev() {
            let Some(mut piece) = next else { break };
            if let Some(to) = self.linear.get_mut(len..len + piece.len) {
                to.copy_from_slice(&self.umem.bytes(&mut piece.chunk)[piece.offset..piece.offset + piece.len]);
            }
            len += piece.len;
            self.fill.push(piece.chunk);
            next = if left > 0 { self.rx.pop() } else { None };
        }
        if len > self.linear.len() {
            self.counted.too_long += 1;
            return false;
        }
        take(&mut self.linear[..len]);
        self.counted.copied += 1;
        true
    }

    /// Number of frames of maximum length that there is room to send, at most `limit`. For a caller whose frames are each in one piece: it
    /// [puts](AfXdp::put) and [publishes](AfXdp::publish) them, and sends them with [`AfXdp::flush`].
    pub fn room(&mut self, limit: usize) -> usize {
        if self.free.len() < limit * self.per_frame {
            self.completions.drain(&mut self.free);
        }
        // The ring has as many entries as there are chunks.
        let room = limit.min(self.free.len() / self.per_frame);
        self.starved = room == 0 && limit > 0;
        room
    }

    /// Copies a frame into chunks, to be published later; returns whether there was room for the frame.
    pub fn put(&mut self, frame: &[u8]) -> bool {
        let chunks = frame.len().div_ceil(CHUNK);
        if frame.is_empty() || self.free.len() < chunks || !self.tx.room(chunks as u32) {
            return false;
        }
        for (n, part) in frame.chunks(CHUNK).enumerate() {
            let Some(mut chunk) = self.free.pop() else { return false };
            self.umem.bytes(&mut chunk)[..part.len()].copy_from_slice(part);
            self.tx.push(chunk, part.len(), n + 1 < chunks);
        }
        true
    }

    /// Publishes the frames that were put into the TX ring.
    pub fn publish(&mut self) {
        self.tx.publish();
    }

    /// Makes the kernel send the published frames, and those left over from earlier calls.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.tx.pending() > 0 && self.tx.needs_wakeup() {
            self.kick()?;
        }
        Ok(())
    }

    /// Whether frames wait that the system had no room for. No event reports new room.
    pub(crate) fn is_stuck(&mut self) -> bool {
        self.starved || self.tx.pending() > 0
    }
}

impl PacketIo for AfXdp {
    fn receive(&mut self, limit: usize, take: &mut dyn FnMut(&mut [u8])) -> io::Result<usize> {
        let (mut seen, mut taken) = (0, 0);
        while seen < limit {
            let Some(pieces) = self.rx.next_frame() else { break };
            seen += 1;
            let Some(first) = self.rx.pop() else { break };
            match pieces {
                1 => self.take_one(first, take),
                2 => {
                    let Some(second) = self.rx.pop() else { break };
                    if first.len + second.len > self.linear.len() {
                        [first, second].into_iter().for_each(|piece| self.fill.push(piece.chunk));
                        self.counted.too_long += 1;
                        continue;
                    }
                    self.take_two(first, second, take);
                }
                _ if !self.take_many(first, pieces, take) => continue,
                _ => {}
            }
            taken += 1;
        }
        if seen > 0 {
            self.rx.give_back();
            if self.fill.publish() {
                self.socket.wake_receiver();
            }
        } else if self.fill.is_waited_for() {
            // Zero-copy only: the driver found no chunk just before this process added some, and does not check again by itself.
            self.socket.wake_receiver();
        }
        Ok(taken)
    }

    fn transmit(&mut self, limit: usize, next: &mut dyn FnMut(&mut TxFrame<'_>) -> bool) -> io::Result<usize> {
        self.completions.drain(&mut self.free);
        self.starved = false;
        let per_frame = if self.max_frame > CHUNK { 2 } else { 1 };
        let mut sent = 0;
        while sent < limit {
            if self.free.len() < per_frame || !self.tx.room(per_frame as u32) {
                self.starved = true;
                break;
            }
            let Some(mut first) = self.free.pop() else { break };
            let mut second = if per_frame == 2 { self.free.pop() } else { None };
            let mut frame = match &mut second {
                Some(second) => {
                    TxFrame::new_split(self.umem.bytes(&mut first), &mut self.umem.bytes(second)[..MAX_FRAME - CHUNK])
                }
                None => TxFrame::new(self.umem.bytes(&mut first)),
            };
            let written = next(&mut frame);
            let len = if written { frame.len() } else { 0 };
            let tail = len.saturating_sub(CHUNK);
            // A chunk with no data must not be sent: the kernel never returns such a chunk.
            match second {
                _ if len == 0 => self.free.extend([Some(first), second].into_iter().flatten()),
                Some(second) if tail > 0 => {
                    self.tx.push(first, CHUNK, true);
                    self.tx.push(second, tail, false);
                }
                unused => {
                    self.tx.push(first, len, false);
                    self.free.extend(unused);
                }
            }
            if !written {
                break;
            }
            sent += 1;
        }
        if sent > 0 {
            self.tx.publish();
        }
        // Frames left over from earlier calls are tried again, too.
        if self.tx.pending() > 0 && self.tx.needs_wakeup() {
            self.kick()?;
        }
        self.unsent = self.tx.pending();
        Ok(sent)
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let stuck = self.starved || self.tx.pending() > 0;
        let timeout = if stuck { timeout.min(RETRY) } else { timeout };
        sleep_until_readable(&self.socket, timeout)
    }

    fn readiness(&self) -> io::Result<Vec<OwnedFd>> {
        Ok(vec![self.socket.as_fd().try_clone_to_owned()?])
    }

    fn descriptors(&self) -> Vec<RawFd> {
        let mut all = self.attachment.as_ref().map_or_else(Vec::new, |attachment| attachment.descriptors());
        all.push(self.socket.as_fd().as_raw_fd());
        all
    }

    fn prepare_sleep(&mut self) -> bool {
        self.fill.nap_begins();
        true
    }

    /// Frames that the kernel had no room for are retried after this time, because no event reports new room.
    fn due_in(&self) -> Option<Duration> {
        match self.starved || self.unsent > 0 {
            true => Some(RETRY),
            false => (self.zero_copy && self.fill.may_be_waited_for()).then_some(LOOK_AGAIN),
        }
    }

    fn unsent(&self) -> usize {
        self.tx.frames_pending()
    }

    /// The sum of: frames for which the kernel had no chunk or no free ring entry, frames that the device refused, and received frames
    /// longer than the maximum.
    fn lost(&self) -> u64 {
        self.statistics().map_or(0, |s| s.rx_dropped + s.rx_ring_full + s.rx_too_long + s.tx_lost + s.tx_invalid)
    }

    fn max_frame(&self) -> usize {
        self.max_frame
    }
}
