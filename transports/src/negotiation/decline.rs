//! The answer of a queue pair that offers nothing. Only the last offer of its peer is remembered.

use softnic_wire::Qpn;
use softnic_wire::mad::Status;
use softnic_wire::mad::vendor::{Extensions, Kind, Negotiation, Settings, VERSION};

/// An offer that is answered with "nothing in common", so that the peer need not wait.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Decline {
    transaction_id: u64,
    /// The queue pair that made the offer; the local queue pair may not know its peer yet.
    sender: Qpn,
    is_due: bool,
}

impl Decline {
    /// Records an offer.
    pub(crate) fn note(&mut self, mad: &Negotiation<'_>) {
        *self = Decline { transaction_id: mad.transaction_id, sender: Qpn::new(mad.sender_qpn), is_due: true };
    }

    /// Whether an offer of this queue pair is to be answered; offers of other queue pairs are dropped.
    pub(crate) fn is_due_to(&mut self, peer: Qpn) -> bool {
        self.is_due &= self.sender == peer;
        self.is_due
    }

    /// Takes the answer of `qpn` to the offer; there is one answer per offer.
    pub(crate) fn take(&mut self, qpn: Qpn) -> Negotiation<'static> {
        self.is_due = false;
        Negotiation {
            transaction_id: self.transaction_id,
            kind: Kind::Answer(Status::SUCCESS),
            version: VERSION,
            sender_qpn: qpn.value(),
            receiver_qpn: self.sender.value(),
            extensions: Extensions::NONE,
            settings: Settings::NONE,
            sdr: None,
        }
    }
}
