//! Connections for programs that wait for them: listen, connect, accept and end by plain calls, a queue pair for each connection.
//!
//! Events, timers and several things at a time are for [`ConnectionManager`] itself, on which this stands.

use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::time::{Duration, Instant};

use softnic_cm::{Accept, CmId, Connect, Disconnect, Error, Event, Listen, ListenId, PortSpace, Route};
use softnic_nic::{Generator, ModifyError};
use softnic_wire::mad::cm::{PathMtu as PathMtuCode, Rej, RejReason, Req, TransportService};
use softnic_wire::mad::ip_cm::IpCm;
use softnic_wire::{PathMtu, Psn, Qpn};

use super::end::CmEnd;
use super::{CmSink, ConnectionManager};
use crate::OsRandom;
use crate::api::path::PathError;
use crate::api::queue_pair::Connection;
use crate::api::sdr::SdrError;

/// READs and atomics at a time, each way, where the peer can as many.
const RD_ATOMIC: u8 = 16;
/// How long the end of a connection may wait until the NIC has sent the message about it; microseconds, unless its wire is stuck.
const GOODBYE: Duration = Duration::from_millis(200);
/// Ports that nobody is known by.
const FIRST_EPHEMERAL: u16 = 49152;

/// Why there is no connection, or no listener.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The peer cannot be reached from here.
    #[error("there is no way to {peer}: {why}")]
    NoPath {
        /// The peer's address.
        peer: IpAddr,
        /// Why there is no path.
        why: PathError,
    },
    /// The peer's manager, or its program, says no.
    #[error("{peer} refuses the connection: {}", words(*.reason))]
    Refused {
        /// The peer's address.
        peer: SocketAddr,
        /// The REJ's reason.
        reason: RejReason,
        /// Private data of the REJ.
        private_data: Box<[u8]>,
    },
    /// The peer said nothing in time.
    #[error("{0} does not answer: is a connection manager at work there?")]
    NoAnswer(SocketAddr),
    /// The peer ended the connection before it was ready.
    #[error("{0} ended the connection")]
    Ended(SocketAddr),
    /// The NIC does not have the address.
    #[error("cannot listen to {address}: the NIC has {}", list(.ours))]
    NotOurAddress {
        /// The address.
        address: IpAddr,
        /// Those that it has.
        ours: Vec<IpAddr>,
    },
    /// The peer wants longer packets than this side takes.
    #[error("{peer} asks for path MTU {asked}, and this side takes {ours}: give both interfaces the same MTU")]
    Mtu {
        /// The peer.
        peer: SocketAddr,
        /// The MTU that it asks for.
        asked: PathMtuCode,
        /// The longest that there is here.
        ours: u32,
    },
    /// The peer wants a connection of another kind than the queue pair that it would be accepted with.
    #[error("{peer} asks for a connection of {asked}, which this queue pair is not for")]
    Service {
        /// The peer.
        peer: SocketAddr,
        /// What it asks for.
        asked: TransportService,
    },
    /// The manager refuses what was asked of it.
    #[error(transparent)]
    Manager(#[from] Error),
    /// The queue pair cannot be connected.
    #[error("the queue pair cannot be connected: {0}")]
    QueuePair(#[from] ModifyError),
    /// The SDR queue pair cannot be connected.
    #[error("the queue pair cannot be connected: {0}")]
    Sdr(#[from] SdrError),
    /// The system gives no random numbers.
    #[error(transparent)]
    System(#[from] std::io::Error),
}

/// A REJ's reason, and what the usual ones mean to a program that connects by address.
fn words(reason: RejReason) -> String {
    let means = match reason {
        RejReason::INVALID_SERVICE_ID => ": nobody listens to that port",
        RejReason::CONSUMER_DEFINED => ": its program does not want it",
        RejReason::INVALID_MTU => ": give both interfaces the same MTU",
        _ => "",
    };
    format!("REJ, reason {reason}{means}")
}

fn list(addresses: &[IpAddr]) -> String {
    match addresses {
        [] => "no address".into(),
        some => some.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", "),
    }
}

/// One connection of the manager's, ended when it goes.
struct Held<'a> {
    manager: &'a ConnectionManager,
    id: CmId,
    events: Receiver<Event>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.manager.destroy(self.id);
        // The last word to the peer, as the manager may go next.
        self.manager.flush(GOODBYE);
    }
}

