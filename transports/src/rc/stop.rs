//! Stops a reliable connection, after a failure of either half, or for its owner.

use softnic_wire::aeth::NakCode;

use super::{Rc, requester, responder};
use crate::{Event, Host, QpState, QueuePair, Status};

impl Rc {
    /// Stops answering, and flushes; the oldest send completes with `work`.
    pub(super) fn stop(&mut self, work: Status, host: &mut impl Host) {
        self.responder.fall_silent();
        self.flush(work, None, host);
    }

    /// Enters the error state with all work in place. [`QueuePair::fail`] flushes it; the oldest send then completes with this status.
    pub(super) fn halt_with(&mut self, status: Status) {
        (self.state, self.halted) = (QpState::Error, Some(status));
        self.responder.fall_silent();
        self.release_ack();
        self.stop_credit();
        self.requester.stop_timers();
    }

    /// Enters the error state and flushes. The oldest send completes with `work`, the receive in use with `receive`.
    pub(super) fn flush(&mut self, work: Status, receive: Option<Status>, host: &mut impl Host) {
        let work = match (self.state, self.halted.take()) {
            (_, Some(halted)) => halted,
            (QpState::Error, None) => return,
            (_, None) => work,
        };
        self.state = QpState::Error;
        self.release_ack();
        self.stop_credit();
        self.requester.flush(work, self.qpn, host);
        self.responder.receives.flush(receive, host);
        if self.responder.receives.are_shared() {
            host.notify(Event::LastWqeReached(self.qpn));
        }
    }

    /// A completion was lost: no program can rely on this queue pair any more.
    fn stop_fatally(&mut self, host: &mut impl Host) {
        host.notify(Event::QpFatal(self.qpn));
        self.stop(Status::WrFlushErr, host);
    }

    pub(crate) fn on_request_failure(&mut self, f: requester::Failure, host: &mut impl Host) {
        match f {
            requester::Failure::Work(status @ (Status::RetryExcErr | Status::RnrRetryExcErr)) if self.halts => {
                self.halt_with(status);
                host.notify(Event::QpHalted(self.qpn, status));
            }
            requester::Failure::Work(status) => self.stop(status, host),
            requester::Failure::CqOverflow => self.stop_fatally(host),
        }
    }

    pub(crate) fn on_response_failure(&mut self, f: responder::Failure, host: &mut impl Host) {
        match f {
            // Requests before the refused one are still answered, and the NAK is still owed.
            responder::Failure::Refused { code, receive } => {
                // If no receive reports the error, an event does (IBA 9.9.2.4).
                match (receive, code) {
                    (None, NakCode::REMOTE_ACCESS_ERROR) => host.notify(Event::QpAccessErr(self.qpn)),
                    (None, NakCode::INVALID_REQUEST) => host.notify(Event::QpReqErr(self.qpn)),
                    _ => {}
                }
                self.flush(Status::WrFlushErr, receive, host);
            }
            // Only the program is notified; earlier requests are still acknowledged.
            responder::Failure::Invalidate => self.flush(Status::WrFlushErr, Some(Status::RemInvReqErr), host),
            responder::Failure::CqOverflow => self.stop_fatally(host),
        }
    }
}
