//! TCP streams over smoltcp: listeners, connections, and their limits of memory and time.
//!
//! smoltcp receives and emits IP packets. The Ethernet header is added by the owner of the neighbour table.

mod care;
mod error;
mod packets;
mod segment;
mod socket;
mod watch;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, State};
use smoltcp::wire::{HardwareAddress, IpCidr, IpEndpoint};
use softnic_wire::Instant;

pub use error::StreamError;
use packets::Packets;
pub(crate) use segment::Segment;
use segment::is_host;
use socket::{Cause, is_open, new_socket, ours, smol};
use watch::Watch;

/// The largest number of ports that are listened to.
const MAX_LISTENERS: usize = 8;
/// The largest number of connections past the handshake, in any state, including connections that the program opens.
const MAX_STREAMS: usize = 64;
/// The largest number of half-open connections that peers have begun. A further one displaces the oldest, so a peer that begins many and
/// finishes none does not keep other peers out.
const MAX_HALF_OPEN: usize = 32;
/// Size of the buffer in each direction of a connection. With one more byte, windows would be scaled, and rounding would take back part of a
/// window that was granted.
const BUFFER: usize = u16::MAX as usize;
/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a peer may be silent before its connection ends.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long a peer may be silent before a keep-alive is sent (RFC 9293, 3.8.4).
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// How long a closed stream may take to deliver the data written to it.
const LINGER: Duration = Duration::from_secs(60);
/// When to poll smoltcp again if it asked to be polled now and had nothing to do.
const AGAIN: Duration = Duration::from_millis(1);
/// The first local port of connections that the program opens (RFC 6335, 6).
const FIRST_DYNAMIC_PORT: u16 = 0xc000;

/// Identifies a stream; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(u64);

/// The state of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamState {
    /// The connection is being opened.
    Connecting,
    /// Data can flow in at least one direction.
    Open,
    /// Both ends have closed the stream; received data may still be read.
    Closed,
    /// The stream has ended with an error.
    Failed(StreamError),
}

/// The owner of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// No owner: a peer began the handshake at this time.
    HalfOpen(Instant),
    /// No owner yet: the connection waits at a listener.
    Queued,
    Program,
    /// No owner any more: the stream ends by itself, at this time at the latest.
    Released(Instant),
}

#[derive(Debug)]
struct Stream {
    socket: SocketHandle,
    owner: Owner,
    /// The state of the socket at the last check.
    state: State,
    error: Option<StreamError>,
    /// Observations of the connection, from its first segment on.
    watch: Option<Watch>,
    /// Bytes that arrived before the end and were not read in time. smoltcp would discard them.
    rest: VecDeque<u8>,
}

#[derive(Debug)]
struct Listener {
    port: u16,
    backlog: usize,
    /// Established connections that wait for [`Streams::accept`].
    ready: VecDeque<StreamId>,
}

/// The TCP streams of a port.
pub struct Streams {
    interface: Interface,
    sockets: SocketSet<'static>,
    packets: Packets,
    listeners: Vec<Listener>,
    streams: BTreeMap<StreamId, Stream>,
    last_id: u64,
    next_port: u16,
    /// When there is something to do; zero if that is now.
    next: Option<Instant>,
}

impl Streams {
    /// No listeners and no connections. IP packets are at most `mtu` bytes long. `seed` is the seed of sequence numbers and ports.
    pub fn new(mtu: usize, seed: u64) -> Streams {
        let mut packets = Packets::new(mtu);
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed;
        Streams {
            interface: Interface::new(config, &mut packets, smoltcp::time::Instant::ZERO),
            sockets: SocketSet::new(Vec::new()),
            packets,
            listeners: Vec::new(),
            streams: BTreeMap::new(),
            last_id: 0,
            next_port: FIRST_DYNAMIC_PORT | (seed >> 32) as u16,
            next: None,
        }
    }

    /// Listens to a port at every address. At most `backlog` connections wait for [`Streams::accept`]. Beyond that, peers get no answer and try
    /// again.
    pub fn listen(&mut self, port: u16, backlog: usize) -> Result<(), StreamError> {
        if port == 0 {
            return Err(StreamError::NoEndpoint);
        }
        if self.listeners.iter().any(|listener| listener.port == port) {
            return Err(StreamError::PortInUse(port));
        }
        if self.listeners.len() >= MAX_LISTENERS {
            return Err(StreamError::TooManyListeners);
        }
        self.listeners.push(Listener { port, backlog: backlog.max(1), ready: VecDeque::new() });
        Ok(())
    }

    /// Stops listening to a port. Connections that wait there are reset.
    pub fn unlisten(&mut self, port: u16) {
        let Some(at) = self.listeners.iter().position(|listener| listener.port == port) else { return };
        for id in self.listeners.remove(at).ready {
            self.abort(id);
        }
    }