impl Held<'_> {
    /// The next event before `deadline`.
    fn next(&self, peer: SocketAddr, deadline: Instant) -> Result<Event, ConnectError> {
        match self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Event::Rejected { rej, .. }) => {
                let Rej { reason, private_data, .. } = *rej;
                Err(ConnectError::Refused { peer, reason, private_data: private_data.into() })
            }
            Ok(Event::Disconnected { .. }) => Err(ConnectError::Ended(peer)),
            Ok(Event::Unreachable { .. }) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                Err(ConnectError::NoAnswer(peer))
            }
            Ok(event) => Ok(event),
        }
    }
}

/// Listens for connections to an address. A request that comes after the listener is gone is refused, and so is one not accepted by then.
pub struct CmListener<'a> {
    manager: &'a ConnectionManager,
    id: ListenId,
    requests: Receiver<(Event, Receiver<Event>)>,
}

impl<'a> CmListener<'a> {
    /// Listens to a port of one address, or of all: `0.0.0.0` is all of IPv4, `::` all of both.
    ///
    /// # Errors
    /// When somebody listens there already, or the NIC does not have the address.
    pub fn bind(manager: &'a ConnectionManager, address: SocketAddr) -> Result<CmListener<'a>, ConnectError> {
        let ours = manager.context.addresses();
        if !address.ip().is_unspecified() && !ours.contains(&address.ip()) {
            return Err(ConnectError::NotOurAddress { address: address.ip(), ours });
        }
        let (to, requests) = channel();
        let sink = CmSink::new(move |request| {
            let (to_connection, events) = channel();
            // Nobody listens any more: it is refused.
            to.send((request, events)).ok().map(|()| CmSink::channel(to_connection))
        });
        let id = manager.listen(&Listen::port(PortSpace::Tcp, address), sink)?;
        Ok(CmListener { manager, id, requests })
    }

    /// The next request; `None` when none came for so long.
    pub fn next(&self, limit: Duration) -> Option<CmRequest<'a>> {
        let (event, events) = self.requests.recv_timeout(limit).ok()?;
        let held = Held { manager: self.manager, id: event.id(), events };
        // A listener of this port space hears of nothing else.
        let Event::ConnectRequest { route, request, .. } = event else { return None };
        Some(CmRequest { held, route, request })
    }
}

impl Drop for CmListener<'_> {
    fn drop(&mut self) {
        // It exists: nobody else ends it.
        let _ = self.manager.unlisten(self.id);
        for (request, _) in self.requests.try_iter() {
            self.manager.destroy(request.id());
        }
    }
}

/// A request for a connection: to be accepted, or refused. A request that is dropped is refused.
pub struct CmRequest<'a> {
    held: Held<'a>,
    route: Route,
    request: Box<Req>,
}

impl<'a> CmRequest<'a> {
    /// The address of the side that asks.
    pub fn peer(&self) -> SocketAddr {
        let port = self.request.ip_cm().map_or(0, |ip| ip.source().port());
        (self.route.remote, port).into()
    }

    /// Private data of the REQ: 56 bytes, padded with zeros.
    pub fn private_data(&self) -> &[u8] {
        IpCm::consumer_data(&self.request.private_data)
    }

    /// Refuses, with up to 148 bytes that say why.
    ///
    /// # Errors
    /// When they are more.
    pub fn reject(self, private_data: &[u8]) -> Result<(), ConnectError> {
        Ok(self.held.manager.reject(self.held.id, RejReason::CONSUMER_DEFINED, private_data)?)
    }

