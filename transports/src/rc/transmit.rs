//! Writes one packet of an answer or of a request. [`Rc`] selects which.

use softnic_wire::{Instant, TxFrame};

use super::Rc;
use crate::Host;

impl Rc {
    /// Writes one packet of an answer, if one is owed. The second result says that no other packet may be sent now, because the queue pair
    /// stopped or the answer waits for its turn.
    #[inline]
    pub(crate) fn transmit_answer(&mut self, now: Instant, tx: &mut TxFrame<'_>, host: &mut impl Host) -> (bool, bool) {
        let (data, read) = (self.responder.owes_data(), self.responder.owes_read());
        // Other answers are sent after the data.
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

    /// Executes local operations that wait for no packet, even if no packet can be sent.
    #[inline]
    pub(crate) fn run_locals(&mut self, host: &mut impl Host) {
        if let (true, Some(link)) = (self.requester.queue.has_locals(), &self.link)
            && let Err(f) = self.requester.run_due_locals(link, host)
        {
            self.on_request_failure(f, host);
        }
    }

    /// Writes one packet of a request, if there is one to send.
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