    /// The oldest connection that waits at a port, with the peer's address.
    pub fn accept(&mut self, port: u16) -> Option<(StreamId, SocketAddr)> {
        let listener = self.listeners.iter_mut().find(|listener| listener.port == port)?;
        let id = listener.ready.pop_front()?;
        let stream = self.streams.get_mut(&id)?;
        stream.owner = Owner::Program;
        let peer = self.sockets.get::<Socket<'_>>(stream.socket).remote_endpoint()?;
        Some((id, SocketAddr::new(peer.addr.into(), peer.port)))
    }

    /// Opens a connection from a local address.
    pub(crate) fn connect(&mut self, source: IpAddr, peer: SocketAddr) -> Result<StreamId, StreamError> {
        if peer.port() == 0 || !is_host(peer.ip()) {
            return Err(StreamError::NoEndpoint);
        }
        self.make_room()?;
        let local = IpEndpoint::new(source.into(), self.free_port());
        let mut socket = new_socket();
        let begun = socket.connect(self.interface.context(), IpEndpoint::from(peer), local);
        begun.map_err(|_| StreamError::NoEndpoint)?;
        Ok(self.add(socket, Owner::Program))
    }

    /// A port that no local connection uses.
    fn free_port(&mut self) -> u16 {
        loop {
            let port = self.next_port;
            self.next_port = FIRST_DYNAMIC_PORT | port.wrapping_add(1);
            let taken = |stream: &Stream| {
                let socket = self.sockets.get::<Socket<'_>>(stream.socket);
                socket.local_endpoint().is_some_and(|own| own.port == port)
            };
            // There are more ports than connections.
            if !self.streams.values().any(taken) && !self.listeners.iter().any(|listener| listener.port == port) {
                return port;
            }
        }
    }

    fn add(&mut self, socket: Socket<'static>, owner: Owner) -> StreamId {
        self.last_id += 1;
        let (id, state) = (StreamId(self.last_id), socket.state());
        let socket = self.sockets.add(socket);
        self.streams.insert(id, Stream { socket, owner, state, error: None, watch: None, rest: VecDeque::new() });
        self.touch();
        id
    }

    fn remove(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.remove(&id) {
            self.sockets.remove(stream.socket);
        }
        self.listeners.iter_mut().for_each(|listener| listener.ready.retain(|&ready| ready != id));
    }

    /// Makes room for another connection, if need be by dropping one that was released.
    fn make_room(&mut self) -> Result<(), StreamError> {
        let full = self.streams.values().filter(|s| !matches!(s.owner, Owner::HalfOpen(_))).count() >= MAX_STREAMS;
        if full {
            let ending = |(&id, stream): (&StreamId, &Stream)| match stream.owner {
                Owner::Released(until) => Some((until, id)),
                _ => None,
            };
            let (_, id) = self.streams.iter().filter_map(ending).min().ok_or(StreamError::TooManyStreams)?;
            self.remove(id);
        }
        Ok(())
    }

    /// Reads received bytes. Returns their number; 0 at the end of the stream; `None` if there are none yet.
    pub fn read(&mut self, id: StreamId, room: &mut [u8]) -> Result<Option<usize>, StreamError> {
        self.touch();
        let (stream, socket) = self.stream(id)?;
        if socket.can_recv() {
            return Ok(Some(socket.recv_slice(room).unwrap_or(0)));
        }
        if !stream.rest.is_empty() {
            let n = room.len().min(stream.rest.len());
            stream.rest.drain(..n).zip(room).for_each(|(byte, place)| *place = byte);
            return Ok(Some(n));
        }
        match (stream.error, socket.state()) {
            (Some(error), _) => Err(error),
            (None, State::SynSent | State::SynReceived) => Ok(None),
            (None, _) => Ok(if socket.may_recv() { None } else { Some(0) }),
        }
    }

    /// Writes as many bytes as there is room for. Returns their number; 0 before the connection is open.
    pub fn write(&mut self, id: StreamId, bytes: &[u8]) -> Result<usize, StreamError> {
        self.touch();
        let (stream, socket) = self.stream(id)?;
        match (stream.error, socket.state()) {
            (Some(error), _) => Err(error),
            (None, State::SynSent | State::SynReceived) => Ok(0),
            (None, _) => socket.send_slice(bytes).map_err(|_| StreamError::ShutDown),
        }
    }

    /// The number of bytes written and not acknowledged by the peer.
    pub fn unacknowledged(&mut self, id: StreamId) -> Result<usize, StreamError> {
        Ok(self.stream(id)?.1.send_queue())
    }

