//! One flow while it runs, or one group: its memory, its queue pairs, and how far it is.

use std::sync::Arc;
use std::time::Duration;

use softnic_fault_injector::random::Random;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::PayloadMode;
use softnic_nic::transports::{Completion, Data, Datagram, RecvWr, SendFlags, SendWr, Sge, Status, Transport};
use softnic_nic::{Buffer, Nic};
use softnic_sdr::Local;
use softnic_wire::{Instant, Qpn, grh};

use super::Flow;
use super::groups::Joined;
use super::reliable::Reliable;
use super::world::World;
use crate::Time;
use crate::bounded::Messages;
use crate::delivery::{UnderWay, same_bytes};
use crate::report::{CompletionTimes, Delivered};
use crate::workload::{Op, SimError};

/// Where the memory of the two sides begins; every flow has its own.
const ADDRESS: [u64; 2] = [0x10_0000_0000, 0x1000_0000_0000];
/// Addresses between two flows: more than either side has.
const APART: u64 = 1 << 31;
/// Payload that a flow keeps on each side, if a message is not larger; with more outstanding, messages share memory.
const MAX_BUFFER: u64 = 8 << 20;

/// Where the bitmaps of the first flow begin, on whichever side.
const BITMAPS: u64 = 0x2000_0000_0000;

/// Addresses between the memory of two receivers of a group, so that each is elsewhere.
const RECEIVERS_APART: u64 = 1 << 48;

/// A host's part in a flow: its memory and its queue pair.
pub(super) struct Side {
    pub(super) host: usize,
    pub(super) qpn: Qpn,
    pub(super) key: u32,
    pub(super) base: u64,
    buffer: Option<Arc<Buffer>>,
    /// Receives that were posted.
    receives: u64,
}

/// A flow under way.
pub(super) struct Running {
    pub(super) flow: Flow,
    pub(super) start: Time,
    index: usize,
    pub(super) sender: Side,
    /// One, of a group all.
    pub(super) receivers: Vec<Side>,
    /// Where datagrams go.
    datagram: Option<Datagram>,
    /// Where messages go by SDR.
    pub(super) reliable: Option<Reliable>,
    /// What switches know of it, where it is a group.
    pub(super) group: Option<Joined>,
    /// Address and key that WRITEs name.
    remote: (u64, u32),
    /// Messages that the buffers hold.
    slots: u64,
    /// Bytes from a slot to the next on each side.
    stride: [u64; 2],
    /// Bytes of network header in front of what is received.
    header: usize,
    pub(super) posted: u64,
    pub(super) outstanding: u32,
    posted_at: Vec<u64>,
    /// What was sent and has not arrived, where nobody acknowledges it.
    under_way: UnderWay,
    /// Messages of best effort, and what came of them.
    messages: Option<Messages>,
    pub(super) delivered: Option<Delivered>,
    /// Work requests that completed at the requester.
    pub(super) sent: u64,
    /// Those of a reliable flow; of another, messages that arrived.
    pub(super) done: u64,
    pub(super) failed: u64,
    pub(super) first_failure: Option<Status>,
    /// When the last of them was counted, in nanoseconds.
    pub(super) last: u64,
    pub(super) times: CompletionTimes,
}

