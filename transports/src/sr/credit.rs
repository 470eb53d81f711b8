//! Selective Repeat where the receiver decides when requests leave ([`Credit`](crate::congestion::Credit)): what counts as lost is sent again
//! by credit, too, and no clock runs while nothing else is under way.

use softnic_wire::{Instant, TxFrame};

use super::Sr;
use super::requester::Requester;
use super::timer::Expired;
use crate::Host;
use crate::rc::requester::Requester as Base;
use crate::round_trip::RoundTrip;

impl Sr {
    /// Writes the packet of credit that is due, if one is.
    pub(super) fn transmit_credit(&mut self, now: Instant, tx: &mut TxFrame<'_>, host: &mut impl Host) -> bool {
        let lost = self.requester.as_ref().map_or(0, |requester| requester.flight.lost());
        self.rc.transmit_credit(now, tx, lost, host)
    }
}

impl Requester {
    /// Whether what goes next waits for credit.
    pub(super) fn awaits_credit(&self, now: Instant, base: &Base) -> bool {
        base.awaits_credit(now, self.flight.in_flight() == 0)
    }

    /// Whether nothing is under way, and what counts as lost waits for credit: nothing can be heard of it before it leaves.
    pub(super) fn is_starved(&self, now: Instant, base: &Base) -> bool {
        self.flight.in_flight() == 0 && self.flight.has_lost() && self.awaits_credit(now, base)
    }

    /// Nothing was heard of what is under way, while what counts as lost already waits for credit: so does this from now on, and
    /// it is no retry.
    pub(super) fn expire_behind_credit(&mut self, now: Instant, expired: Expired, base: &mut Base, rtt: &RoundTrip) {
        match expired {
            Expired::Low => self.flight.probe(),
            Expired::High => self.flight.give_up(),
        }
        self.start_timer(now, base, rtt);
    }
}
