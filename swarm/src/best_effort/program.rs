//! The program of one host: what it posts, what it expects, and what it finds in its memory.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use softnic_fault_injector::random::Random;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::xp::missing_ranges;
use softnic_nic::transports::{
    BestEffort, Completion, CqId, Data, PartialReason, RecvWr, SendFlags, SendOp, SendWr, Sge, Status,
};
use softnic_nic::{Buffer, QpAttr};
use softnic_sim::pair::Pair;
use softnic_wire::{Instant, PathMtu, Qpn};

use super::Ended;

/// What memory holds that is nobody's; no message has it.
const NOBODYS: u8 = 0xa5;
/// Bytes that messages are made of.
const SOURCE: usize = 1 << 17;
/// Places for messages; no more are outstanding in a life.
const SLOTS: usize = 300;
/// Bytes of a bitmap.
const BITMAP: usize = 32;

/// The operation of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Send,
    SendImm,
    Write,
    WriteImm,
    Read,
}

/// A message, as both ends know it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message {
    kind: Kind,
    len: u32,
    /// Where its bytes are in the source of whoever has them.
    from: usize,
    imm: u32,
    stride: u16,
    /// Its number among all of the world.
    serial: u64,
}

impl Message {
    pub(super) fn uses_receive(&self) -> bool {
        matches!(self.kind, Kind::Send | Kind::SendImm | Kind::WriteImm)
    }

    fn imm(&self) -> Option<u32> {
        matches!(self.kind, Kind::SendImm | Kind::WriteImm).then_some(self.imm)
    }

    /// Whether its bytes end up at the peer.
    pub(super) fn is_sent(&self) -> bool {
        self.kind != Kind::Read
    }
}

/// A work request that has not completed.
#[derive(Debug, Clone, Copy)]
struct Posted {
    id: u64,
    message: Message,
    /// Where its bytes go, if that is here.
    slot: Option<usize>,
    bitmap: bool,
    deadline: Option<u64>,
}

/// What both ends of a world know.
#[derive(Default)]
pub(super) struct Notes {
    /// Nothing goes wrong on the link.
    pub(super) faultless: bool,
    /// Messages may end by their age.
    pub(super) ages: bool,
    /// Sends that did not leave whole before their deadline.
    pub(super) expired: HashSet<u64>,
    pub(super) messages: u64,
}

pub(super) struct Program {
    host: usize,
    qpn: Qpn,
    cqs: [CqId; 2],
    mtu: PathMtu,
    source: Arc<Buffer>,
    peers_source: Option<Arc<Buffer>>,
    memory: Arc<Buffer>,
    bitmaps: Arc<Buffer>,
    keys: [u32; 3],
    slot_len: usize,
    free: VecDeque<usize>,
    next: [u64; 2],
    /// Sends, and receives.
    posted: [VecDeque<Posted>; 2],
    /// WRITEs of the peer of which nobody hears.
    written: Vec<(usize, Message)>,
    draining: bool,
}

/// Where a peer's messages go: an address and a key.
pub(super) type Target = (u64, u32);

impl Program {
    pub(super) fn new(
        pair: &mut Pair<'static>,
        host: usize,
        qpn: Qpn,
        mtu: PathMtu,
        longest: u64,
        seed: u64,
    ) -> Result<Program, String> {
        let mut r = Random::stream(seed, 7200 + host as u64);
        let base = 0x1_0000_0000 * (host as u64 + 1);
        let slot_len = longest as usize + 64;
        let source = Buffer::new(base, SOURCE);
        let bytes: Vec<u8> = (0..SOURCE).map(|_| r.next_u32() as u8 & 0x7f).collect();
        source.write_at(0, &bytes);
        let memory = Buffer::new(base + 0x1000_0000, SLOTS * slot_len);
        memory.write_at(0, &vec![NOBODYS; SLOTS * slot_len]);
        let bitmaps = Buffer::new(base + 0x8000_0000, SLOTS * BITMAP);
        let side = pair.sides[host];
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let mut keys = [0; 3];
        for (key, buffer) in keys.iter_mut().zip([&source, &memory, &bitmaps]) {
            *key = pair.nic(host).reg_mr(side.pd, buffer, access).map_err(|e| e.to_string())?;
        }
        Ok(Program {
            host,
            qpn,
            cqs: [side.send_cq, side.recv_cq],
            mtu,
            source,
            peers_source: None,
            memory,
            bitmaps,
            keys,
            slot_len,
            free: (0..SLOTS).collect(),
            next: [0; 2],
            posted: [VecDeque::new(), VecDeque::new()],
            written: Vec::new(),
            draining: false,
        })
    }

