//! A fabric of one NIC: a rank's queue pairs to the others, its memory, and one completion queue for all of it.
//!
//! Data go as SENDs into receives that are posted before their sender is told, so that a message finds its receive, and the n-th message its
//! n-th. Words go by queue pairs of RC beside them.

use std::ops::Range;
use std::sync::Arc;

use softnic_nic::transports::memory::{Access, PdId};
use softnic_nic::transports::qp::{Caps, PayloadMode};
use softnic_nic::transports::xp::missing_ranges;
use softnic_nic::transports::{
    BestEffort, Completion, CqId, Data, RecvWr, SendFlags, SendOp, SendWr, Sge, Status, Transport, WcOpcode,
};
use softnic_nic::{Buffer, MrError, Nic, QpInit};
use softnic_wire::{Instant, PathMtu, Qpn};

use crate::fabric::{Fabric, FabricEvent, MAX_CONTROL, Refused, Region};
use crate::plan::{Act, Plan, Step};

/// Control messages of a rank that wait to be read, for each other rank; a rank is never further ahead.
const WORDS: u32 = 8;

/// Where memory of a rank begins, as its NIC knows it; groups are apart by more than any of them has.
const APART: u64 = 1 << 40;
const SCRATCH: u64 = 1 << 38;
const BITMAPS: u64 = 2 << 38;
const CONTROL: u64 = 3 << 38;

/// What a rank's memory is made with.
#[derive(Debug, Clone, Copy)]
pub struct EndpointConfig {
    /// The transport of the data.
    pub transport: Transport,
    /// Of its packets.
    pub mtu: PathMtu,
    /// Blocks that each packet of XP has a part of.
    pub stride: u16,
    /// Messages to or from another rank in one collective, at most.
    pub lane: u32,
    /// Packets outstanding are limited to what a receiver in software has room for.
    pub limit_flight: bool,
    /// Where the memory is, of several groups on a NIC.
    pub group: u64,
}

/// Registered memory; without bytes where frames carry none.
struct Memory {
    base: u64,
    key: u32,
    buffer: Option<Arc<Buffer>>,
}

impl Memory {
    fn new(nic: &mut Nic, pd: PdId, base: u64, len: u64, real: bool) -> Result<Memory, MrError> {
        let access = Access::LOCAL_WRITE;
        if !real {
            return Ok(Memory { base, key: nic.alloc_null_mr(pd, access)?, buffer: None });
        }
        let buffer = Buffer::new(base, len.max(8) as usize);
        Ok(Memory { base, key: nic.reg_mr(pd, &buffer, access)?, buffer: Some(buffer) })
    }

    fn sge(&self, at: u64, len: u32) -> Sge {
        Sge { addr: self.base + at, len, lkey: self.key }
    }

    /// Makes room for `len` bytes; what was there is gone.
    fn grow(&mut self, nic: &mut Nic, pd: PdId, len: u64) -> Result<(), MrError> {
        if self.buffer.as_ref().is_some_and(|buffer| (buffer.len() as u64) < len) {
            nic.dereg_mr(self.key)?;
            *self = Memory::new(nic, pd, self.base, len, true)?;
        }
        Ok(())
    }
}

/// The queue pairs to another rank.
#[derive(Debug, Clone, Copy, Default)]
struct Links {
    data: Option<Qpn>,
    /// Of RC, for warm-ups, where data go by a transport of best effort.
    warm_up: Option<Qpn>,
    control: Option<Qpn>,
}

/// What a rank of a group has on its NIC.
pub struct Endpoint {
    config: EndpointConfig,
    pd: PdId,
    cq: CqId,
    links: Vec<Links>,
    buffer: Memory,
    scratch: Memory,
    bitmaps: Memory,
    control: Memory,
    /// Where the bitmap of each step begins.
    bits: Vec<u32>,
    bitmap: Vec<u8>,
    /// Bytes of the message that came last.
    placed: u32,
    heard: [u8; MAX_CONTROL],
    heard_len: usize,
    /// Data go by RC.
    warming_up: bool,
    wake: Option<Instant>,
}

