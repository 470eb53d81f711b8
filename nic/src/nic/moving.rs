//! What moves a connection's work to another NIC: halting a queue pair, reading and withdrawing its work, and
//! completing it elsewhere.

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
    /// [`QpInit::halt_on_retry_exceeded`](crate::QpInit::halt_on_retry_exceeded), whether it has that or not; no event
    /// tells of it. It goes to the error state and falls silent, and all its work stays in place: it can be read
    /// ([`Nic::outstanding_sends`], [`Nic::outstanding_recvs`]), no more of it can be posted, and the error state once
    /// more flushes it. One that has halted already stays as it is, and its shim falls silent, too.
    ///
    /// # Errors
    /// When it is none of a reliable connection, is not connected, or its work was flushed.
    pub fn halt_qp(&mut self, qpn: Qpn) -> Result<(), ModifyError> {
        let (index, slot, _) = self.slot(qpn).ok_or(ModifyError::NoSuchQp)?;
        let from = slot.endpoint.qp.state();
        if !slot.endpoint.halt() {
            return Err(ModifyError::Transition { from, to: QpState::Error });
        }
        self.reset_shim(index);
        // Its timers have stopped.
        self.activate(index);
        Ok(())
    }

    /// The sends of an unreliable queue pair, or of one for datagrams, are flushed from now on, as after one that failed: a fault of the
    /// device is played.
    ///
    /// # Errors
    /// When its service has no such state, or it does not send.
    pub fn fail_sends(&mut self, qpn: Qpn) -> Result<(), ModifyError> {
        let (index, slot, shared) = self.slot(qpn).ok_or(ModifyError::NoSuchQp)?;
        let from = slot.endpoint.qp.state();
        if !slot.endpoint.fail_sends(shared) {
            return Err(ModifyError::Transition { from, to: QpState::SendQueueError });
        }
        self.activate(index);
        Ok(())
    }

    /// A reliable connection does not count its retries for a while, and waits for acknowledgements by this timeout code: its owner wants to
    /// know when the peer answers, not when to give up. With `None` it is as its attributes say again.
    pub fn set_patience(&mut self, qpn: Qpn, timeout: Option<u8>) {
        let Some((_, slot, _)) = self.slot(qpn) else { return };
        let attr = slot.endpoint.attributes();
        let (timeout, retry_cnt) = match timeout {
            Some(timeout) => (Some(timeout), Some(RETRY_FOREVER)),
            None => (attr.timeout, attr.retry_cnt),
        };
        slot.endpoint.qp.update(&Update { timeout, retry_cnt, ..Update::default() });
    }

    /// The next messages of a reliable connection, so many, each ask for an acknowledgement where they end: their owner
    /// waits for the completions. Without this, acknowledgements are asked for once in many packets, which is later than
    /// the end of a message that is followed by others.
    pub fn hasten_acks(&mut self, qpn: Qpn, messages: u8) {
        if let Some((_, slot, _)) = self.slot(qpn) {
            slot.endpoint.qp.hasten_acks(messages);
        }
    }

    /// Changes attributes of a connected queue pair that may change at any time, in whatever state it is: its owner has
    /// seen to the rules.
    pub fn update_qp(&mut self, qpn: Qpn, attr: &QpAttr) {
        if let Some((_, slot, _)) = self.slot(qpn) {
            slot.endpoint.change(attr);
        }
    }

    /// Connects a queue pair anew, to the peer that it had: what it agreed on with it holds, and is not asked for again.
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

    /// Work with this name is the owner's: what becomes of it in the error state is not told, and takes no place in a
    /// completion queue.
    pub fn set_own_work(&mut self, wr_id: u64) {
        self.shared.own_work = Some(wr_id);
    }

    /// The sends of a reliable connection that have not completed, oldest first: what is in place where one halted.
    /// Those whose doorbell was not rung are among them. `None` for others.
    pub fn outstanding_sends(&self, qpn: Qpn) -> Option<OutstandingSends<'_>> {
        self.slot_of(qpn)?.endpoint.qp.outstanding_sends()
    }

    /// The receives that were posted to a queue pair of a reliable connection and are not used up, oldest first; one
    /// that a message is half in is among them. `None` for others, and where receives come from a shared queue.
    pub fn outstanding_recvs(&self, qpn: Qpn) -> Option<OutstandingRecvs<'_>> {
        self.slot_of(qpn)?.endpoint.qp.outstanding_recvs()
    }

    /// Withdraws the receives of [`Nic::outstanding_recvs`] without completing them, in any state: each goes to `take`,
    /// oldest first. How many there were.
    ///
    /// # Errors
    /// When there are no such receives ([`ObjectError::WrongKind`]), or a message that still arrives is half in one of
    /// them ([`ObjectError::Busy`]): the rest of it would have nowhere to go. None is withdrawn then. In a queue pair
    /// that halted nothing arrives.
    pub fn take_recvs(&mut self, qpn: Qpn, take: impl FnMut(&RecvWr<'_>)) -> Result<u32, ObjectError> {
        let (_, slot, _) = self.slot(qpn).ok_or(ObjectError::NoSuchQp)?;
        slot.endpoint.qp.take_recvs(take).map_err(|kept| match kept {
            RecvsKept::NotOwn => ObjectError::WrongKind,
            RecvsKept::InUse => ObjectError::Busy,
        })
    }

    /// The PSNs of a reliable connection's next new request and of the request that is expected of its peer, from RTR
    /// until it is reset. `None` for others.
    pub fn next_psns(&self, qpn: Qpn) -> Option<NextPsns> {
        self.slot_of(qpn)?.endpoint.qp.next_psns()
    }

    /// Puts a completion of another NIC into a queue of this one, as if one of its own queue pairs had completed.
    pub fn push_completion(&mut self, cq: CqId, completion: Completion) -> Result<(), CqError> {
        self.cq(cq)?;
        self.shared.complete(cq, completion).map_err(|CqOverflow| CqError::Overflow)
    }
}
