//! Work requests: what a program asks a queue pair to do (IBA 11.4.1).

use softnic_wire::{Instant, Qpn};

use crate::memory::Bind;

/// A piece of local memory, laid out as `struct ibv_sge` is: programs' lists of them are used as they are.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sge {
    /// Virtual address.
    pub addr: u64,
    /// Bytes.
    pub len: u32,
    /// The key of the memory region that holds them.
    pub lkey: u32,
}

/// The operation of a send work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendOp {
    /// A message into a receive that the peer posted.
    Send,
    /// SEND with immediate data.
    SendImm {
        /// The immediate, as a big-endian number.
        imm: u32,
    },
    /// Bytes into the peer's memory.
    Write {
        /// Where in the peer's memory.
        remote_addr: u64,
        /// The peer's key for it.
        rkey: u32,
    },
    /// WRITE with immediate data, which uses up a receive of the peer.
    WriteImm {
        /// Where in the peer's memory.
        remote_addr: u64,
        /// The peer's key for it.
        rkey: u32,
        /// The immediate, as a big-endian number.
        imm: u32,
    },
    /// Bytes out of the peer's memory into the work request's own.
    Read {
        /// Where in the peer's memory.
        remote_addr: u64,
        /// The peer's key for it.
        rkey: u32,
    },
    /// Eight bytes of the peer's memory become `swap` if they are `compare`; the old value comes back.
    CompareSwap {
        /// Where in the peer's memory, a multiple of 8.
        remote_addr: u64,
        /// The peer's key for it.
        rkey: u32,
        /// The value that they must have.
        compare: u64,
        /// The new value.
        swap: u64,
    },
    /// `add` is added to eight bytes of the peer's memory; the old value comes back.
    FetchAdd {
        /// Where in the peer's memory, a multiple of 8.
        remote_addr: u64,
        /// The peer's key for it.
        rkey: u32,
        /// The number that is added.
        add: u64,
    },
    /// A message whose arrival invalidates a key of the peer (IBA 9.4.1.1.3).
    SendInv {
        /// The peer's key.
        rkey: u32,
    },
    /// Invalidates a local key; nothing is sent (IBA 10.6.7.2.5).
    LocalInv {
        /// The key.
        rkey: u32,
    },
    /// A memory window is laid over a part of a memory region; nothing is sent (IBA 10.6.7.2.3).
    BindWindow(Bind),
}

impl SendOp {
    /// Whether it is answered by data, not by an acknowledgement: READs and atomics.
    #[inline]
    pub(crate) fn awaits_data(&self) -> bool {
        matches!(self, SendOp::Read { .. } | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. })
    }

    /// Whether the message takes a receive of the peer.
    #[inline]
    pub fn uses_receive(&self) -> bool {
        matches!(self, SendOp::Send | SendOp::SendImm { .. } | SendOp::SendInv { .. } | SendOp::WriteImm { .. })
    }

    /// Whether it is carried out here, without a packet.
    #[inline]
    pub(crate) fn is_local(&self) -> bool {
        matches!(self, SendOp::LocalInv { .. } | SendOp::BindWindow(_))
    }
}

/// Names an address handle to the NIC that owns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AhId(pub u32);

/// Where a datagram goes: each one may go elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram {
    /// The path.
    pub ah: AhId,
    /// The destination's queue pair.
    pub dest_qp: Qpn,
    /// The key that it wants to see; with the highest bit set, the sender's own is sent instead (IBA 10.2.5).
    pub qkey: u32,
}

/// How a send work request is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SendFlags {
    /// Its completion is wanted also when it goes well.
    pub signaled: bool,
    /// The peer's completion should raise an event.
    pub solicited: bool,
    /// It begins only when all READs and atomics before it are done (IBA 10.8.3.3).
    pub fence: bool,
}