    /// Two programs know each other's source.
    pub(super) fn introduce(programs: &mut [Program]) {
        let sources = [programs[0].source.clone(), programs[1].source.clone()];
        for (i, program) in programs.iter_mut().enumerate() {
            program.peers_source = Some(sources[1 - i].clone());
        }
    }

    pub(super) fn draft(len: u32, has_read: bool, notes: &mut Notes, r: &mut Random) -> Message {
        let kinds = [Kind::Send, Kind::SendImm, Kind::Write, Kind::WriteImm, Kind::Read];
        let kind = kinds[r.below(if has_read { 5 } else { 4 }) as usize];
        let from = r.below((SOURCE - len as usize) as u64) as usize;
        let stride = if r.chance(0.5) { 1 } else { 1 << r.below(9) };
        notes.messages += 1;
        Message { kind, len, from, imm: r.next_u32(), stride, serial: notes.messages }
    }

    /// A place for a message, which is nobody's until now.
    pub(super) fn take_slot(&mut self) -> Result<usize, String> {
        let slot = self.free.pop_front().ok_or("no place is free")?;
        self.check_nobodys(slot)?;
        Ok(slot)
    }

    fn check_nobodys(&self, slot: usize) -> Result<(), String> {
        let mut bytes = vec![0; self.slot_len];
        self.memory.read_at(slot * self.slot_len, &mut bytes);
        match bytes.iter().position(|&b| b != NOBODYS) {
            Some(at) => Err(format!("host {}: byte {at} of place {slot} was written when it was nobody's", self.host)),
            None => Ok(()),
        }
    }

    fn release(&mut self, slot: usize) {
        self.memory.write_at(slot * self.slot_len, &vec![NOBODYS; self.slot_len]);
        self.free.push_back(slot);
    }

    fn slot_sge(&self, slot: usize, len: u32) -> Sge {
        Sge { addr: self.memory.addr() + (slot * self.slot_len) as u64, len, lkey: self.keys[1] }
    }

    /// Where the peer writes to a place here, and where it reads from.
    pub(super) fn target(&self, slot: Option<usize>, message: &Message) -> Target {
        match slot {
            Some(slot) => (self.memory.addr() + (slot * self.slot_len) as u64, self.keys[1]),
            None => (self.source.addr() + message.from as u64, self.keys[0]),
        }
    }

    /// A WRITE of the peer will go to this place, and nobody will say so.
    pub(super) fn expect_write(&mut self, slot: usize, message: Message) {
        self.written.push((slot, message));
    }

    fn bounds(&self, id: u64, now: Instant, receives: bool, stride: u16, r: &mut Random) -> (BestEffort, bool) {
        let after = Duration::from_nanos([500, 20_000, 300_000, 5_000_000][r.below(4) as usize] + r.below(1000));
        let deadline = r.chance(0.5).then(|| now + after);
        let at = id as usize % SLOTS * BITMAP;
        let addr = self.bitmaps.addr() + at as u64;
        // Room for all packets of the longest message.
        let bits = self.mtu.packets(self.slot_len as u32).div_ceil(8).min(BITMAP as u32);
        let bitmap = (receives && r.chance(0.7)).then_some(Sge { addr, len: bits, lkey: self.keys[2] });
        (BestEffort { deadline, stride, bitmap }, bitmap.is_some())
    }

    pub(super) fn post_receive(
        &mut self,
        pair: &mut Pair<'static>,
        message: Message,
        slot: usize,
        (now, bounded): (Instant, bool),
        r: &mut Random,
    ) -> Result<(), String> {
        let id = self.next[1];
        self.next[1] += 1;
        let (work, bitmap) = self.bounds(2 * id, now, true, 0, r);
        let fits = !bitmap || self.mtu.packets(message.len) <= 8 * work.bitmap.map_or(0, |b| b.len);
        let work = BestEffort { bitmap: work.bitmap.filter(|_| fits), ..work };
        let sges = [self.slot_sge(slot, message.len)];
        let sges = if message.kind == Kind::WriteImm { &[] } else { &sges[..] };
        let wr = RecvWr { wr_id: id, sges, best_effort: bounded.then_some(&work) };
        pair.nic(self.host).post_recv(self.qpn, &wr).map_err(|e| format!("a receive: {e}"))?;
        let deadline = work.deadline.filter(|_| bounded).map(Instant::as_nanos);
        let bitmap = bounded && work.bitmap.is_some();
        self.posted[1].push_back(Posted { id, message, slot: Some(slot), bitmap, deadline });
        Ok(())
    }

