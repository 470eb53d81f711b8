//! From what was counted to what is wrong: where each verdict begins.

use std::collections::BTreeMap;
use std::net::IpAddr;

use softnic_wire::PathMtu;

use super::direction::Direction;
use super::{Analysis, ConnectionId, Finding, MtuMismatch, Packets, Verdict};

/// Wrong ICRCs, and no right one, that are more than a damaged packet or two.
const ICRC: u64 = 3;
/// RNR NAKs in a row for one request, or in all with a share of the requests, that are more than a receive that is a bit late.
const NOT_READY_IN_A_ROW: u32 = 3;
const NOT_READY: u64 = 10;
/// Transmissions of one request, the first included, after which it counts as given up if nothing follows.
const TRIES: u32 = 3;
/// Duplicates, in all and as a share of the requests, that are more than a hiccup.
const DUPLICATES: u64 = 10;
const DUPLICATES_SHARE: u64 = 10;
/// Requests that want an answer, or answers, after which the other direction should have been seen.
const ONE_SIDED: u64 = 4;
/// Marked packets after which a notification should have been seen.
const MARKS: u64 = 3;

pub(super) fn verdicts(a: &Analysis) -> Vec<Verdict> {
    let mut all = Vec::new();
    icrc(a, &mut all);
    one_sided(a, &mut all);
    for waiting in a.cm.unanswered(a.end) {
        let finding = Finding::CmUnanswered { message: waiting.message };
        all.push(Verdict { finding, packets: waiting.packets, connection: None });
    }
    for i in 0..a.directions.len() {
        direction(a, i, &mut all);
    }
    all
}

fn icrc(a: &Analysis, all: &mut Vec<Verdict>) {
    let everyone_bad = !a.any_icrc_ok;
    let mut senders: Vec<_> = a.icrc.iter().filter(|(_, (ok, bad))| *ok == 0 && bad.count() >= ICRC).collect();
    senders.sort_by_key(|(addr, _)| **addr);
    for (&sender, (_, bad)) in senders {
        let sender = (!everyone_bad).then_some(sender);
        let verdict = Verdict { finding: Finding::IcrcAllBad { sender }, packets: *bad, connection: None };
        // The whole capture needs to be named once.
        match all.iter_mut().find(|v| v.finding == verdict.finding) {
            Some(known) => known.packets = known.packets.with(&verdict.packets),
            None => all.push(verdict),
        }
    }
}

/// One verdict for each pair of addresses, however many connections there are.
fn one_sided(a: &Analysis, all: &mut Vec<Verdict>) {
    let mut found: BTreeMap<(IpAddr, IpAddr), (u64, Packets)> = BTreeMap::new();
    for d in a.directions.iter().filter(|d| d.packets > 0 && is_alone(a, d)) {
        // A peer that is silent makes the requester send again; one that was not captured does not.
        let answered_elsewhere = d.wants_answer >= ONE_SIDED && d.retransmissions == 0;
        let asked_elsewhere = d.answers >= ONE_SIDED && d.requests == 0;
        if answered_elsewhere || asked_elsewhere {
            let (connections, packets) = found.entry((d.key.src, d.key.dst)).or_default();
            *connections += 1;
            *packets = packets.with(&d.seen);
        }
    }
    for ((seen, missing), (connections, packets)) in found {
        all.push(Verdict { finding: Finding::OneSided { seen, missing, connections }, packets, connection: None });
    }
}

/// Nothing goes from its receiver to its sender that could belong to it.
fn is_alone(a: &Analysis, d: &Direction) -> bool {
    let back = a.open.get(&(d.key.dst, d.key.src));
    match d.partner {
        Some((partner, _)) => a.directions[partner].packets == 0,
        None => !back.is_some_and(|open| open.iter().any(|&o| a.directions[o].packets > 0)),
    }
}

