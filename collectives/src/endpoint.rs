//! A fabric of verbs: a rank's queue pairs to the others, its memory, and one completion queue for all of it.
//!
//! Whose verbs they are, of a NIC in the same thread or of the runtime, only [`Verbs`] knows. Data go as SENDs into receives that are posted
//! before their sender is told, so that a message finds its receive, and the n-th message its n-th. Words go by queue pairs of RC beside them.

mod by_uc;
mod verbs;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use softnic_nic::Buffer;
use softnic_transports::qp::Caps;
use softnic_transports::xp::missing_ranges;
use softnic_transports::{
    BestEffort, Completion, Data, PostError, RecvWr, SendFlags, SendOp, SendWr, Status, Transport, WcOpcode,
};
use softnic_wire::{Instant, PathMtu, Qpn};

use crate::control::KEYS;
use crate::fabric::{Fabric, FabricEvent, MAX_CONTROL, Refused, Region, Window};
use crate::plan::{Act, Plan, Step};
use crate::uc::{self, Fragments};

pub use verbs::{Memory, Verbs};

/// Control messages of a rank that wait to be read, for each other rank, without those that tell keys.
const WORDS: u32 = 16;

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
    /// Where the memory is, of several groups on a NIC.
    pub group: u64,
}

impl EndpointConfig {
    /// Control messages of a rank that wait to be read, for each other rank; a rank is never further ahead. Where messages have keys there
    /// are those that tell them, too.
    fn words(&self) -> u32 {
        if self.transport == Transport::Uc { WORDS + self.lane.div_ceil(KEYS as u32) } else { WORDS }
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

/// A message that was posted or has ended, for whoever watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Noted {
    /// The step.
    pub step: u32,
    /// When.
    pub at: Instant,
    /// Its deadline, where it was posted now; `None` where it has ended.
    pub posted: Option<Option<Instant>>,
}

/// What a rank of a group has on its NIC.
pub struct Endpoint {
    config: EndpointConfig,
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
    /// Messages in fragments, where data go by UC.
    fragments: Option<Fragments>,
    /// What happened to these, and was not polled.
    events: VecDeque<FabricEvent>,
    /// What happened to messages, where somebody watches.
    notes: Option<Vec<Noted>>,
}

/// What a work request is, in its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Data,
    Word,
    Fragment,
}

fn wr_id(work: Work, peer: usize, index: u32) -> u64 {
    (work as u64) << 62 | (peer as u64) << 32 | u64::from(index)
}

fn of_wr_id(id: u64) -> (Work, usize, u32) {
    let work = match id >> 62 {
        0 => Work::Data,
        1 => Work::Word,
        _ => Work::Fragment,
    };
    (work, (id >> 32 & 0x3fff_ffff) as usize, id as u32)
}

impl Endpoint {
    /// The memory of a rank of a group of `ranks`, with a buffer of so many bytes.
    ///
    /// # Errors
    /// When there is no room.
    pub fn new(verbs: &mut impl Verbs, config: EndpointConfig, ranks: usize, bytes: u64) -> Result<Endpoint, Refused> {
        let real = verbs.has_payload();
        let base = (config.group + 1) * APART;
        let words = ranks as u64 * u64::from(config.words()) * MAX_CONTROL as u64;
        Ok(Endpoint {
            config,
            links: vec![Links::default(); ranks],
            buffer: verbs.register(base, bytes, real)?,
            scratch: verbs.register(base + SCRATCH, 0, real)?,
            bitmaps: verbs.register(base + BITMAPS, 0, true)?,
            control: verbs.register(base + CONTROL, words, true)?,
            bits: Vec::new(),
            bitmap: Vec::new(),
            placed: 0,
            heard: [0; MAX_CONTROL],
            heard_len: 0,
            warming_up: false,
            wake: None,
            fragments: (config.transport == Transport::Uc).then(|| Fragments::new(ranks)),
            events: VecDeque::new(),
            notes: None,
        })
    }

