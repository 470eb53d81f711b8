//! Answers of the peer: acknowledgements, credits, NAKs, RNR NAKs.

use softnic_wire::aeth::{Aeth, NakCode, RnrTimer, Syndrome};
use softnic_wire::{Instant, Psn};

use super::{Failure, NO_PACKET, RNR_RETRY_FOREVER, Requester, completion};
use crate::congestion::Feedback;
use crate::message::Link;
use crate::planted::{Bug, planted};
use crate::qp::RETRY_FOREVER;
use crate::timers::Timer;
use crate::{Host, Status};

impl Requester {
    /// Handles an acknowledgement of any kind.
    pub(in crate::rc) fn handle_aeth(
        &mut self,
        now: Instant,
        psn: Psn,
        aeth: Aeth,
        link: &Link,
        host: &mut impl Host,
    ) -> Result<(), Failure> {
        match aeth.syndrome {
            Syndrome::Ack(credits) => {
                let covers = self.window.contains(psn);
                if covers {
                    self.acknowledge_requests(now, psn.next(), false, link, host)?;
                } else {
                    host.count_stale_answer();
                }
                // A repetition of the last answer may contain new credits (IBA 9.7.7.2.3); an older answer contains old ones.
                if covers || psn.next() == self.window.una {
                    self.credit_limit = credits.count().map(|n| self.sends_done.wrapping_add(n));
                }
                Ok(())
            }
            // An undefined NAK code is ignored; it does not even acknowledge the earlier packets (IBA 9.7.5.2.1).
            Syndrome::Nak(code) if code.0 > NakCode::REMOTE_OPERATIONAL_ERROR.0 => Ok(()),
            Syndrome::Nak(code) => {
                if !self.window.contains(psn) {
                    host.count_stale_answer();
                    return Ok(());
                }
                // A NAK acknowledges everything before its PSN (IBA 9.7.5.1.1).
                if !self.acknowledge_requests(now, psn, false, link, host)? {
                    return Ok(()); // an earlier answer is missing, and is requested again first
                }
                self.handle_nak(now, psn, code, host)
            }
            Syndrome::RnrNak(timer) => {
                if !self.window.contains(psn) {
                    host.count_stale_answer();
                    return Ok(());
                }
                if !self.acknowledge_requests(now, psn, false, link, host)? {
                    return Ok(());
                }
                self.handle_rnr(now, psn, timer, host)
            }
            Syndrome::Reserved(_) => Ok(()),
        }
    }

    fn handle_nak(&mut self, now: Instant, psn: Psn, code: NakCode, host: &mut impl Host) -> Result<(), Failure> {
        let status = match code {
            NakCode::PSN_SEQUENCE_ERROR => {
                host.counters().packet_seq_err += 1;
                // All packets from there on are sent again after the pause anyway; Linux rxe sends such NAKs after every RNR NAK.
                if self.is_waiting(now) {
                    return Ok(());
                }
                // A responder sends one NAK for each gap (IBA 9.7.5.1.3): a NAK that arrives twice was duplicated by the network, and
                // counts as one retry.
                let n = self.number(psn);
                if self.sequence_nak == n {
                    self.sequence_nak = NO_PACKET;
                } else {
                    self.count_retry(host)?;
                    self.sequence_nak = n;
                }
                self.go_back_n.on_sequence_nak(psn);
                self.on_loss(now, Feedback::Loss);
                // The timer starts again when the retransmitted packet leaves.
                self.timers.stop(Timer::Ack);
                return Ok(());
            }
            NakCode::INVALID_REQUEST => {
                host.counters().req_remote_invalid_request += 1;
                Status::RemInvReqErr
            }
            NakCode::REMOTE_ACCESS_ERROR => {
                host.counters().req_remote_access_errors += 1;
                Status::RemAccessErr
            }
            NakCode::REMOTE_OPERATIONAL_ERROR => Status::RemOpErr,
            _ => return Ok(()),
        };
        Err(Failure::Work(status))
    }

