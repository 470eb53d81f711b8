//! The notification point of DCQCN: answers marked packets with congestion notification packets (annex A17.9.3).

use std::time::Duration;

use softnic_wire::{ExtHeaders, Instant, Opcode, PacketFields, Psn, TxFrame};

use crate::Host;
use crate::message::Link;
use crate::qp::PayloadMode;

/// A queue pair sends at most one CNP in this time.
pub const INTERVAL: Duration = Duration::from_micros(50);

/// The number of reserved bytes that are a CNP's payload.
const RESERVED: usize = 16;
/// DSCP 48, ECN-capable, as in the CNPs of ConnectX: switches with a separate queue for those use it for these, too.
const TRAFFIC_CLASS: u8 = 48 << 2 | 0b10;

/// When a queue pair may send its next CNP, or that one is due.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NotificationPoint {
    /// [`DUE`], or the time before which marked packets cause no CNP.
    not_before: Instant,
}

/// Later than any marked packet.
const DUE: Instant = Instant::from_nanos(u64::MAX);

impl NotificationPoint {
    /// A packet arrived. Any marked packet except a CNP counts, so that queue pairs do not send CNPs about CNPs.
    #[inline]
    pub(crate) fn on_packet(&mut self, now: Instant, marked: bool, opcode: Opcode) {
        if marked && opcode != Opcode::CNP && now >= self.not_before {
            self.not_before = DUE;
        }
    }

    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.not_before == DUE
    }

    /// Writes the CNP that is due.
    #[inline(never)]
    pub(crate) fn transmit(&mut self, now: Instant, tx: &mut TxFrame<'_>, link: &Link, host: &mut impl Host) -> bool {
        self.not_before = now + INTERVAL;
        let (opcode, psn, payload_len) = (Opcode::CNP, Psn::new(0), RESERVED);
        let fields = PacketFields { opcode, psn, ack_req: false, solicited: false, becn: true, payload_len };
        let template = link.template.with_traffic_class(TRAFFIC_CLASS);
        let built = match link.payload {
            PayloadMode::Real => template.build(tx, &fields, &ExtHeaders::default(), &[0; RESERVED]),
            PayloadMode::Elided => template.build_elided(tx, &fields, &ExtHeaders::default()),
        };
        host.counters().np_cnp_sent += u64::from(built.is_ok());
        built.is_ok()
    }
}
