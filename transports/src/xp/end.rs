//! How a queue pair of XP stops: failed work completes with its own status, and all other work is flushed.

use super::{NEVER, Xp, receiver, sender};
use crate::{Event, Host, QpState, Status};

impl Xp {
    pub(super) fn on_receive_failure(&mut self, failure: receiver::Failure, host: &mut impl Host) {
        match failure {
            receiver::Failure::Receive(status) => self.stop(Some(status), None, host),
            receiver::Failure::CqOverflow => self.stop_fatally(host),
        }
    }

    pub(super) fn on_send_failure(&mut self, failure: sender::Failure, host: &mut impl Host) {
        match failure {
            // Receiving is not affected by a failed send (IBA 10.3.1.6).
            sender::Failure::Work(position, status) if self.settings.uc => {
                self.state = QpState::SendQueueError;
                self.sender.flush(Some((position, status)), host);
                self.refresh();
            }
            sender::Failure::Work(position, status) => self.stop(None, Some((position, status)), host),
            sender::Failure::CqOverflow => self.stop_fatally(host),
        }
    }

    /// A completion was lost: no program can rely on this queue pair any more.
    pub(super) fn stop_fatally(&mut self, host: &mut impl Host) {
        host.notify(Event::QpFatal(self.sender.qpn));
        self.stop(None, None, host);
    }

    /// Enters the error state: the receive in use and one send complete with their own status, all others are flushed.
    pub(super) fn stop(&mut self, receive: Option<Status>, send: Option<(u32, Status)>, host: &mut impl Host) {
        if self.state == QpState::Error {
            return;
        }
        (self.state, self.paced) = (QpState::Error, NEVER);
        if let Some(credit) = &mut self.rest.credit {
            credit.reset();
        }
        self.sender.flush(send, host);
        self.receiver.stop();
        self.rest.jobs.clear();
        self.answers = false;
        if let Some(receives) = &mut self.receives {
            receives.flush(receive, host);
            if receives.are_shared() {
                host.notify(Event::LastWqeReached(self.sender.qpn));
            }
        }
        if let Some(standard) = &mut self.rest.standard {
            standard.fail(host);
        }
        self.refresh();
    }

    pub(super) fn check_drained(&mut self, host: &mut impl Host) {
        if self.tell_drained && self.state == QpState::SendQueueDrain && self.sender.is_drained() {
            self.tell_drained = false;
            host.notify(Event::SqDrained(self.sender.qpn));
        }
    }
}
