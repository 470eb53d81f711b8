//! XP with receiver-granted credit ([`Credit`](crate::congestion::Credit)): the packets that wait for credit.

use softnic_wire::{Instant, TxFrame};

use super::Xp;
use crate::congestion::on_wire;
use crate::{Host, Inbound};

impl Xp {
    /// A packet of the peer has arrived, of any kind.
    #[inline]
    pub(super) fn note_heard(&mut self, now: Instant) {
        if let Some(credit) = &mut self.rest.credit {
            credit.on_heard(now);
        }
    }

    pub(super) fn on_credit(&mut self, now: Instant, packet: &Inbound<'_>, host: &mut impl Host) {
        let Some(credit) = &mut self.rest.credit else {
            host.counters().eqds_credit_rejected += 1;
            return;
        };
        credit.receive(now, packet, host);
        // The wait for more credit may start now, if nothing else is due.
        self.refresh();
    }

    /// Whether the peer has granted enough credit for a packet.
    pub(super) fn has_credit(&self) -> bool {
        self.rest.credit.as_ref().is_none_or(|credit| credit.may_send_any())
    }

    /// An estimate of the bytes on the wire that are still to be sent.
    fn waiting(&self) -> u32 {
        let Some(link) = &self.link else { return 0 };
        let payload = self.sender.bytes_left(link.mtu) + self.rest.jobs.bytes_left(link.mtu);
        on_wire(link, payload, payload.div_ceil(u64::from(link.mtu.bytes())))
    }

    /// Writes the credit packet that is due, if there is one.
    pub(super) fn transmit_credit(&mut self, now: Instant, tx: &mut TxFrame<'_>, host: &mut impl Host) -> bool {
        let waiting = if self.state.sends() { self.waiting() } else { 0 };
        let receives = self.state.receives();
        match (&mut self.rest.credit, &self.link) {
            (Some(credit), Some(link)) if receives => credit.transmit(now, tx, link, waiting, host),
            _ => false,
        }
    }
}
