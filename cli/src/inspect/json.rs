//! The lines that programs read: one JSON object a packet, then the summary. The field names are a contract.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use softnic_pcaps::decode::Dissection;
use softnic_pcaps::sack::Sack;
use softnic_pcaps::sdr::SdrFlow;
use softnic_pcaps::sequence::Order;
use softnic_pcaps::summary::{Flow, FlowKey, Summary};
use softnic_wire::aeth::{Aeth, NakCode, Syndrome};
use softnic_wire::auth::AuthSettings;
use softnic_wire::lowar::{LowarSettings, RepairHeader};
use softnic_wire::mad::cm::Message;
use softnic_wire::mad::vendor::{Extensions, Kind, MAC, Negotiation};
use softnic_wire::opcode::HeaderSet;
use softnic_wire::sdr::Split;
use softnic_wire::sr::SrSettings;
use softnic_wire::xp::XpCredit;
use softnic_wire::{Opcode, Psn, Qpn};

use super::connections::{connection, verdict};
use super::mad::{cm_message, negotiation};
use super::{End, Shown, failover, groups, sdr};

pub(super) struct Printer {
    /// Names of the captures, where there are several.
    pub(super) files: Vec<String>,
    /// How immediates of SDR are divided, where there are some.
    pub(super) sdr: Option<Split>,
}

#[derive(Serialize)]
struct PacketLine<'a> {
    n: u64,
    /// From 1; with several files only, as the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    copy_of: Option<String>,
    /// Seconds as an exact decimal: a double cannot hold today's date in nanoseconds.
    time: &'a RawValue,
    src: String,
    dst: String,
    roce: u8,
    opcode: Option<String>,
    opcode_hex: Option<String>,
    dest_qp: Option<u32>,
    psn: Option<u32>,
    ack_req: Option<bool>,
    se: Option<bool>,
    mig: Option<bool>,
    pad: Option<u8>,
    pkey: Option<u16>,
    fecn: Option<bool>,
    becn: Option<bool>,
    src_port: Option<u16>,
    traffic_class: u8,
    payload_len: Option<usize>,
    icrc: String,
    ext: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<Value>,
    retransmission: bool,
    out_of_sequence: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Printer {
    pub(super) fn packet(&mut self, out: &mut impl Write, s: &Shown<'_>) -> io::Result<()> {
        let p = s.packet;
        let time = RawValue::from_string(s.time.to_string())?;
        let line = PacketLine {
            n: s.number.within(),
            file: s.number.file(),
            copy_of: s.copy_of.map(|first| first.to_string()),
            time: &time,
            src: p.src.to_string(),
            dst: p.dst.to_string(),
            roce: p.layout.carrier.roce_version(),
            opcode: p.opcode.map(|o| o.to_string()),
            opcode_hex: p.opcode.map(|o| format!("{:#04x}", o.0)),
            dest_qp: p.dest_qp.map(Qpn::value),
            psn: p.psn.map(u32::from),
            ack_req: p.ack_req,
            se: p.solicited,
            mig: p.mig_req,
            pad: p.pad,
            pkey: p.pkey,
            fecn: p.fecn,
            becn: p.becn,
            src_port: p.src_port,
            traffic_class: p.traffic_class,
            payload_len: p.payload_len,
            icrc: p.icrc.to_string(),
            ext: ext(p, self.sdr),
            group: s.group.as_ref().map(groups::packet),
            retransmission: s.order == Some(Order::Again),
            out_of_sequence: s.order == Some(Order::Early),
            error: p.problem.map(|e| e.to_string()),
        };
        serde_json::to_writer(&mut *out, &line)?;
        writeln!(out)
    }

    pub(super) fn summary(&mut self, out: &mut impl Write, s: &Summary, end: &End<'_>) -> io::Result<()> {
        let opcodes: Map<String, Value> =
            s.opcodes.iter().map(|(&op, &n)| (Opcode(op).to_string(), n.into())).collect();
        let flows: Vec<Value> = s.flows.iter().map(|(k, f)| flow(k, f)).collect();
        let mut line = json!({ "summary": {
            "frames": s.frames,
            "packets": s.packets,
            "other_frames": s.other_frames,
            "fragments": s.fragments,
            "undecodable": s.undecodable,
            "malformed": s.malformed,
            "icrc": { "ok": s.icrc_ok, "bad": s.icrc_bad, "truncated": s.icrc_truncated },
            "opcodes": opcodes,
            "retransmissions": s.total(|f| f.retransmissions),
            "out_of_sequence": s.total(|f| f.out_of_sequence),
            "naks": s.total(Flow::nak_total),
            "rnr_naks": s.total(|f| f.rnr_naks),
            "repairs": s.total(|f| f.repairs),
            "bytes": s.bytes,
            "seconds": s.seconds(),
            "rate_gbps": s.bits_per_second() / 1e9,
            "qps": flows,
            "verdicts": end.verdicts.iter().map(verdict).collect::<Vec<_>>(),
            "connections": end.connections.iter().map(connection).collect::<Vec<_>>(),
        }});
        if let Some(copies) = end.copies {
            if !self.files.is_empty() {
                line["summary"]["files"] = json!(self.files);
            }
            line["summary"]["copies"] = copies.into();
            line["summary"]["groups"] = end.groups.iter().map(groups::summary).collect();
        }
        serde_json::to_writer(&mut *out, &line)?;
        writeln!(out)
    }
}

