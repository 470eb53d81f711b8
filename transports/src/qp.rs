//! The trait of a queue pair: what every transport offers to the NIC.

use softnic_wire::{ExtHeaders, Instant, Qpn, TxFrame, bth};

use crate::{Host, PostError, RecvWr, SendWr};

/// Queue pair states (IBA 10.3.1). SQD and SQE come with the transports that have them.
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
    /// All work is flushed.
    Error,
}

/// A packet for a queue pair: headers read, ICRC right, sender and partition checked.
#[derive(Debug, Clone, Copy)]
pub struct Inbound<'a> {
    /// Base transport header.
    pub bth: bth::Repr,
    /// Extension headers.
    pub ext: ExtHeaders,
    /// The payload; empty where the simulator elided it.
    pub payload: &'a [u8],
    /// Bytes of payload, elided or not.
    pub payload_len: u32,
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

    /// Takes a packet.
    fn handle_packet(&mut self, now: Instant, packet: &Inbound<'_>, host: &mut impl Host);

    /// Writes the next frame, if there is one to send now.
    fn poll_transmit(&mut self, now: Instant, tx: &mut TxFrame<'_>, host: &mut impl Host) -> bool;

    /// When [`QueuePair::handle_timeout`] wants to be called.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Time has passed.
    fn handle_timeout(&mut self, now: Instant, host: &mut impl Host);

    /// Goes to the error state and flushes all work, by wish of the program.
    fn fail(&mut self, host: &mut impl Host);
}
