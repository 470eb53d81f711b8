//! Our NIC in the place of a responder with Selective Repeat.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use softnic_wire::Psn;
use softnic_wire::aeth::{NakCode, Syndrome};
use softnic_wire::opcode::Kind;

use super::{Came, GAP, GOES_BACK, NOT_SENT, NOTHING, Outgoing, RECENT, TRANSPORT, UNASKED, request_of};
use crate::capture::Packet;
use crate::findings::{Findings, Words};
use crate::flows::{Answer, Flow};
use crate::memory::Regions;
use crate::messages::{Segment, remote_key, takes_receive};
use crate::report::Role;
use crate::rig::{Rig, Sent, Setup};
use crate::side::Side;

const ROLE: Role = Role::Responder;
/// A receive that takes any message.
const LARGE: u32 = 0x7fff_ffff;

/// Why an answer cannot be explained.
enum Stuck {
    /// The request of this PSN is not in the capture so far.
    Missing(i64),
    /// Our NIC refuses a request that was carried out.
    Refused(String),
}

struct Responder<'a> {
    flow: &'a Flow,
    packets: &'a [Packet],
    side: &'a Side,
    found: &'a mut Findings,
    rig: Rig,
    ours: Outgoing,
    regions: Regions,
    came: Came,
    /// Requests by PSN.
    copies: BTreeMap<i64, Vec<usize>>,
    /// Requests that were handed to our NIC.
    delivered: HashSet<usize>,
    last_delivered: Option<usize>,
    /// Copies of requests behind the first that our NIC has not got.
    spare: BTreeSet<usize>,
    /// Requests before this one were captured before the answer that is looked at.
    limit: usize,
    receives: u32,
    /// Captured answers with data by their request.
    data_answers: HashMap<i64, Vec<usize>>,
    given: HashSet<usize>,
    recent: VecDeque<usize>,
    dead: bool,
}

pub(super) fn replay(flow: &Flow, segments: &[Segment], packets: &[Packet], side: &Side, found: &mut Findings) {
    let Some(first) = segments.first().filter(|_| !flow.answers.is_empty()) else { return };
    let start =
        flow.start.map_or(first.first(), |psn| first.first() + i64::from(psn.distance(Psn::new(first.first() as u32))));
    let Some(mut r) = Responder::new(flow, packets, side, found, start) else {
        found.unknown(packets[flow.answers[0].at].number, "the responder's memory is too large to rebuild");
        return;
    };
    for &a in &flow.answers {
        if r.dead {
            r.found.unknown(packets[a.at].number, GAP);
            continue;
        }
        r.explain(a);
    }
}

