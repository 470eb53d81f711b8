//! One flow while it runs: its memory, its queue pairs, and how far it is.

use std::sync::Arc;

use softnic_fault_injector::random::Random;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::PayloadMode;
use softnic_nic::transports::{Completion, Data, RecvWr, SendFlags, SendWr, Sge, Status};
use softnic_nic::{Buffer, Nic};
use softnic_sdr::Local;
use softnic_wire::{Instant, grh};

use super::Flow;
use super::reliable::Reliable;
use super::world::{Ends, World};
use crate::Time;
use crate::delivery::{UnderWay, same_bytes};
use crate::report::CompletionTimes;
use crate::workload::{Op, SimError};

/// Where the memory of the two sides begins; every flow has its own.
const ADDRESS: [u64; 2] = [0x10_0000_0000, 0x1000_0000_0000];
/// Addresses between two flows: more than either side has.
const APART: u64 = 1 << 31;
/// Payload that a flow keeps on each side, if a message is not larger; with more outstanding, messages share memory.
const MAX_BUFFER: u64 = 8 << 20;

/// A flow under way.
pub(super) struct Running {
    pub(super) flow: Flow,
    pub(super) start: Time,
    index: usize,
    ends: Ends,
    /// Where messages go by SDR.
    pub(super) reliable: Option<Reliable>,
    keys: [u32; 2],
    base: [u64; 2],
    buffers: Option<[Arc<Buffer>; 2]>,
    /// Messages that the buffers hold.
    slots: u64,
    /// Bytes from a slot to the next on each side.
    stride: [u64; 2],
    /// Bytes of network header in front of what is received.
    header: usize,
    pub(super) posted: u64,
    pub(super) outstanding: u32,
    posted_at: Vec<u64>,
    receives: u64,
    /// What was sent and has not arrived, where nobody acknowledges it.
    under_way: UnderWay,
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
        flow: &Flow,
        index: usize,
        fill: &mut Random,
    ) -> Result<Running, SimError> {
        let size = u64::from(flow.size);
        let header = if !flow.transport.kind().is_connected() { grh::LEN } else { 0 };
        let stride = [size, size + header as u64];
        let slots = (MAX_BUFFER / size.max(1)).clamp(1, u64::from(flow.depth));
        let base = ADDRESS.map(|a| a + index as u64 * APART);
        let real = world.topology.payload == PayloadMode::Real;
        let buffer = |side: usize| Buffer::new(base[side], (stride[side].max(1) * slots) as usize);
        let buffers = real.then(|| [buffer(0), buffer(1)]);
        match (&buffers, flow.op) {
            (Some([from, _]), Op::Write | Op::Send) | (Some([_, from]), Op::Read) => fill_randomly(from, fill),
            _ => {}
        }
        let remote = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let access = Access::LOCAL_WRITE | remote;
        let mut keys = [0; 2];
        for (side, host) in [flow.from, flow.to].into_iter().enumerate() {
            let pd = world.sides[host].pd;
            let nic = world.sim.nic(host);
            keys[side] = match &buffers {
                Some(b) => nic.reg_mr(pd, &b[side], access)?,
                None => nic.alloc_null_mr(pd, access)?,
            };
        }
        let (ends, reliable) = match flow.scheme {
            None => (world.connect(flow)?, None),
            Some(scheme) => (Ends::default(), Some(world.connect_reliable(flow, scheme)?)),
        };
        Ok(Running {
            ends,
            reliable,
            flow: flow.clone(),
            start: Time::default().after(flow.start),
            index,
            keys,
            base,
            buffers,
            slots,
            stride,
            header,
            posted: 0,
            outstanding: 0,
            posted_at: vec![0; flow.depth as usize],
            receives: 0,
            under_way: UnderWay::default(),
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
        !self.under_way.is_empty()
    }

    /// Whether a work request is to be posted.
    pub(super) fn is_due(&self, now: Time) -> bool {
        // Reliable messages over SDR end in any order.
        let span = self.reliable.as_ref().map_or(0, |reliable| reliable.span(self.posted));
        let (depth, outstanding) = (self.flow.depth, u64::from(self.outstanding).max(span));
        self.start <= now && self.posted < self.flow.count && outstanding < depth.into()
    }

    /// Posts the next work request; whether the queue pair took it.
    pub(super) fn post_send(&mut self, nic: &mut Nic, now: Instant) -> bool {
        let slot = self.posted % u64::from(self.flow.depth);
        let at = self.posted % self.slots;
        if let Some(reliable) = &mut self.reliable {
            let (key, len) = (self.keys[0], self.flow.size.into());
            reliable.write(nic, now, Local { key, addr: self.base[0] + at * self.stride[0], len });
            self.posted += 1;
            self.outstanding += 1;
            return true;
        }
        let sges = [Sge { addr: self.base[0] + at * self.stride[0], len: self.flow.size, lkey: self.keys[0] }];
        // What a WRITE brings has no network header before it.
        let (remote_addr, rkey) = (self.base[1] + at * self.stride[0], self.keys[1]);
        let wr = SendWr {
            wr_id: (self.index as u64) << 40 | slot,
            op: self.flow.op.request(self.is_reliable(), remote_addr, rkey, self.posted),
            data: Data::Gather(&sges),
            flags: SendFlags { signaled: true, solicited: false, fence: false },
            best_effort: None,
            to: self.ends.datagram,
        };
        if nic.post_send(now, self.ends.qpns[0], &wr).is_err() {
            return false;
        }
        self.posted_at[slot as usize] = now.as_nanos();
        if self.ends_at_receiver() {
            self.under_way.post(now.as_nanos());
        }
        self.posted += 1;
        self.outstanding += 1;
        true
    }

    /// Posts a receive, where messages use up any.
    pub(super) fn post_receive(&mut self, nic: &mut Nic, now: Instant) {
        if let Some(reliable) = &self.reliable {
            let addr = self.base[1] + self.receives % self.slots * self.stride[1];
            let memory = Local { key: self.keys[1], addr, len: self.flow.size.into() };
            self.receives += u64::from(reliable.receive(nic, now, memory));
            return;
        }
        if !self.flow.op.uses_receives(self.is_reliable()) {
            return;
        }
        let slot = self.receives % self.slots;
        self.receives += 1;
        let len = self.flow.size + self.header as u32;
        let sges = [Sge { addr: self.base[1] + slot * self.stride[1], len, lkey: self.keys[1] }];
        // What a WRITE brings goes elsewhere.
        let sges = if self.flow.op == Op::Write { &[] } else { &sges[..] };
        let wr = RecvWr { wr_id: (self.index as u64) << 40 | slot, sges, best_effort: None };
        // The queue holds as many as are ever posted; on a queue pair in error they are flushed.
        let _ = nic.post_recv(self.ends.qpns[1], &wr);
    }

    /// A work request completed at the requester. How long it took, if that was all there is to do.
    pub(super) fn count_send(&mut self, c: Completion, now: u64) -> Option<u64> {
        self.outstanding -= 1;
        if c.status != Status::Success {
            self.failed += 1;
            self.last = now;
            self.first_failure.get_or_insert(c.status);
            return None;
        }
        self.sent += 1;
        if self.ends_at_receiver() {
            return None; // done when it arrives
        }
        let took = now - self.posted_at[(c.wr_id & 0xff_ffff_ffff) as usize];
        self.finish(now, took);
        Some(took)
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
        let arrived = c.imm.and_then(|imm| self.under_way.arrive(imm));
        let Some((number, posted_at)) = arrived else { return Ok(None) };
        self.finish(now, now - posted_at);
        if c.partial.is_some() {
            return Ok(Some(now - posted_at)); // in part
        }
        let from = number % self.slots;
        let to = if self.flow.op == Op::Write { from } else { c.wr_id & 0xff_ffff_ffff };
        let at = [from * self.stride[0], to * self.stride[1] + self.header as u64].map(|n| n as usize);
        match &self.buffers {
            // What lies in a slot of the sender never changes.
            Some(b) if !same_bytes(b, at[0], at[1], self.flow.size as usize) => {
                Err(SimError::Data { qp: self.index, slot: from as usize })
            }
            _ => Ok(Some(now - posted_at)),
        }
    }

    fn finish(&mut self, now: u64, took: u64) {
        self.done += 1;
        self.last = now;
        self.times.record(took);
    }

    /// The receiver's memory must be what was sent, if the flow came to its end. What nobody acknowledges was looked at when
    /// it came.
    pub(super) fn verify(&self) -> Result<(), SimError> {
        let Some([from, to]) = &self.buffers else { return Ok(()) };
        if self.done != self.flow.count || !self.is_reliable() {
            return Ok(());
        }
        let size = self.flow.size as usize;
        let mut bytes = [vec![0; size], vec![0; size]];
        for slot in 0..self.slots.min(self.posted) {
            let at = slot as usize * size;
            from.read_at(at, &mut bytes[0]);
            to.read_at(at, &mut bytes[1]);
            if self.flow.op == Op::Atomic {
                // Each slot was added to once for each work request on it.
                bytes[0].copy_from_slice(&((self.posted - 1 - slot) / self.slots + 1).to_ne_bytes());
            }
            if bytes[0] != bytes[1] {
                return Err(SimError::Data { qp: self.index, slot: slot as usize });
            }
        }
        Ok(())
    }
}

fn fill_randomly(buffer: &Buffer, random: &mut Random) {
    for at in (0..buffer.len()).step_by(8) {
        let bytes = random.next_u64().to_le_bytes();
        buffer.write_at(at, &bytes[..8.min(buffer.len() - at)]);
    }
}
