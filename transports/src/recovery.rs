//! Loss recovery: what is sent again, and what a receiver does with a packet that is not the next one.

mod go_back_n;

pub use go_back_n::GoBackN;
use softnic_wire::Psn;

/// The packets that a requester has sent and that are not acknowledged: `una` up to, not including, `next`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The oldest packet that is not acknowledged.
    pub una: Psn,
    /// The packet that will be sent next for the first time.
    pub next: Psn,
}

impl Window {
    /// How many packets it spans.
    #[inline]
    pub const fn len(&self) -> u32 {
        self.next.forward_from(self.una)
    }

    /// Whether all is acknowledged.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether `psn` is in it.
    #[inline]
    pub const fn contains(&self, psn: Psn) -> bool {
        psn.forward_from(self.una) < self.len()
    }
}

/// How a request stands to the one that is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// It is the one: carry it out.
    InOrder,
    /// It was carried out before: acknowledge it again.
    Duplicate,
    /// A packet before it is missing: drop it, and send a sequence NAK if `nak`.
    Early {
        /// The requester does not know of this gap yet.
        nak: bool,
    },
}

/// A way to recover from loss on a reliable connection. One value serves a queue pair, as requester and as responder.
pub trait LossRecovery {
    /// Requester: a packet that must be sent again now, before any new one; always inside the window.
    fn next_resend(&self, window: Window) -> Option<Psn>;

    /// Requester: the packet that [`LossRecovery::next_resend`] named was sent; it stands for this many PSNs (a READ request
    /// for all of its responses).
    fn on_resent(&mut self, window: Window, psns: u32);

    /// Requester: the window's beginning moved forward.
    fn on_acknowledged(&mut self, window: Window);

    /// Requester: the responder misses `psn`, which is inside the window.
    fn on_sequence_nak(&mut self, psn: Psn);

    /// Requester: no answer for the window's beginning came in time.
    fn on_timeout(&mut self, window: Window);

    /// Responder: a request with `psn` came while `expected` is due.
    fn on_arrival(&mut self, psn: Psn, expected: Psn) -> Arrival;

    /// Responder: the expected request was refused for lack of a receive; what follows it is not a gap (IBA 9.7.5.2.8).
    fn on_receiver_not_ready(&mut self);
}
