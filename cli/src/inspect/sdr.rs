//! SDR-RDMA as `inspect` shows it: packets of which a negotiation in the capture tells, or all that somebody says are divided like that.

use serde_json::{Value, json};
use softnic_pcaps::decode::Dissection;
use softnic_pcaps::sdr::{SdrPacket, control_name, report_name};
use softnic_wire::mad::vendor::{Negotiation, sdr_info};
use softnic_wire::sdr::report::ReportKind;
use softnic_wire::sdr::{Contact, Info, SdrSettings, Split};

/// What a packet is to SDR; `split` is what somebody said.
pub(super) fn of(p: &Dissection<'_>, split: Option<Split>) -> Option<SdrPacket> {
    match split {
        Some(split) => SdrPacket::of(p, split),
        None => p.sdr,
    }
}

/// The name and the value of a packet's field in JSON.
pub(super) fn packet(packet: &SdrPacket) -> (&'static str, Value) {
    match packet {
        SdrPacket::Data { msg, packet, user } => ("sdr", json!({ "msg": msg, "packet": packet, "user": user })),
        SdrPacket::Control(c) => {
            let kind = control_name(c.kind);
            ("sdr_control", json!({ "kind": kind, "token": c.token, "sequence": c.sequence, "count": c.count }))
        }
        SdrPacket::Report(r) => {
            let kind = report_name(r.kind);
            let (what, count) = if r.kind == ReportKind::Rows { ("rows", r.rows) } else { ("chunks", r.chunks) };
            let value = json!({
                "kind": kind, "token": r.token, "sequence": r.sequence, "done": r.done, "msg": r.message, "len": r.len,
                "below": r.below, what: count
            });
            ("sdr_control", value)
        }
    }
}

/// What a MAD of the negotiation says about SDR, if it has the bit: also where that does not count, and why.
pub(super) fn negotiation(n: &Negotiation<'_>, mad: &[u8]) -> Option<Value> {
    let SdrSettings { scheme, parameters } = n.settings.get();
    Some(match sdr_info(mad)? {
        Ok(i) => json!({ "scheme": scheme, "parameters": parameters, "info": info(&i) }),
        Err(e) => json!({ "scheme": scheme, "parameters": parameters, "info": null, "error": e.to_string() }),
    })
}

fn info(i: &Info<'_>) -> Value {
    let contact = |c: Contact| json!({ "qpn": c.qpn.value(), "psn": c.psn.value() });
    let generation = |g: softnic_wire::sdr::GenerationInfo<'_>| json!({ "key": g.key, "channels": g.channels().map(contact).collect::<Vec<_>>() });
    json!({
        "mtu": i.mtu.bytes(),
        "split": i.split.to_string(),
        "slots": i.slots,
        "slot_len": i.slot_len,
        "max_message": i.max_message,
        "token": i.token,
        "control": contact(i.control),
        "generations": i.generations().map(generation).collect::<Vec<_>>(),
    })
}
