//! Supervision of the peers of all connections: observes segments, sends keep-alives, gives up silent peers.

use std::net::SocketAddr;

use smoltcp::socket::tcp::Socket;
use smoltcp::wire::IpEndpoint;
use softnic_wire::Instant;

use super::segment::Segment;
use super::socket::{is_open, is_outstanding};
use super::watch::{Care, Watch};
use super::{StreamError, Streams};

impl Streams {
    /// The observations of the connection between two endpoints.
    pub(super) fn watch_of(&mut self, now: Instant, own: SocketAddr, peer: SocketAddr) -> Option<&mut Watch> {
        let (own, peer) = (IpEndpoint::from(own), IpEndpoint::from(peer));
        let stream = self.streams.values_mut().find(|stream| {
            let socket = self.sockets.get::<Socket<'_>>(stream.socket);
            socket.local_endpoint() == Some(own) && socket.remote_endpoint() == Some(peer)
        })?;
        Some(stream.watch.get_or_insert_with(|| Watch::new(now)))
    }

    /// Observes an outgoing packet.
    pub(super) fn note_sent(&mut self, now: Instant, packet: Option<&[u8]>) {
        let Some(segment) = packet.and_then(Segment::of) else { return };
        if let Some(watch) = self.watch_of(now, segment.from, segment.to) {
            watch.note_sent(now, &segment);
        }
    }

    /// Probes silent peers, and gives up those that have been silent for too long.
    pub(super) fn care(&mut self, now: Instant) {
        // Queued packets are not leaving; more of them would not help.
        if self.packets.is_full() {
            return;
        }
        let mut again = Vec::new();
        for stream in self.streams.values_mut() {
            let socket = self.sockets.get_mut::<Socket<'_>>(stream.socket);
            let (Some(watch), true) = (&mut stream.watch, is_open(socket.state())) else { continue };
            let (Some(own), Some(peer)) = (socket.local_endpoint(), socket.remote_endpoint()) else { continue };
            let own = SocketAddr::new(own.addr.into(), own.port);
            let peer = SocketAddr::new(peer.addr.into(), peer.port);
            let outstanding = is_outstanding(socket);
            match watch.care(now, outstanding) {
                Care::Later(_) => {}
                Care::Ask => {
                    if outstanding {
                        again.extend(watch.duplicates(own, peer).map(|packet| (own, packet)));
                    }
                    self.packets.out.push_back(watch.ask(now, own, peer));
                }
                Care::GiveUp => {
                    stream.error = Some(StreamError::TimedOut);
                    socket.abort();
                }
            }
        }
        for (own, packet) in again {
            self.feed(now, own, packet);
            self.packets.reply = None;
        }
    }

    /// When [`Streams::care`] next has something to do.
    pub(super) fn next_care(&self, now: Instant) -> Option<Instant> {
        let cares = self.streams.values().filter_map(|stream| {
            let socket = self.sockets.get::<Socket<'_>>(stream.socket);
            let watch = stream.watch.filter(|_| is_open(socket.state()))?;
            match watch.care(now, is_outstanding(socket)) {
                Care::Later(at) => Some(at),
                Care::Ask | Care::GiveUp => Some(now),
            }
        });
        cares.min()
    }
}
