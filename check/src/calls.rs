//! What the model is told: objects, their attributes, work and completions, by the names of verbs.

/// An object: a number that no other living object of the process has, such as its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u64);

/// A NIC: keys and numbers of queue pairs are each NIC's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NicId(pub u64);

/// Kinds of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// `ibv_context`.
    Context,
    /// `ibv_pd`.
    Domain,
    /// `ibv_mr`.
    Region,
    /// `ibv_mw`.
    Window,
    /// `ibv_comp_channel`.
    Channel,
    /// `ibv_cq`.
    CompletionQueue,
    /// `ibv_srq`.
    SharedReceive,
    /// `ibv_qp`.
    QueuePair,
    /// `ibv_ah`.
    Address,
    /// `rdma_event_channel`.
    EventChannel,
    /// `rdma_cm_id`.
    ConnectionId,
}

impl ObjectKind {
    /// What it is called, and what goes with one of it.
    pub(crate) fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            ObjectKind::Context => ("device context", "device contexts", "ibv_close_device"),
            ObjectKind::Domain => ("protection domain", "protection domains", "ibv_dealloc_pd"),
            ObjectKind::Region => ("memory region", "memory regions", "ibv_dereg_mr"),
            ObjectKind::Window => ("memory window", "memory windows", "ibv_dealloc_mw"),
            ObjectKind::Channel => ("completion channel", "completion channels", "ibv_destroy_comp_channel"),
            ObjectKind::CompletionQueue => ("completion queue", "completion queues", "ibv_destroy_cq"),
            ObjectKind::SharedReceive => ("shared receive queue", "shared receive queues", "ibv_destroy_srq"),
            ObjectKind::QueuePair => ("queue pair", "queue pairs", "ibv_destroy_qp"),
            ObjectKind::Address => ("address handle", "address handles", "ibv_destroy_ah"),
            ObjectKind::EventChannel => ("event channel", "event channels", "rdma_destroy_event_channel"),
            ObjectKind::ConnectionId => ("connection id", "connection ids", "rdma_destroy_id"),
        }
    }
}

impl ObjectKind {
    /// The function that takes one away that librdmacm made for an id.
    pub(crate) fn of_connection(self) -> &'static str {
        match self {
            ObjectKind::QueuePair | ObjectKind::CompletionQueue => "rdma_destroy_qp",
            ObjectKind::SharedReceive => "rdma_destroy_srq",
            other => other.words().2,
        }
    }
}

/// What a region lets the NIC and peers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Access {
    /// IBV_ACCESS_LOCAL_WRITE.
    pub local_write: bool,
    /// IBV_ACCESS_REMOTE_WRITE or IBV_ACCESS_REMOTE_ATOMIC.
    pub remote_change: bool,
}

/// A memory region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// Whose keys they are.
    pub nic: NicId,
    /// The protection domain; of a parent domain the one below it.
    pub domain: ObjectId,
    /// The key of work requests.
    pub lkey: u32,
    /// The key of peers.
    pub rkey: u32,
    /// Where the memory is.
    pub address: u64,
    /// The address by which work requests know its first byte.
    pub iova: u64,
    /// How many bytes; all that there are for `ibv_alloc_null_mr`.
    pub len: u64,
    /// Whether it has no memory: `ibv_alloc_null_mr`.
    pub is_null: bool,
    /// Rights.
    pub access: Access,
}

/// A completion queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompletionQueue {
    /// How many completions it was asked to hold.
    pub capacity: u32,
}

/// Types of queue pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QpType {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Datagrams.
    Ud,
}

/// States of queue pairs, as `enum ibv_qp_state` has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are those of verbs")]
pub enum QpState {
    Reset,
    Init,
    Rtr,
    Rts,
    Sqd,
    Sqe,
    Err,
}

impl QpState {
    /// By its number in verbs.
    pub fn from_number(number: i32) -> Option<QpState> {
        use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};
        [Reset, Init, Rtr, Rts, Sqd, Sqe, Err].get(usize::try_from(number).ok()?).copied()
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            QpState::Reset => "RESET",
            QpState::Init => "INIT",
            QpState::Rtr => "RTR",
            QpState::Rts => "RTS",
            QpState::Sqd => "SQD",
            QpState::Sqe => "SQE",
            QpState::Err => "ERR",
        }
    }
}