    /// Closes the sending direction: the peer reads the end of the stream after the data written so far.
    pub fn shutdown(&mut self, id: StreamId) -> Result<(), StreamError> {
        self.touch();
        self.stream(id)?.1.close();
        Ok(())
    }

    /// Releases a stream: data written is still delivered, data received is not.
    pub fn close(&mut self, now: Instant, id: StreamId) {
        self.touch();
        let Ok((stream, socket)) = self.stream(id) else { return };
        // Unread data is lost, and the peer must learn of that (RFC 2525, 2.17).
        if socket.recv_queue() > 0 {
            socket.abort();
        } else {
            socket.close();
        }
        stream.owner = Owner::Released(now + LINGER);
    }

    /// Ends a stream at once, with a reset.
    pub fn abort(&mut self, id: StreamId) {
        self.touch();
        let Some(stream) = self.streams.get_mut(&id) else { return };
        self.sockets.get_mut::<Socket<'_>>(stream.socket).abort();
        // Only the reset is still to be sent.
        stream.owner = Owner::Released(Instant::ZERO + Duration::MAX);
    }

    /// The state of a stream.
    pub fn state(&mut self, id: StreamId) -> Result<StreamState, StreamError> {
        let (stream, socket) = self.stream(id)?;
        Ok(match (stream.error, socket.state()) {
            (Some(error), _) => StreamState::Failed(error),
            (None, State::SynSent | State::SynReceived | State::Listen) => StreamState::Connecting,
            (None, State::Closed | State::TimeWait | State::Closing) => StreamState::Closed,
            (None, _) => StreamState::Open,
        })
    }

    /// A stream of the program, with its socket.
    fn stream(&mut self, id: StreamId) -> Result<(&mut Stream, &mut Socket<'static>), StreamError> {
        let stream = self.streams.get_mut(&id).filter(|stream| stream.owner == Owner::Program);
        let stream = stream.ok_or(StreamError::NoSuchStream)?;
        let socket = self.sockets.get_mut::<Socket<'_>>(stream.socket);
        Ok((stream, socket))
    }

    /// The number of connections, of any owner.
    pub(super) fn len(&self) -> usize {
        self.streams.len()
    }

    /// Handles a packet with a segment to a local address. Returns the reply to the packet's sender, if there is an immediate one.
    pub(crate) fn handle_packet(&mut self, now: Instant, segment: &Segment, packet: &[u8]) -> Option<Vec<u8>> {
        if let Some(watch) = self.watch_of(now, segment.to, segment.from)
            && !watch.admits(segment)
        {
            return None;
        }
        if segment.opens && !self.is_known(segment) && self.is_listened_to(segment.to.port()) {
            self.open(now, segment)?;
        }
        self.feed(now, segment.to, packet.to_vec());
        let reply = self.packets.reply.take();
        if let Some(watch) = self.watch_of(now, segment.to, segment.from) {
            watch.note_received(now, segment);
        }
        self.note_sent(now, reply.as_deref());
        self.settle(now, Cause::Segment { resets: segment.resets });
        reply
    }

    /// Passes a packet for a local address to smoltcp.
    fn feed(&mut self, now: Instant, to: SocketAddr, packet: Vec<u8>) {
        let whole = if to.is_ipv4() { 32 } else { 128 };
        // Only the destination address is set, however many addresses the port has.
        self.interface.update_ip_addrs(|addresses| {
            addresses.clear();
            let _ = addresses.push(IpCidr::new(to.ip().into(), whole));
        });
        self.packets.received = Some(packet);
        self.interface.poll_ingress_single(smol(now), &mut self.packets, &mut self.sockets);
        self.packets.received = None;
    }

    fn is_listened_to(&self, port: u16) -> bool {
        self.listeners.iter().any(|listener| listener.port == port)
    }

    /// Whether a segment belongs to an existing connection.
    fn is_known(&self, segment: &Segment) -> bool {
        let (local, remote) = (IpEndpoint::from(segment.to), IpEndpoint::from(segment.from));
        self.streams.values().any(|stream| {
            let socket = self.sockets.get::<Socket<'_>>(stream.socket);
            socket.local_endpoint() == Some(local) && socket.remote_endpoint() == Some(remote)
        })
    }

    /// Creates a socket for a peer that opens a connection; `None` if there is no room, and the peer has to try again.
    fn open(&mut self, now: Instant, segment: &Segment) -> Option<()> {
        let port = segment.to.port();
        let listener = self.listeners.iter().find(|listener| listener.port == port)?;
        if listener.ready.len() >= listener.backlog {
            return None;
        }
        self.make_room().ok()?;
        let half_open = |(&id, stream): (&StreamId, &Stream)| matches!(stream.owner, Owner::HalfOpen(_)).then_some(id);
        let half_open: Vec<_> = self.streams.iter().filter_map(half_open).collect();
        if half_open.len() >= MAX_HALF_OPEN {
            // Ids ascend, so the first is the oldest.
            self.remove(half_open[0]);
        }
        let mut socket = new_socket();
        socket.listen(port).ok()?;
        self.add(socket, Owner::HalfOpen(now));
        Some(())
    }

