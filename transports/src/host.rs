//! The interface of a queue pair to the NIC that holds it.

use softnic_wire::Template;

use crate::congestion::CreditPacer;
use crate::counters::Misfits;
use crate::event::Event;
use crate::memory::PdId;
use crate::recv_queue::{RecvQueue, SrqId};
use crate::wr::AhId;
use crate::{CompletionSink, Counters, Memory};

/// Memory, completion queues, shared receives, addresses and counters: all of the world that a queue pair sees.
pub trait Host: Memory + CompletionSink {
    /// The NIC's counters.
    fn counters(&mut self) -> &mut Counters;

    /// Packets that did not fit, of all queue pairs; whoever hands a packet to a queue pair sees what it added.
    fn misfits(&mut self) -> &mut Misfits;

    /// An answer came to what is not outstanding.
    fn count_stale_answer(&mut self) {
        self.counters().stale_acks += 1;
        self.misfits().psn += 1;
    }

    /// A request came under a key that does not allow it.
    fn count_access_error(&mut self) {
        self.counters().resp_remote_access_errors += 1;
        self.misfits().rkey += 1;
    }

    /// Tells the program of something that belongs to no work request.
    fn notify(&mut self, event: Event);

    /// Moves the oldest receive of a shared queue to the end of a queue pair's own; `false` when there is none.
    fn take_shared(&mut self, srq: SrqId, into: &mut RecvQueue) -> bool;

    /// Moves the oldest receive of a queue pair's own queue back to the beginning of the shared one that it was taken from; `false` when
    /// there is no room for it any more.
    fn return_shared(&mut self, srq: SrqId, from: &mut RecvQueue) -> bool;

    /// The headers of datagrams to an address of this protection domain; the destination's number is to be filled in.
    fn address(&self, ah: AhId, pd: PdId) -> Option<&Template>;

    /// What hands out turns to give credit to senders that send by this port of the NIC.
    fn credit_pacer(&mut self, port: usize) -> Option<&mut CreditPacer>;
}
