//! What a requester has outstanding, as far as it must be known to decide when our NIC hears of an answer.

use softnic_wire::aeth::{NakCode, Syndrome};
use softnic_wire::opcode::Kind;

use crate::capture::Packet;

/// What an answer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Effect {
    /// The oldest packet without an answer, afterwards.
    pub(super) una: i64,
    /// Everything from this PSN on is sent again.
    pub(super) resend: Option<i64>,
}

#[derive(Debug, Clone)]
pub(super) struct Window {
    /// The oldest packet without an answer.
    pub(super) una: i64,
    /// PSNs that are answered by data, from and to, in order.
    awaited: Vec<(i64, i64)>,
}

impl Window {
    pub(super) fn new(una: i64, awaited: Vec<(i64, i64)>) -> Window {
        Window { una, awaited }
    }

    /// The first data that is missing.
    fn missing(&self) -> Option<i64> {
        let at = self.awaited.partition_point(|&(_, end)| end <= self.una);
        self.awaited.get(at).map(|&(first, _)| first.max(self.una))
    }

    /// What an answer with this PSN does.
    pub(super) fn effect(&self, psn: i64, p: &Packet) -> Effect {
        let nothing = Effect { una: self.una, resend: None };
        if psn < self.una {
            return nothing;
        }
        let (before, resend) = match (p.opcode.kind(), p.ext.aeth.map(|x| x.syndrome)) {
            (Kind::Acknowledge, Some(Syndrome::Ack(_))) => (psn + 1, None),
            (Kind::Acknowledge, Some(Syndrome::Nak(NakCode::PSN_SEQUENCE_ERROR) | Syndrome::RnrNak(_))) => {
                (psn, Some(psn))
            }
            (Kind::Acknowledge, _) => return nothing,
            _ => (psn, None),
        };
        match self.missing() {
            // Data cannot be acknowledged away: it is asked for again.
            Some(missing) if missing < before => Effect { una: missing, resend: Some(missing) },
            _ if p.opcode.kind() == Kind::Acknowledge => Effect { una: before, resend },
            _ => Effect { una: psn + 1, resend: None },
        }
    }

    /// Takes an answer.
    pub(super) fn take(&mut self, psn: i64, p: &Packet) {
        self.una = self.una.max(self.effect(psn, p).una);
    }
}