fn flow(key: &FlowKey, f: &Flow) -> Value {
    let naks: Map<String, Value> = f.naks.iter().map(|(&c, &n)| (NakCode(c).to_string(), n.into())).collect();
    let mut flow = json!({
        "src": key.src.to_string(),
        "dst": key.dst.to_string(),
        "dest_qp": key.dest_qp.value(),
        "packets": f.packets,
        "payload_bytes": f.payload_bytes,
        "retransmissions": f.retransmissions,
        "out_of_sequence": f.out_of_sequence,
        "naks": naks,
        "rnr_naks": f.rnr_naks,
        "repairs": f.repairs,
        "cnps": f.cnps,
        "ecn_ce": f.ecn_ce,
        "icrc_bad": f.icrc_bad,
    });
    if let Some(xp) = &f.xp {
        flow["xp"] = json!({
            "messages": xp.messages(),
            "without_last": xp.without_last(),
            "unseen_messages": xp.unseen_messages(),
            "missing_packets": xp.missing_packets,
            "late_packets": xp.late_packets,
            "duplicates": xp.duplicates,
            "feedback": xp.feedback,
        });
    }
    if let Some(SdrFlow { data, parity, retransmitted, .. }) = f.sdr.as_deref() {
        flow["sdr"] = json!({ "data": data, "parity": parity, "retransmitted": retransmitted });
    }
    flow
}