impl Running {
    pub(super) fn new(
        world: &mut World<'_>,
        (flow, to): (&Flow, &[usize]),
        index: usize,
        fill: &mut Random,
    ) -> Result<Running, SimError> {
        let is_group = index >= world.topology.flows.len();
        let size = u64::from(flow.size);
        let header = if !flow.transport.kind().is_connected() { grh::LEN } else { 0 };
        let stride = [size, size + header as u64];
        let slots = (MAX_BUFFER / size.max(1)).clamp(1, u64::from(flow.depth));
        let base = ADDRESS.map(|a| a + index as u64 * APART);
        let len = stride.map(|stride| stride.max(1) * slots);
        let mut sender = Side::new(world, flow.from, base[0], len[0])?;
        let mut receivers = Vec::new();
        for (i, &host) in to.iter().enumerate() {
            receivers.push(Side::new(world, host, base[1] + i as u64 * RECEIVERS_APART, len[1])?);
        }
        match (&sender.buffer, &receivers[0].buffer, flow.op) {
            (Some(from), _, Op::Write | Op::Send) | (_, Some(from), Op::Read) => fill_randomly(from, fill),
            _ => {}
        }
        let (mut datagram, mut reliable, mut group) = (None, None, None);
        let mut remote = (base[1], receivers[0].key);
        match flow.scheme {
            Some(scheme) => reliable = Some(world.connect_reliable(flow, scheme)?),
            None if is_group => {
                let joined = world.join(flow, index, &mut sender, &mut receivers, (base[1], len[1]))?;
                (remote, group) = ((base[1], joined.rkey), Some(joined));
            }
            None => {
                let ends = world.connect(flow)?;
                [sender.qpn, receivers[0].qpn] = ends.qpns;
                datagram = ends.datagram;
            }
        }
        let messages = match world.bounds(flow) {
            None => None,
            Some(bounds) => {
                let (host, slots) = match flow.op {
                    Op::Read => (flow.from, flow.depth),
                    _ => (flow.to, world.receives(flow)),
                };
                let (pd, nic) = (world.sides[host].pd, world.sim.nic(host));
                let register = |bitmaps: &Arc<Buffer>| nic.reg_mr(pd, bitmaps, Access::LOCAL_WRITE);
                Some(Messages::new(bounds, slots, |_| BITMAPS + index as u64 * APART, register)?)
            }
        };
        Ok(Running {
            flow: flow.clone(),
            start: Time::default().after(flow.start),
            index,
            sender,
            receivers,
            datagram,
            reliable,
            group,
            remote,
            slots,
            stride,
            header,
            posted: 0,
            outstanding: 0,
            posted_at: vec![0; flow.depth as usize],
            under_way: UnderWay::default(),
            delivered: messages.as_ref().map(|_| Delivered::default()),
            messages,
            sent: 0,
            done: 0,
            failed: 0,
            first_failure: None,
            last: 0,
            times: CompletionTimes::default(),
        })
    }

    fn is_reliable(&self) -> bool {
        self.flow.transport.is_reliable()
    }

    /// Whether its messages end at the receiver: nobody acknowledges them.
    fn ends_at_receiver(&self) -> bool {
        !self.is_reliable() && self.flow.op != Op::Read
    }

    /// Whether a message of this flow may still arrive although the requester has nothing more to do with it.
    pub(super) fn is_under_way(&self) -> bool {
        !self.under_way.is_empty() || self.messages.as_ref().is_some_and(Messages::is_under_way)
    }

    /// How long such a message may take beside the network's time.
    pub(super) fn longest_wait(&self) -> Duration {
        let Transport::Xp(settings) = self.flow.transport else { return Duration::ZERO };
        let bound = self.flow.deadline.or(settings.active()).unwrap_or_default();
        bound.max(settings.linger().unwrap_or_default())
    }

    /// Whether a message's receive is posted with the message, because both have the same deadline.
    pub(super) fn posts_receives_along(&self) -> bool {
        self.flow.deadline.is_some() && self.flow.op.uses_receives(false)
    }

    /// Whether a work request is to be posted.
    pub(super) fn is_due(&self, now: Time) -> bool {
        // Reliable messages over SDR end in any order.
        let span = self.reliable.as_ref().map_or(0, |reliable| reliable.span(self.posted));
        let (depth, outstanding) = (self.flow.depth, u64::from(self.outstanding).max(span));
        let has_room = self.messages.as_ref().is_none_or(Messages::has_room) || !self.posts_receives_along();
        self.start <= now && self.posted < self.flow.count && outstanding < depth.into() && has_room
    }

    /// The place of a host among the receivers.
    pub(super) fn receiver_at(&self, host: usize) -> usize {
        self.receivers.iter().position(|side| side.host == host).unwrap_or(0)
    }

