//! TCP streams over smoltcp: listeners, connections, and what each may take of memory and time.
//!
//! smoltcp gets IP packets and makes some; the Ethernet header is the business of whoever has the table of neighbours.

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

/// Ports that are listened to at a time.
const MAX_LISTENERS: usize = 8;
/// Connections at a time, in whatever state behind the handshake; and those that a program opens.
const MAX_STREAMS: usize = 64;
/// Connections that others have begun and not finished opening. One more takes the place of the oldest: who begins many and finishes none
/// keeps nobody else out.
const MAX_HALF_OPEN: usize = 32;
/// Bytes that wait in each direction of a connection. One more and windows would have a scale, and rounding them would take back what was
/// granted.
const BUFFER: usize = u16::MAX as usize;
/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// After this time without a word of the peer a connection is over.
const TIMEOUT: Duration = Duration::from_secs(30);
/// A peer of which nothing was heard for this time is asked for a sign of life (RFC 9293, 3.8.4).
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// How long a stream that its owner gave back may take to deliver what was written.
const LINGER: Duration = Duration::from_secs(60);
/// When smoltcp is asked again that wanted to be asked now and had nothing.
const AGAIN: Duration = Duration::from_millis(1);
/// Ports of connections that we open are from here on (RFC 6335, 6).
const FIRST_DYNAMIC_PORT: u16 = 0xc000;

/// The name of a stream; none is used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(u64);

/// Where a stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamState {
    /// It is being opened.
    Connecting,
    /// Bytes go in at least one direction.
    Open,
    /// Both ends have ended it; what came may still be read.
    Closed,
    /// It is over.
    Failed(StreamError),
}

/// Whose a stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// Nobody's: a peer is opening it, since then.
    HalfOpen(Instant),
    /// Nobody's yet: it waits at a listener.
    Queued,
    Program,
    /// Nobody's any more: it ends by itself, at that time at the latest.
    Released(Instant),
}

#[derive(Debug)]
struct Stream {
    socket: SocketHandle,
    owner: Owner,
    /// As it was when it was last looked at.
    state: State,
    error: Option<StreamError>,
    /// What was seen of it, once something was.
    watch: Option<Watch>,
    /// Bytes that came before the end and were not read in time: smoltcp forgets them.
    rest: VecDeque<u8>,
}

#[derive(Debug)]
struct Listener {
    port: u16,
    backlog: usize,
    /// Connections that are open and wait for [`Streams::accept`].
    ready: VecDeque<StreamId>,
}

/// The TCP of a port.
pub struct Streams {
    interface: Interface,
    sockets: SocketSet<'static>,
    packets: Packets,
    listeners: Vec<Listener>,
    streams: BTreeMap<StreamId, Stream>,
    last_id: u64,
    next_port: u16,
    /// When there is something to do; it is zero when that is now.
    next: Option<Instant>,
}

impl Streams {
    /// No listeners and no connections. IP packets are at most `mtu` bytes long; sequence numbers and ports are drawn from `seed`.
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

    /// Takes connections to a port of any address from now on: at most `backlog` of them wait for [`Streams::accept`], who comes then is
    /// not answered, and tries again.
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

    /// Takes no more connections to a port; those that wait there are reset.
    pub fn unlisten(&mut self, port: u16) {
        let Some(at) = self.listeners.iter().position(|listener| listener.port == port) else { return };
        for id in self.listeners.remove(at).ready {
            self.abort(id);
        }
    }

    /// The connection to a port that waits for the longest time, with the peer's address.
    pub fn accept(&mut self, port: u16) -> Option<(StreamId, SocketAddr)> {
        let listener = self.listeners.iter_mut().find(|listener| listener.port == port)?;
        let id = listener.ready.pop_front()?;
        let stream = self.streams.get_mut(&id)?;
        stream.owner = Owner::Program;
        let peer = self.sockets.get::<Socket<'_>>(stream.socket).remote_endpoint()?;
        Some((id, SocketAddr::new(peer.addr.into(), peer.port)))
    }

    /// Begins a connection from an address of ours.
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

