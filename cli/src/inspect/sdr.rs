//! SDR-RDMA in captures: nothing in a packet tells it from others, so it is read only where somebody says how immediates are divided.

use std::fmt;

use serde_json::{Value, json};
use softnic_pcaps::decode::Dissection;
use softnic_runtime::api::sdr::{Control, ControlKind, Split};
use softnic_wire::Opcode;

/// UC RDMA WRITE Only with Immediate, which data is.
const DATA: Opcode = Opcode(0x2b);
/// UC SEND Only, which control messages are.
const CONTROL: Opcode = Opcode(0x24);

/// What a packet is to SDR.
pub(super) enum Sdr {
    /// A packet of a message, or a piece of its immediate behind its end.
    Data { msg: u32, packet: u32, user: u32 },
    /// A control message.
    Control(Control),
}

impl Sdr {
    /// Of a packet, where immediates are divided like that.
    pub(super) fn of(p: &Dissection<'_>, split: Option<Split>) -> Option<Sdr> {
        let split = split?;
        match p.opcode? {
            DATA => {
                let (msg, packet, user) = split.unpack(p.ext.imm?);
                Some(Sdr::Data { msg, packet, user })
            }
            CONTROL => Control::decode(p.payload).map(Sdr::Control),
            _ => None,
        }
    }

    /// The name and the value of its field in JSON.
    pub(super) fn json(&self) -> (&'static str, Value) {
        match self {
            Sdr::Data { msg, packet, user } => ("sdr", json!({ "msg": msg, "packet": packet, "user": user })),
            Sdr::Control(c) => {
                let value = json!({ "kind": kind(c), "token": c.token, "sequence": c.sequence, "count": c.count });
                ("sdr_control", value)
            }
        }
    }
}

fn kind(c: &Control) -> &'static str {
    match c.kind {
        ControlKind::Cts => "cts",
        ControlKind::Ask => "ask",
    }
}

impl fmt::Display for Sdr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sdr::Data { msg, packet, user } => write!(f, "sdr msg {msg} packet {packet} user {user:#x}"),
            Sdr::Control(c) => write!(f, "sdr {} {}", kind(c), c.count),
        }
    }
}