    /// Completions that there may be at once, of a rank of a group of `ranks` that exchanges data with `peers` of them.
    pub fn completions(config: &EndpointConfig, ranks: usize, peers: usize) -> usize {
        // Data one way and the other, by their transport and in warm-ups.
        let of_fragments = by_uc::caps(config.mtu);
        let fragments =
            if config.transport == Transport::Uc { of_fragments.max_send_wr + of_fragments.max_recv_wr } else { 0 };
        let data = config.lane.max(1) * 4 + fragments;
        peers * data as usize + ranks * 4 * config.words() as usize
    }

    /// The transport of the data.
    pub fn transport(&self) -> Transport {
        self.config.transport
    }

    /// How much a queue pair for data holds.
    pub fn data_caps(&self) -> Caps {
        match self.config.transport {
            Transport::Uc => by_uc::caps(self.config.mtu),
            _ => self.warm_up_caps(),
        }
    }

    /// How much a queue pair for warm-ups holds.
    pub fn warm_up_caps(&self) -> Caps {
        let lane = self.config.lane.max(1);
        Caps { max_send_wr: lane, max_recv_wr: lane, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 }
    }

    /// Whether there are queue pairs of RC beside those for data, for warm-ups.
    pub fn warms_up(&self) -> bool {
        uc::is_bounded(self.config.transport)
    }