    fn handle_rnr(&mut self, now: Instant, psn: Psn, timer: RnrTimer, host: &mut impl Host) -> Result<(), Failure> {
        host.counters().rnr_naks_received += 1;
        if self.is_waiting(now) {
            return Ok(()); // a duplicate
        }
        if self.rnr_retry != RNR_RETRY_FOREVER {
            if self.rnr_retries >= self.rnr_retry {
                host.counters().rnr_nak_retry_err += 1;
                return Err(Failure::Work(Status::RnrRetryExcErr));
            }
            self.rnr_retries += 1;
        }
        self.go_back_n.on_sequence_nak(psn);
        self.timers.set(Timer::Rnr, now + timer.duration());
        match self.awaits_credit_again() {
            true => self.timers.stop(Timer::Ack),
            false => self.arm(now),
        }
        Ok(())
    }

    /// All packets before `una` are acknowledged: completes the finished work requests.
    pub(super) fn acknowledge(
        &mut self,
        now: Instant,
        una: Psn,
        link: &Link,
        host: &mut impl Host,
    ) -> Result<(), Failure> {
        let packets = una.forward_from(self.window.una);
        if packets == 0 {
            return Ok(());
        }
        self.window.una = una;
        let before = self.una;
        self.una += u64::from(packets);
        if self.rd_atomic > 0 {
            self.count_pieces_done(before);
        }
        (self.retries, self.rnr_retries) = (0, 0);
        self.go_back_n.on_acknowledged(self.window);
        let owed = self.answer_due > self.una && !self.awaits_credit_again();
        if owed && !planted(Bug::ClockStops) {
            self.arm(now);
        } else {
            self.timers.stop(Timer::Ack);
        }
        self.flight.on_acknowledged(now, self.una);
        if let Some(probe) = &mut self.probe {
            let wait = probe.on_acknowledged(now, self.una, self.timeout).filter(|_| self.answer_due > self.una);
            self.timers.set_or_stop(Timer::Probe, wait.map(|wait| now + wait));
        }
        if self.congestion.is_controlled() {
            let bytes = self.queue.bytes_before(self.una, link.mtu);
            self.congestion.on_acknowledged(now, self.una, bytes);
        }
        self.complete_done(link, host)
    }

    /// Counts the READ requests answered between `before` and `una`, so that READs in pieces may continue. The last piece of each READ
    /// counts when its work request completes.
    fn count_pieces_done(&mut self, before: u64) {
        let mut position = self.queue.head_position();
        while let Some(slot) = self.queue.get(position).filter(|slot| slot.first < self.una) {
            if slot.awaits_data() {
                self.rd_atomic -= self.pieces_done(slot, before, self.una);
            }
            position = position.wrapping_add(1);
        }
    }

    /// Completes, in order, all work requests that are acknowledged or were executed locally.
    pub(crate) fn complete_done(&mut self, link: &Link, host: &mut impl Host) -> Result<(), Failure> {
        while let Some(slot) = self.queue.head() {
            if !slot.is_done(self.una) {
                break;
            }
            if slot.uses_receive() {
                self.sends_done = slot.sends;
            }
            self.rd_atomic -= u32::from(slot.awaits_data());
            let done = slot.signaled.then(|| completion(slot, link.qpn, Status::Success));
            self.queue.drop_head();
            self.queue.note_end();
            if planted(Bug::CompletionLost) && self.una.is_multiple_of(32) {
                continue;
            }
            if let Some(done) = done {
                host.complete(self.cq, done)?;
            }
        }
        self.check_broken()
    }

    pub(crate) fn count_retry(&mut self, host: &mut impl Host) -> Result<(), Failure> {
        if self.retries >= self.retry_cnt {
            host.counters().retry_exceeded_err += 1;
            return Err(Failure::Work(Status::RetryExcErr));
        }
        if self.retry_cnt != RETRY_FOREVER {
            self.retries += 1;
        }
        Ok(())
    }
}
