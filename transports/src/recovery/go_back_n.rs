//! Go-Back-N, the loss recovery of the standard: on a NAK or a timeout everything from the missing packet on is sent again
//! (IBA 9.7.5.1.3, 9.7.5.2.1); the responder keeps nothing that comes early and says so once (IBA 9.7.5.1.2).

use softnic_wire::Psn;

use super::{Arrival, LossRecovery, Window};
use crate::planted::{Bug, planted};

/// Go-Back-N.
#[derive(Debug, Clone, Copy, Default)]
pub struct GoBackN {
    /// The packet to send again next; those up to the window's end follow it.
    resend: Option<Psn>,
    /// A NAK for the gap before the expected packet was sent: be silent until that packet comes.
    silent: bool,
}

impl LossRecovery for GoBackN {
    #[inline]
    fn next_resend(&self, window: Window) -> Option<Psn> {
        self.resend.filter(|&p| window.contains(p))
    }

    #[inline]
    fn on_resent(&mut self, window: Window, psns: u32) {
        self.resend = self.resend.map(|p| p.add(psns)).filter(|&p| window.contains(p));
    }

    #[inline]
    fn on_acknowledged(&mut self, window: Window) {
        // What is acknowledged need not be sent again.
        if let Some(p) = self.resend {
            self.resend =
                if p.is_before(window.una) { Some(window.una) } else { Some(p) }.filter(|&p| window.contains(p));
        }
    }

    fn on_sequence_nak(&mut self, psn: Psn) {
        self.resend = Some(psn);
    }

    fn on_timeout(&mut self, window: Window) {
        self.resend = Some(window.una.add(u32::from(planted(Bug::ResendsTooLate))));
    }

    #[inline]
    fn on_arrival(&mut self, psn: Psn, expected: Psn) -> Arrival {
        if psn == expected {
            self.silent = false;
            return Arrival::InOrder;
        }
        if psn.is_before(expected) {
            return Arrival::Duplicate;
        }
        let nak = !self.silent;
        self.silent = true;
        Arrival::Early { nak }
    }

    fn on_receiver_not_ready(&mut self) {
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
        let mut g = GoBackN::default();
        let mut at = |psn, expected| g.on_arrival(Psn::new(psn), Psn::new(expected));
        assert_eq!(at(7, 5), Arrival::Early { nak: true });
        assert_eq!(at(8, 5), Arrival::Early { nak: false });
        assert_eq!(at(4, 5), Arrival::Duplicate);
        assert_eq!(at(5, 5), Arrival::InOrder);
        assert_eq!(at(7, 6), Arrival::Early { nak: true });
    }
}
