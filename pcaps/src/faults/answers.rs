//! Data that answers READs and atomics, in the order of the capture: what came twice, and what came late. Of what was lost the requests tell.

use std::collections::HashMap;

use super::doubts::{Of, Side};
use super::half::{Half, unwrap};
use super::record::{Found, Record, What};
use super::requests::{COPY, LEAP, MOST_BEHIND};
use crate::PacketNumber;
use crate::analysis::Says;

/// What is found of the answers of a half.
pub(super) fn follow(records: &[Record], half: &Half, doubts: &Of) -> Vec<Found> {
    if doubts.answers == Side::Before {
        return Vec::new();
    }
    let (_, said) = unwrap(records, half);
    let data: Vec<_> = said.into_iter().filter(|s| matches!(s.says, Says::Data { .. })).collect();
    let name = |at: usize| PacketNumber(records[at].number);
    let mut found = Vec::new();
    // The first packet behind each gap, by the PSNs that are missing, and where each was seen last.
    let (mut missing, mut seen): (HashMap<i64, usize>, HashMap<i64, usize>) = (HashMap::new(), HashMap::new());
    let mut last: Option<usize> = None;
    for (i, s) in data.iter().enumerate() {
        let opcode = records[s.at].opcode;
        if let Some(of) = last.filter(|&j| data[j].psn == s.psn && records[data[j].at].opcode == opcode)
            && s.time - data[of].time < COPY
            // Asked for twice, it comes twice.
            && !half.requests.iter().any(|&r| r > data[of].at && r < s.at)
        {
            let of = data[of].at;
            let why = format!("packet {} is a second copy of it, {} ns later", name(s.at), s.time - records[of].time);
            found.push(Found { what: What::Copy { at: s.at, of }, why });
            continue;
        }
        if let Some(before) = missing.get(&s.psn).copied().filter(|&before| i - before <= MOST_BEHIND) {
            let next = data[i + 1..].iter().find(|later| !missing.contains_key(&later.psn) || later.psn == s.psn);
            let goes_back = next.is_some_and(|next| next.psn > s.psn && seen.contains_key(&next.psn));
            missing.remove(&s.psn);
            if !goes_back {
                let since = data[before].at;
                let why = format!("packet {}, which has a later PSN, came before it", name(since));
                found.push(Found { what: What::Late { at: s.at, before: since, behind: (i - before) as u32 }, why });
                seen.insert(s.psn, i);
                continue;
            }
        }
        if let Some(j) = last {
            // Within an answer PSNs follow each other; between two lie those of other requests.
            let within = !opcode.begins_message() || !records[data[j].at].opcode.ends_message();
            let next = data[j].psn + 1;
            if within && s.psn > next && s.psn - next < LEAP {
                missing.extend((next..s.psn).map(|psn| (psn, i)));
            }
        }
        seen.insert(s.psn, i);
        last = Some(i);
    }
    found
}
