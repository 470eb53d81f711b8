//! Delivering captured requests to our NIC.

use softnic_wire::aeth::{NakCode, Syndrome};
use softnic_wire::opcode::Kind;
use softnic_wire::{Opcode, Psn};

use super::{Data, Fate, Ours, Responder, Stuck};
use crate::messages::{remote_key, takes_receive};

/// A receive that takes any message.
const LARGE: u32 = 0x7fff_ffff;
/// So many answers of ours with the same PSN are kept until a captured one matches; they are all alike.
const COPIES: usize = 8;

impl Responder<'_> {
    /// Delivers requests, in order, until everything up to `psn` is carried out.
    pub(super) fn deliver_through(&mut self, psn: i64) -> Result<(), Stuck> {
        while self.expected <= psn {
            let wanted = self.expected;
            let Some(i) = self.find_copy(wanted) else { return Err(Stuck::Missing(wanted)) };
            self.deliver(i, true);
            if self.expected == wanted {
                let refusal = self.ours.iter().rev().find(|o| !matches!(o.aeth.syndrome, Syndrome::Ack(_)));
                return Err(match refusal {
                    Some(&o) => Stuck::Refused(o),
                    None => Stuck::Missing(wanted),
                });
            }
        }
        Ok(())
    }

    /// A copy of the request of this PSN that can have arrived by now: best one that nothing is known of yet.
    pub(super) fn find_copy(&self, psn: i64) -> Option<usize> {
        let copies = self.copies.get(&psn)?;
        let open = |fate| copies.iter().copied().find(|&i| i < self.limit && self.fates.of(i) == fate);
        Fate::OPEN.into_iter().find_map(open)
    }

    /// A SEND or WRITE that was carried out before and came again.
    pub(super) fn find_duplicate(&self) -> Option<usize> {
        let again = |&i: &usize| {
            let r = &self.flow.requests[i];
            let plain = matches!(self.packet(i).opcode.kind(), Kind::Send | Kind::Write);
            plain && r.psn < self.expected && r.psn >= self.start
        };
        Fate::OPEN.into_iter().find_map(|fate| self.fates.with(fate, self.limit).find(again))
    }

    /// A request that was carried out before and came again, of those that stand for this PSN.
    pub(super) fn find_duplicate_of(&self, psn: i64, wanted: impl Fn(Kind) -> bool) -> Option<usize> {
        let from = (psn - self.longest + 1).max(self.start);
        let open = |fate| {
            let copies = self.copies.range(from..=psn.min(self.expected - 1)).flat_map(|(_, list)| list);
            let stands = |&i: &usize| {
                let r = &self.flow.requests[i];
                i < self.limit
                    && self.fates.of(i) == fate
                    && psn < r.psn + r.span
                    && wanted(self.packet(i).opcode.kind())
            };
            copies.copied().filter(stands).min()
        };
        Fate::OPEN.into_iter().find_map(open)
    }

    /// The last request of this PSN that was delivered and is answered by data.
    pub(super) fn find_delivered(&self, psn: i64) -> Option<usize> {
        let delivered = |&i: &usize| {
            i < self.limit && self.fates.of(i) == Fate::Delivered && self.packet(i).opcode.kind().is_answered_by_data()
        };
        let carried_out = (self.start..self.expected).contains(&psn);
        self.copies.get(&psn).filter(|_| carried_out)?.iter().copied().rev().find(delivered)
    }

    /// Hands a request to our NIC, with a receive if it needs one, and takes what it answers.
    pub(super) fn deliver(&mut self, i: usize, ready: bool) {
        let r = self.flow.requests[i];
        let p = self.packet(i);
        self.rig.go_to(p.time);
        let in_order = r.psn == self.expected;
        if in_order && ready && takes_receive(p) {
            let told = self.side.qp(self.flow.responder, self.flow.responder_qp).and_then(|s| s.receives.as_ref());
            let len = told.and_then(|sizes| sizes.get(self.receives_taken)).copied().unwrap_or(LARGE);
            self.rig.post_receive(len);
        }
        if in_order && p.opcode.kind().is_answered_by_data() {
            self.recall(i);
        }
        let frame = self.regions.translate(p);
        self.rig.feed(&frame);
        let refused = self.collect(r.psn < self.expected);
        self.fates.set(i, if r.psn > self.expected { Fate::Early } else { Fate::Delivered });
        if !in_order || refused {
            return;
        }
        self.note_carried_out(i);
        self.expected += r.span;
        self.not_ready = None;
    }

    /// Takes the answers of our NIC; whether one of them refuses what is expected.
    fn collect(&mut self, again: bool) -> bool {
        let mut refused = false;
        for sent in self.rig.drain() {
            let bth = sent.packet.bth;
            let psn = self.expected + i64::from(bth.psn.distance(Psn::new(self.expected as u32)));
            if bth.opcode != Opcode::RC_ACKNOWLEDGE {
                let list = self.data.entry(psn).or_default();
                if list.len() == COPIES {
                    list.remove(0);
                }
                list.push(Data { sent, again });
                continue;
            }
            let Some(aeth) = sent.packet.ext.aeth else { continue };
            refused |= match aeth.syndrome {
                Syndrome::Ack(_) => false,
                Syndrome::Nak(code) => code != NakCode::PSN_SEQUENCE_ERROR && psn == self.expected,
                _ => psn == self.expected,
            };
            self.ours.push(Ours { psn, aeth });
        }
        refused || !self.rig.is_alive()
    }

    /// Keeps track of what a request that was carried out did.
    fn note_carried_out(&mut self, i: usize) {
        let p = self.packet(i);
        let kind = p.opcode.kind();
        if takes_receive(p) {
            self.receives_taken += 1;
        }
        self.regions.invalidated.extend(p.ext.ieth);
        if p.opcode.ends_message() {
            self.completed.push(self.flow.requests[i].psn);
        }
        if matches!(kind, Kind::Send | Kind::Write) {
            self.last_message = Some(i);
        }
        let signs = self.signs_before(self.flow.requests[i].at);
        if kind == Kind::Write {
            if let Some(reth) = p.ext.reth {
                self.write = Some((reth.rkey, reth.va, 0));
            }
            if let Some((key, va, offset)) = &mut self.write {
                self.regions.note_write(*key, va.wrapping_add(*offset), p.payload.len(), signs, p.whole);
                *offset += p.payload.len() as u64;
            }
        } else if let Some(atomic) = p.ext.atomic {
            self.regions.note_write(atomic.rkey, atomic.va, 8, signs, true);
        }
    }

    /// Our MSN when everything up to `psn` had been carried out, and nothing behind it.
    pub(super) fn msn_at(&self, psn: i64) -> u32 {
        self.completed.partition_point(|&end| end <= psn) as u32 & 0xff_ffff
    }

    /// How often the responder's program showed itself before a packet.
    pub(super) fn signs_before(&self, at: usize) -> u32 {
        self.flow.signs.partition_point(|&s| s < at) as u32
    }

    /// Puts into memory what the captured answers to a READ or atomic say was there, where that is not known already.
    fn recall(&mut self, i: usize) {
        let r = self.flow.requests[i];
        let p = self.packet(i);
        let signs = self.signs_before(r.at);
        let Some(key) = remote_key(p) else { return };
        let mut parts: Vec<(usize, u64, &[u8])> = Vec::new();
        let mut value = None;
        for n in 0..r.span {
            let Some(list) = self.data_answers.get(&(r.psn + n)) else { continue };
            let Some(&at) = list.iter().find(|&&at| at > r.at) else { continue };
            let answer = &self.packets[at];
            if !answer.whole {
                continue;
            }
            match (p.ext.reth, answer.ext.atomic_ack) {
                (Some(reth), _) => {
                    let offset = n as u64 * u64::from(self.flow.mtu.bytes());
                    let left = u64::from(reth.len).saturating_sub(offset) as usize;
                    let bytes = answer.payload();
                    parts.push((at, reth.va.wrapping_add(offset), &bytes[..bytes.len().min(left)]));
                }
                (None, Some(found)) => value = Some((at, found)),
                _ => {}
            }
        }
        if let (Some(atomic), Some((at, found))) = (p.ext.atomic, value) {
            let reset = self.regions.is_reset(p, found, signs);
            self.found.counts.changed_by_owner += u64::from(reset);
            if self.regions.learn(key, atomic.va, &found.to_ne_bytes(), signs, reset) {
                self.given.insert(at);
            }
            self.regions.note_atomic(key, atomic.va);
            return;
        }
        let polling = self.regions.is_polling(p);
        let places: Vec<(u64, &[u8])> = parts.iter().map(|&(_, addr, bytes)| (addr, bytes)).collect();
        let changed = !polling && self.regions.is_rewritten(key, &places, signs);
        self.found.counts.changed_by_owner += u64::from(changed);
        for (at, addr, bytes) in parts {
            if self.regions.learn(key, addr, bytes, signs, polling || changed) {
                self.given.insert(at);
            }
        }
    }
}