    /// Accepts with a queue pair that is in RESET or INIT, or with one of SDR that is not connected, and tells the peer up to 196 bytes; for
    /// at most `limit` this waits until the peer is ready too. A receive that it shall find must be posted before.
    ///
    /// # Errors
    /// When there is no way back, the queue pair or the peer do not like it, or the peer falls silent.
    pub fn accept(
        self,
        qp: impl Into<CmEnd>,
        private_data: &[u8],
        limit: Duration,
    ) -> Result<CmConnection<'a>, ConnectError> {
        let qp = qp.into();
        let qpn = qp.qpn()?;
        let (deadline, peer, request) = (Instant::now() + limit, self.peer(), &self.request);
        let manager = self.held.manager;
        let no_path = |why| ConnectError::NoPath { peer: peer.ip(), why };
        let index = manager.context.addresses().iter().position(|&a| a == self.route.local);
        // Our address is the one that it was asked by; only one that was taken away meanwhile is not there.
        let no_address = || no_path(PathError::NoAddress(peer.ip()));
        let index = index.ok_or_else(no_address)?;
        let entropy = qpn.value();
        // A peer that nobody knows yet may never answer for its address: nobody waits for that.
        let path = match self.route.mac {
            Some(mac) => manager.context.path_answering(index, peer.ip(), mac, entropy),
            None => manager.context.path_from(index, peer.ip(), entropy),
        };
        let path = path.map_err(no_path)?;
        if !qp.serves(request.transport_service) {
            manager.reject(self.held.id, RejReason::INVALID_TRANSPORT_TYPE, &[])?;
            return Err(ConnectError::Service { peer, asked: request.transport_service });
        }
        let asked = request.path_mtu;
        let Some(mtu) =
            asked.bytes().and_then(|bytes| PathMtu::from_bytes(bytes as u32)).filter(|&mtu| mtu <= path.mtu)
        else {
            manager.reject(self.held.id, RejReason::INVALID_MTU, &[])?;
            return Err(ConnectError::Mtu { peer, asked, ours: path.mtu.bytes() });
        };
        let psn = random_psn()?;
        let connection = Connection {
            mtu,
            timeout: request.primary.local_ack_timeout.code(),
            retry_cnt: request.retry_count,
            rnr_retry: request.rnr_retry_count,
            max_rd_atomic: request.responder_resources.min(RD_ATOMIC),
            max_dest_rd_atomic: request.initiator_depth.min(RD_ATOMIC),
            ..Connection::new(path, Qpn::new(request.local_qpn), psn, request.starting_psn)
        };
        qp.connect(&connection)?;
        let accept = Accept {
            responder_resources: connection.max_dest_rd_atomic,
            initiator_depth: connection.max_rd_atomic,
            private_data,
            ..Accept::new(qpn, psn)
        };
        manager.accept(self.held.id, &accept)?;
        while !matches!(self.held.next(peer, deadline)?, Event::Established { .. }) {}
        let private_data = self.private_data().into();
        Ok(CmConnection { held: self.held, qp, peer, private_data, ended: None })
    }
}

/// A connection that was made by address. When it goes it ends, and the peer is told.
///
/// ```
/// use std::net::SocketAddr;
/// use std::time::Duration;
/// use softnic_runtime::api::{
///     CmConnection, CmListener, ConnectionManager, Context, OpenOptions, QpKind, QpOptions,
/// };
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limit = Duration::from_secs(60);
/// let options = OpenOptions::default();
/// let [client, server] = Context::open_pair([&options, &options])?;
/// let address = SocketAddr::new(server.addresses()[0], 7471);
///
/// let (manager, cq) = (ConnectionManager::new(&server)?, server.create_cq(16)?);
/// let listener = CmListener::bind(&manager, address)?;
/// std::thread::scope(|scope| {
///     let asks = scope.spawn(|| {
///         let (manager, cq) = (ConnectionManager::new(&client).unwrap(), client.create_cq(16).unwrap());
///         let qp = client.alloc_pd().create_qp(&QpOptions::new(QpKind::Rc, &cq)).unwrap();
///         let connection = CmConnection::connect(&manager, &qp, address, b"a name", limit).unwrap();
///         assert_eq!(&connection.private_data()[..7], b"welcome");
///         assert!(connection.disconnect(limit));
///     });
///     let request = listener.next(limit).expect("a client");
///     assert_eq!(&request.private_data()[..6], b"a name");
///     let qp = server.alloc_pd().create_qp(&QpOptions::new(QpKind::Rc, &cq))?;
///     let mut connection = request.accept(&qp, b"welcome", limit)?;
///     while !connection.is_over() {
///         cq.wait(Duration::from_millis(1))?;
///     }
///     asks.join().expect("the client succeeds");
///     Ok(())
/// })
/// # }
/// ```
pub struct CmConnection<'a> {
    held: Held<'a>,
    qp: CmEnd,
    peer: SocketAddr,
    private_data: Box<[u8]>,
    ended: Option<Disconnect>,
}

