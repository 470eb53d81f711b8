//! Asynchronous events: notifications to a program that belong to no work request (IBA 11.6.3).

use std::fmt;
use std::net::IpAddr;

use softnic_wire::Qpn;

use crate::completion::{CqId, Status};
use crate::negotiation::FallbackReason;
use crate::recv_queue::SrqId;

/// An event, by the name that verbs give it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// The first packet arrived at a queue pair that is ready to receive, but not yet ready to send.
    CommEst(Qpn),
    /// A queue pair with a shared receive queue entered the error state: it takes no more receives from the queue.
    LastWqeReached(Qpn),
    /// The send queue is drained: nothing is outstanding, and no new work is started.
    SqDrained(Qpn),
    /// The queue pair lost a completion and is in the error state.
    QpFatal(Qpn),
    /// The peer sent an impossible request, and the queue pair is in the error state.
    QpReqErr(Qpn),
    /// The peer accessed memory that it may not access, and the queue pair is in the error state.
    QpAccessErr(Qpn),
    /// The queue pair offered an extension and fell back to the standard with its peer, at this address. Verbs have no name for it.
    FellBack(Qpn, IpAddr, FallbackReason),
    /// The queue pair could not authenticate its peer, at this address, for this reason, and is in the error state. Verbs have no name for
    /// it.
    Unauthenticated(Qpn, IpAddr, FallbackReason),
    /// The queue pair ran out of retries, with this status, and halted at its owner's request: it is in the error state with its work in
    /// place. Verbs have no name for it.
    QpHalted(Qpn, Status),
    /// The queue pair continues on another path: on a backup, or again on the path of its connection.
    PathMig(Qpn),
    /// The queue pair's path failed and it could not continue on another one: it is in the error state.
    PathMigErr(Qpn),
    /// A completion found no room.
    CqErr(CqId),
    /// A shared receive queue has fewer receives than its limit.
    SrqLimit(SrqId),
    /// The port is up.
    PortActive,
    /// The port is down.
    PortErr,
    /// The port's addresses changed.
    GidChange,
}

impl Event {
    /// The queue pair of the event, if it is about one.
    pub fn qpn(&self) -> Option<Qpn> {
        match *self {
            Event::CommEst(qpn) | Event::LastWqeReached(qpn) | Event::SqDrained(qpn) => Some(qpn),
            Event::QpFatal(qpn) | Event::QpReqErr(qpn) | Event::QpAccessErr(qpn) => Some(qpn),
            Event::FellBack(qpn, ..) | Event::Unauthenticated(qpn, ..) | Event::QpHalted(qpn, _) => Some(qpn),
            Event::PathMig(qpn) | Event::PathMigErr(qpn) => Some(qpn),
            Event::CqErr(_) | Event::SrqLimit(_) | Event::PortActive | Event::PortErr | Event::GidChange => None,
        }
    }
}

/// The name in verbs, without its prefix.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Event::CommEst(_) => "COMM_EST",
            Event::LastWqeReached(_) => "LAST_WQE_REACHED",
            Event::SqDrained(_) => "SQ_DRAINED",
            Event::QpFatal(_) => "QP_FATAL",
            Event::QpReqErr(_) => "QP_REQ_ERR",
            Event::QpAccessErr(_) => "QP_ACCESS_ERR",
            Event::FellBack(..) => "FELL_BACK",
            Event::Unauthenticated(..) => "UNAUTHENTICATED",
            Event::QpHalted(..) => "HALTED",
            Event::PathMig(_) => "PATH_MIG",
            Event::PathMigErr(_) => "PATH_MIG_ERR",
            Event::CqErr(_) => "CQ_ERR",
            Event::SrqLimit(_) => "SRQ_LIMIT",
            Event::PortActive => "PORT_ACTIVE",
            Event::PortErr => "PORT_ERR",
            Event::GidChange => "GID_CHANGE",
        })
    }
}