/// How much a queue pair holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capacity {
    /// `max_send_wr`, as the verb that made it said.
    pub sends: u32,
    /// `max_send_sge`.
    pub send_sges: u32,
    /// `max_recv_sge`.
    pub receive_sges: u32,
}

/// A queue pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuePair {
    /// Whose number it is.
    pub nic: NicId,
    /// Its number.
    pub number: u32,
    /// Its type.
    pub kind: QpType,
    /// The protection domain; of a parent domain the one below it.
    pub domain: ObjectId,
    /// Where its sends complete.
    pub send_cq: ObjectId,
    /// Where its receives complete.
    pub recv_cq: ObjectId,
    /// Where its receives come from, if not from a queue of its own.
    pub srq: Option<ObjectId>,
    /// Every send is signaled.
    pub signals_all: bool,
    /// What it holds.
    pub capacity: Capacity,
}

/// Attributes that a change of a queue pair can name, by the bits of `enum ibv_qp_attr_mask`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mask(pub u32);

/// A change of a queue pair that was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Change {
    /// What it named.
    pub mask: Mask,
    /// The state, if it named one.
    pub state: Option<QpState>,
    /// The ACK timeout.
    pub timeout: Option<u8>,
    /// How often it tries when the peer has no receive; 7 is for ever.
    pub rnr_retry: Option<u8>,
    /// How many READs and atomics it may have outstanding.
    pub read_depth: Option<u8>,
    /// The peer's number.
    pub peer: Option<u32>,
    /// Whether the program named the attributes itself, and not librdmacm.
    pub is_the_programs: bool,
}

/// A scatter/gather element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sge {
    /// The first byte.
    pub address: u64,
    /// How many.
    pub len: u32,
    /// Of which region.
    pub lkey: u32,
}

/// Operations of the send queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendOp {
    /// SEND, with immediate or invalidation.
    Send,
    /// WRITE, with immediate or without.
    Write,
    /// READ.
    Read,
    /// Compare-and-swap, fetch-and-add.
    Atomic,
    /// BIND_MW, LOCAL_INV.
    Local,
}

impl SendOp {
    pub(crate) fn name(self) -> &'static str {
        match self {
            SendOp::Send => "SEND",
            SendOp::Write => "WRITE",
            SendOp::Read => "READ",
            SendOp::Atomic => "atomic",
            SendOp::Local => "local operation",
        }
    }

    /// Whether the NIC writes into the elements.
    pub(crate) fn writes_locally(self) -> bool {
        matches!(self, SendOp::Read | SendOp::Atomic)
    }
}

/// A work request of a send queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendWork<'a> {
    /// The program's number of it.
    pub wr_id: u64,
    /// What it does.
    pub op: SendOp,
    /// Its elements.
    pub sges: &'a [Sge],
    /// Whether its data are taken at once.
    pub is_inline: bool,
    /// Whether it asks for a completion itself.
    pub is_signaled: bool,
    /// Whether it waits for the READs and atomics before it.
    pub is_fenced: bool,
    /// The address and key at the peer.
    pub remote: Option<(u64, u32)>,
}

/// A work request of a receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiveWork<'a> {
    /// The program's number of it.
    pub wr_id: u64,
    /// Its elements.
    pub sges: &'a [Sge],
}

/// A queue of receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReceiveQueue {
    /// That of a queue pair.
    Own(ObjectId),
    /// A shared one.
    Shared(ObjectId),
}

/// Work requests that the model was told of and the verb did not carry out yet: those of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tickets {
    pub(crate) first: u64,
    pub(crate) count: u64,
}

/// Why the verb refused work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The state of the queue pair takes none; this is the state that it has.
    State(QpState),
    /// The queue is full.
    Full,
    /// Something else.
    Other,
}

/// How a work request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Well.
    Success,
    /// The queue pair was in ERR.
    Flushed,
    /// IBV_WC_REM_ACCESS_ERR.
    RemoteAccess,
    /// Badly in another way.
    Failed,
}

/// A completion that the program took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completed {
    /// The number of the queue pair.
    pub qp_number: u32,
    /// The program's number of the work request.
    pub wr_id: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// Whether it is of a receive.
    pub is_receive: bool,
}
