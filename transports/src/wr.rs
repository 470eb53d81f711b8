//! Work requests: the operations that a program posts to a queue pair (IBA 11.4.1).

use softnic_wire::{Instant, Qpn};

use crate::memory::Bind;

/// A range of local memory, with the layout of `struct ibv_sge`, so that programs' lists of elements are used without conversion.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sge {
    /// Virtual address.
    pub addr: u64,
    /// Length in bytes.
    pub len: u32,
    /// The key of the memory region.
    pub lkey: u32,
}

/// The operation of a send work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendOp {
    /// Sends a message into a receive that the peer posted.
    Send,
    /// SEND with immediate data.
    SendImm {
        /// The immediate, as a big-endian number.
        imm: u32,
    },
    /// Writes bytes into the peer's memory.
    Write {
        /// The address in the peer's memory.
        remote_addr: u64,
        /// The peer's key for the memory.
        rkey: u32,
    },
    /// WRITE with immediate data, which uses a receive of the peer.
    WriteImm {
        /// The address in the peer's memory.
        remote_addr: u64,
        /// The peer's key for the memory.
        rkey: u32,
        /// The immediate, as a big-endian number.
        imm: u32,
    },
    /// Reads bytes from the peer's memory into the memory of the work request.
    Read {
        /// The address in the peer's memory.
        remote_addr: u64,
        /// The peer's key for the memory.
        rkey: u32,
    },
    /// Sets eight bytes of the peer's memory to `swap` if they are `compare`; returns the old value.
    CompareSwap {
        /// The address in the peer's memory, a multiple of 8.
        remote_addr: u64,
        /// The peer's key for the memory.
        rkey: u32,
        /// The value compared with.
        compare: u64,
        /// The new value.
        swap: u64,
    },
    /// Adds `add` to eight bytes of the peer's memory; returns the old value.
    FetchAdd {
        /// The address in the peer's memory, a multiple of 8.
        remote_addr: u64,
        /// The peer's key for the memory.
        rkey: u32,
        /// The number to add.
        add: u64,
    },
    /// Sends a message whose arrival invalidates a key of the peer (IBA 9.4.1.1.3).
    SendInv {
        /// The peer's key.
        rkey: u32,
    },
    /// Invalidates a local key; nothing is sent (IBA 10.6.7.2.5).
    LocalInv {
        /// The key.
        rkey: u32,
    },
    /// Binds a memory window to a part of a memory region; nothing is sent (IBA 10.6.7.2.3).
    BindWindow(Bind),
}

impl SendOp {
    /// Whether it is answered by data rather than by an acknowledgement: READs and atomics.
    #[inline]
    pub(crate) fn awaits_data(&self) -> bool {
        matches!(self, SendOp::Read { .. } | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. })
    }

    /// Whether the message takes a receive of the peer.
    #[inline]
    pub fn uses_receive(&self) -> bool {
        matches!(self, SendOp::Send | SendOp::SendImm { .. } | SendOp::SendInv { .. } | SendOp::WriteImm { .. })
    }

    /// Whether it is executed locally, without a packet.
    #[inline]
    pub(crate) fn is_local(&self) -> bool {
        matches!(self, SendOp::LocalInv { .. } | SendOp::BindWindow(_))
    }
}

/// The name of an address handle at its NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AhId(pub u32);

/// The destination of a datagram; each datagram may have another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram {
    /// The address handle, which contains the path.
    pub ah: AhId,
    /// The destination's queue pair number.
    pub dest_qp: Qpn,
    /// The key of the destination's queue pair; with the highest bit set, the sender's own key is sent instead (IBA 10.2.5).
    pub qkey: u32,
}

/// The flags of a send work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SendFlags {
    /// A completion is generated also on success.
    pub signaled: bool,
    /// The peer's completion is to raise an event.
    pub solicited: bool,
    /// The work request starts only after all earlier READs and atomics are done (IBA 10.8.3.3).
    pub fence: bool,
}

/// The source of the bytes of a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data<'a> {
    /// Gathered from memory regions when the packets are written, and again on retransmission.
    Gather(&'a [Sge]),
    /// Copied into the work request now; no memory region is needed, and the buffer can be reused at once.
    Inline(&'a [u8]),
}

impl Data<'_> {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Data::Gather(sges) => sges.iter().map(|s| u64::from(s.len)).sum(),
            Data::Inline(bytes) => bytes.len() as u64,
        }
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The best-effort attributes of a work request (XP).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BestEffort {
    /// The deadline, by the NIC's clock. It also applies to all earlier work requests of the queue.
    pub deadline: Option<Instant>,
    /// For a send: the number of blocks that each packet has a part of, a power of two; 0 and 1 mean no stride.
    pub stride: u16,
    /// For a receive or READ: memory for one bit per packet, the lowest bit of a byte first. The NIC clears it when the message starts.
    pub bitmap: Option<Sge>,
}

impl BestEffort {
    /// Maximum number of blocks that a packet has a part of.
    pub const MAX_STRIDE: u16 = 2048;

    /// Only a deadline.
    pub fn until(deadline: Instant) -> BestEffort {
        BestEffort { deadline: Some(deadline), ..BestEffort::default() }
    }
}

/// A send work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendWr<'a> {
    /// The program's identifier for it.
    pub wr_id: u64,
    /// The operation.
    pub op: SendOp,
    /// The source of its bytes.
    pub data: Data<'a>,
    /// Its flags.
    pub flags: SendFlags,
    /// Attributes for transports of best effort.
    pub best_effort: Option<&'a BestEffort>,
    /// The destination, for datagrams only.
    pub to: Option<Datagram>,
}

/// A receive work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecvWr<'a> {
    /// The program's identifier for it.
    pub wr_id: u64,
    /// The memory for the bytes, in order.
    pub sges: &'a [Sge],
    /// Attributes for transports of best effort.
    pub best_effort: Option<&'a BestEffort>,
}

/// Why a work request was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The queue is full.
    #[error("the queue is full")]
    QueueFull,
    /// More scatter/gather elements than the queue pair was created for.
    #[error("more scatter/gather elements than the queue pair allows")]
    TooManySges,
    /// More inline data than the queue pair was created for.
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
    /// The transport does not support the operation: UC has no READ, UD only SEND.
    #[error("this transport has no such operation")]
    NoSuchOperation,
    /// A datagram without an address handle, or an address handle on a connection.
    #[error("a datagram needs an address handle, and nothing else takes one")]
    Address,
    /// The queue pair's state does not permit it.
    #[error("the queue pair's state does not allow it")]
    State,
    /// The transport does not support deadlines, strides or bitmaps, or the peer did not agree to them, or the shared receive queue was
    /// created without them.
    #[error("this transport does not take deadlines")]
    NoDeadlines,
    /// The stride is not a power of two up to 2048.
    #[error("a stride is a power of two up to 2048")]
    Stride,
    /// A bitmap on a work request that is neither a receive nor a READ.
    #[error("only a receive or READ has a bitmap")]
    Bitmap,
}

/// Splits bytes at `offset` of a message among scatter elements; `place` gets an element, the offset in it, and its part.
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