/// The extension headers that the opcode has; one that was cut off is null.
fn ext(p: &Dissection<'_>, split: Option<Split>) -> Value {
    let mut all = Map::new();
    let headers = p.opcode.map_or(HeaderSet::NONE, Opcode::headers);
    let e = &p.ext;
    let mut put = |set, name: &str, value: Option<Value>| {
        if headers.contains(set) {
            all.insert(name.into(), value.unwrap_or(Value::Null));
        }
    };
    if p.opcode == Some(Opcode::SR_ACKNOWLEDGE) {
        put(HeaderSet::SR, "sack", Sack::of(p).map(|s| sack(&s)));
    } else {
        put(HeaderSet::SR, "sr", e.sr.map(|h| json!({ "flags": h.flags, "number": h.number, "offset": h.offset })));
    }
    put(
        HeaderSet::XP,
        "xp",
        e.xp.map(|h| {
            json!({
                "wqe_seq": h.wqe_seq, "offset": h.offset, "length": h.len, "last": h.is_last(), "stride": h.stride,
                "receive": h.uses_receive().then_some(h.receive),
            })
        }),
    );
    put(
        HeaderSet::XP_FEEDBACK,
        "xp_feedback",
        e.xp_feedback().map(|h| json!({ "held_ns": h.held, "marks": h.marks, "bytes": h.bytes, "credit": h.credit })),
    );
    put(
        HeaderSet::XP_CREDIT,
        "xp_credit",
        e.xp_credit().map(|h| {
            let asks = h.flags & XpCredit::ASKS != 0;
            json!({ "giver_qp": h.giver, "granted": h.granted, "wanted": h.wanted, "asks": asks })
        }),
    );
    put(HeaderSet::XP_TIME, "xp_time_left_us", e.xp_time.map(|us| json!(us)));
    put(HeaderSet::DETH, "deth", e.deth.map(|h| json!({ "qkey": h.qkey, "src_qp": h.src_qp.value() })));
    put(HeaderSet::XRCETH, "xrceth", e.xrceth.map(|h| json!({ "srq": h.srq })));
    put(HeaderSet::FETH, "feth", e.feth.map(|h| json!({ "placement": h.placement, "selectivity": h.selectivity })));
    put(HeaderSet::RETH, "reth", e.reth.map(|h| json!({ "va": h.va, "rkey": h.rkey, "len": h.len })));
    let atomic = |h: softnic_wire::ext::AtomicEth| json!({ "va": h.va, "rkey": h.rkey, "swap_add": h.swap_add, "compare": h.compare });
    put(HeaderSet::ATOMIC, "atomic", e.atomic.map(atomic));
    put(HeaderSet::AETH, "aeth", e.aeth.map(aeth));
    put(HeaderSet::ATOMIC_ACK, "atomic_ack", e.atomic_ack.map(Into::into));
    put(HeaderSet::IMM, "imm", e.imm.map(Into::into));
    put(HeaderSet::IETH, "ieth", e.ieth.map(Into::into));
    if p.opcode == Some(Opcode::LOWAR) {
        all.insert("lowar".into(), p.repair_header().map_or(Value::Null, |h| lowar(&h)));
    }
    if let Some(trailer) = p.trailer {
        all.insert("auth".into(), json!({ "epoch": trailer.epoch, "tag": hex(&trailer.tag) }));
    }
    if let Some((name, value)) = sdr::of(p, split).map(|packet| sdr::packet(&packet)) {
        all.insert(name.into(), value);
    }
    if let Some(n) = negotiation(p) {
        all.insert("negotiation".into(), offer_or_answer(&n, p.payload));
    }
    if let Some((name, value)) = failover::json(p) {
        all.insert(name.into(), value);
    }
    if let Some((tid, m)) = cm_message(p) {
        all.insert("cm".into(), cm(tid, &m));
    }
    Value::Object(all)
}

/// What a bitmap says is null where it was cut off.
fn sack(s: &Sack) -> Value {
    let missing = |psns: &[Psn]| psns.iter().map(|p| p.value()).collect::<Vec<_>>();
    json!({
        "of": if s.of_responses { "responses" } else { "requests" },
        "expected": s.expected.value(),
        "first": s.first.value(),
        "bits": s.bits,
        "missing": s.bitmap.as_ref().map(|b| missing(&b.first_missing)),
        "received": s.bitmap.as_ref().map(|b| b.received),
    })
}