    /// Posts the next work request; whether the queue pair took it.
    pub(super) fn post_send(&mut self, nic: &mut Nic, now: Instant) -> bool {
        let slot = self.posted % u64::from(self.flow.depth);
        let at = self.posted % self.slots;
        if let Some(reliable) = &mut self.reliable {
            let (key, len) = (self.sender.key, self.flow.size.into());
            reliable.write(nic, now, Local { key, addr: self.sender.base + at * self.stride[0], len });
            self.posted += 1;
            self.outstanding += 1;
            return true;
        }
        let sges = [Sge { addr: self.sender.base + at * self.stride[0], len: self.flow.size, lkey: self.sender.key }];
        // What a WRITE brings has no network header before it.
        let (remote_addr, rkey) = (self.remote.0 + at * self.stride[0], self.remote.1);
        let is_read = self.flow.op == Op::Read;
        let work = self.messages.as_ref().map(|messages| messages.work(now, is_read));
        let wr = SendWr {
            wr_id: (self.index as u64) << 40 | slot,
            op: self.flow.op.request(self.is_reliable(), remote_addr, rkey, self.posted),
            data: Data::Gather(&sges),
            flags: SendFlags { signaled: true, solicited: false, fence: false },
            best_effort: work.as_ref(),
            to: self.datagram,
        };
        if nic.post_send(now, self.sender.qpn, &wr).is_err() {
            return false;
        }
        self.posted_at[slot as usize] = now.as_nanos();
        let ends_at_receiver = self.ends_at_receiver();
        match &mut self.messages {
            Some(messages) => {
                messages.on_send(now.as_nanos());
                if is_read {
                    messages.on_receive();
                }
            }
            None if ends_at_receiver => self.under_way.post(now.as_nanos()),
            None => {}
        }
        self.posted += 1;
        self.outstanding += 1;
        true
    }

    /// Posts a receive at one of the receivers, where messages use up any.
    pub(super) fn post_receive(&mut self, receiver: usize, nic: &mut Nic, now: Instant) {
        let side = &mut self.receivers[receiver];
        let slot = side.receives % self.slots;
        let addr = side.base + slot * self.stride[1];
        if let Some(reliable) = &self.reliable {
            let memory = Local { key: side.key, addr, len: self.flow.size.into() };
            side.receives += u64::from(reliable.receive(nic, now, memory));
            return;
        }
        if !self.flow.op.uses_receives(self.flow.transport.is_reliable()) {
            return;
        }
        side.receives += 1;
        let len = self.flow.size + self.header as u32;
        let sges = [Sge { addr, len, lkey: side.key }];
        // What a WRITE brings goes elsewhere.
        let sges = if self.flow.op == Op::Write { &[] } else { &sges[..] };
        let work = self.messages.as_ref().map(|messages| messages.work(now, true));
        let wr = RecvWr { wr_id: (self.index as u64) << 40 | slot, sges, best_effort: work.as_ref() };
        // The queue holds as many as are ever posted; on a queue pair in error they are flushed.
        let _ = nic.post_recv(side.qpn, &wr);
        if let Some(messages) = &mut self.messages {
            messages.on_receive();
        }
    }

    /// A work request completed at the requester. How long it took, if that was all there is to do.
    pub(super) fn count_send(&mut self, c: Completion, now: u64) -> Result<Option<u64>, SimError> {
        self.outstanding -= 1;
        if c.status != Status::Success {
            self.failed += 1;
            self.last = now;
            self.first_failure.get_or_insert(c.status);
            return Ok(None);
        }
        self.sent += 1;
        if self.ends_at_receiver() {
            return Ok(None); // done when it arrives
        }
        if self.messages.is_some() {
            return self.end_message(&c, now);
        }
        let took = now - self.posted_at[(c.wr_id & 0xff_ffff_ffff) as usize];
        self.finish(now, took);
        Ok(Some(took))
    }

    /// A message of best effort ended, at the side that gets its bytes; how long it took.
    fn end_message(&mut self, c: &Completion, now: u64) -> Result<Option<u64>, SimError> {
        let (Some(messages), Some(delivered)) = (&mut self.messages, &mut self.delivered) else { return Ok(None) };
        let Some((number, posted_at)) = messages.end(c, delivered) else { return Ok(None) };
        // All of a message lies in one slot, on both sides.
        let slot = number % self.slots;
        let (mut from, mut to) = (&self.sender, &self.receivers[0]);
        if self.flow.op == Op::Read {
            (from, to) = (to, from);
        }
        let buffers = from.buffer.as_ref().zip(to.buffer.as_ref()).map(|(from, to)| [from, to]);
        let at = (slot * self.stride[0]) as usize;
        if !messages.is_right(number, c, buffers, [at, at]) {
            return Err(SimError::Data { qp: self.index, slot: slot as usize });
        }
        self.finish(now, now - posted_at);
        Ok(Some(now - posted_at))
    }