    pub(super) fn post_send(
        &mut self,
        pair: &mut Pair<'static>,
        message: Message,
        (slot, (remote_addr, rkey)): (Option<usize>, Target),
        (now, bounded): (Instant, bool),
        r: &mut Random,
    ) -> Result<(), String> {
        let id = self.next[0];
        self.next[0] += 1;
        let is_read = message.kind == Kind::Read;
        let (work, _) = self.bounds(2 * id + 1, now, is_read, message.stride, r);
        let fits = self.mtu.packets(message.len) <= 8 * work.bitmap.map_or(0, |b| b.len);
        let work = BestEffort { bitmap: work.bitmap.filter(|_| fits), ..work };
        let imm = message.imm;
        let op = match message.kind {
            Kind::Send => SendOp::Send,
            Kind::SendImm => SendOp::SendImm { imm },
            Kind::Write => SendOp::Write { remote_addr, rkey },
            Kind::WriteImm => SendOp::WriteImm { remote_addr, rkey, imm },
            Kind::Read => SendOp::Read { remote_addr, rkey },
        };
        let here = Sge { addr: self.source.addr() + message.from as u64, len: message.len, lkey: self.keys[0] };
        let sges = [slot.map_or(here, |slot| self.slot_sge(slot, message.len))];
        let flags = SendFlags { signaled: true, fence: r.chance(0.1), solicited: false };
        let best_effort = bounded.then_some(&work);
        let wr = SendWr { wr_id: id, op, data: Data::Gather(&sges), flags, best_effort, to: None };
        pair.nic(self.host).post_send(now, self.qpn, &wr).map_err(|e| format!("a send: {e}"))?;
        let deadline = work.deadline.filter(|_| bounded).map(Instant::as_nanos);
        let bitmap = bounded && work.bitmap.is_some();
        let message = if bounded { message } else { Message { stride: 1, ..message } };
        self.posted[0].push_back(Posted { id, message, slot, bitmap, deadline });
        Ok(())
    }

    /// Takes completions, and holds them against what was posted.
    pub(super) fn collect(
        &mut self,
        pair: &mut Pair<'static>,
        notes: &mut Notes,
        ended: &mut Ended,
    ) -> Result<(), String> {
        for queue in 0..2 {
            while let Some(c) = pair.nic(self.host).poll_cq(self.cqs[queue]).map_err(|e| e.to_string())? {
                let now = super::at(pair.sim.now());
                let what = self.check(queue, &c, now, notes, ended);
                what.map_err(|what| format!("host {} at {now} ns: {what}: {c:?}", self.host))?;
            }
        }
        Ok(())
    }

    fn check(
        &mut self,
        queue: usize,
        c: &Completion,
        now: u64,
        notes: &mut Notes,
        ended: &mut Ended,
    ) -> Result<(), String> {
        let posted = self.posted[queue].pop_front().ok_or("nothing was outstanding")?;
        if posted.id != c.wr_id {
            return Err(format!("{} was the next to end", posted.id));
        }
        if c.status != Status::Success {
            return Err("it failed".into());
        }
        if posted.deadline.is_some_and(|deadline| now > deadline) {
            return Err(format!("its deadline was at {:?}", posted.deadline));
        }
        let m = posted.message;
        self.check_reason(queue, &posted, c, now, notes)?;
        ended.completed += 1;
        ended.partial += u64::from(c.partial.is_some());
        if c.partial.is_none() && c.byte_len != m.len {
            return Err(format!("whole, and {} bytes long", m.len));
        }
        let Some(slot) = posted.slot else { return Ok(()) };
        ended.bytes += u64::from(c.byte_len);
        if queue == 1 && c.byte_len > 0 && c.imm != m.imm() {
            return Err(format!("its immediate is {:?}", m.imm()));
        }
        let came = self.check_slot(slot, &m, posted.bitmap.then_some(self.bitmap_of(queue, posted.id)))?;
        let right = if posted.bitmap { came == c.byte_len } else { came <= c.byte_len };
        if !right {
            return Err(format!("{came} bytes came of {m:?}"));
        }
        self.release(slot);
        Ok(())
    }

    /// Whether there is a reason for what is missing.
    fn check_reason(
        &self,
        queue: usize,
        posted: &Posted,
        c: &Completion,
        now: u64,
        notes: &mut Notes,
    ) -> Result<(), String> {
        let m = &posted.message;
        // A deadline binds all before it.
        let due = |p: &Posted| p.deadline.is_some_and(|deadline| deadline <= now);
        let is_due = due(posted) || self.posted[queue].iter().any(due);
        match c.partial {
            Some(PartialReason::Expired) => {
                if queue == 0 && m.is_sent() {
                    notes.expired.insert(m.serial);
                }
                let by_age = notes.ages && queue == 1 && c.byte_len > 0 || !m.is_sent();
                if is_due || by_age { Ok(()) } else { Err("no deadline had come".into()) }
            }
            Some(_) if notes.faultless && !notes.expired.contains(&m.serial) => Err("nothing was lost".into()),
            _ => Ok(()),
        }
    }

