//! MADs of failover as `inspect` shows them: hellos with backup queue pairs, questions for regions, and proofs.

use serde_json::{Value, json};
use softnic_pcaps::decode::Dissection;
use softnic_wire::mad::failover::{Hello, Proof, RegionQuery};

use super::json::{hex, type_and_status};
use super::mad::is_mad;

/// The hello in a packet to QP1.
pub(super) fn hello(p: &Dissection<'_>) -> Option<Hello> {
    Hello::parse(p.payload).ok().filter(|_| is_mad(p))
}

/// The question for a region in a packet to QP1, or its answer.
pub(super) fn region(p: &Dissection<'_>) -> Option<RegionQuery> {
    RegionQuery::parse(p.payload).ok().filter(|_| is_mad(p))
}

/// The proof in a packet to QP1.
pub(super) fn proof(p: &Dissection<'_>) -> Option<Proof> {
    Proof::parse(p.payload).ok().filter(|_| is_mad(p))
}

/// What the MAD in a packet says, and the name that this has among extensions.
pub(super) fn json(p: &Dissection<'_>) -> Option<(&'static str, Value)> {
    hello(p)
        .map(|h| ("failover", of_hello(&h)))
        .or_else(|| region(p).map(|q| ("failover_region", of_region(&q))))
        .or_else(|| proof(p).map(|p| ("failover_proof", of_proof(&p))))
}

fn of_hello(h: &Hello) -> Value {
    let (kind, status) = type_and_status(h.kind);
    let backup = h.backup.map(|b| {
        json!({
            "gid": b.gid.to_string(),
            "qpn": b.qpn.value(),
            "psn": b.psn.value(),
            "mtu": b.mtu.bytes(),
            "control_addr": b.control_addr,
            "control_rkeys": b.control_keys,
        })
    });
    json!({
        "type": kind,
        "status": status,
        "tid": h.transaction_id,
        "version": h.version,
        "sender_qpn": h.sender_qpn.value(),
        "receiver_qpn": h.receiver_qpn.value(),
        "mode": h.mode.to_string(),
        "readiness": h.readiness.to_string(),
        "nonce": hex(&h.nonce),
        "backup": backup,
    })
}

fn of_region(q: &RegionQuery) -> Value {
    let (kind, status) = type_and_status(q.kind);
    json!({
        "type": kind,
        "status": status,
        "tid": q.transaction_id,
        "version": q.version,
        "sender_qpn": q.sender_qpn.value(),
        "receiver_qpn": q.receiver_qpn.value(),
        "rkey": q.rkey,
        "pending": q.pending,
        "region": q.answer.map(|r| json!({ "addr": r.addr, "len": r.len, "backup_rkey": r.backup_rkey })),
    })
}

fn of_proof(p: &Proof) -> Value {
    let (kind, status) = type_and_status(p.kind);
    json!({
        "type": kind,
        "status": status,
        "tid": p.transaction_id,
        "version": p.version,
        "sender_qpn": p.sender_qpn.value(),
        "receiver_qpn": p.receiver_qpn.value(),
        "region_nonce": hex(&p.region_nonce),
    })
}