impl<'a> Responder<'a> {
    fn new(
        flow: &'a Flow,
        packets: &'a [Packet],
        side: &'a Side,
        found: &'a mut Findings,
        start: i64,
    ) -> Option<Responder<'a>> {
        let syndrome = |a: &Answer| packets[a.at].ext.aeth.map(|x| x.syndrome);
        let refused = flow.answers.iter().find(|a| matches!(syndrome(a), Some(Syndrome::Nak(_)))).map(|a| a.psn);
        let setup = Setup { transport: Some(TRANSPORT), ..Setup::responder(flow, start, packets, side) };
        let mut rig = Rig::new(&setup)?;
        let ours = Outgoing::new(super::template_to(&rig, flow.requester)?, start, true);
        let is_refused = |psn: i64| refused.is_some_and(|n| psn >= n);
        let regions = Regions::build(&mut rig, flow, packets, is_refused, side, HashSet::new())?;
        let mut copies: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
        for (i, r) in flow.requests.iter().enumerate() {
            copies.entry(r.psn).or_default().push(i);
        }
        let spare = copies.values().flat_map(|list| list[1..].iter().copied()).collect();
        let mut r = Responder {
            flow,
            packets,
            side,
            found,
            rig,
            ours,
            regions,
            came: Came::new(start),
            copies,
            delivered: HashSet::new(),
            last_delivered: None,
            spare,
            limit: 0,
            receives: 0,
            data_answers: HashMap::new(),
            given: HashSet::new(),
            recent: VecDeque::new(),
            dead: false,
        };
        for a in flow.answers.iter().filter(|a| packets[a.at].opcode.kind() != Kind::Acknowledge) {
            let request = request_of(flow, &packets[a.at], a.at);
            r.data_answers.entry(request).or_default().push(a.at);
        }
        Some(r)
    }

    fn packet(&self, request: usize) -> &'a Packet {
        &self.packets[self.flow.requests[request].at]
    }

    fn differ(&mut self, p: &Packet, ours: String, why: &'static str) {
        self.found.differ(ROLE, p.number, ours, Words::of(p).to_string(), why);
    }

    fn explain(&mut self, a: Answer) {
        let p = &self.packets[a.at];
        self.limit = self.flow.requests.partition_point(|r| r.at < a.at);
        let explained = match (p.opcode.kind(), p.ext.aeth.map(|x| x.syndrome)) {
            (Kind::Acknowledge, Some(Syndrome::Ack(_))) => self.explain_ack(a, p),
            (Kind::Acknowledge, Some(syndrome)) => self.explain_refusal(a, p, syndrome),
            (Kind::Acknowledge, None) => Ok(()),
            _ => self.explain_data(a, p),
        };
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(a.at);
        match explained {
            Ok(()) => {}
            Err(Stuck::Refused(ours)) => {
                self.differ(p, ours, "our NIC refuses what was carried out");
                self.dead = true;
            }
            Err(Stuck::Missing(psn)) => {
                let newest = self.copies.last_key_value().map_or(psn, |(&newest, _)| newest);
                if self.copies.contains_key(&psn) || psn > newest {
                    self.differ(p, NOTHING.into(), NOT_SENT);
                } else {
                    self.found.counts.requests_not_captured += 1;
                    self.found.unknown(p.number, GAP);
                    self.dead = true;
                }
            }
        }
    }

    fn explain_ack(&mut self, a: Answer, p: &Packet) -> Result<(), Stuck> {
        let said = Came::of(p, a.psn);
        self.deliver_all(&said)?;
        if !said.lacks(&self.came).is_empty() {
            if !self.is_repeated(p) {
                self.differ(p, format!("all before psn {}", Psn::new(self.came.expected as u32)), GOES_BACK);
            }
            return Ok(());
        }
        // Nothing new asked for it: a request that came again did.
        if self.ours.ack.is_none()
            && let Some(i) = self.find_again()
        {
            self.deliver(i, true);
            self.ours.collect(&mut self.rig);
        }
        // Behind the capture somebody may have doubled one.
        if self.ours.ack.is_none()
            && let Some(i) = self.last_delivered
        {
            self.deliver(i, true);
            self.ours.collect(&mut self.rig);
            self.found.counts.duplicated += u64::from(self.ours.ack.is_some());
        }
        match self.ours.ack.take() {
            Some(ours) => self.hold_against(&ours, p),
            None => self.differ(p, NOTHING.into(), UNASKED),
        }
        Ok(())
    }

    fn hold_against(&mut self, ours: &Sent, p: &Packet) {
        match super::compare(ours, p) {
            None => self.found.counts.answers_equal += 1,
            Some((ours, why)) => self.differ(p, ours, why),
        }
    }

    /// An RNR NAK, or a NAK with which the responder stops.
    fn explain_refusal(&mut self, a: Answer, p: &Packet, syndrome: Syndrome) -> Result<(), Stuck> {
        let said = Came::of(p, a.psn);
        self.deliver_all(&said)?;
        if self.came.expected > a.psn {
            let of_data = self.copies.get(&a.psn).is_some_and(|c| self.packet(c[0]).opcode.kind() == Kind::ReadRequest);
            if of_data && matches!(syndrome, Syndrome::Nak(NakCode::REMOTE_ACCESS_ERROR)) {
                self.found.unknown(p.number, "whether the memory of a READ that was answered before may still be read");
            } else if !self.is_repeated(p) {
                self.differ(p, NOTHING.into(), "it refuses a request that was carried out");
            }
            return Ok(());
        }
        let ready = !matches!(syndrome, Syndrome::RnrNak(_));
        let mut copies = self.copies.get(&a.psn).into_iter().flatten().copied().filter(|&i| i < self.limit);
        let fresh = copies.clone().find(|i| !self.delivered.contains(i));
        let Some(i) = fresh.or_else(|| copies.next_back()) else { return Err(Stuck::Missing(a.psn)) };
        self.ours.ack = None;
        self.deliver(i, ready);
        self.ours.collect(&mut self.rig);
        self.dead = ready;
        let Some(ours) = self.ours.ack.take() else {
            self.differ(p, NOTHING.into(), "our NIC carries this request out");
            return Ok(());
        };
        let own = ours.packet.ext.aeth.map(|x| x.syndrome);
        let told = self.side.qp(self.flow.responder, self.flow.responder_qp).is_some();
        let open = matches!(syndrome, Syndrome::Nak(NakCode::INVALID_REQUEST | NakCode::REMOTE_OPERATIONAL_ERROR));
        if own != Some(syndrome) && open && !told {
            self.found.unknown(p.number, "the size of the receive or the rights of the queue pair");
            return Ok(());
        }
        self.hold_against(&ours, p);
        Ok(())
    }

    fn explain_data(&mut self, a: Answer, p: &Packet) -> Result<(), Stuck> {
        let request = request_of(self.flow, p, a.at);
        self.deliver_all(&Came::new(request + 1))?;
        let Some(ours) = self.ours.packets.get(&a.psn) else {
            self.differ(p, NOTHING.into(), "no request asked for this data");
            return Ok(());
        };
        let words = || Words::of_ours(ours).to_string();
        let differs = ours.payload().iter().zip(p.payload()).position(|(x, y)| x != y).filter(|_| p.whole);
        let wrong = if ours.packet.bth.opcode != p.opcode || ours.packet.ext.sr != p.ext.sr {
            Some((words(), "the headers say which part of which answer it is"))
        } else if ours.packet.ext.atomic_ack != p.ext.atomic_ack {
            Some((words(), "the value follows from the atomics before it"))
        } else if ours.packet.payload.len() != p.payload.len() {
            Some((format!("{} bytes of data", ours.packet.payload.len()), "the READ asked for another length"))
        } else {
            differs.map(|at| {
                let ours = format!("{} with byte {at} = {:#04x}", p.opcode, ours.payload()[at]);
                (ours, "the byte was written or read before, and nothing shows that it changed since")
            })
        };
        match wrong {
            Some((ours, why)) => self.differ(p, ours, why),
            None => {
                self.found.counts.answers_equal += 1;
                self.found.counts.given += u64::from(self.given.contains(&a.at));
            }
        }
        Ok(())
    }

    /// Hands our NIC what it has not got of this, in the order of the capture.
    fn deliver_all(&mut self, said: &Came) -> Result<(), Stuck> {
        let mut wanted = Vec::new();
        for psn in self.came.lacks(said) {
            let copies = self.copies.get(&psn).into_iter().flatten().copied();
            let Some(i) = copies.filter(|&i| i < self.limit).find(|i| !self.delivered.contains(i)) else {
                return Err(Stuck::Missing(psn));
            };
            wanted.push(i);
        }
        wanted.sort_unstable();
        for i in wanted {
            self.deliver(i, true);
            self.came.take(self.flow.requests[i].psn);
        }
        self.ours.collect(&mut self.rig);
        let refusal = self
            .ours
            .ack
            .as_ref()
            .filter(|ours| !matches!(ours.packet.ext.aeth.map(|x| x.syndrome), Some(Syndrome::Ack(_)) | None));
        match refusal {
            Some(ours) => Err(Stuck::Refused(Words::of_ours(ours).to_string())),
            None => Ok(()),
        }
    }

    fn deliver(&mut self, i: usize, ready: bool) {
        let r = self.flow.requests[i];
        let p = self.packet(i);
        self.rig.go_to(p.time);
        let receive = p.ext.sr.filter(|_| p.opcode.kind() == Kind::Send || takes_receive(p)).map(|sr| sr.number);
        while ready && receive.is_some_and(|n| n >= self.receives && n - self.receives < 1 << 12) {
            let told = self.side.qp(self.flow.responder, self.flow.responder_qp).and_then(|s| s.receives.as_ref());
            let len = told.and_then(|sizes| sizes.get(self.receives as usize)).copied().unwrap_or(LARGE);
            self.rig.post_receive(len);
            self.receives += 1;
        }
        if !self.came.contains(r.psn) {
            self.recall_from(i);
        }
        let signs = self.flow.signs.partition_point(|&s| s < r.at) as u32;
        if let (Kind::Write, Some(reth)) = (p.opcode.kind(), p.ext.reth) {
            self.regions.note_write(reth.rkey, reth.va, p.payload.len(), signs, p.whole);
        }
        let frame = self.regions.translate(p);
        self.rig.feed(&frame);
        self.delivered.insert(i);
        self.last_delivered = Some(i);
        self.spare.remove(&i);
    }

    /// Before a request that is due: the memory is as the answers say to it, and to those that came early behind it.
    fn recall_from(&mut self, i: usize) {
        let psn = self.flow.requests[i].psn;
        if psn != self.came.expected {
            return;
        }
        let mut changed = HashSet::new();
        let mut next = psn;
        while next == psn || self.came.early.contains(&next) {
            let delivered = |&&i: &&usize| self.delivered.contains(&i);
            let copy = if next == psn { Some(i) } else { self.copies[&next].iter().find(delivered).copied() };
            if let Some(i) = copy.filter(|&i| self.packet(i).opcode.kind().is_answered_by_data()) {
                self.recall(i, &mut changed);
            }
            next += 1;
        }
    }

    /// Puts into memory what the captured answers to a READ or atomic say was there, where that is not known already. Of several
    /// atomics at one address the first says it, and the others follow.
    fn recall(&mut self, i: usize, changed: &mut HashSet<u64>) {
        let r = self.flow.requests[i];
        let p = self.packet(i);
        let signs = self.flow.signs.partition_point(|&s| s < r.at) as u32;
        let Some(key) = remote_key(p) else { return };
        let answers = self.data_answers.get(&r.psn).cloned().unwrap_or_default();
        let answers: Vec<(usize, &Packet)> =
            answers.iter().map(|&at| (at, &self.packets[at])).filter(|(_, q)| q.whole).collect();
        if let Some(atomic) = p.ext.atomic {
            let found = answers.iter().find_map(|&(at, q)| q.ext.atomic_ack.map(|found| (at, found)));
            if let Some((at, found)) = found.filter(|_| changed.insert(atomic.va)) {
                let reset = self.regions.is_reset(p, found, signs);
                self.found.counts.changed_by_owner += u64::from(reset);
                if self.regions.learn(key, atomic.va, &found.to_ne_bytes(), signs, reset) {
                    self.given.insert(at);
                }
                self.regions.note_atomic(key, atomic.va);
            }
            self.regions.note_write(key, atomic.va, 8, signs, true);
            return;
        }
        let Some(reth) = p.ext.reth else { return };
        let mut seen = HashSet::new();
        let mut parts: Vec<(usize, u64, &[u8])> = Vec::new();
        for &(at, q) in &answers {
            let offset = q.ext.sr.map_or(0, |sr| sr.offset);
            let left = reth.len.saturating_sub(offset) as usize;
            if seen.insert(offset) {
                let bytes = q.payload();
                parts.push((at, reth.va.wrapping_add(u64::from(offset)), &bytes[..bytes.len().min(left)]));
            }
        }
        let places: Vec<(u64, &[u8])> = parts.iter().map(|&(_, addr, bytes)| (addr, bytes)).collect();
        let polling = self.regions.is_polling(p);
        let rewritten = !polling && self.regions.is_rewritten(key, &places, signs);
        self.found.counts.changed_by_owner += u64::from(rewritten);
        for (at, addr, bytes) in parts {
            if self.regions.learn(key, addr, bytes, signs, polling || rewritten) {
                self.given.insert(at);
            }
        }
    }

    /// A request that has come and was captured once more since.
    fn find_again(&self) -> Option<usize> {
        let mut spare = self.spare.range(..self.limit).copied();
        spare.find(|&i| self.came.contains(self.flow.requests[i].psn))
    }

    /// Whether it is the same packet as an answer shortly before it.
    fn is_repeated(&mut self, p: &Packet) -> bool {
        let same = self.recent.iter().any(|&at| self.packets[at].frame == p.frame);
        self.found.counts.duplicated += u64::from(same);
        same
    }
}
