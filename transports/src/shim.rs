//! A layer between a queue pair and its frames: forward error correction and the like.
//!
//! A shim sees every frame that a queue pair sends and receives, may add frames of its own, and may hold frames back or
//! bring back lost ones. The frames are whole, Ethernet to ICRC, so that a recovered frame proves itself by its own ICRC.

use softnic_wire::{Instant, TxFrame};

/// What a shim does with a frame that was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The queue pair gets it now.
    Deliver,
    /// The shim keeps it, or it was the shim's own.
    Consume,
}

/// A layer below one queue pair.
pub trait Shim: Send {
    /// A frame of the queue pair is about to leave.
    fn on_transmit(&mut self, now: Instant, frame: &TxFrame<'_>);

    /// A frame of the shim's own to send before anything else of the queue pair.
    fn poll_transmit(&mut self, now: Instant, tx: &mut TxFrame<'_>) -> bool;

    /// A frame for the queue pair was received, its ICRC right.
    fn on_receive(&mut self, now: Instant, frame: &[u8]) -> Verdict;

    /// A frame that was held back or recovered and is due now, copied to `out`; its length.
    fn poll_deliver(&mut self, now: Instant, out: &mut [u8]) -> Option<usize>;

    /// When [`Shim::handle_timeout`] wants to be called.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Time has passed.
    fn handle_timeout(&mut self, now: Instant);
}
