//! Data that answers READs and atomics, in the order of the capture: what came twice, what came late, and what is missing within an answer.

use std::collections::{BTreeMap, HashMap};

use super::doubts::{Of, Side};
use super::half::{Half, Sent, unwrap, wrapped};
use super::record::{Found, Record, What};
use super::requests::{COPY, LEAP, MOST_BEHIND, MOST_MISSING};
use crate::PacketNumber;

/// What is found of the answers of a half.
pub(super) fn follow(records: &[Record], half: &Half, doubts: &Of) -> Vec<Found> {
    if doubts.answers == Side::Before {
        return Vec::new();
    }
    let (sent, said) = unwrap(records, half);
    let data: Vec<_> = said.into_iter().filter(|s| s.is_data()).collect();
    // What was asked for so far, by PSN, each as it was asked for last.
    let mut asked = sent.iter().filter(|s| s.by_data).peekable();
    let mut reads: BTreeMap<i64, Sent> = BTreeMap::new();
    let mut gaps: Vec<Gap> = Vec::new();
    let name = |at: usize| PacketNumber(records[at].number);
    let mut found = Vec::new();
    // The first packet behind each gap, by the PSNs that are missing, and where each was seen last.
    let (mut missing, mut seen): (HashMap<i64, (usize, usize)>, HashMap<i64, usize>) = (HashMap::new(), HashMap::new());
    let mut last: Option<usize> = None;
    for (i, s) in data.iter().enumerate() {
        let opcode = records[s.at].opcode;
        while let Some(read) = asked.next_if(|read| read.at < s.at) {
            reads.insert(read.psn, *read);
        }
        if let Some(of) = last.filter(|&j| data[j].psn == s.psn && records[data[j].at].opcode == opcode)
            && s.time - data[of].time < COPY
            // Asked for twice, it comes twice.
            && half.requests.partition_point(|r| *r < data[of].at) == half.requests.partition_point(|r| *r < s.at)
        {
            let of = data[of].at;
            let why = format!("packet {} is a second copy of it, {} ns later", name(s.at), s.time - records[of].time);
            found.push(Found { what: What::Copy { at: s.at, of }, why });
            continue;
        }
        if let Some((before, gap)) = missing.get(&s.psn).copied().filter(|(before, _)| i - before <= MOST_BEHIND) {
            let next = data[i + 1..].iter().find(|later| !missing.contains_key(&later.psn) || later.psn == s.psn);
            // Nothing asked for it again, or what follows it goes on where the sender was.
            let asked =
                half.requests.partition_point(|r| *r < data[before].at) < half.requests.partition_point(|r| *r < s.at);
            let goes_back = asked && next.is_some_and(|next| next.psn > s.psn && seen.contains_key(&next.psn));
            missing.remove(&s.psn);
            if !goes_back {
                gaps[gap].came = true;
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
                for psn in next..s.psn {
                    let of = |read: &&Sent| read.psn + read.least > psn;
                    let read = reads
                        .range(..=psn)
                        .rev()
                        .take(NESTED)
                        .map(|(_, read)| read)
                        .filter(of)
                        .max_by_key(|read| read.at);
                    if let Some(read) = read.filter(|_| gaps.len() < MOST_MISSING) {
                        missing.insert(psn, (i, gaps.len()));
                        gaps.push(Gap { before: s.at, psn, read: *read, came: false });
                    }
                }
            }
        }
        seen.insert(s.psn, i);
        last = Some(i);
    }
    let Some(flow) = half.answers_flow else { return found };
    for gap in gaps.into_iter().filter(|gap| !gap.came) {
        let why = format!("its PSN is missing before packet {}: lost before the capture point", name(gap.before));
        let (psn, opcode) = (wrapped(records, half, gap.psn), gap.read.answered_by(records, gap.psn));
        found.push(Found { what: What::Missing { before: gap.before, flow, psn, opcode }, why });
    }
    found
}

/// Requests for a part of what an earlier one asked for, one within the other, that are looked at.
const NESTED: usize = 16;

/// A PSN that is missing.
struct Gap {
    /// The packet before which it would stand.
    before: usize,
    psn: i64,
    /// What asked for it last.
    read: Sent,
    /// It came late, and was not lost.
    came: bool,
}
