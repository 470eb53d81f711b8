//! A layer between a queue pair and its frames, such as forward error correction.
//!
//! A shim sees every frame that a queue pair sends and receives, may add frames of its own, and may hold frames back or recover lost ones.
//! Frames are complete, from Ethernet header to ICRC, so that a recovered frame is verified by its own ICRC.

use std::any::Any;
use std::time::Duration;

use softnic_wire::{Instant, Template, TxFrame};

use crate::Counters;
use crate::lowar::Buffers;
use crate::negotiation::Agreed;
use crate::qp::ExpectedPsns;

/// The maximum time for which a shim may hold frames back while no other frame arrives.
pub(crate) const LONGEST_HOLD: Duration = Duration::from_millis(4);

/// A shim's decision about a received frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShimAction {
    /// The queue pair gets the frame now.
    Deliver,
    /// The queue pair gets the frame now, and [`Shim::poll_deliver`] may have more.
    DeliverAndPoll,
    /// The shim keeps the frame; [`Shim::poll_deliver`] may have others.
    Hold,
    /// The frame was for the shim itself. The shim may now have frames for the queue pair ([`Shim::poll_deliver`]) and an answer of its own
    /// ([`Shim::poll_transmit`]).
    Consume,
}

/// The memory shared by the shims of a NIC, for each kind of shim; allocated with the first queue pair that needs it.
#[derive(Default)]
pub struct ShimPools {
    /// Coding units and the reordering ring of LoWAR.
    pub lowar: Buffers,
}

/// The memory and counters shared by all shims of a NIC.
pub struct ShimResources<'a> {
    /// The memory for each kind of shim that needs any.
    pub pools: &'a mut ShimPools,
    /// The NIC's counters.
    pub counters: &'a mut Counters,
}

/// A received frame.
#[derive(Debug, Clone, Copy)]
pub struct ReceivedFrame<'a> {
    /// The frame, with a valid ICRC; without its payload if the simulator elided that.
    pub frame: &'a [u8],
    /// The offset of its BTH.
    pub bth: usize,
    /// The offset after its ICRC, present or elided.
    pub end: usize,
}

/// A layer below one queue pair.
pub trait Shim: Any + Send {
    /// The peer agreed to the extension that was offered for the shim.
    fn on_agreement(&mut self, agreed: &Agreed);

    /// Sets the headers of the queue pair's frames from now on.
    fn set_template(&mut self, template: &Template);

    /// A frame of the queue pair is about to be sent. Returns whether [`Shim::poll_transmit`] has a frame now.
    fn on_transmit(&mut self, now: Instant, frame: &TxFrame<'_>, resources: ShimResources<'_>) -> bool;

    /// Writes a frame of the shim's own, which is sent before all other frames of the queue pair. Called after an agreement, after frames
    /// for the shim, and when [`Shim::on_transmit`] returns true, until there is none.
    fn poll_transmit(&mut self, now: Instant, tx: &mut TxFrame<'_>, resources: ShimResources<'_>) -> bool;

    /// Handles a received frame, for the queue pair or the shim.
    fn on_receive(
        &mut self,
        now: Instant,
        received: &ReceivedFrame<'_>,
        expected: ExpectedPsns,
        resources: ShimResources<'_>,
    ) -> ShimAction;

    /// Copies a frame that was held back or recovered, and is due now, to `out`; returns its length.
    fn poll_deliver(
        &mut self,
        now: Instant,
        expected: ExpectedPsns,
        out: &mut [u8],
        resources: ShimResources<'_>,
    ) -> Option<usize>;

    /// When to call [`Shim::handle_timeout`].
    fn poll_timeout(&self) -> Option<Instant>;

    /// Handles a timeout.
    fn handle_timeout(&mut self, now: Instant, resources: ShimResources<'_>);

    /// The queue pair is reset or destroyed: returns the memory of the pools.
    fn reset(&mut self, resources: ShimResources<'_>);
}
