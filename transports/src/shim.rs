//! A layer between a queue pair and its frames: forward error correction and the like.
//!
//! A shim sees every frame that a queue pair sends and receives, may add frames of its own, and may hold frames back or
//! bring back lost ones. The frames are whole, Ethernet to ICRC, so that a recovered frame proves itself by its own ICRC.

use std::any::Any;
use std::time::Duration;

use softnic_wire::{Instant, Template, TxFrame};

use crate::Counters;
use crate::lowar::Buffers;
use crate::negotiation::Agreed;
use crate::qp::ExpectedPsns;

/// How long a shim may hold frames back while nothing more comes.
pub(crate) const LONGEST_HOLD: Duration = Duration::from_millis(4);

/// The decision of a shim about a frame that was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShimAction {
    /// The queue pair gets the frame now.
    Deliver,
    /// The queue pair gets the frame now, and [`Shim::poll_deliver`] may have more.
    DeliverAndPoll,
    /// The shim keeps the frame; [`Shim::poll_deliver`] may have others.
    Hold,
    /// The frame was for the shim itself. It may have frames for the queue pair ([`Shim::poll_deliver`]) and an answer of its own
    /// ([`Shim::poll_transmit`]) now.
    Consume,
}

/// Memory that the shims of a NIC share, by kind of shim; made with the first queue pair that needs it.
#[derive(Default)]
pub struct ShimPools {
    /// Coding units and the reordering ring of LoWAR.
    pub lowar: Buffers,
}

/// Memory and counters that all shims of a NIC share.
pub struct ShimResources<'a> {
    /// Memory, for each kind of shim that needs any.
    pub pools: &'a mut ShimPools,
    /// The NIC's counters.
    pub counters: &'a mut Counters,
}

/// A frame that was received.
#[derive(Debug, Clone, Copy)]
pub struct ReceivedFrame<'a> {
    /// The frame, its ICRC right; without its payload where the simulator elided that.
    pub frame: &'a [u8],
    /// Where its BTH begins.
    pub bth: usize,
    /// One past its ICRC, there or elided.
    pub end: usize,
}

/// A layer below one queue pair.
pub trait Shim: Any + Send {
    /// The peer agreed to what was offered for the shim.
    fn on_agreement(&mut self, agreed: &Agreed);

    /// The queue pair's frames have these headers from now on.
    fn set_template(&mut self, template: &Template);

    /// A frame of the queue pair is about to leave. Says whether [`Shim::poll_transmit`] has something now.
    fn on_transmit(&mut self, now: Instant, frame: &TxFrame<'_>, resources: ShimResources<'_>) -> bool;

    /// A frame of the shim's own to send before anything else of the queue pair. It is asked for after an agreement, after frames that came
    /// for the shim, and when [`Shim::on_transmit`] says so, until there is none.
    fn poll_transmit(&mut self, now: Instant, tx: &mut TxFrame<'_>, resources: ShimResources<'_>) -> bool;

    /// A frame for the queue pair, or for the shim, was received.
    fn on_receive(
        &mut self,
        now: Instant,
        received: &ReceivedFrame<'_>,
        expected: ExpectedPsns,
        resources: ShimResources<'_>,
    ) -> ShimAction;

    /// A frame that was held back or recovered and is due now, copied to `out`; its length.
    fn poll_deliver(
        &mut self,
        now: Instant,
        expected: ExpectedPsns,
        out: &mut [u8],
        resources: ShimResources<'_>,
    ) -> Option<usize>;

    /// When [`Shim::handle_timeout`] wants to be called.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Time has passed.
    fn handle_timeout(&mut self, now: Instant, resources: ShimResources<'_>);

    /// The queue pair begins anew, or is gone: memory of the pools is given back.
    fn reset(&mut self, resources: ShimResources<'_>);
}
