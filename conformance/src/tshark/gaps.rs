//! What tshark does not read of packets that are right, reviewed one by one. Seen in tshark 4.0.

use softnic_pcaps::decode::Dissection;
use softnic_wire::Opcode;
use softnic_wire::opcode::{Kind, Service};

/// Why tshark may show no extension headers of an opcode; where it does show them, they are compared all the same.
pub(super) fn without_headers(opcode: Opcode) -> Option<&'static str> {
    match (opcode.service(), opcode.kind()) {
        (Service::Xrc, _) => Some("XRC: none of its opcodes is in the table; what follows the BTH is vendor data"),
        (Service::Sr, _) => Some("Selective Repeat: softnic's own; what follows the BTH is vendor data"),
        (Service::Xp, _) => Some("XP: softnic's own; what follows the BTH is vendor data"),
        (_, Kind::Repair) => Some("LoWAR: its opcode is in no table; what follows the BTH is vendor data"),
        (_, Kind::Flush) => Some("FLUSH: younger than the table (IBA annex A19, 2021)"),
        (_, Kind::AtomicWrite) => Some("ATOMIC WRITE: younger than the table (IBA annex A19, 2021)"),
        _ => None,
    }
}

/// Why tshark may call a packet malformed that is not.
pub(super) fn called_malformed(d: &Dissection<'_>) -> Option<&'static str> {
    match d.opcode.map(Opcode::service) {
        Some(Service::Ud) if d.payload_len == Some(0) => {
            Some("UD without payload: tshark reads the first bytes, for EoIB, without asking whether there are any")
        }
        _ => None,
    }
}