/// A Repair Header: of a repair packet, or of a notice or request about the blocks to come.
fn lowar(h: &RepairHeader) -> Value {
    json!({
        "type": h.kind.name(),
        "r": h.r,
        "c": h.c,
        "isn": h.isn,
        "n": h.n,
        "has_first": h.has_first,
        "has_last": h.has_last,
        "responses": h.responses,
        "last_length": h.last_len,
        "digest": h.digest,
    })
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Of a MAD of ours: which it is, and how an answer went.
pub(super) fn type_and_status(kind: Kind) -> (&'static str, Option<u16>) {
    match kind {
        Kind::Offer => ("offer", None),
        Kind::Answer(status) => ("answer", Some(status.0)),
    }
}

fn offer_or_answer(n: &Negotiation<'_>, mad: &[u8]) -> Value {
    let (kind, status) = type_and_status(n.kind);
    let lowar: LowarSettings = n.settings.get();
    let auth = n.extensions.contains(Extensions::AUTH);
    let mut value = json!({
        "type": kind,
        "status": status,
        "tid": n.transaction_id,
        "version": n.version,
        "sender_qpn": n.sender_qpn,
        "receiver_qpn": n.receiver_qpn,
        "extensions": n.extensions.to_string(),
        "lowar_r": lowar.r,
        "lowar_c": lowar.c,
        "sr_window": n.settings.get::<SrSettings>().window,
    });
    if auth {
        value["auth_nonce"] = hex(&n.settings.get::<AuthSettings>().nonce).into();
        value["auth_mac"] = mad.get(MAC).map(hex).into();
    }
    if let Some(sdr) = sdr::negotiation(n, mad) {
        value["sdr"] = sdr;
    }
    value
}

fn aeth(a: Aeth) -> Value {
    let (kind, value) = match a.syndrome {
        Syndrome::Ack(c) => ("ack", c.0),
        Syndrome::RnrNak(t) => ("rnr_nak", t.0),
        Syndrome::Nak(n) => ("nak", n.0),
        Syndrome::Reserved(b) => ("reserved", b),
    };
    json!({ "syndrome": a.syndrome.to_byte(), "kind": kind, "value": value, "msn": a.msn })
}

fn cm(tid: u64, m: &Message) -> Value {
    let name = m.attribute().name(softnic_wire::mad::Class::CM).unwrap_or("OTHER");
    let mut v = match m {
        Message::Req(r) => {
            let mut v = json!({
                "local_comm_id": r.local_comm_id, "service_id": r.service_id.0, "local_qpn": r.local_qpn,
                "starting_psn": r.starting_psn.value(), "responder_resources": r.responder_resources,
                "initiator_depth": r.initiator_depth, "retry_count": r.retry_count,
                "rnr_retry_count": r.rnr_retry_count, "path_mtu": r.path_mtu.bytes(), "pkey": r.pkey, "srq": r.srq,
            });
            if let Some(ip) = r.ip_cm() {
                v["ip"] = json!({ "src": ip.source().to_string(), "dst": ip.destination().to_string() });
            }
            v
        }
        Message::Rep(r) => json!({
            "local_comm_id": r.local_comm_id, "remote_comm_id": r.remote_comm_id, "local_qpn": r.local_qpn,
            "starting_psn": r.starting_psn.value(), "responder_resources": r.responder_resources,
            "initiator_depth": r.initiator_depth, "rnr_retry_count": r.rnr_retry_count, "srq": r.srq,
        }),
        Message::Rej(r) => json!({
            "local_comm_id": r.local_comm_id, "remote_comm_id": r.remote_comm_id, "reason": r.reason.0,
        }),
        Message::Mra(r) => json!({ "local_comm_id": r.local_comm_id, "remote_comm_id": r.remote_comm_id }),
        Message::Rtu(r) => json!({ "local_comm_id": r.local_comm_id, "remote_comm_id": r.remote_comm_id }),
        Message::Dreq(r) => json!({
            "local_comm_id": r.local_comm_id, "remote_comm_id": r.remote_comm_id, "remote_qpn": r.remote_qpn,
        }),
        Message::Drep(r) => json!({ "local_comm_id": r.local_comm_id, "remote_comm_id": r.remote_comm_id }),
        Message::SidrReq(r) => json!({ "request_id": r.request_id, "service_id": r.service_id.0, "pkey": r.pkey }),
        Message::SidrRep(r) => json!({
            "request_id": r.request_id, "service_id": r.service_id.0, "status": r.status.0, "qpn": r.qpn, "qkey": r.qkey,
        }),
        Message::Other { attribute, .. } => json!({ "attribute": attribute.0 }),
    };
    v["type"] = name.into();
    v["tid"] = tid.into();
    v
}