impl<'a> CmConnection<'a> {
    /// Connects a queue pair that is in RESET or INIT, or one of SDR that is not connected, to the listener there, with up to 56 bytes of
    /// private data. For at most `limit` this waits for its answer; finding the way there can take some seconds more where nobody answers
    /// for the address.
    ///
    /// # Errors
    /// When there is no way, or the peer refuses or does not answer.
    pub fn connect(
        manager: &'a ConnectionManager,
        qp: impl Into<CmEnd>,
        peer: SocketAddr,
        private_data: &[u8],
        limit: Duration,
    ) -> Result<CmConnection<'a>, ConnectError> {
        let no_path = |why| ConnectError::NoPath { peer: peer.ip(), why };
        let qp = qp.into();
        let qpn = qp.qpn()?;
        let path = manager.context.path_to(peer.ip(), qpn.value()).map_err(no_path)?;
        let ours = manager.context.addresses();
        let &from = ours.get(path.attr.sgid_index).ok_or(no_path(PathError::NoAddress(peer.ip())))?;
        let port = FIRST_EPHEMERAL + (OsRandom::new()?.next_u32() % u32::from(u16::MAX - FIRST_EPHEMERAL)) as u16;
        let psn = random_psn()?;
        let usual = Connect::ip((from, port).into(), peer, qpn, psn)?;
        let ask = Connect {
            responder_resources: RD_ATOMIC,
            initiator_depth: RD_ATOMIC,
            path_mtu: PathMtuCode::new(path.mtu.code()),
            transport: qp.service(),
            private_data,
            ..usual
        };
        let (to, events) = channel();
        let deadline = Instant::now() + limit;
        let held = Held { manager, id: manager.connect(&ask, CmSink::channel(to))?, events };
        let reply = loop {
            if let Event::ConnectResponse { reply, .. } = held.next(peer, deadline)? {
                break reply;
            }
        };
        qp.connect(&Connection {
            timeout: ask.ack_timeout.code(),
            retry_cnt: ask.retry_count,
            rnr_retry: reply.rnr_retry_count,
            max_rd_atomic: reply.responder_resources.min(RD_ATOMIC),
            max_dest_rd_atomic: reply.initiator_depth.min(RD_ATOMIC),
            ..Connection::new(path, Qpn::new(reply.local_qpn), psn, reply.starting_psn)
        })?;
        manager.establish(held.id)?;
        Ok(CmConnection { held, qp, peer, private_data: reply.private_data.into(), ended: None })
    }

    /// The peer's address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The peer's private data: 56 bytes of the side that asked, 196 of the side that was asked, padded with zeros.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// Whether the peer has ended the connection. If so the queue pair is in its error state from now on, and what was posted is flushed.
    pub fn is_over(&mut self) -> bool {
        while self.ended.is_none() {
            match self.held.events.try_recv() {
                Ok(event) => self.hear(event),
                Err(TryRecvError::Empty) => return false,
                // The manager forgot it: no event can follow.
                Err(TryRecvError::Disconnected) => return true,
            }
        }
        true
    }

    /// Ends the connection, from this side or as the peer has already, and waits for at most `limit` until the peer agrees. What was
    /// posted and is not done yet is flushed: who sends waits for its completion first. `false` when the peer did not answer.
    pub fn disconnect(mut self, limit: Duration) -> bool {
        if self.is_over() {
            return true;
        }
        self.fail();
        // One that is over by now needs no end.
        let _ = self.held.manager.disconnect(self.held.id);
        let deadline = Instant::now() + limit;
        while self.ended.is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(event) = self.held.events.recv_timeout(left) else { return false };
            self.hear(event);
        }
        self.ended != Some(Disconnect::NoAnswer)
    }

    fn hear(&mut self, event: Event) {
        if let Event::Disconnected { how, .. } = event {
            self.fail();
            if how == Disconnect::Peer {
                // We agree; at a time at which both ask there is nothing to agree to.
                let _ = self.held.manager.disconnect(self.held.id);
            }
            self.ended = Some(how);
        }
    }

    /// No packet of it may leave or be taken any more.
    fn fail(&self) {
        self.qp.fail();
    }
}

fn random_psn() -> std::io::Result<Psn> {
    Ok(Psn::new(OsRandom::new()?.next_u32() & 0xff_ffff))
}
