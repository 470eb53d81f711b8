//! The events for the program: requests, answers, ends.

use softnic_wire::Qpn;
use softnic_wire::mad::cm::{Rej, RejReason, Rep, Req, SidrRep, SidrReq};

use crate::{CmId, ListenId, Route};

/// An event. Each is reported once, even if the network duplicated a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A peer requests a connection: [`accept`](crate::Cm::accept) or [`reject`](crate::Cm::reject) it.
    ConnectRequest {
        /// The new connection.
        id: CmId,
        /// The listener.
        listener: ListenId,
        /// Its route; the queue pair's packets will come from the same address.
        route: Route,
        /// The request; `request.ip_cm()` has the RDMA-CM's addresses.
        request: Box<Req>,
    },
    /// The peer accepts: make the queue pair ready and [`establish`](crate::Cm::establish), or reject.
    ConnectResponse {
        /// The connection.
        id: CmId,
        /// The answer.
        reply: Box<Rep>,
    },
    /// The accepting side's connection can be used: the peer confirmed it, or its first data arrived.
    Established {
        /// The connection.
        id: CmId,
        /// The private data of the peer's RTU; `None` if data arrived before the RTU.
        private_data: Option<Box<[u8; 224]>>,
    },
    /// There will be no connection. With the reason `STALE_CONNECTION` the requesting queue pair's number is not reusable for a while, and
    /// [`Event::TimewaitExit`] follows; otherwise the id is no longer valid.
    Rejected {
        /// The connection.
        id: CmId,
        /// The reason and the peer's information. Created locally if the peer's reply named a stale queue pair.
        rej: Box<Rej>,
    },
    /// No answer within all retries. After a REP [`Event::TimewaitExit`] follows; otherwise the id is no longer valid.
    Unreachable {
        /// The connection, or the resolution.
        id: CmId,
    },
    /// The end of a connection. If it is [`Disconnect::Peer`], end it locally, too, with [`disconnect`](crate::Cm::disconnect), as soon as
    /// the queue pair is in its error state. This event can occur without [`Event::Established`], if that message was lost.
    Disconnected {
        /// The connection.
        id: CmId,
        /// Which side ended it.
        how: Disconnect,
    },
    /// No packet of the connection is in flight any more: the queue pair's number may be reused, and the id is no longer valid.
    TimewaitExit {
        /// The connection.
        id: CmId,
        /// Its queue pair.
        qpn: Qpn,
    },
    /// A peer asks which queue pair provides a service: [`sidr_reply`](crate::Cm::sidr_reply).
    SidrRequest {
        /// The new exchange.
        id: CmId,
        /// The listener.
        listener: ListenId,
        /// Its route.
        route: Route,
        /// The request; `request.ip_cm()` has the RDMA-CM's addresses.
        request: Box<SidrReq>,
    },
    /// The answer to [`resolve`](crate::Cm::resolve), positive or negative; the id is no longer valid.
    SidrResponse {
        /// The exchange.
        id: CmId,
        /// Status, queue pair, Q_Key.
        reply: Box<SidrRep>,
    },
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disconnect {
    /// The peer ends the connection.
    Peer,
    /// This side ended the connection, and the peer confirmed that or ended it at the same time.
    Agreed,
    /// This side ended the connection, and the peer did not answer.
    NoAnswer,
    /// The peer does not know the connection (any more).
    Rejected(RejReason),
}

impl Event {
    /// The connection or exchange of the event.
    pub fn id(&self) -> CmId {
        match *self {
            Event::ConnectRequest { id, .. }
            | Event::ConnectResponse { id, .. }
            | Event::Established { id, .. }
            | Event::Rejected { id, .. }
            | Event::Unreachable { id }
            | Event::Disconnected { id, .. }
            | Event::TimewaitExit { id, .. }
            | Event::SidrRequest { id, .. }
            | Event::SidrResponse { id, .. } => id,
        }
    }
}