/// What a work request is, in its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Data,
    Word,
}

fn wr_id(work: Work, peer: usize, index: u32) -> u64 {
    (work as u64) << 63 | (peer as u64) << 32 | u64::from(index)
}

fn of_wr_id(id: u64) -> (Work, usize, u32) {
    let work = if id >> 63 == 0 { Work::Data } else { Work::Word };
    (work, (id >> 32 & 0x7fff_ffff) as usize, id as u32)
}

impl Endpoint {
    /// The memory of a rank of a group of `ranks`, with a buffer of so many bytes; `peers` of the others get data queue pairs.
    ///
    /// # Errors
    /// When the NIC has no room.
    pub fn new(
        nic: &mut Nic,
        config: EndpointConfig,
        ranks: usize,
        peers: usize,
        bytes: u64,
    ) -> Result<Endpoint, MrError> {
        let pd = nic.alloc_pd();
        let real = nic.payload_mode() == PayloadMode::Real;
        let data = peers * config.lane as usize * 4;
        let cq = nic.create_cq(data + ranks * 4 * WORDS as usize);
        let base = (config.group + 1) * APART;
        let words = ranks as u64 * u64::from(WORDS) * MAX_CONTROL as u64;
        Ok(Endpoint {
            config,
            pd,
            cq,
            links: vec![Links::default(); ranks],
            buffer: Memory::new(nic, pd, base, bytes, real)?,
            scratch: Memory::new(nic, pd, base + SCRATCH, 0, real)?,
            bitmaps: Memory::new(nic, pd, base + BITMAPS, 0, true)?,
            control: Memory::new(nic, pd, base + CONTROL, words, true)?,
            bits: Vec::new(),
            bitmap: Vec::new(),
            placed: 0,
            heard: [0; MAX_CONTROL],
            heard_len: 0,
            warming_up: false,
            wake: None,
        })
    }

    fn init(&self, transport: Transport, caps: Caps) -> QpInit {
        let usual = QpInit::new(transport.kind(), self.pd, self.cq, self.cq, caps);
        QpInit { transport, limit_flight: self.config.limit_flight, ..usual }
    }

    /// What a data queue pair is made with.
    pub fn data(&self) -> QpInit {
        self.data_by(self.config.transport)
    }

    fn data_by(&self, transport: Transport) -> QpInit {
        let lane = self.config.lane.max(1);
        let caps = Caps { max_send_wr: lane, max_recv_wr: lane, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
        self.init(transport, caps)
    }

    /// What a queue pair for warm-ups is made with; `None` where data go by a reliable transport anyway.
    pub fn warm_up(&self) -> Option<QpInit> {
        self.config.transport.is_bounded().then(|| self.data_by(Transport::Rc))
    }

    /// What a queue pair for words is made with.
    pub fn words(&self) -> QpInit {
        let caps = Caps {
            max_send_wr: 2 * WORDS,
            max_recv_wr: WORDS,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline: MAX_CONTROL as u32,
        };
        QpInit { never_elided: true, limit_flight: false, ..self.init(Transport::Rc, caps) }
    }

    /// Data to and from a rank go by these.
    pub fn set_data(&mut self, peer: usize, data: Qpn, warm_up: Option<Qpn>) {
        self.links[peer].data = Some(data);
        self.links[peer].warm_up = warm_up;
    }

    /// Words to and from a rank go by this one.
    ///
    /// # Errors
    /// When it takes no receives.
    pub fn set_words(&mut self, nic: &mut Nic, peer: usize, qpn: Qpn) -> Result<(), Refused> {
        self.links[peer].control = Some(qpn);
        (0..WORDS).try_for_each(|slot| self.expect_words(nic, peer, slot))
    }

    /// The queue pairs of all data.
    pub fn data_queue_pairs(&self) -> impl Iterator<Item = Qpn> + '_ {
        self.links.iter().filter_map(|links| links.data)
    }

    /// From now on data go by RC, or by their own transport again.
    pub fn set_warming_up(&mut self, on: bool) {
        self.warming_up = on;
    }