    fn bitmap_of(&self, queue: usize, id: u64) -> Vec<u8> {
        let mut bits = vec![0; BITMAP];
        let number = if queue == 0 { 2 * id + 1 } else { 2 * id };
        self.bitmaps.read_at(number as usize % SLOTS * BITMAP, &mut bits);
        bits
    }

    /// How many bytes of a message are in its place. Each run of each packet is there whole or not at all, as the bitmap says.
    fn check_slot(&self, slot: usize, m: &Message, bitmap: Option<Vec<u8>>) -> Result<u32, String> {
        let from = if m.kind == Kind::Read || m.is_sent() { self.peers_source.as_ref() } else { None };
        let from = from.ok_or("nobody knows where it comes from")?;
        let (mut sent, mut here) = (vec![0; m.len as usize], vec![0; self.slot_len]);
        from.read_at(m.from, &mut sent);
        self.memory.read_at(slot * self.slot_len, &mut here);
        if here[m.len as usize..].iter().any(|&b| b != NOBODYS) {
            return Err(format!("bytes behind {m:?} were written"));
        }
        let missing: Option<Vec<u32>> =
            bitmap.map(|bits| missing_ranges(&bits, m.len, m.stride, self.mtu).map(|range| range.start).collect());
        let missing: Option<std::collections::HashSet<u32>> = missing.map(|all| all.into_iter().collect());
        let mut came = 0;
        for range in missing_ranges(&[], m.len, m.stride, self.mtu).filter(|range| !range.is_empty()) {
            let (start, bytes) = (range.start, range.start as usize..range.end as usize);
            let there = here[bytes.clone()] == sent[bytes.clone()];
            let nobodys = here[bytes.clone()].iter().all(|&b| b == NOBODYS);
            let expected = missing.as_ref().map(|missing| !missing.contains(&start));
            if !there && !nobodys || expected.is_some_and(|expected| expected != there) {
                return Err(format!("bytes {bytes:?} of {m:?}: there {there}, by the bitmap {expected:?}"));
            }
            came += if there { bytes.len() as u32 } else { 0 };
        }
        Ok(came)
    }

    /// Begins no further message for a while, or goes on.
    pub(super) fn toggle_drain(&mut self, pair: &mut Pair<'static>) -> Result<(), String> {
        let state = if self.draining { QpState::ReadyToSend } else { QpState::SendQueueDrain };
        self.draining = !self.draining;
        let attr = QpAttr { state: Some(state), ..QpAttr::default() };
        pair.nic(self.host).modify_qp(self.qpn, &attr).map_err(|e| format!("to {state:?}: {e}"))?;
        pair.touch(self.host);
        Ok(())
    }

    /// Goes on, if it had begun nothing more.
    pub(super) fn resume(&mut self, pair: &mut Pair<'static>) -> bool {
        self.draining && self.toggle_drain(pair).is_ok()
    }

    /// Nothing more happens: all sends are done, and all receives that had a deadline.
    pub(super) fn check_ended(&mut self, notes: &Notes) -> Result<(), String> {
        if let Some(posted) = self.posted[0].front() {
            return Err(format!("liveness: host {}: {posted:?} never ended", self.host));
        }
        let owed = |p: &&Posted| p.deadline.is_some() || notes.faultless && !notes.expired.contains(&p.message.serial);
        if let Some(posted) = self.posted[1].iter().find(owed) {
            return Err(format!("liveness: host {}: receive {posted:?} never ended", self.host));
        }
        for (slot, message) in std::mem::take(&mut self.written) {
            self.check_slot(slot, &message, None)?;
            self.release(slot);
        }
        Ok(())
    }

    /// The queue pair is in error: all that was left is flushed, in order.
    pub(super) fn collect_flushed(&mut self, pair: &mut Pair<'static>) -> Result<(), String> {
        for queue in 0..2 {
            while let Some(c) = pair.nic(self.host).poll_cq(self.cqs[queue]).map_err(|e| e.to_string())? {
                let posted = self.posted[queue].pop_front().ok_or("nothing was outstanding")?;
                if (posted.id, Status::WrFlushErr) != (c.wr_id, c.status) {
                    return Err(format!("host {}: {posted:?} was to be flushed: {c:?}", self.host));
                }
                if let Some(slot) = posted.slot {
                    self.release(slot);
                }
            }
            if let Some(posted) = self.posted[queue].front() {
                return Err(format!("host {}: {posted:?} was not flushed", self.host));
            }
        }
        (self.next, self.draining) = ([0; 2], false);
        Ok(())
    }

    /// Nothing was written to what is nobody's.
    pub(super) fn check_memory(&self) -> Result<(), String> {
        self.free.iter().try_for_each(|&slot| self.check_nobodys(slot))
    }
}
