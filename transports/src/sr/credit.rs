//! Selective Repeat with receiver-granted credit ([`Credit`](crate::congestion::Credit)). Lost packets are sent again with credit, too, and
//! no timer runs while nothing else is in flight.

use softnic_wire::{Instant, TxFrame};

use super::Sr;
use super::requester::Requester;
use super::timer::Expired;
use crate::Host;
use crate::rc::requester::Requester as Base;
use crate::round_trip::RoundTrip;

impl Sr {
    /// Writes the credit packet that is due, if there is one.
    pub(super) fn transmit_credit(&mut self, now: Instant, tx: &mut TxFrame<'_>, host: &mut impl Host) -> bool {
        let lost = self.requester.as_ref().map_or(0, |requester| requester.flight.lost());
        self.rc.transmit_credit(now, tx, lost, host)
    }
}

impl Requester {
    /// Whether the next packet waits for credit.
    pub(super) fn awaits_credit(&self, now: Instant, base: &Base) -> bool {
        base.awaits_credit(now, self.flight.in_flight() == 0)
    }

    /// Whether nothing is in flight and lost packets wait for credit: no answer can arrive before they are sent.
    pub(super) fn is_starved(&self, now: Instant, base: &Base) -> bool {
        self.flight.in_flight() == 0 && self.flight.has_lost() && self.awaits_credit(now, base)
    }

    /// Packets in flight were not answered, while lost packets already wait for credit. The packets in flight are now treated as lost and
    /// wait for credit, too; this is no retry.
    pub(super) fn expire_behind_credit(&mut self, now: Instant, expired: Expired, base: &mut Base, rtt: &RoundTrip) {
        match expired {
            Expired::Low => self.flight.probe(),
            Expired::High => self.flight.give_up(),
        }
        self.start_timer(now, base, rtt);
    }
}
