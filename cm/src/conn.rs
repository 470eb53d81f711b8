//! One connection or exchange: its state, what it has to send, what it waits for.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use softnic_wire::mad::cm::{Message, Rej, RejReason, Responded};
use softnic_wire::{Instant, Qpn};

use crate::backup::Backup;
use crate::{ListenId, Route};

/// The name of a connection or of a service id resolution; on the wire it is our local communication id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CmId(pub(crate) u32);

impl CmId {
    /// The local communication id that messages carry.
    pub const fn comm_id(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for CmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CmId({:#010x})", self.0)
    }
}

/// Where a connection or exchange stands (IBA 12.9.5 and 12.9.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Asking: a REQ is on its way, or the peer asked for patience.
    ReqSent,
    /// Asked: the program has to accept or reject.
    ReqReceived,
    /// Asked and accepted: a REP is on its way.
    RepSent,
    /// Asking and accepted: the program has to establish or reject.
    RepReceived,
    /// Ready to use.
    Established,
    /// Ending it: a DREQ is on its way.
    DreqSent,
    /// The peer ends it: the program has to agree.
    DreqReceived,
    /// Over; the queue pair's number rests until no packet can be on its way any more.
    Timewait,
    /// A SIDR_REQ is on its way.
    SidrSent,
    /// A SIDR_REQ came: the program has to answer.
    SidrReceived,
    /// Over for the program; what is left knows messages that come again, and what was said to them.
    Lingering,
}

/// Who a peer is: its address, and the GUID of its channel adapter.
pub(crate) type Peer = (IpAddr, u64);

/// A message and the transaction that it belongs to.
#[derive(Debug, Clone)]
pub(crate) struct Outgoing {
    pub(crate) tid: u64,
    pub(crate) message: Message,
}

#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) state: State,
    /// Whether it was we who asked.
    pub(crate) active: bool,
    /// Whether the peer has shown that it has our REP: its REQ cannot come again but by a whim of the network.
    pub(crate) confirmed: bool,
    /// The program wants to hear no more of it.
    pub(crate) muted: bool,
    pub(crate) route: Route,
    /// The peer's backup, once it is proven.
    pub(crate) backup: Option<Backup>,
    /// The peer's communication id, or the request id of a SIDR_REQ; 0 while it is not known.
    pub(crate) remote_id: u32,
    pub(crate) remote_guid: u64,
    pub(crate) remote_qpn: Qpn,
    pub(crate) local_qpn: Option<Qpn>,
    /// Whose backlog it fills.
    pub(crate) listener: Option<ListenId>,
    /// Transaction of the request that it began with.
    pub(crate) tid: u64,
    /// What waits for an answer and is sent again when none comes in time.
    pub(crate) request: Option<Box<Outgoing>>,
    /// What was last said to a message that asks for an answer: it is said again when that comes again.
    pub(crate) answer: Option<Box<Outgoing>>,
    pub(crate) request_due: bool,
    /// The request is sent once more because the peer shows that it lacks it; that is no retry.
    pub(crate) repeat_due: bool,
    pub(crate) answer_due: bool,
    /// Whether it is in the list of those that may have something to send.
    pub(crate) queued: bool,
    pub(crate) deadline: Option<Instant>,
    /// Time between two transmissions of a request.
    pub(crate) interval: Duration,
    /// How often the request has been sent, and when it was sent first.
    pub(crate) sent: u8,
    pub(crate) asked: Instant,
    pub(crate) max_retries: u8,
    /// Which of all that were accepted it is.
    pub(crate) accepted: u64,
    /// When the request is given up, however many retries are left.
    pub(crate) patience_ends: Option<Instant>,
    /// How long packets may be on their way: the time in timewait.
    pub(crate) timewait: Duration,
    /// How long the peer may go on sending its request.
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

    /// Whether the answer that is kept is a refusal.
    pub(crate) fn refused(&self) -> bool {
        matches!(self.answer.as_deref(), Some(Outgoing { message: Message::Rej(_), .. }))
    }
}

/// A refusal without further words.
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

/// The refusal of one who gives up: the other side may not know our id yet, so our GUID tells who we are.
pub(crate) fn timed_out(local: u32, remote: u32, ca_guid: u64) -> Rej {
    let mut rej = rej(local, remote, Responded::LAP_OR_NONE, RejReason::TIMEOUT);
    rej.info[..8].copy_from_slice(&ca_guid.to_be_bytes());
    rej.info_len = 8;
    rej
}