    /// The next IP packet to send, with its destination.
    pub(crate) fn poll_packet(&mut self, now: Instant) -> Option<(IpAddr, Vec<u8>)> {
        if self.packets.out.is_empty() {
            self.handle_timeout(now);
        }
        let packet = self.packets.out.pop_front()?;
        let destination = match packet.first()? >> 4 {
            4 => IpAddr::from(*packet.get(16..)?.first_chunk::<4>()?),
            _ => IpAddr::from(*packet.get(24..)?.first_chunk::<16>()?),
        };
        Some((destination, packet))
    }

    /// Whether [`Streams::poll_packet`] may have a packet at any time.
    #[inline]
    pub(crate) fn may_transmit(&self) -> bool {
        !self.packets.out.is_empty() || self.next == Some(Instant::ZERO)
    }

    /// Reports an address as unreachable: connection attempts to it fail, open connections keep trying.
    pub(crate) fn handle_unreachable(&mut self, address: IpAddr, error: StreamError) {
        for stream in self.streams.values_mut() {
            let socket = self.sockets.get_mut::<Socket<'_>>(stream.socket);
            let there = socket.remote_endpoint().is_some_and(|peer| IpAddr::from(peer.addr) == address);
            if socket.state() == State::SynSent && there && stream.error.is_none() {
                socket.close();
                stream.error = Some(error);
            }
        }
        self.touch();
    }

    /// When [`Streams::handle_timeout`] is due.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.next
    }

    /// Call when time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.next.is_none_or(|next| next > now) {
            return;
        }
        let before = self.packets.out.len();
        self.care(now);
        let asked = self.packets.out.len();
        self.interface.poll_egress(smol(now), &mut self.packets, &mut self.sockets);
        for at in asked..self.packets.out.len() {
            let packet = std::mem::take(&mut self.packets.out[at]);
            self.note_sent(now, Some(&packet));
            self.packets.out[at] = packet;
        }
        self.settle(now, Cause::Time);
        if self.packets.out.len() == before && self.next.is_some_and(|next| next <= now) {
            self.next = Some(now + AGAIN);
        }
    }

    /// Schedules a call of [`Streams::handle_timeout`] for now.
    fn touch(&mut self) {
        self.next = Some(Instant::ZERO);
    }

    /// Updates owners and timers after smoltcp has run.
    fn settle(&mut self, now: Instant, cause: Cause) {
        let mut over = Vec::new();
        let mut room = MAX_STREAMS
            .saturating_sub(self.streams.values().filter(|stream| !matches!(stream.owner, Owner::HalfOpen(_))).count());
        for (&id, stream) in &mut self.streams {
            let socket = self.sockets.get_mut::<Socket<'_>>(stream.socket);
            let (old, state) = (stream.state, socket.state());
            stream.state = state;
            if is_open(state) {
                // From now on `care` watches the peer.
                socket.set_timeout(None);
            }
            let gone = state == State::Closed && socket.remote_endpoint().is_none();
            match stream.owner {
                Owner::HalfOpen(since) => match state {
                    State::SynReceived if now < since + HANDSHAKE => {}
                    State::SynReceived | State::Listen | State::Closed | State::SynSent => over.push(id),
                    _ => {
                        let port = socket.local_endpoint().map(|own| own.port);
                        let listener = self.listeners.iter_mut().find(|listener| Some(listener.port) == port);
                        match listener.filter(|_| room > 0) {
                            Some(listener) => {
                                listener.ready.push_back(id);
                                stream.owner = Owner::Queued;
                                room -= 1;
                            }
                            None => {
                                socket.abort();
                                stream.owner = Owner::Released(now + LINGER);
                            }
                        }
                    }
                },
                Owner::Queued if state == State::Closed => over.push(id),
                Owner::Released(until) if gone || now >= until => over.push(id),
                Owner::Program => stream.note_change(socket, old, cause),
                Owner::Queued | Owner::Released(_) => {}
            }
        }
        over.into_iter().for_each(|id| self.remove(id));
        let ends = self.streams.values().filter_map(|stream| match stream.owner {
            Owner::HalfOpen(since) => Some(since + HANDSHAKE),
            Owner::Released(until) => Some(until),
            Owner::Queued | Owner::Program => None,
        });
        let smoltcps = self.interface.poll_at(smol(now), &self.sockets).map(ours);
        self.next = ends.chain(smoltcps).chain(self.next_care(now)).min();
    }
}
