//! The interface between a queue pair and its NIC.

use softnic_wire::Template;

use crate::congestion::CreditPacer;
use crate::counters::Misfits;
use crate::event::Event;
use crate::memory::PdId;
use crate::recv_queue::{RecvQueue, SrqId};
use crate::wr::AhId;
use crate::{CompletionSink, Counters, Memory};

/// Memory, completion queues, shared receives, addresses and counters: everything outside the queue pair that it accesses.
pub trait Host: Memory + CompletionSink {
    /// The NIC's counters.
    fn counters(&mut self) -> &mut Counters;

    /// The number of packets that did not fit, for all queue pairs. A caller that passes a packet to a queue pair sees the increase.
    fn misfits(&mut self) -> &mut Misfits;

    /// Counts an answer to a request that is not outstanding.
    fn count_stale_answer(&mut self) {
        self.counters().stale_acks += 1;
        self.misfits().psn += 1;
    }

    /// Counts a request under a key that does not permit it.
    fn count_access_error(&mut self) {
        self.counters().resp_remote_access_errors += 1;
        self.misfits().rkey += 1;
    }

    /// Reports an event to the program.
    fn notify(&mut self, event: Event);

    /// Moves the oldest receive of a shared queue to the end of a queue pair's own queue; returns `false` if there is none.
    fn take_shared(&mut self, srq: SrqId, into: &mut RecvQueue) -> bool;

    /// Moves the oldest receive of a queue pair's own queue back to the start of the shared queue; returns `false` if that has no room any
    /// more.
    fn return_shared(&mut self, srq: SrqId, from: &mut RecvQueue) -> bool;

    /// The header template for datagrams to an address of this protection domain; the destination queue pair number is to be filled in.
    fn address(&self, ah: AhId, pd: PdId) -> Option<&Template>;

    /// The pacer that assigns turns to grant credit to senders at this port of the NIC.
    fn credit_pacer(&mut self, port: usize) -> Option<&mut CreditPacer>;
}
