//! What is found while a flow is replayed, and how packets are named in it.

use std::collections::BTreeMap;
use std::fmt;

use softnic_wire::{Aeth, ExtHeaders, Opcode, Psn};

use crate::capture::Packet;
use crate::peers::{PeerKind, Rule};
use crate::report::{Allowed, Counts, Difference, Role, Undetermined};
use crate::rig::Sent;

/// What is found about one flow.
#[derive(Debug, Clone)]
pub(crate) struct Findings {
    pub(crate) flow: usize,
    pub(crate) counts: Counts,
    pub(crate) differences: Vec<Difference>,
    pub(crate) allowed: Vec<Allowed>,
    pub(crate) undetermined: Vec<Undetermined>,
}

impl Findings {
    pub(crate) fn new(flow: usize) -> Findings {
        let counts = Counts::default();
        Findings { flow, counts, differences: Vec::new(), allowed: Vec::new(), undetermined: Vec::new() }
    }

    pub(crate) fn differ(&mut self, role: Role, packet: u64, ours: String, captured: String, why: &'static str) {
        self.differences.push(Difference { packet, flow: self.flow, role, ours, captured, why });
    }

    pub(crate) fn allow(&mut self, packet: u64, rule: Rule) {
        self.allowed.push(Allowed { packet, flow: self.flow, rule });
    }

    /// Whether a kind of NIC may do so; if it may, that is noted.
    pub(crate) fn allows(&mut self, packet: u64, rule: Rule, kind: PeerKind) -> bool {
        let allowed = rule.allows(kind);
        if allowed {
            self.allow(packet, rule);
        }
        allowed
    }

    pub(crate) fn unknown(&mut self, packet: u64, why: &'static str) {
        self.undetermined.push(Undetermined { packet, flow: self.flow, why });
    }
}

/// A packet in a few words.
pub(crate) struct Words<'a> {
    opcode: Opcode,
    psn: Psn,
    ext: &'a ExtHeaders,
}

impl<'a> Words<'a> {
    pub(crate) fn of(p: &'a Packet) -> Words<'a> {
        Words { opcode: p.opcode, psn: p.psn, ext: &p.ext }
    }

    pub(crate) fn of_ours(s: &'a Sent) -> Words<'a> {
        Words { opcode: s.packet.bth.opcode, psn: s.packet.bth.psn, ext: &s.packet.ext }
    }
}

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} psn {}", self.opcode, self.psn)?;
        if !self.ext.set().is_empty() {
            write!(f, ", {}", self.ext)?;
        }
        Ok(())
    }
}

/// An acknowledgement of ours in a few words.
pub(crate) fn ack_words(psn: i64, aeth: &Aeth) -> String {
    format!("RC_ACKNOWLEDGE psn {}, {aeth}", Psn::new(psn as u32))
}

/// MSNs, ours and the captured. A capture that begins in the middle of a connection has MSNs that are ahead of ours by the same
/// number everywhere.
#[derive(Debug, Default)]
pub(crate) struct Msns {
    seen: Vec<(u64, u32, u32)>,
    /// Answers to requests from before the capture: what they count is no more than what ours begins with.
    earlier: Vec<(u64, u32)>,
}

impl Msns {
    const SPACE: u32 = 1 << 24;

    pub(crate) fn note(&mut self, packet: u64, captured: u32, ours: u32) {
        self.seen.push((packet, captured, ours));
    }

    pub(crate) fn note_earlier(&mut self, packet: u64, captured: u32) {
        self.earlier.push((packet, captured));
    }

    /// Whether an MSN fits those before it: how far the captured ones are ahead is known from the second on, or where the
    /// connection began with the capture.
    pub(crate) fn fits(&self, begins: bool, captured: u32, ours: u32) -> bool {
        let ahead = |captured: u32, ours: u32| captured.wrapping_sub(ours) & (Msns::SPACE - 1);
        let known = self.seen.last().map(|&(_, captured, ours)| ahead(captured, ours)).or(begins.then_some(0));
        known.is_none_or(|known| known == ahead(captured, ours))
    }

    /// How many messages ours is behind the captured, beside what the captured ones are always ahead.
    pub(crate) fn behind(&self, captured: u32, ours: u32) -> u32 {
        let known = self.seen.last().map_or(0, |&(_, captured, ours)| captured.wrapping_sub(ours));
        captured.wrapping_sub(ours).wrapping_sub(known) & (Msns::SPACE - 1)
    }

    /// Finds those that do not fit the others. `begins` says that the connection began with the capture, so nobody is ahead.
    pub(crate) fn judge(&mut self, role: Role, begins: bool, found: &mut Findings) {
        let ahead = |&(_, captured, ours): &(u64, u32, u32)| captured.wrapping_sub(ours) & (Msns::SPACE - 1);
        let mut votes: BTreeMap<u32, usize> = BTreeMap::new();
        self.seen.iter().for_each(|s| *votes.entry(ahead(s)).or_default() += 1);
        // On a tie the smaller one: a connection that began with the capture.
        let best = votes.iter().max_by(|a, b| a.1.cmp(b.1).then(b.0.cmp(a.0))).map_or(0, |(&v, _)| v);
        let offset = if begins { 0 } else { best };
        for (packet, captured) in std::mem::take(&mut self.earlier) {
            let beyond = captured.wrapping_sub(offset) & (Msns::SPACE - 1);
            if !votes.is_empty() && (1..Msns::SPACE / 2).contains(&beyond) {
                let why = "it acknowledges what was sent before the capture, and counts messages that came later";
                found.differ(role, packet, format!("msn {offset} at most"), format!("msn {captured}"), why);
            }
        }
        for seen in std::mem::take(&mut self.seen) {
            let (packet, captured, ours) = seen;
            if ahead(&seen) != offset {
                found.counts.answers_equal = found.counts.answers_equal.saturating_sub(1);
                let ours = (ours + offset) & (Msns::SPACE - 1);
                let why = "the MSN counts the messages that were completed";
                found.differ(role, packet, format!("msn {ours}"), format!("msn {captured}"), why);
            }
        }
    }
}
