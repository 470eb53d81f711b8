//! What the program must know: requests, answers, ends.

use softnic_wire::Qpn;
use softnic_wire::mad::cm::{Rej, RejReason, Rep, Req, SidrRep, SidrReq};

use crate::{CmId, ListenId, Route};

/// Something happened. Each event comes once, whatever the network doubled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A peer asks for a connection: [`accept`](crate::Cm::accept) or [`reject`](crate::Cm::reject).
    ConnectRequest {
        /// The new connection.
        id: CmId,
        /// Who listens.
        listener: ListenId,
        /// Where it came from; the queue pair's packets will come from there, too.
        route: Route,
        /// The request; `request.ip_cm()` has the RDMA-CM's addresses.
        request: Box<Req>,
    },
    /// The peer accepts: get the queue pair ready and [`establish`](crate::Cm::establish), or reject.
    ConnectResponse {
        /// The connection.
        id: CmId,
        /// The answer.
        reply: Box<Rep>,
    },
    /// The accepting side's connection is ready to use: the peer said so, or its first data came.
    Established {
        /// The connection.
        id: CmId,
        /// What the peer's RTU carried; `None` when data came before it.
        private_data: Option<Box<[u8; 224]>>,
    },
    /// There will be no connection. With the reason `STALE_CONNECTION` the asking queue pair rests for a while, and
    /// [`Event::TimewaitExit`] follows; otherwise all is over with the id.
    Rejected {
        /// The connection.
        id: CmId,
        /// Why, and what the peer has to say. Made here when it was the peer's reply that named a stale queue pair.
        rej: Box<Rej>,
    },
    /// No answer, however often a message was sent. After a REP [`Event::TimewaitExit`] follows; otherwise all is over.
    Unreachable {
        /// The connection, or the resolution.
        id: CmId,
    },
    /// The end of a connection. If it is [`Disconnect::Peer`], end it too, with [`disconnect`](crate::Cm::disconnect), as soon as
    /// the queue pair is in its error state. It can come without [`Event::Established`], when that message was lost.
    Disconnected {
        /// The connection.
        id: CmId,
        /// Whose doing it was.
        how: Disconnect,
    },
    /// No packet of the connection is on its way any more: the queue pair's number may be used again, and all is over with the id.
    TimewaitExit {
        /// The connection.
        id: CmId,
        /// Its queue pair.
        qpn: Qpn,
    },
    /// A peer asks which queue pair serves: [`sidr_reply`](crate::Cm::sidr_reply).
    SidrRequest {
        /// The new exchange.
        id: CmId,
        /// Who listens.
        listener: ListenId,
        /// Where it came from.
        route: Route,
        /// The request; `request.ip_cm()` has the RDMA-CM's addresses.
        request: Box<SidrReq>,
    },
    /// The answer to [`resolve`](crate::Cm::resolve), for better or worse; all is over with the id.
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
    /// The peer asks for it.
    Peer,
    /// We asked for it and the peer agreed, or asked for it at the same time.
    Agreed,
    /// We asked for it, and the peer did not answer.
    NoAnswer,
    /// The peer knows nothing of the connection (any more).
    Rejected(RejReason),
}

impl Event {
    /// Which connection or exchange it is about.
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