    /// How much a queue pair for words holds.
    pub fn word_caps(&self) -> Caps {
        Caps {
            max_send_wr: 2 * self.config.words(),
            max_recv_wr: self.config.words(),
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline: MAX_CONTROL as u32,
        }
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
    pub fn set_words(&mut self, verbs: &mut impl Verbs, peer: usize, qpn: Qpn) -> Result<(), Refused> {
        self.links[peer].control = Some(qpn);
        (0..self.config.words()).try_for_each(|slot| self.expect_words(verbs, Instant::ZERO, peer, slot))
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

    /// From now on what happens to messages is noted.
    pub fn watch(&mut self) {
        self.notes.get_or_insert_default();
    }

    /// What happened to messages since the last time.
    pub fn take_notes(&mut self) -> Vec<Noted> {
        self.notes.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn note(&mut self, step: u32, at: Instant, posted: Option<Option<Instant>>) {
        if let Some(notes) = &mut self.notes {
            notes.push(Noted { step, at, posted });
        }
    }

    /// When it wants to be looked at; said once.
    pub fn take_wake(&mut self) -> Option<Instant> {
        let due = self.fragments.as_ref().and_then(|fragments| fragments.due);
        self.wake.take().into_iter().chain(due).min()
    }

    fn expect_words(&self, verbs: &mut impl Verbs, now: Instant, peer: usize, slot: u32) -> Result<(), Refused> {
        let Some(qpn) = self.links[peer].control else { return Ok(()) };
        let sges = [self.control.sge(self.words_at(peer, slot), MAX_CONTROL as u32)];
        let wr = RecvWr { wr_id: wr_id(Work::Word, peer, slot), sges: &sges, best_effort: None };
        verbs.post_receive(now, qpn, &wr).map_err(|e| refused("words", peer, e))
    }

    fn words_at(&self, peer: usize, slot: u32) -> u64 {
        (peer as u64 * u64::from(self.config.words()) + u64::from(slot)) * MAX_CONTROL as u64
    }
}

fn refused(what: &str, peer: usize, why: PostError) -> Refused {
    Refused(format!("{what} for rank {peer}: {why}"))
}

/// A rank at its verbs, now.
pub struct VerbsFabric<'f, V> {
    verbs: V,
    end: &'f mut Endpoint,
    now: Instant,
}

impl<'f, V: Verbs> VerbsFabric<'f, V> {
    /// Of a rank's endpoint.
    pub fn new(verbs: V, end: &'f mut Endpoint, now: Instant) -> VerbsFabric<'f, V> {
        VerbsFabric { verbs, end, now }
    }

    fn data(&self, peer: usize) -> Result<Qpn, Refused> {
        let links = &self.end.links[peer];
        let qpn = if self.end.warming_up { links.warm_up.or(links.data) } else { links.data };
        qpn.ok_or_else(|| Refused(format!("there is no queue pair to rank {peer}")))
    }

    fn note(&mut self, step: u32, posted: Option<Option<Instant>>) {
        if self.end.notes.is_some() {
            let now = self.now();
            self.end.note(step, now, posted);
        }
    }

    fn bitmap_len(&self, len: u32) -> u32 {
        self.end.config.mtu.packets(len).div_ceil(8)
    }

    fn handle(&mut self, c: Completion) -> Option<FabricEvent> {
        let (work, peer, index) = of_wr_id(c.wr_id);
        if c.status != Status::Success {
            return Some(FabricEvent::Failed { peer, why: c.status.to_string() });
        }
        let is_receive = matches!(c.opcode, WcOpcode::Recv | WcOpcode::RecvWriteImm);
        match (work, is_receive) {
            (Work::Fragment, _) => match self.fragment(peer, index, &c) {
                Ok(()) => self.end.events.pop_front(),
                Err(Refused(why)) => Some(FabricEvent::Failed { peer, why }),
            },
            (Work::Data, false) => {
                self.note(index, None);
                Some(FabricEvent::Sent { step: index })
            }
            (Work::Data, true) => {
                self.note(index, None);
                // A WRITE, which no rank sends, takes a receive and puts nothing there.
                self.end.placed = if c.opcode == WcOpcode::Recv { c.byte_len } else { 0 };
                Some(FabricEvent::Received { step: index, whole: c.partial.is_none(), len: self.end.placed })
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
                let now = self.now();
                // A queue pair that takes none has failed, and says so by a completion.
                let _ = self.end.expect_words(&mut self.verbs, now, peer, index);
                Some(FabricEvent::Control { peer, len })
            }
        }
    }
}

impl<V: Verbs> Fabric for VerbsFabric<'_, V> {
    fn now(&self) -> Instant {
        self.verbs.clock().unwrap_or(self.now)
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
        self.end.scratch.grow(&mut self.verbs, plan.scratch)?;
        self.begin_fragments(plan)?;
        self.end.bitmaps.grow(&mut self.verbs, at.into())
    }

    fn post_receive(&mut self, index: u32, step: &Step, deadline: Option<Instant>) -> Result<(), Refused> {
        if self.fragments() {
            return self.expect_fragments(index, step, deadline);
        }
        let qpn = self.data(step.peer)?;
        self.note(index, Some(deadline));
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
        let now = self.now();
        self.verbs.post_receive(now, qpn, &wr).map_err(|e| refused("a receive", step.peer, e))
    }

    fn window(&self, index: u32, step: &Step) -> Option<Window> {
        self.end.fragments.as_ref().filter(|_| self.fragments())?.window(step.peer, index)
    }

    fn learn(&mut self, peer: usize, message: u32, window: Window) -> bool {
        if !self.fragments() {
            return false;
        }
        let Some(fragments) = &mut self.end.fragments else { return false };
        fragments.lanes[peer].learn(message as usize, window)
    }

    fn post_send(&mut self, index: u32, step: &Step, deadline: Option<Instant>) -> Result<(), Refused> {
        if self.fragments() {
            return self.send_fragments(index, step, deadline);
        }
        let qpn = self.data(step.peer)?;
        self.note(index, Some(deadline));
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
        let now = self.now();
        self.verbs.post_send(now, qpn, &wr).map_err(|e| refused("a message", step.peer, e))
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
        let now = self.now();
        self.verbs.post_send(now, qpn, &wr).map_err(|e| refused("words", peer, e))
    }

    fn poll(&mut self) -> Option<FabricEvent> {
        if self.end.fragments.is_some() {
            return self.poll_fragments();
        }
        while let Some(completion) = self.verbs.poll() {
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
        if let Some(fragments) = self.end.fragments.as_ref().filter(|_| self.fragments()) {
            let bits = fragments.bits(step.peer, index);
            return missing_ranges(bits, step.len, 1, self.end.config.mtu).for_each(tell);
        }
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

impl<V> VerbsFabric<'_, V> {
    fn region(&self, region: Region) -> &Memory {
        match region {
            Region::Buffer => &self.end.buffer,
            Region::Scratch => &self.end.scratch,
        }
    }
}
