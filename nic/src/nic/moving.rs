//! Support for moving a connection's work to another NIC: halting a queue pair, reading and withdrawing its work, and completing the work
//! elsewhere.

use softnic_transports::qp::{ModifyError, NextPsns, QpAttr, QpState, QueuePair, RETRY_FOREVER, Update};
use softnic_transports::{
    Completion, CompletionSink, CqId, CqOverflow, OutstandingRecvs, OutstandingSends, RecvWr, RecvsKept,
};
use softnic_wire::Qpn;

use super::{Nic, ObjectError};
use crate::connect::Connection;
use crate::cq::CqError;

impl Nic {
    /// Halts a connected queue pair of a reliable connection, as running out of retries does with
    /// [`QpInit::halt_on_retry_exceeded`](crate::QpInit::halt_on_retry_exceeded), whether or not that is set; no event is raised. The queue
    /// pair enters the error state and sends nothing, and all its work stays in place. The work can be read ([`Nic::outstanding_sends`],
    /// [`Nic::outstanding_recvs`]); no further work can be posted; a second change to the error state flushes it. A queue pair that has
    /// halted already stays as it is, and its shim stops sending, too.
    ///
    /// # Errors
    /// When the queue pair is not of a reliable connection, is not connected, or its work was flushed.
    pub fn halt_qp(&mut self, qpn: Qpn) -> Result<(), ModifyError> {
        let (index, slot, _) = self.slot(qpn).ok_or(ModifyError::NoSuchQp)?;
        let from = slot.endpoint.qp.state();
        if !slot.endpoint.halt() {
            return Err(ModifyError::Transition { from, to: QpState::Error });
        }
        self.reset_shim(index);
        // The timers have stopped.
        self.activate(index);
        Ok(())
    }

    /// Puts the send queue of an unreliable or datagram queue pair into the error state, as after a failed send: from now on sends are
    /// flushed. This simulates a fault of the device.
    ///
    /// # Errors
    /// When the service has no such state, or the queue pair is not in a state in which it sends.
    pub fn fail_sends(&mut self, qpn: Qpn) -> Result<(), ModifyError> {
        let (index, slot, shared) = self.slot(qpn).ok_or(ModifyError::NoSuchQp)?;
        let from = slot.endpoint.qp.state();
        if !slot.endpoint.fail_sends(shared) {
            return Err(ModifyError::Transition { from, to: QpState::SendQueueError });
        }
        self.activate(index);
        Ok(())
    }

    /// Suspends the retry count of a reliable connection, and uses this timeout code for acknowledgements: the owner waits for an answer of
    /// the peer, and does not want the queue pair to give up. `None` restores the values of its attributes.
    pub fn set_patience(&mut self, qpn: Qpn, timeout: Option<u8>) {
        let Some((_, slot, _)) = self.slot(qpn) else { return };
        let attr = slot.endpoint.attributes();
        let (timeout, retry_cnt) = match timeout {
            Some(timeout) => (Some(timeout), Some(RETRY_FOREVER)),
            None => (attr.timeout, attr.retry_cnt),
        };
        slot.endpoint.qp.update(&Update { timeout, retry_cnt, ..Update::default() });
    }

    /// The next `messages` messages of a reliable connection each request an acknowledgement in their last packet, because the owner waits
    /// for their completions. Otherwise, acknowledgements are requested once per many packets, which is later than the end of a message
    /// that others follow.
    pub fn hasten_acks(&mut self, qpn: Qpn, messages: u8) {
        if let Some((_, slot, _)) = self.slot(qpn) {
            slot.endpoint.qp.hasten_acks(messages);
        }
    }

    /// Changes those attributes of a connected queue pair that may change at any time, in any state. The owner has checked the rules.
    pub fn update_qp(&mut self, qpn: Qpn, attr: &QpAttr) {
        if let Some((_, slot, _)) = self.slot(qpn) {
            slot.endpoint.change(attr);
        }
    }

    /// Connects a queue pair again, to the same peer. The agreed extensions stay valid and are not negotiated again.
    ///
    /// # Errors
    /// As [`Nic::connect`].
    pub fn reconnect(&mut self, qpn: Qpn, connection: &Connection) -> Result<(), ModifyError> {
        let (_, slot, _) = self.slot(qpn).ok_or(ModifyError::NoSuchQp)?;
        let agreed = slot.endpoint.agreed();
        let reset = QpAttr { state: Some(QpState::Reset), ..QpAttr::default() };
        self.modify_qp(qpn, &reset)?;
        if let (Some((_, slot, _)), Some(agreed)) = (self.slot(qpn), agreed) {
            slot.endpoint.keep_agreed(agreed);
        }
        self.connect(qpn, connection)
    }

    /// Marks work with this `wr_id` as the owner's: its flush errors are not reported, and take no place in a completion queue.
    pub fn set_own_work(&mut self, wr_id: u64) {
        self.shared.own_work = Some(wr_id);
    }

    /// The sends of a reliable connection that have not completed, oldest first, including those whose doorbell was not rung. After a halt,
    /// these are the sends left in place. `None` for other queue pairs.
    pub fn outstanding_sends(&self, qpn: Qpn) -> Option<OutstandingSends<'_>> {
        self.slot_of(qpn)?.endpoint.qp.outstanding_sends()
    }

    /// The receives that were posted to a queue pair of a reliable connection and are not used up, oldest first, including one that is
    /// partly filled by a message. `None` for other queue pairs, and if receives come from a shared queue.
    pub fn outstanding_recvs(&self, qpn: Qpn) -> Option<OutstandingRecvs<'_>> {
        self.slot_of(qpn)?.endpoint.qp.outstanding_recvs()
    }

    /// Withdraws the receives of [`Nic::outstanding_recvs`] without completing them, in any state, and passes each to `take`, oldest first.
    /// Returns their number.
    ///
    /// # Errors
    /// When there are no such receives ([`ObjectError::WrongKind`]), or when a message that still arrives has partly filled one of them
    /// ([`ObjectError::Busy`]), because the rest of the message would have no receive. None is withdrawn then. Nothing arrives at a queue
    /// pair that has halted.
    pub fn take_recvs(&mut self, qpn: Qpn, take: impl FnMut(&RecvWr<'_>)) -> Result<u32, ObjectError> {
        let (_, slot, _) = self.slot(qpn).ok_or(ObjectError::NoSuchQp)?;
        slot.endpoint.qp.take_recvs(take).map_err(|kept| match kept {
            RecvsKept::NotOwn => ObjectError::WrongKind,
            RecvsKept::InUse => ObjectError::Busy,
        })
    }

    /// The PSN of a reliable connection's next new request, and the expected PSN of the peer's requests, from RTR until the queue pair is
    /// reset. `None` for other queue pairs.
    pub fn next_psns(&self, qpn: Qpn) -> Option<NextPsns> {
        self.slot_of(qpn)?.endpoint.qp.next_psns()
    }

    /// Adds a completion of another NIC to a queue of this NIC, as if one of this NIC's queue pairs had completed.
    pub fn push_completion(&mut self, cq: CqId, completion: Completion) -> Result<(), CqError> {
        self.cq(cq)?;
        self.shared.complete(cq, completion).map_err(|CqOverflow| CqError::Overflow)
    }
}
