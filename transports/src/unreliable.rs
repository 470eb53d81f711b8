//! The common part of UC and UD: a send is done when its last packet was sent, and a failed send stops only the sending.

use softnic_wire::{PathMtu, Psn, Qpn, TxFrame};

use crate::completion::CqId;
use crate::invariants::invariant;
use crate::memory::PdId;
use crate::posting::{SendRules, Supported};
use crate::qp::Config;
use crate::recv_queue::Receives;
use crate::send_queue::{Numbering, SendQueue, Slot, Source, completion};
use crate::vitals::Vitals;
use crate::wr::Datagram;
use crate::{CqOverflow, Event, Host, PostError, QpState, RecvWr, SendWr, Status};

/// Why sending must stop.
pub(crate) enum Failure {
    /// The oldest work request completes with this status; the others are flushed.
    Work(Status),
    /// A completion was lost.
    CqOverflow,
}

impl From<CqOverflow> for Failure {
    fn from(_: CqOverflow) -> Failure {
        Failure::CqOverflow
    }
}

/// A packet that is due: the closure of [`Common::send_next`] writes it.
pub(crate) struct Due<'a> {
    pub(crate) slot: &'a Slot,
    pub(crate) source: &'a Source<'a>,
    /// The index of the packet in its message, from 0.
    pub(crate) index: u32,
    pub(crate) psn: Psn,
}

/// States, queues and completions of a queue pair without acknowledgements.
pub(crate) struct Common {
    pub(crate) qpn: Qpn,
    pub(crate) pd: PdId,
    pub(crate) state: QpState,
    pub(crate) receives: Receives,
    pub(crate) queue: SendQueue,
    pub(crate) send_cq: CqId,
    sig_all: bool,
    /// The number of the next packet, counted as in the send queue, and its PSN.
    pub(crate) next: u64,
    psn: Psn,
    established: bool,
    tell_drained: bool,
}

impl Common {
    pub(crate) fn new(c: &Config, supported: Supported, rules: SendRules) -> Common {
        Common {
            qpn: c.qpn,
            pd: c.pd,
            state: QpState::Reset,
            receives: Receives::new(c, 1, supported),
            queue: SendQueue::new(c.caps.max_send_wr, rules),
            send_cq: c.send_cq,
            sig_all: c.sig_all,
            next: 0,
            psn: Psn::new(0),
            established: false,
            tell_drained: false,
        }
    }

    /// Returns to the reset state: all work is dropped.
    pub(crate) fn reset(&mut self) {
        self.state = QpState::Reset;
        self.queue.clear();
        self.receives.clear();
        self.next = 0;
        (self.established, self.tell_drained) = (false, false);
    }

    /// RTR to RTS.
    pub(crate) fn ready_to_send(&mut self, psn: Psn) {
        self.psn = psn;
        self.state = QpState::ReadyToSend;
    }

    /// RTS to SQD.
    pub(crate) fn drain(&mut self, notify: bool, host: &mut impl Host) {
        self.state = QpState::SendQueueDrain;
        self.tell_drained = notify;
        self.check_drained(host);
    }

    /// Whether no message is partly sent: no answers are awaited here.
    pub(crate) fn is_drained(&self) -> bool {
        self.queue.head().is_none_or(|slot| slot.first == self.next)
    }

    pub(crate) fn check_drained(&mut self, host: &mut impl Host) {
        if self.tell_drained && self.state == QpState::SendQueueDrain && self.is_drained() {
            self.tell_drained = false;
            host.notify(Event::SqDrained(self.qpn));
        }
    }

    /// Whether there is a packet to send, as far as the state permits.
    pub(crate) fn has_something(&self) -> bool {
        let draining = self.state == QpState::SendQueueDrain;
        self.state.sends() && self.queue.head().is_some_and(|slot| !draining || slot.first != self.next)
    }

    /// The destination of the oldest waiting send.
    #[inline]
    pub(crate) fn next_datagram(&self) -> Option<Datagram> {
        self.queue.head()?.to
    }

    /// A packet arrived: the first one at a queue pair that cannot send yet raises an event.
    pub(crate) fn note_arrival(&mut self, host: &mut impl Host) {
        if self.state == QpState::ReadyToReceive && !self.established {
            self.established = true;
            host.notify(Event::CommEst(self.qpn));
        }
    }

    /// The rules for send work requests.
    pub(crate) fn send_rules(&self) -> &SendRules {
        self.queue.rules()
    }

    pub(crate) fn write_send(&mut self, wr: &SendWr<'_>) -> Result<(), PostError> {
        match self.state {
            QpState::Reset | QpState::Init | QpState::ReadyToReceive => Err(PostError::State),
            _ => self.queue.write(wr, self.sig_all),
        }
    }

    pub(crate) fn ring_doorbell(&mut self, mtu: PathMtu, host: &mut impl Host) {
        match self.state {
            QpState::SendQueueError | QpState::Error => self.flush_sends(Status::WrFlushErr, host),
            _ => {
                self.queue.publish(mtu, Numbering::Standard);
                // Local operations that wait for no packet are executed even if no packet can be sent.
                if self.queue.has_locals() && self.state.sends() {
                    let done = self.run_locals(host);
                    self.check_sent(done.map(|()| false), host);
                }
            }
        }
    }

    /// The state of the queue pair, for observers.
    pub(crate) fn vitals(&self) -> Vitals {
        self.receives.vitals(self.queue.vitals())
    }