    /// The buffer; `None` where frames carry no bytes.
    pub fn buffer(&self) -> Option<&Arc<Buffer>> {
        self.buffer.buffer.as_ref()
    }

    /// When it wants to be looked at; said once.
    pub fn take_wake(&mut self) -> Option<Instant> {
        self.wake.take()
    }

    fn expect_words(&mut self, nic: &mut Nic, peer: usize, slot: u32) -> Result<(), Refused> {
        let Some(qpn) = self.links[peer].control else { return Ok(()) };
        let sges = [self.control.sge(self.words_at(peer, slot), MAX_CONTROL as u32)];
        let wr = RecvWr { wr_id: wr_id(Work::Word, peer, slot), sges: &sges, best_effort: None };
        nic.post_recv(qpn, &wr).map_err(|e| refused("words", peer, &e))
    }

    fn words_at(&self, peer: usize, slot: u32) -> u64 {
        (peer as u64 * u64::from(WORDS) + u64::from(slot)) * MAX_CONTROL as u64
    }
}

fn refused(what: &str, peer: usize, why: &dyn std::fmt::Display) -> Refused {
    Refused(format!("{what} for rank {peer}: {why}"))
}

/// A rank at its NIC, now.
pub struct NicFabric<'f> {
    nic: &'f mut Nic,
    end: &'f mut Endpoint,
    now: Instant,
}

impl<'f> NicFabric<'f> {
    /// Of a rank's endpoint on its NIC.
    pub fn new(nic: &'f mut Nic, end: &'f mut Endpoint, now: Instant) -> NicFabric<'f> {
        NicFabric { nic, end, now }
    }

    fn data(&self, peer: usize) -> Result<Qpn, Refused> {
        let links = &self.end.links[peer];
        let qpn = if self.end.warming_up { links.warm_up.or(links.data) } else { links.data };
        qpn.ok_or_else(|| Refused(format!("there is no queue pair to rank {peer}")))
    }

    fn bitmap_len(&self, len: u32) -> u32 {
        self.end.config.mtu.packets(len).div_ceil(8)
    }

    fn handle(&mut self, c: Completion) -> Option<FabricEvent> {
        let (work, peer, index) = of_wr_id(c.wr_id);
        if c.status != Status::Success {
            return Some(FabricEvent::Failed { peer, why: c.status.to_string() });
        }
        let is_receive = c.opcode == WcOpcode::Recv;
        match (work, is_receive) {
            (Work::Data, false) => Some(FabricEvent::Sent { step: index }),
            (Work::Data, true) => {
                self.end.placed = c.byte_len;
                Some(FabricEvent::Received { step: index, whole: c.partial.is_none() })
            }
            (Work::Word, false) => None,
            (Work::Word, true) => {
                let len = (c.byte_len as usize).min(MAX_CONTROL);
                let at = self.end.words_at(peer, index) as usize;
                let Endpoint { control, heard, heard_len, .. } = &mut *self.end;
                if let Some(buffer) = &control.buffer {
                    buffer.read_at(at, &mut heard[..len]);
                }
                *heard_len = len;
                // A queue pair that takes none has failed, and says so by a completion.
                let _ = self.end.expect_words(self.nic, peer, index);
                Some(FabricEvent::Control { peer, len })
            }
        }
    }
}

