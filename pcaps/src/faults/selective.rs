//! Selective Repeat: each packet is sent again by itself, so one that comes again was lost, unless an acknowledgement had said that it came.

use std::collections::HashMap;

use softnic_wire::{Opcode, Psn};

use super::Action;
use super::doubts::{Of, Side};
use super::half::Half;
use super::record::{Found, Record, What};
use super::requests::{COPY, LEAP};
use crate::PacketNumber;
use crate::analysis::Says;

/// What is found of both directions of a half.
pub(super) fn follow(records: &[Record], half: &Half, doubts: &Of) -> Vec<Found> {
    let is_data = |at: &usize| !matches!(records[*at].answer.map(|a| a.says), None | Some(Says::Expects { .. }));
    let data: Vec<usize> = half.answers.iter().copied().filter(is_data).collect();
    let mut found = stream(records, &half.requests, &half.answers, doubts.requests);
    found.extend(stream(records, &data, &[], doubts.answers));
    found
}

/// One stream of packets with PSNs of its own, and what acknowledges it.
fn stream(records: &[Record], packets: &[usize], acks: &[usize], side: Side) -> Vec<Found> {
    let name = |at: usize| PacketNumber(records[at].number);
    let mut found = Vec::new();
    let mut last: HashMap<(Psn, Opcode), usize> = HashMap::new();
    let mut missing: HashMap<Psn, usize> = HashMap::new();
    let mut newest: Option<Psn> = None;
    let (mut heard, mut expected): (usize, Option<Psn>) = (0, None);
    let mut previous = None;
    for &at in packets {
        let previous = previous.replace(at);
        while let Some(&ack) = acks.get(heard).filter(|ack| **ack < at) {
            heard += 1;
            let Some(says) = records[ack].answer else { continue };
            if matches!(says.says, Says::Expects { .. }) && expected.is_none_or(|e| says.psn.is_after(e)) {
                expected = Some(says.psn);
            }
        }
        let r = records[at];
        if let Some(gap) = missing.remove(&r.psn) {
            let lost = r.time - records[gap].time >= COPY;
            if lost && side != Side::Before {
                let why = format!("its PSN is missing before packet {}: lost before the capture point", name(gap));
                let what = What::Missing { before: gap, flow: r.flow, psn: r.psn, opcode: Some(r.opcode) };
                found.push(Found { what, why });
            } else if !lost {
                let why = format!("packet {}, which has a later PSN, came before it", name(gap));
                let behind = packets.iter().filter(|p| (gap..at).contains(*p)).count() as u32;
                found.push(Found { what: What::Late { at, before: gap, behind }, why });
            }
            last.insert((r.psn, r.opcode), at);
            continue;
        }
        match newest {
            Some(n) if r.psn.is_after(n) => {
                let gap = r.psn.forward_from(n.next());
                if i64::from(gap) < LEAP {
                    missing.extend((0..gap).map(|k| (n.next().add(k), at)));
                }
                newest = Some(r.psn);
            }
            None => newest = Some(r.psn),
            Some(_) => {}
        }
        if let Some(before) = last.insert((r.psn, r.opcode), at) {
            // Right behind it: sooner than anything could have asked for it.
            if side != Side::Before && previous == Some(before) && r.time - records[before].time < COPY {
                let why = format!("packet {} is a second copy of it", name(at));
                found.push(Found { what: What::Copy { at, of: before }, why });
            } else if side != Side::Behind && expected.is_none_or(|e| !r.psn.is_before(e)) {
                let why = format!("packet {} sends it again, and nothing had said that it came", name(at));
                found.push(Found { what: What::Seen(before, Action::Drop), why });
            }
        }
    }
    found
}
