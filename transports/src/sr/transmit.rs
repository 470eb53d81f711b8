//! Selects the next packet: acknowledgements first, then requests and answers with data alternate, each in its half's own protocol.

use softnic_wire::{Instant, TxFrame};

use super::Sr;
use crate::negotiation::Choice;
use crate::{Host, QueuePair};

impl Sr {
    /// Writes an acknowledgement, if one is owed.
    fn transmit_acknowledgement(&mut self, tx: &mut TxFrame<'_>) -> bool {
        let Some(link) = &self.rc.link else { return false };
        if let Some(responder) = &mut self.responder
            && responder.transmit_acknowledgement(tx, link, &self.rc.responder.receives)
        {
            return true;
        }
        self.requester.as_mut().is_some_and(|requester| requester.transmit_acknowledgement(tx, link))
    }

    /// Writes one packet of an answer with data, if one is owed.
    fn transmit_answer(&mut self, now: Instant, tx: &mut TxFrame<'_>, host: &mut impl Host) -> bool {
        if let Some(responder) = &mut self.responder {
            if responder.has_answers() && self.rc.requester.must_pace_answer(now) {
                return false;
            }
            let Some(link) = &self.rc.link else { return false };
            let sent = responder.transmit_answer(now, tx, link, &self.rtt, &mut self.rc.requester.timers, host);
            if sent {
                self.rc.requester.congestion.on_answer_sent(now, tx);
            }
            if let Some(f) = responder.failure.take() {
                self.on_response_failure(f, host);
                return self.transmit_acknowledgement(tx);
            }
            return sent;
        }
        // The peer's requests are standard ones, while the local requests are not. An acknowledgement does not wait for a reply of the
        // other kind.
        self.rc.release_ack();
        let before = self.rc.state;
        let sent = self.rc.responder.has_answer() && self.rc.transmit_answer(now, tx, host).0;
        self.follow_rc(before);
        sent
    }

    /// Whether an answer with data is to be sent.
    fn has_answers(&self) -> bool {
        self.responder.as_ref().map_or_else(|| self.rc.responder.owes_data(), |r| r.has_answers())
    }

    /// Writes one packet, if at least one of the two halves uses Selective Repeat.
    pub(super) fn transmit_any(&mut self, now: Instant, tx: &mut TxFrame<'_>, host: &mut impl Host) -> bool {
        if self.transmit_acknowledgement(tx) {
            return true;
        }
        // Requests and answers with data alternate. Otherwise continuous READs of the peer would block all requests.
        let data = self.has_answers();
        if data && self.requests_turn && self.transmit_request(now, tx, host) {
            return true;
        }
        if self.transmit_answer(now, tx, host) {
            self.requests_turn = data;
            return true;
        }
        if self.has_answers() && self.rc.requester.congestion.pacing(now).is_some() {
            return false;
        }
        self.transmit_request(now, tx, host)
    }

    /// Writes one packet of a request, if there is one to send.
    fn transmit_request(&mut self, now: Instant, tx: &mut TxFrame<'_>, host: &mut impl Host) -> bool {
        if !self.rc.state.sends() {
            return false;
        }
        self.requests_turn = false;
        let (Some(requester), Some(link)) = (&mut self.requester, &self.rc.link) else {
            let before = self.rc.state;
            let sent = matches!(self.choice, Choice::Standard(_)) && self.rc.poll_transmit(now, tx, host);
            self.follow_rc(before);
            return sent;
        };
        let base = &mut self.rc.requester;
        match requester.poll_transmit(now, tx, link, base, &self.rtt, host) {
            Ok(sent) => sent,
            Err(f) => {
                self.on_request_failure(f, host);
                false
            }
        }
    }
}