impl Fabric for NicFabric<'_> {
    fn now(&self) -> Instant {
        self.now
    }

    fn wake_at(&mut self, at: Instant) {
        self.end.wake = Some(at);
    }

    fn prepare(&mut self, plan: &Plan) -> Result<(), Refused> {
        let bounded = self.end.config.transport.is_bounded();
        let mut at = 0;
        self.end.bits.clear();
        for step in &plan.steps {
            self.end.bits.push(at);
            at += if bounded && step.is_receive() { self.bitmap_len(step.len) } else { 0 };
        }
        let Endpoint { scratch, bitmaps, pd, .. } = &mut *self.end;
        let grown = scratch.grow(self.nic, *pd, plan.scratch).and_then(|()| bitmaps.grow(self.nic, *pd, at.into()));
        grown.map_err(|e| Refused(format!("memory of rank {}: {e}", plan.rank)))
    }

    fn post_receive(&mut self, index: u32, step: &Step, deadline: Option<Instant>) -> Result<(), Refused> {
        let qpn = self.data(step.peer)?;
        let sge = match step.act {
            Act::Place | Act::Send => self.end.buffer.sge(step.at, step.len),
            Act::Copy | Act::Reduce => self.end.scratch.sge(step.scratch, step.len),
        };
        let best_effort = deadline.map(|deadline| {
            let len = self.bitmap_len(step.len);
            let bitmap = self.end.bitmaps.sge(self.end.bits[index as usize].into(), len);
            BestEffort { deadline: Some(deadline), stride: 0, bitmap: Some(bitmap) }
        });
        let wr = RecvWr { wr_id: wr_id(Work::Data, step.peer, index), sges: &[sge], best_effort: best_effort.as_ref() };
        self.nic.post_recv(qpn, &wr).map_err(|e| refused("a receive", step.peer, &e))
    }

    fn post_send(&mut self, index: u32, step: &Step, deadline: Option<Instant>) -> Result<(), Refused> {
        let qpn = self.data(step.peer)?;
        let sges = [self.end.buffer.sge(step.at, step.len)];
        let stride = self.end.config.stride;
        let best_effort = deadline.map(|at| BestEffort { deadline: Some(at), stride, bitmap: None });
        let wr = SendWr {
            wr_id: wr_id(Work::Data, step.peer, index),
            op: SendOp::Send,
            data: Data::Gather(&sges),
            flags: SendFlags { signaled: true, ..SendFlags::default() },
            best_effort: best_effort.as_ref(),
            to: None,
        };
        self.nic.post_send(self.now, qpn, &wr).map_err(|e| refused("a message", step.peer, &e))
    }

    fn tell(&mut self, peer: usize, message: &[u8]) -> Result<(), Refused> {
        let qpn = self.end.links[peer].control.ok_or_else(|| Refused(format!("there is no way to rank {peer}")))?;
        let wr = SendWr {
            wr_id: wr_id(Work::Word, peer, 0),
            op: SendOp::Send,
            data: Data::Inline(message),
            flags: SendFlags::default(),
            best_effort: None,
            to: None,
        };
        self.nic.post_send(self.now, qpn, &wr).map_err(|e| refused("words", peer, &e))
    }

    fn poll(&mut self) -> Option<FabricEvent> {
        while let Ok(Some(completion)) = self.nic.poll_cq(self.end.cq) {
            if let Some(event) = self.handle(completion) {
                return Some(event);
            }
        }
        None
    }

    fn heard(&self) -> &[u8] {
        &self.end.heard[..self.end.heard_len]
    }

    fn missing(&mut self, index: u32, step: &Step, tell: &mut dyn FnMut(Range<u32>)) {
        // Of a message of which nothing came nobody has written the bitmap.
        if self.end.placed == 0 {
            return tell(0..step.len);
        }
        let len = self.bitmap_len(step.len) as usize;
        let Endpoint { bitmap, bitmaps, bits, config, .. } = &mut *self.end;
        bitmap.clear();
        bitmap.resize(len, 0);
        if let Some(buffer) = &bitmaps.buffer {
            buffer.read_at(bits[index as usize] as usize, bitmap);
        }
        missing_ranges(bitmap, step.len, config.stride, config.mtu).for_each(tell);
    }

    fn has_bytes(&self) -> bool {
        self.end.buffer.buffer.is_some()
    }

    fn read(&self, region: Region, at: u64, into: &mut [u8]) {
        if let Some(buffer) = &self.region(region).buffer {
            buffer.read_at(at as usize, into);
        }
    }

    fn write(&mut self, region: Region, at: u64, bytes: &[u8]) {
        if let Some(buffer) = &self.region(region).buffer {
            buffer.write_at(at as usize, bytes);
        }
    }
}

impl NicFabric<'_> {
    fn region(&self, region: Region) -> &Memory {
        match region {
            Region::Buffer => &self.end.buffer,
            Region::Scratch => &self.end.scratch,
        }
    }
}