    /// Takes a reliable message over SDR that is over; its number, and how long it took if it came whole.
    pub(super) fn take_written(&mut self, nic: &mut Nic, now: u64) -> Option<(u64, Option<u64>)> {
        let (id, took) = self.reliable.as_mut()?.take_written(nic, now)?;
        self.outstanding -= 1;
        match took {
            Some(took) => {
                self.sent += 1;
                self.finish(now, took);
            }
            None => {
                (self.failed, self.last) = (self.failed + 1, now);
                self.first_failure.get_or_insert(Status::RetryExcErr);
            }
        }
        Some((id, took))
    }

    /// A message arrived that nobody acknowledges. How long it took; `None` when it came before.
    pub(super) fn count_delivery(&mut self, c: Completion, now: u64) -> Result<Option<u64>, SimError> {
        if self.messages.is_some() {
            return self.end_message(&c, now);
        }
        let arrived = c.imm.and_then(|imm| self.under_way.arrive(imm));
        let Some((number, posted_at)) = arrived else { return Ok(None) };
        self.finish(now, now - posted_at);
        let from = number % self.slots;
        let to = if self.flow.op == Op::Write { from } else { c.wr_id & 0xff_ffff_ffff };
        let at = [from * self.stride[0], to * self.stride[1] + self.header as u64].map(|n| n as usize);
        match (&self.sender.buffer, &self.receivers[0].buffer) {
            // What lies in a slot of the sender never changes.
            (Some(a), Some(b)) if !same_bytes([a, b], at[0], at[1], self.flow.size as usize) => {
                Err(SimError::Data { qp: self.index, slot: from as usize })
            }
            _ => Ok(Some(now - posted_at)),
        }
    }

    /// Bytes of payload that came.
    pub(super) fn bytes(&self) -> f64 {
        self.delivered.map_or(self.done as f64 * f64::from(self.flow.size), |delivered| delivered.bytes as f64)
    }

    /// Packets that came for messages of this flow that were over, at either end.
    pub(super) fn late_packets(&self, world: &mut World<'_>) -> u64 {
        let ends = [(self.flow.from, self.sender.qpn), (self.flow.to, self.receivers[0].qpn)];
        let late = ends.map(|(host, qpn)| world.sim.nic(host).vitals(qpn).map_or(0, |vitals| vitals.late_packets));
        late.into_iter().map(u64::from).sum()
    }

    fn finish(&mut self, now: u64, took: u64) {
        self.done += 1;
        self.last = now;
        self.times.record(took);
    }

    /// The memory of every receiver must be what was sent, if the flow came to its end. What nobody acknowledges was looked at when
    /// it came.
    pub(super) fn verify(&self) -> Result<(), SimError> {
        let Some(from) = &self.sender.buffer else { return Ok(()) };
        if self.done != self.flow.count || !self.is_reliable() {
            return Ok(());
        }
        let size = self.flow.size as usize;
        let mut bytes = [vec![0; size], vec![0; size]];
        for slot in 0..self.slots.min(self.posted) {
            let at = slot as usize * size;
            from.read_at(at, &mut bytes[0]);
            if self.flow.op == Op::Atomic {
                // Each slot was added to once for each work request on it.
                bytes[0].copy_from_slice(&((self.posted - 1 - slot) / self.slots + 1).to_ne_bytes());
            }
            for to in self.receivers.iter().filter_map(|side| side.buffer.as_ref()) {
                to.read_at(at, &mut bytes[1]);
                if bytes[0] != bytes[1] {
                    return Err(SimError::Data { qp: self.index, slot: slot as usize });
                }
            }
        }
        Ok(())
    }
}

impl Side {
    /// Registers the memory of a host's part; its queue pair is made afterwards.
    fn new(world: &mut World<'_>, host: usize, base: u64, len: u64) -> Result<Side, SimError> {
        let remote = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let access = Access::LOCAL_WRITE | remote;
        let real = world.topology.payload == PayloadMode::Real;
        let buffer = real.then(|| Buffer::new(base, len as usize));
        let pd = world.sides[host].pd;
        let nic = world.sim.nic(host);
        let key = match &buffer {
            Some(buffer) => nic.reg_mr(pd, buffer, access)?,
            None => nic.alloc_null_mr(pd, access)?,
        };
        Ok(Side { host, qpn: Qpn::new(0), key, base, buffer, receives: 0 })
    }
}

fn fill_randomly(buffer: &Buffer, random: &mut Random) {
    for at in (0..buffer.len()).step_by(8) {
        let bytes = random.next_u64().to_le_bytes();
        buffer.write_at(at, &bytes[..8.min(buffer.len() - at)]);
    }
}
