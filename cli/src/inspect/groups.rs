//! Groups of a switch as `inspect` shows them: what a packet is to one, and what became of each.

use std::io::{self, Write};

use serde_json::{Value, json};
use softnic_pcaps::groups::{Group, GroupPacket};
use softnic_wire::{Psn, Qpn};

/// What a packet is to a group, for programs.
pub(super) fn packet(p: &GroupPacket) -> Value {
    json!({
        "sender": p.sender.to_string(),
        "mc_id": p.mc_id.value(),
        "part": p.part.name(),
        "member": p.part.member().map(|member| member.to_string()),
        "merged_psn": p.part.merged_psn().map(Psn::value),
    })
}

/// A group, for programs.
pub(super) fn summary(g: &Group) -> Value {
    let members: Vec<Value> = g
        .members
        .iter()
        .map(|(address, m)| {
            json!({
                "address": address.to_string(),
                "qpn": m.qpn.map(Qpn::value),
                "acked_psn": m.acked.map(Psn::value),
            })
        })
        .collect();
    json!({
        "sender": g.sender.to_string(),
        "mc_id": g.mc_id.value(),
        "sender_qpn": g.sender_qpn.map(Qpn::value),
        "packets_in": g.sent,
        "copies": g.copies,
        "acks_in": g.said,
        "acks_out": g.merged,
        "merged_psn": g.minimum().map(Psn::value),
        "members": members,
    })
}

/// All groups, for people.
pub(super) fn lines(out: &mut impl Write, groups: &[Group]) -> io::Result<()> {
    if groups.is_empty() {
        return Ok(());
    }
    writeln!(out, "\ngroups")?;
    for g in groups {
        write!(out, "  {} > {}", g.sender, g.mc_id)?;
        if let Some(qpn) = g.sender_qpn {
            write!(out, " (its queue pair {qpn})")?;
        }
        writeln!(out, ": {} packets, {} copies; {} answers, {} of them told", g.sent, g.copies, g.said, g.merged)?;
        for (address, member) in &g.members {
            match member.qpn {
                Some(qpn) => write!(out, "    {address} qp {qpn}")?,
                None => write!(out, "    {address} and others behind a switch")?,
            }
            match member.acked {
                Some(psn) => writeln!(out, " has all to psn {psn}")?,
                None => writeln!(out)?,
            }
        }
    }
    Ok(())
}