fn direction(a: &Analysis, i: usize, all: &mut Vec<Verdict>) {
    let (d, t) = (&a.directions[i], &a.directions[i].trouble);
    let partner = d.partner.map(|(p, _)| &a.directions[p]).filter(|p| p.packets > 0);
    let ConnectionId(first) = a.id(i);
    let connection = Some((ConnectionId(first), a.connection(first).ends));
    let mut say = |finding, packets| all.push(Verdict { finding, packets, connection });

    for r in &t.refusals {
        let packets = r.request.iter().map(|q| q.number).chain([r.number]).collect();
        say(Finding::Refused { code: r.code, request: r.request }, packets);
    }
    // Answers of a peer whose number is unknown may be among the others' packets.
    let known = partner.is_some() || is_alone(a, d);
    let given_up = t.stuck.filter(|s| known && s.tries >= TRIES && t.is_last(s));
    if let Some(s) = given_up {
        say(Finding::RetriesExhausted { psn: s.psn, tries: s.tries, not_ready: s.not_ready }, s.packets);
    } else if t.timeouts.count() > 0 && partner.is_some() {
        say(Finding::Timeout, t.timeouts);
    }
    let many = t.not_ready.count() >= NOT_READY && t.not_ready.count() * 10 >= d.requests;
    if t.not_ready_in_a_row >= NOT_READY_IN_A_ROW || many {
        say(Finding::NotReadyStorm { in_a_row: t.not_ready_in_a_row }, t.not_ready);
    }
    let duplicates = t.copies.with(&t.acked_again);
    if duplicates.count() >= DUPLICATES && duplicates.count() * DUPLICATES_SHARE >= d.requests {
        let acknowledged = t.acked_again.count();
        say(Finding::DuplicateStorm { acknowledged, requests: d.requests }, duplicates);
    }
    mtu(d, partner, i, given_up.map(|s| s.size), &mut say);
    let notified = partner.is_some_and(|p| p.span.1 > t.first_mark) && d.pace.told.count() == 0;
    if t.marked.count() >= MARKS && notified {
        say(Finding::EcnWithoutCnp, t.marked);
    }
    if let Some((before, after)) = d.pace.no_reaction() {
        say(Finding::CnpWithoutReaction { before, after }, d.pace.told);
    }
    if let (Some(ended), true) = (d.ended, t.after_end.count() > 0) {
        let packets = [ended.at.number].into_iter().collect::<Packets>().with(&t.after_end);
        say(Finding::AfterEnd { by: ended.by }, packets);
    }
}

fn mtu(
    d: &Direction,
    partner: Option<&Direction>,
    i: usize,
    stuck: Option<u32>,
    say: &mut impl FnMut(Finding, Packets),
) {
    let bytes = PathMtu::bytes;
    let one = |number: Option<u64>| number.into_iter().collect::<Packets>();
    let own = d.mtu.map(bytes);
    if let (Some(own), Some((number, other))) = (own, d.uneven) {
        say(Finding::MtuMismatch(MtuMismatch::Uneven([own, other])), one(d.full_at).with(&one(Some(number))));
    }
    // Once for both directions.
    let is_first = partner.is_some_and(|_| d.partner.is_some_and(|(p, _)| i < p));
    if let (Some(own), Some(p), true) = (own, partner, is_first)
        && let Some(other) = p.mtu.map(bytes).filter(|&other| other != own)
    {
        say(Finding::MtuMismatch(MtuMismatch::Ends([own, other])), one(d.full_at).with(&one(p.full_at)));
    }
    if let (Some(own), Some(agreed)) = (own, d.agreed_mtu)
        && own > agreed
    {
        say(Finding::MtuMismatch(MtuMismatch::Agreed([own, agreed])), one(d.full_at));
    }
    let acked = d.sent.longest_acked;
    if let Some(size) = stuck.filter(|&size| own == Some(size) && acked > 0 && acked < size) {
        say(Finding::MtuMismatch(MtuMismatch::Blocked([size, acked])), one(d.full_at));
    }
}
