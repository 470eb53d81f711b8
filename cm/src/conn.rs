//! One connection or exchange: its state, its pending messages, and its timers.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use softnic_wire::mad::cm::{Message, Rej, RejReason, Responded};
use softnic_wire::{Instant, Qpn};

use crate::backup::Backup;
use crate::{ListenId, Route};

/// The name of a connection or of a service id resolution; on the wire it is the local communication id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CmId(pub(crate) u32);

impl CmId {
    /// The local communication id, as in messages.
    pub const fn comm_id(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for CmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CmId({:#010x})", self.0)
    }
}

/// The state of a connection or exchange (IBA 12.9.5 and 12.9.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Active side: a REQ was sent, or the peer requested more time.
    ReqSent,
    /// Passive side: a REQ has arrived, and the program has to accept or reject.
    ReqReceived,
    /// Passive side: accepted, and a REP was sent.
    RepSent,
    /// Active side: a REP has arrived, and the program has to establish or reject.
    RepReceived,
    /// The connection can be used.
    Established,
    /// This side ends the connection: a DREQ was sent.
    DreqSent,
    /// The peer ends the connection: the program has to confirm.
    DreqReceived,
    /// Ended; the queue pair number is not reused until no packet can be in flight any more.
    Timewait,
    /// A SIDR_REQ was sent.
    SidrSent,
    /// A SIDR_REQ has arrived: the program has to answer.
    SidrReceived,
    /// Ended for the program. The entry only recognises repeated messages, and repeats their answers.
    Lingering,
}

/// The identity of a peer: its address, and the GUID of its channel adapter.
pub(crate) type Peer = (IpAddr, u64);

/// A message and its transaction.
#[derive(Debug, Clone)]
pub(crate) struct Outgoing {
    pub(crate) tid: u64,
    pub(crate) message: Message,
}

#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) state: State,
    /// Whether this side requested the connection.
    pub(crate) active: bool,
    /// Whether the peer has shown that it has the local REP: its REQ can only arrive again as a duplicate of the network.
    pub(crate) confirmed: bool,
    /// The program gets no further events.
    pub(crate) muted: bool,
    pub(crate) route: Route,
    /// The peer's backup, once it is proven.
    pub(crate) backup: Option<Backup>,
    /// The peer's communication id, or the request id of a SIDR_REQ; 0 while unknown.
    pub(crate) remote_id: u32,
    pub(crate) remote_guid: u64,
    pub(crate) remote_qpn: Qpn,
    pub(crate) local_qpn: Option<Qpn>,
    /// The listener whose backlog it is in.
    pub(crate) listener: Option<ListenId>,
    /// The transaction of the request that created it.
    pub(crate) tid: u64,
    /// The message that waits for an answer and is sent again if none arrives in time.
    pub(crate) request: Option<Box<Outgoing>>,
    /// The last answer to a message that requires one; repeated when that message arrives again.
    pub(crate) answer: Option<Box<Outgoing>>,
    pub(crate) request_due: bool,
    /// The request is sent once more because the peer has shown that it lacks the request; this is not a retry.
    pub(crate) repeat_due: bool,
    pub(crate) answer_due: bool,
    /// Whether it is in the list of connections that may have messages to send.
    pub(crate) queued: bool,
    pub(crate) deadline: Option<Instant>,
    /// Interval between two transmissions of a request.
    pub(crate) interval: Duration,
    /// How often the request was sent, and when it was first sent.
    pub(crate) sent: u8,
    pub(crate) asked: Instant,
    pub(crate) max_retries: u8,
    /// Its position in the order of acceptance.
    pub(crate) accepted: u64,
    /// When the request is given up, whatever retries are left.
    pub(crate) patience_ends: Option<Instant>,
    /// Maximum time that packets may be in flight: the duration of timewait.
    pub(crate) timewait: Duration,
    /// How long the peer may repeat its request.
    pub(crate) horizon: Duration,
}

impl Conn {
    pub(crate) fn new(state: State, active: bool, route: &Route, tid: u64) -> Conn {
        Conn {
            state,
            active,
            confirmed: active,
            muted: false,
            route: *route,
            backup: None,
            remote_id: 0,
            remote_guid: 0,
            remote_qpn: Qpn::default(),
            local_qpn: None,
            listener: None,
            tid,
            request: None,
            answer: None,
            request_due: false,
            repeat_due: false,
            answer_due: false,
            queued: false,
            deadline: None,
            interval: Duration::ZERO,
            sent: 0,
            asked: Instant::ZERO,
            max_retries: 0,
            accepted: 0,
            patience_ends: None,
            timewait: Duration::ZERO,
            horizon: Duration::ZERO,
        }
    }

    pub(crate) fn peer(&self) -> Peer {
        (self.route.remote, self.remote_guid)
    }

    /// Whether the stored answer is a refusal.
    pub(crate) fn refused(&self) -> bool {
        matches!(self.answer.as_deref(), Some(Outgoing { message: Message::Rej(_), .. }))
    }
}

/// A refusal without additional information.
pub(crate) fn rej(local: u32, remote: u32, message: Responded, reason: RejReason) -> Rej {
    Rej {
        local_comm_id: local,
        remote_comm_id: remote,
        message,
        info_len: 0,
        reason,
        info: [0; 72],
        private_data: [0; 148],
    }
}

/// The refusal by a side that gives up. The other side may not know the local id yet, so the refusal contains the local GUID.
pub(crate) fn timed_out(local: u32, remote: u32, ca_guid: u64) -> Rej {
    let mut rej = rej(local, remote, Responded::LAP_OR_NONE, RejReason::TIMEOUT);
    rej.info[..8].copy_from_slice(&ca_guid.to_be_bytes());
    rej.info_len = 8;
    rej
}
