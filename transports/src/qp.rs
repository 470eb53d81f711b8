//! The trait of a queue pair: what every transport offers to the NIC.

use softnic_wire::{ExtHeaders, Instant, Qpn, TxFrame, bth, grh};

use crate::completion::CqId;
use crate::memory::PdId;
use crate::recv_queue::SrqId;
use crate::{Host, PostError, RecvWr, SendWr};

/// Queue pair states (IBA 10.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QpState {
    /// Made, and nothing more.
    Reset,
    /// Receives may be posted.
    Init,
    /// Receives packets.
    ReadyToReceive,
    /// Sends too.
    ReadyToSend,
    /// Begins no further send: what was begun is finished (SQD).
    SendQueueDrain,
    /// A send failed and the rest is flushed, but receiving goes on (SQE); only without reliability.
    SendQueueError,
    /// All work is flushed.
    Error,
}

impl QpState {
    /// Whether packets are received.
    #[inline]
    pub const fn receives(self) -> bool {
        use QpState::*;
        matches!(self, ReadyToReceive | ReadyToSend | SendQueueDrain | SendQueueError)
    }

    /// Whether packets are sent.
    #[inline]
    pub const fn sends(self) -> bool {
        matches!(self, QpState::ReadyToSend | QpState::SendQueueDrain)
    }
}

/// How much a queue pair holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Send work requests outstanding.
    pub max_send_wr: u32,
    /// Receives posted.
    pub max_recv_wr: u32,
    /// Elements of a send.
    pub max_send_sge: u32,
    /// Elements of a receive.
    pub max_recv_sge: u32,
    /// Bytes of inline data.
    pub max_inline: u32,
}

/// A shared receive queue, as a queue pair knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedReceives {
    /// Which it is.
    pub id: SrqId,
    /// Its protection domain: that of the memory that its receives name (IBA 10.2.9).
    pub pd: PdId,
    /// Elements that a receive has at most.
    pub max_sge: u32,
}

/// What a queue pair is made with.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Its number.
    pub qpn: Qpn,
    /// Its protection domain.
    pub pd: PdId,
    /// Where sends complete.
    pub send_cq: CqId,
    /// Where receives complete.
    pub recv_cq: CqId,
    /// The shared queue that receives come from.
    pub srq: Option<SharedReceives>,
    /// How much it holds.
    pub caps: Caps,
    /// Every send is signaled.
    pub sig_all: bool,
    /// Whether frames carry their payload.
    pub payload: PayloadMode,
    /// A reliable connection that runs out of retries halts, with its work in place, instead of flushing it.
    pub halt_on_retry_exceeded: bool,
}

/// A packet for a queue pair: headers read, ICRC right, sender and partition checked.
#[derive(Debug, Clone, Copy)]
pub struct Inbound<'a> {
    /// Base transport header.
    pub bth: bth::Repr,
    /// Extension headers.
    pub ext: &'a ExtHeaders,
    /// The payload; empty where the simulator elided it.
    pub payload: &'a [u8],
    /// Bytes of payload, elided or not.
    pub payload_len: u32,
    /// The network header, as a datagram's receiver gets it; `None` for other services, which do not look at it.
    pub grh: Option<&'a [u8; grh::LEN]>,
    /// The network marked congestion.
    pub ecn_ce: bool,
}

/// Packets and bytes that the simulator can leave out because nobody looks at them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PayloadMode {
    /// Payload is copied and covered by the ICRC.
    #[default]
    Real,
    /// Frames carry headers only; lengths are those of whole packets.
    Elided,
}

/// A queue pair of some transport.
///
/// The NIC calls `poll_transmit` until it says `false`, again after each `handle_*` and each doorbell; and `handle_timeout`
/// when the time of `poll_timeout` has come. Nothing here assumes that packets have one sequence of PSNs.
pub trait QueuePair {
    /// The number by which the peer knows it.
    fn qpn(&self) -> Qpn;

    /// The state it is in. A queue pair goes to [`QpState::Error`] by itself when it must.
    fn state(&self) -> QpState;

    /// Writes a send work request into the queue. Nothing happens before [`QueuePair::ring_doorbell`].
    fn write_send(&mut self, wr: &SendWr<'_>) -> Result<(), PostError>;

    /// Publishes the send work requests written so far.
    fn ring_doorbell(&mut self, now: Instant, host: &mut impl Host);

    /// Posts a receive.
    fn post_recv(&mut self, wr: &RecvWr<'_>, host: &mut impl Host) -> Result<(), PostError>;

    /// Takes a packet. Says whether there may be something to send after it, or a timer that moved.
    fn handle_packet(&mut self, now: Instant, packet: &Inbound<'_>, host: &mut impl Host) -> bool;

    /// Writes the next frame, if there is one to send now.
    fn poll_transmit(&mut self, now: Instant, tx: &mut TxFrame<'_>, host: &mut impl Host) -> bool;

    /// When [`QueuePair::handle_timeout`] wants to be called.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Time has passed.
    fn handle_timeout(&mut self, now: Instant, host: &mut impl Host);

    /// Goes to the error state and flushes all work, by wish of the program.
    fn fail(&mut self, host: &mut impl Host);
}

/// The earlier one of two times, where there is one.
#[inline]
pub fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, None) | (None, one) => one,
    }
}
