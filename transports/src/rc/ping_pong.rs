//! When to hold an acknowledgement back: a program that answers every message at once is waited for, for a moment, so that its reply is
//! there before the acknowledgement of what it replies to.
//!
//! It is what TCP does with interactive traffic (RFC 1122, 4.2.3.2), for another reason. A program that waits for the reply in its memory
//! looks at its completion queue only to hear that its own message arrived. Where such looks are what moves frames, a reply that comes
//! before the acknowledgement finds the program looking; one that comes behind it waits until somebody else does.

use std::time::Duration;

use softnic_wire::Instant;

/// How long a program may take to answer, at most.
const PATIENCE: Duration = Duration::from_micros(20);
/// The part of an ACK timeout that may be spent so; the peer is likely to have the same.
const PART_OF_TIMEOUT: u32 = 4;
/// Messages in a row that were answered in time before the next one's acknowledgement is held.
const EVIDENCE: u8 = 3;

/// What is known of the program's habits, and whether an acknowledgement is held now.
#[derive(Debug, Default)]
pub(super) struct PingPong {
    /// When a message came, if nothing was posted since.
    arrived: Option<Instant>,
    /// Nanoseconds that the program has.
    patience: u32,
    /// Messages in a row that were answered in time.
    answered: u8,
    held: bool,
}

impl PingPong {
    /// Where requests are given up as lost after `timeout`.
    pub(super) fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.patience = timeout.map_or(PATIENCE, |t| PATIENCE.min(t / PART_OF_TIMEOUT)).as_nanos() as u32;
    }

    /// A packet of a request has come: the peer waits for more than one answer, or goes on without it.
    #[inline]
    pub(super) fn on_request(&mut self) {
        self.held = false;
    }

    /// A message has come whole; `owed` says that all that is owed is to acknowledge it.
    #[inline]
    pub(super) fn on_message(&mut self, now: Instant, owed: bool) {
        if self.arrived.replace(now).is_some() {
            self.answered = 0;
        }
        self.held = owed && self.answered >= EVIDENCE;
    }

    /// A message has come that is answered by data, not by the program.
    pub(super) fn on_data_request(&mut self) {
        (self.arrived, self.answered) = (None, 0);
    }

    /// The program has posted something.
    #[inline]
    pub(super) fn on_post(&mut self, now: Instant) {
        let deadline = self.deadline();
        self.held = false;
        if self.arrived.take().is_some() {
            let in_time = deadline.is_some_and(|at| now < at);
            self.answered = if in_time { EVIDENCE.min(self.answered + 1) } else { 0 };
        }
    }

    #[inline]
    fn deadline(&self) -> Option<Instant> {
        self.arrived.map(|at| at + Duration::from_nanos(self.patience.into()))
    }

    /// Whether an acknowledgement that is owed is to wait. Who was waited for in vain is waited for again only when there is evidence.
    #[inline]
    pub(super) fn holds(&mut self, now: Instant) -> bool {
        if self.held && self.deadline().is_none_or(|at| now >= at) {
            (self.held, self.answered) = (false, 0);
        }
        self.held
    }

    /// When to look again.
    #[inline]
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        if self.held { self.deadline() } else { None }
    }

    /// What is held goes.
    pub(super) fn release(&mut self) {
        self.held = false;
    }
}
