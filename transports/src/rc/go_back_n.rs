//! Go-Back-N, the loss recovery of the standard: after a NAK or a timeout, all packets from the missing one on are sent again (IBA
//! 9.7.5.1.3, 9.7.5.2.1). The responder drops packets that arrive early, and reports the gap once (IBA 9.7.5.1.2).

use softnic_wire::Psn;

use crate::planted::{Bug, planted};

/// The packets that a requester has sent and that are not acknowledged: from `una` up to, but not including, `next`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    /// The oldest unacknowledged packet.
    pub(crate) una: Psn,
    /// The next packet to be sent for the first time.
    pub(crate) next: Psn,
}

impl Window {
    /// Number of packets in the window.
    #[inline]
    pub(crate) const fn len(&self) -> u32 {
        self.next.forward_from(self.una)
    }

    /// Whether all packets are acknowledged.
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether `psn` is in the window.
    #[inline]
    pub(crate) const fn contains(&self, psn: Psn) -> bool {
        psn.forward_from(self.una) < self.len()
    }
}

/// The requester's half: determines the packets of the window that are sent again.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct GoBackN {
    /// The next packet to retransmit; the packets up to the end of the window follow it.
    resend: Option<Psn>,
}

impl GoBackN {
    /// The packet that must be retransmitted now, before any new packet; always inside the window.
    #[inline]
    pub(super) fn next_resend(&self, window: Window) -> Option<Psn> {
        self.resend.filter(|&p| window.contains(p))
    }

    /// The packet returned by [`GoBackN::next_resend`] was sent. It covers `psns` PSNs (a READ request covers all of its responses).
    #[inline]
    pub(super) fn on_resent(&mut self, window: Window, psns: u32) {
        self.resend = self.resend.map(|p| p.add(psns)).filter(|&p| window.contains(p));
    }

    /// The start of the window has advanced: acknowledged packets need not be sent again.
    #[inline]
    pub(super) fn on_acknowledged(&mut self, window: Window) {
        if let Some(p) = self.resend {
            self.resend =
                if p.is_before(window.una) { Some(window.una) } else { Some(p) }.filter(|&p| window.contains(p));
        }
    }

    /// The responder reported that `psn`, which is inside the window, is missing.
    pub(super) fn on_sequence_nak(&mut self, psn: Psn) {
        self.resend = Some(psn);
    }

    /// The packet at the start of the window was not answered in time.
    pub(super) fn on_timeout(&mut self, window: Window) {
        self.resend = Some(window.una.add(u32::from(planted(Bug::ResendsTooLate))));
    }
}

/// The position of a request's PSN relative to the expected PSN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PsnOrder {
    /// The request is the expected one: execute it.
    InOrder,
    /// The request was executed before: acknowledge it again.
    Duplicate,
    /// A packet before the request is missing: drop it, and send a sequence NAK if `nak`.
    Early {
        /// The requester was not notified of this gap yet.
        nak: bool,
    },
}

/// The responder's half: one sequence NAK for each gap.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SequenceNak {
    /// A NAK for the gap before the expected packet was sent: send no other until that packet arrives.
    silent: bool,
}

impl SequenceNak {
    /// Classifies a request with `psn`, while `expected` is the expected PSN.
    #[inline]
    pub(super) fn on_arrival(&mut self, psn: Psn, expected: Psn) -> PsnOrder {
        if psn == expected {
            self.silent = false;
            return PsnOrder::InOrder;
        }
        if psn.is_before(expected) {
            return PsnOrder::Duplicate;
        }
        let nak = !self.silent;
        self.silent = true;
        PsnOrder::Early { nak }
    }

    /// The expected request was refused because no receive was posted; the packets after it do not count as a gap (IBA 9.7.5.2.8).
    pub(super) fn on_receiver_not_ready(&mut self) {
        self.silent = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(una: u32, next: u32) -> Window {
        Window { una: Psn::new(una), next: Psn::new(next) }
    }

    #[test]
    fn a_nak_sends_everything_from_the_gap_on_again_across_the_wrap() {
        let w = window(0xfffffe, 2);
        let mut g = GoBackN::default();
        assert_eq!(g.next_resend(w), None);
        g.on_sequence_nak(Psn::MAX);
        let mut next = || {
            let psn = g.next_resend(w)?;
            g.on_resent(w, 1);
            Some(psn.value())
        };
        let all: Vec<_> = std::iter::from_fn(&mut next).collect();
        assert_eq!(all, [0xffffff, 0, 1]);
        g.on_sequence_nak(Psn::MAX);
        g.on_resent(w, 2);
        assert_eq!(g.next_resend(w), Some(Psn::new(1)), "a READ request stands for its responses");
    }

    #[test]
    fn what_is_acknowledged_meanwhile_is_not_sent_again() {
        let mut g = GoBackN::default();
        g.on_timeout(window(10, 20));
        assert_eq!(g.next_resend(window(10, 20)), Some(Psn::new(10)));
        g.on_resent(window(10, 20), 1);
        g.on_acknowledged(window(15, 20));
        assert_eq!(g.next_resend(window(15, 20)), Some(Psn::new(15)));
        g.on_acknowledged(window(20, 20));
        assert_eq!(g.next_resend(window(20, 20)), None);
    }

    #[test]
    fn one_nak_a_gap() {
        let mut g = SequenceNak::default();
        let mut at = |psn, expected| g.on_arrival(Psn::new(psn), Psn::new(expected));
        assert_eq!(at(7, 5), PsnOrder::Early { nak: true });
        assert_eq!(at(8, 5), PsnOrder::Early { nak: false });
        assert_eq!(at(4, 5), PsnOrder::Duplicate);
        assert_eq!(at(5, 5), PsnOrder::InOrder);
        assert_eq!(at(7, 6), PsnOrder::Early { nak: true });
    }
}