/// Where the bytes of a send come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data<'a> {
    /// Gathered from memory regions when the packets are built, and again when they are sent again.
    Gather(&'a [Sge]),
    /// Copied into the work request now; no memory region is needed and the buffer is free at once.
    Inline(&'a [u8]),
}

impl Data<'_> {
    /// Bytes.
    pub fn len(&self) -> u64 {
        match self {
            Data::Gather(sges) => sges.iter().map(|s| u64::from(s.len)).sum(),
            Data::Inline(bytes) => bytes.len() as u64,
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a work request of a transport of best effort says beside others (XP).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BestEffort {
    /// When it must be done at the latest, by the NIC's clock. It binds all work requests before it in its queue, too.
    pub deadline: Option<Instant>,
    /// Of a send: the blocks that each packet has a part of, a power of two; 0 and 1 are plain.
    pub stride: u16,
    /// Of a receive or READ: memory for a bit a packet, the lowest bit of a byte first. The NIC clears it when the message begins.
    pub bitmap: Option<Sge>,
}

impl BestEffort {
    /// The most blocks that a packet has a part of.
    pub const MAX_STRIDE: u16 = 2048;

    /// To be done at this time, and nothing more.
    pub fn until(deadline: Instant) -> BestEffort {
        BestEffort { deadline: Some(deadline), ..BestEffort::default() }
    }
}

/// A send work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendWr<'a> {
    /// The program's own name for it.
    pub wr_id: u64,
    /// The operation.
    pub op: SendOp,
    /// Where its bytes come from.
    pub data: Data<'a>,
    /// How it is carried out.
    pub flags: SendFlags,
    /// For transports of best effort.
    pub best_effort: Option<&'a BestEffort>,
    /// Where it goes: for datagrams, and for nothing else.
    pub to: Option<Datagram>,
}

/// A receive work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecvWr<'a> {
    /// The program's own name for it.
    pub wr_id: u64,
    /// Where the bytes go, in order.
    pub sges: &'a [Sge],
    /// For transports of best effort.
    pub best_effort: Option<&'a BestEffort>,
}

/// Why a work request was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// As many work requests as the queue holds are outstanding.
    #[error("the queue is full")]
    QueueFull,
    /// More scatter/gather elements than the queue pair was made for.
    #[error("more scatter/gather elements than the queue pair allows")]
    TooManySges,
    /// More inline data than the queue pair was made for.
    #[error("more inline data than the queue pair allows")]
    InlineTooLong,
    /// A READ or atomic with inline data: there is nothing to send.
    #[error("a READ or atomic takes no inline data")]
    InlineNotAllowed,
    /// An atomic whose local memory is not eight bytes.
    #[error("an atomic works on eight bytes")]
    AtomicLength,
    /// A message longer than 2 GiB, or a datagram longer than the port's MTU.
    #[error("the message is longer than the transport carries")]
    MessageTooLong,
    /// The transport has no such operation: UC has no READ, UD sends only.
    #[error("this transport has no such operation")]
    NoSuchOperation,
    /// A datagram without an address, or an address where the connection says where it goes.
    #[error("a datagram needs an address handle, and nothing else takes one")]
    Address,
    /// The queue pair's state does not allow it.
    #[error("the queue pair's state does not allow it")]
    State,
    /// The transport does not keep deadlines, strides or bitmaps, the peer did not agree to it, or the shared receive queue was made
    /// without them.
    #[error("this transport does not take deadlines")]
    NoDeadlines,
    /// A stride that is no power of two up to 2048.
    #[error("a stride is a power of two up to 2048")]
    Stride,
    /// A bitmap of what neither receives nor reads.
    #[error("only a receive or READ has a bitmap")]
    Bitmap,
}

/// Splits bytes at `offset` of a message over scatter elements; `place` gets an element, the offset in it, and its part.
#[inline]
pub(crate) fn scatter<E>(
    sges: &[Sge],
    offset: u64,
    bytes: &[u8],
    mut place: impl FnMut(&Sge, u64, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let (mut skip, mut bytes) = (offset, bytes);
    for sge in sges {
        if bytes.is_empty() {
            break;
        }
        if skip >= u64::from(sge.len) {
            skip -= u64::from(sge.len);
            continue;
        }
        let (part, rest) = bytes.split_at(bytes.len().min((u64::from(sge.len) - skip) as usize));
        place(sge, skip, part)?;
        (skip, bytes) = (0, rest);
    }
    Ok(())
}
