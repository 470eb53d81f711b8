//! A layer between a queue pair and its frames: forward error correction and the like.
//!
//! A shim sees every frame that a queue pair sends and receives, may add frames of its own, and may hold frames back or
//! bring back lost ones. The frames are whole, Ethernet to ICRC, so that a recovered frame proves itself by its own ICRC.

use softnic_wire::{Instant, Psn, Template, TxFrame};

use crate::Counters;
use crate::lowar::{Buffers, Code};
use crate::negotiation::Agreed;

/// What a shim does with a frame that was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The queue pair gets it now.
    Deliver,
    /// The same, and [`Shim::poll_deliver`] may have more.
    DeliverAndPoll,
    /// The shim keeps it, or it was the shim's own; [`Shim::poll_deliver`] may have others.
    Consume,
}

/// What all shims of a NIC share.
pub struct Lent<'a> {
    /// Memory for packets and sums of packets.
    pub buffers: &'a mut Buffers,
    /// The NIC's counters.
    pub counters: &'a mut Counters,
}

/// The PSNs that a queue pair waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Awaited {
    /// Of the peer's next request; `None` where PSNs say nothing.
    pub request: Option<Psn>,
    /// Of the next READ response or value of an atomic; `None` while none is owed.
    pub response: Option<Psn>,
}

/// A frame that was received.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a> {
    /// The frame, its ICRC right; without its payload where the simulator elided that.
    pub frame: &'a [u8],
    /// Where its BTH begins.
    pub bth: usize,
    /// One past its ICRC, there or elided.
    pub end: usize,
}

/// A layer below one queue pair.
pub trait Shim: Send {
    /// The peer agreed to what was offered for the shim.
    fn on_agreement(&mut self, agreed: &Agreed);

    /// The peer is to be asked to send other blocks; what it sends is its own decision. For shims without blocks this is nothing.
    fn wish(&mut self, _: Code) {}

    /// The queue pair's frames have these headers from now on.
    fn set_template(&mut self, template: &Template);

    /// A frame of the queue pair is about to leave. Says whether [`Shim::poll_transmit`] has something now.
    fn on_transmit(&mut self, now: Instant, frame: &TxFrame<'_>, lent: Lent<'_>) -> bool;

    /// A frame of the shim's own to send before anything else of the queue pair. It is asked for after an agreement, after frames that came,
    /// and when [`Shim::on_transmit`] says so, until there is none.
    fn poll_transmit(&mut self, now: Instant, tx: &mut TxFrame<'_>, lent: Lent<'_>) -> bool;

    /// A frame for the queue pair was received.
    fn on_receive(&mut self, now: Instant, arrival: &Arrival<'_>, awaited: Awaited, lent: Lent<'_>) -> Verdict;

    /// A frame that was held back or recovered and is due now, copied to `out`; its length.
    fn poll_deliver(&mut self, now: Instant, awaited: Awaited, out: &mut [u8], lent: Lent<'_>) -> Option<usize>;

    /// When [`Shim::handle_timeout`] wants to be called.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Time has passed.
    fn handle_timeout(&mut self, now: Instant, lent: Lent<'_>);

    /// The queue pair begins anew, or is gone: what was lent is given back.
    fn reset(&mut self, lent: Lent<'_>);
}