    pub(crate) fn post_recv(&mut self, wr: &RecvWr<'_>, host: &mut impl Host) -> Result<(), PostError> {
        if self.state == QpState::Reset {
            return Err(PostError::State);
        }
        self.receives.post(wr)?;
        if self.state == QpState::Error {
            self.receives.flush(None, host);
        }
        Ok(())
    }

    /// Sends the next packet, if one is due; `emit` writes it, or returns the status with which its work request completes.
    pub(crate) fn send_next<H: Host>(
        &mut self,
        tx: &mut TxFrame<'_>,
        host: &mut H,
        emit: impl FnOnce(&mut TxFrame<'_>, &Due<'_>, &H) -> Result<(), Status>,
    ) -> bool {
        if !self.state.sends() {
            return false;
        }
        let sent = self.try_send(tx, host, emit);
        self.check_sent(sent, host)
    }

    /// Returns whether a packet was sent; a failure stops the sending.
    fn check_sent(&mut self, sent: Result<bool, Failure>, host: &mut impl Host) -> bool {
        match sent {
            Ok(sent) => {
                self.check_drained(host);
                sent
            }
            // Receiving is not affected by a failed send (IBA 10.3.1.6).
            Err(Failure::Work(status)) => {
                self.state = QpState::SendQueueError;
                self.flush_sends(status, host);
                false
            }
            Err(Failure::CqOverflow) => {
                self.stop_fatally(host);
                false
            }
        }
    }

    fn try_send<H: Host>(
        &mut self,
        tx: &mut TxFrame<'_>,
        host: &mut H,
        emit: impl FnOnce(&mut TxFrame<'_>, &Due<'_>, &H) -> Result<(), Status>,
    ) -> Result<bool, Failure> {
        if self.queue.has_locals() {
            self.run_locals(host)?;
        }
        // Everything before the head is done, so the next packet belongs to the head.
        let Some(&slot) = self.queue.head() else { return Ok(false) };
        if self.is_held(&slot) {
            return Ok(false);
        }
        let source = self.queue.source(self.queue.head_position(), &slot);
        let index = (self.next - slot.first) as u32;
        emit(tx, &Due { slot: &slot, source: &source, index, psn: self.psn }, host).map_err(Failure::Work)?;
        host.counters().sent_requests += 1;
        let ends = slot.ends_with(self.next);
        self.next += 1;
        self.psn = self.psn.next();
        if ends {
            self.complete_head(host)?;
        }
        Ok(true)
    }

    /// Whether the work request at the head would start, but may not (SQD).
    fn is_held(&self, head: &Slot) -> bool {
        self.state == QpState::SendQueueDrain && head.first == self.next
    }

    /// Executes the local operations at the head of the queue: everything before them was sent.
    fn run_locals(&mut self, host: &mut impl Host) -> Result<(), Failure> {
        while let Some(&slot) = self.queue.head()
            && slot.op.is_local()
            && !self.is_held(&slot)
        {
            slot.execute(self.qpn, self.pd, host).map_err(Failure::Work)?;
            self.queue.set_executed(self.queue.head_position());
            self.complete_head(host)?;
        }
        Ok(())
    }

    fn complete_head(&mut self, host: &mut impl Host) -> Result<(), Failure> {
        let Some(slot) = self.queue.pop() else { return Ok(()) };
        self.queue.note_end();
        if slot.signaled {
            host.complete(self.send_cq, completion(&slot, self.qpn, Status::Success))?;
        }
        Ok(())
    }

    /// Completes all sends: the oldest with `status`, the others as flushed.
    fn flush_sends(&mut self, status: Status, host: &mut impl Host) {
        let mut status = status;
        while let Some(slot) = self.queue.pop_any() {
            host.counters().req_cqe_error += u64::from(status != Status::WrFlushErr);
            let _ = host.complete(self.send_cq, completion(&slot, self.qpn, status));
            self.queue.note_end();
            status = Status::WrFlushErr;
        }
        self.next = self.queue.end();
    }

    /// Checks the invariants between two calls.
    pub(crate) fn check_invariants(&self) {
        self.queue.check_invariants();
        self.receives.check_invariants();
        invariant!(self.next <= self.queue.end(), "more was sent than there is");
    }

    /// Enters the error state and flushes; the receive in use completes with `receive`.
    pub(crate) fn fail(&mut self, receive: Option<Status>, host: &mut impl Host) {
        if self.state == QpState::Error {
            return;
        }
        self.state = QpState::Error;
        self.flush_sends(Status::WrFlushErr, host);
        self.receives.flush(receive, host);
        if self.receives.are_shared() {
            host.notify(Event::LastWqeReached(self.qpn));
        }
    }

    /// A send failed, for whatever reason: the others are flushed. Receiving is not affected (IBA 10.3.1.6).
    pub(crate) fn fail_sends(&mut self, host: &mut impl Host) -> bool {
        let sends = self.state == QpState::ReadyToSend;
        if sends {
            self.state = QpState::SendQueueError;
            self.flush_sends(Status::WrFlushErr, host);
        }
        sends
    }

    /// A completion was lost: no program can rely on this queue pair any more.
    pub(crate) fn stop_fatally(&mut self, host: &mut impl Host) {
        host.notify(Event::QpFatal(self.qpn));
        self.fail(None, host);
    }
}