    /// A port that no connection of ours has.
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

    /// Sees to it that there is room for another connection, if need be instead of one that only ends.
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

    /// Reads bytes that have come: how many, 0 when there will be no more. `None` while there are none.
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

    /// Writes as many bytes as there is room for: how many. None before the connection is open.
    pub fn write(&mut self, id: StreamId, bytes: &[u8]) -> Result<usize, StreamError> {
        self.touch();
        let (stream, socket) = self.stream(id)?;
        match (stream.error, socket.state()) {
            (Some(error), _) => Err(error),
            (None, State::SynSent | State::SynReceived) => Ok(0),
            (None, _) => socket.send_slice(bytes).map_err(|_| StreamError::ShutDown),
        }
    }

    /// Bytes that were written and that the peer has not acknowledged.
    pub fn unacknowledged(&mut self, id: StreamId) -> Result<usize, StreamError> {
        Ok(self.stream(id)?.1.send_queue())
    }

    /// Nothing will be written any more: the peer reads the end behind what was written.
    pub fn shutdown(&mut self, id: StreamId) -> Result<(), StreamError> {
        self.touch();
        self.stream(id)?.1.close();
        Ok(())
    }

    /// Gives a stream back: what was written is still delivered, what comes is not.
    pub fn close(&mut self, now: Instant, id: StreamId) {
        self.touch();
        let Ok((stream, socket)) = self.stream(id) else { return };
        // What the owner has not read is lost, and the peer must know (RFC 2525, 2.17).
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

    /// Where a stream is.
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

    /// How many connections there are, whoever has them.
    pub(super) fn len(&self) -> usize {
        self.streams.len()
    }

    /// A segment to an address of ours came in, in a packet; the answer that goes back to where it came from, if there is one at once.
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

    /// Gives a packet to an address of ours to smoltcp.
    fn feed(&mut self, now: Instant, to: SocketAddr, packet: Vec<u8>) {
        let whole = if to.is_ipv4() { 32 } else { 128 };
        // The one address that counts: smoltcp is not bothered with how many there are.
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

    /// Whether a segment belongs to a connection that there is.
    fn is_known(&self, segment: &Segment) -> bool {
        let (local, remote) = (IpEndpoint::from(segment.to), IpEndpoint::from(segment.from));
        self.streams.values().any(|stream| {
            let socket = self.sockets.get::<Socket<'_>>(stream.socket);
            socket.local_endpoint() == Some(local) && socket.remote_endpoint() == Some(remote)
        })
    }

    /// Makes a socket for a peer that opens a connection; `None` when there is no room, and the peer is to try again.
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
            // Names go up, so the first is the oldest.
            self.remove(half_open[0]);
        }
        let mut socket = new_socket();
        socket.listen(port).ok()?;
        self.add(socket, Owner::HalfOpen(now));
        Some(())
    }

    /// The next IP packet that is to be sent, with where to.
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

    /// Whether [`Streams::poll_packet`] may have something whatever time it is.
    #[inline]
    pub(crate) fn may_transmit(&self) -> bool {
        !self.packets.out.is_empty() || self.next == Some(Instant::ZERO)
    }

    /// Packets to an address cannot be sent: who wanted to connect there hears of it, connections go on trying.
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

    /// When [`Streams::handle_timeout`] has something to do.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.next
    }

    /// Time has passed.
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

    /// There may be something to do now.
    fn touch(&mut self) {
        self.next = Some(Instant::ZERO);
    }

    /// Draws conclusions from what smoltcp has done.
    fn settle(&mut self, now: Instant, cause: Cause) {
        let mut over = Vec::new();
        let mut room = MAX_STREAMS
            .saturating_sub(self.streams.values().filter(|stream| !matches!(stream.owner, Owner::HalfOpen(_))).count());
        for (&id, stream) in &mut self.streams {
            let socket = self.sockets.get_mut::<Socket<'_>>(stream.socket);
            let (old, state) = (stream.state, socket.state());
            stream.state = state;
            if is_open(state) {
                // From here on it is this crate that looks after the peer.
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
