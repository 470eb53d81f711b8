//! One packet that leaves, of an answer or of a request; which of them is for [`Rc`] to say.

use softnic_wire::{Instant, TxFrame};

use super::Rc;
use crate::Host;

impl Rc {
    /// One packet of an answer, if one is owed; and whether nothing else may go now, because the queue pair stopped or the answer waits
    /// for its turn.
    #[inline]
    pub(crate) fn transmit_answer(&mut self, now: Instant, tx: &mut TxFrame<'_>, host: &mut impl Host) -> (bool, bool) {
        let (data, read) = (self.responder.owes_data(), self.responder.owes_read());
        // What is owed beside the data comes after it.
        if data && self.requester.must_pace_answer(now) {
            return (false, true);
        }
        let Some(link) = &self.link else { return (false, false) };
        self.ack_passed = false;
        let sent = self.responder.poll_transmit(tx, link, host);
        if sent && data {
            self.requester.congestion.on_answer_sent(now, tx);
            self.requests_turn = read;
        }
        let failure = self.responder.failure.take();
        let stopped = failure.is_some();
        if let Some(f) = failure {
            self.on_response_failure(f, host);
        }
        (sent, stopped)
    }

    /// Carries out local operations that wait for no packet, also where none can leave.
    #[inline]
    pub(crate) fn run_locals(&mut self, host: &mut impl Host) {
        if let (true, Some(link)) = (self.requester.queue.has_locals(), &self.link)
            && let Err(f) = self.requester.run_due_locals(link, host)
        {
            self.on_request_failure(f, host);
        }
    }

    /// One packet of a request, if there is one to send.
    #[inline]
    pub(super) fn transmit_request(&mut self, now: Instant, tx: &mut TxFrame<'_>, host: &mut impl Host) -> bool {
        let Some(link) = &self.link else { return false };
        if !self.state.sends() || self.held {
            return false;
        }
        self.requests_turn = false;
        let sent = match self.requester.poll_transmit(now, tx, link, host) {
            Ok(sent) => sent,
            Err(f) => {
                self.on_request_failure(f, host);
                false
            }
        };
        self.check_invariants();
        sent
    }
}
