//! Sends of an SDR queue pair: what of each is still to be posted, and what has not left yet (SDR-RDMA §3.1.2).

use std::collections::VecDeque;
use std::sync::Arc;

use softnic_nic::Nic;
use softnic_nic::transports::{Data, PostError, SendFlags, SendOp, SendWr, Sge};
use softnic_wire::{Instant, Qpn};

use crate::Local;
use crate::attr::packets;
use crate::error::SdrError;
use crate::info::QpInfo;
use crate::receives::place;
use crate::turns::Turns;
use crate::watch::Watch;

/// Queues of parts that are kept for the next messages.
const SPARE: usize = 1024;

/// A send that was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SendHandle(pub(crate) u64);

impl SendHandle {
    /// Its number: it lands in the receive of the same number.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// Packets that are to be posted.
struct Range {
    next: u32,
    end: u32,
    /// Where packet 0 of the message would lie, and the key; without, the packets have no bytes.
    memory: Option<(u64, u32)>,
}

/// A message.
struct Send {
    len: u64,
    imm: Option<u32>,
    ranges: VecDeque<Range>,
    /// More parts may follow.
    open: bool,
    /// Signaled work requests that have not completed, and those that have.
    under_way: u32,
    left: u64,
    /// It is done, and stays only until those before it are.
    over: bool,
}

/// The sends.
pub(crate) struct Sends {
    /// Those that are over, for whoever waits for them.
    done: Arc<Watch>,
    /// Which part of the queue pair says so.
    part: usize,
    /// From the oldest that is not over on, and the number of that one.
    messages: VecDeque<Send>,
    first: u64,
    /// Those that have something to post, in ascending order.
    ready: VecDeque<u64>,
    /// Of messages that are over, for the next ones.
    spare: Vec<VecDeque<Range>>,
    /// Sends that were started since the beginning.
    pub(crate) started: u64,
    /// Receives that the peer has posted, as far as it is known.
    pub(crate) cleared: u64,
}

impl Sends {
    /// Of one of the parts that say when a message has left.
    pub(crate) fn new(done: Arc<Watch>, part: usize) -> Sends {
        Sends {
            done,
            part,
            messages: VecDeque::new(),
            first: 0,
            ready: VecDeque::new(),
            spare: Vec::new(),
            started: 0,
            cleared: 0,
        }
    }

    /// Starts a message of so many bytes; its parts follow.
    pub(crate) fn start(&mut self, peer: &QpInfo, len: u64, imm: Option<u32>) -> Result<SendHandle, SdrError> {
        if len > peer.max_message {
            return Err(SdrError::TooLong(len, peer.max_message));
        }
        let pieces = peer.split.pieces();
        if imm.is_some() && pieces == 0 {
            return Err(SdrError::NoImmediate);
        }
        let number = self.started;
        self.started += 1;
        let ranges = self.spare.pop().unwrap_or_default();
        self.messages.push_back(Send { len, imm, ranges, open: true, under_way: 0, left: 0, over: false });
        Ok(SendHandle(number))
    }

    fn find(&mut self, handle: SendHandle) -> Result<&mut Send, SdrError> {
        let at = handle.0.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        let found = at.and_then(|at| self.messages.get_mut(at));
        found.filter(|send| !send.over).ok_or(SdrError::NoSuchMessage)
    }

    /// A message has something to post.
    fn make_ready(&mut self, number: u64) {
        let at = self.ready.partition_point(|&ready| ready < number);
        if self.ready.get(at) != Some(&number) {
            self.ready.insert(at, number);
        }
    }

    /// Adds a part of a message: whole packets of it, from `offset` on.
    pub(crate) fn add(
        &mut self,
        handle: SendHandle,
        peer: &QpInfo,
        offset: u64,
        memory: Local,
    ) -> Result<(), SdrError> {
        let mtu = u64::from(peer.mtu.bytes());
        let send = self.find(handle)?;
        if !send.open {
            return Err(SdrError::Ended);
        }
        let end = offset.checked_add(memory.len).filter(|&end| end <= send.len);
        let whole = |at: u64| at.is_multiple_of(mtu);
        let Some(end) = end.filter(|&end| whole(offset) && (whole(end) || end == send.len)) else {
            return Err(SdrError::Part(memory.len, offset, send.len));
        };
        // One without bytes is a packet, too, if it is the whole message.
        let last = if send.len == 0 { 1 } else { end.div_ceil(mtu) };
        let range = Range {
            next: (offset / mtu) as u32,
            end: last as u32,
            memory: (memory.len > 0).then_some((memory.addr.wrapping_sub(offset), memory.key)),
        };
        if range.next < range.end {
            send.ranges.push_back(range);
            self.make_ready(handle.0);
        }
        Ok(())
    }

    /// Adds the pieces of a message's immediate that none of its packets has: one with fewer packets gets more of them, behind its end.
    pub(crate) fn add_pieces(&mut self, handle: SendHandle, peer: &QpInfo) -> Result<(), SdrError> {
        let send = self.find(handle)?;
        let (next, end) = (packets(send.len, peer.mtu) as u32, peer.split.pieces());
        if send.imm.is_some() && next < end {
            send.ranges.push_back(Range { next, end, memory: None });
            self.make_ready(handle.0);
        }
        Ok(())
    }

    /// No more parts follow.
    pub(crate) fn end(&mut self, handle: SendHandle) -> Result<(), SdrError> {
        let send = self.find(handle)?;
        if !send.open {
            return Err(SdrError::Ended);
        }
        send.open = false;
        self.end_if_done(handle.0);
        Ok(())
    }

    /// Whether all of a message has left, and no part of it follows.
    pub(crate) fn is_done(&mut self, handle: SendHandle) -> Result<bool, SdrError> {
        if handle.0 >= self.started {
            return Err(SdrError::NoSuchMessage);
        }
        Ok(self.find(handle).is_err())
    }

    /// Whether all parts of a message that were given have left.
    pub(crate) fn is_idle(&mut self, handle: SendHandle) -> Result<bool, SdrError> {
        let send = self.find(handle)?;
        Ok(send.ranges.is_empty() && send.under_way == 0)
    }

    /// How many signaled work requests of a message have completed.
    pub(crate) fn left(&mut self, handle: SendHandle) -> Result<u64, SdrError> {
        Ok(self.find(handle)?.left)
    }

    /// A signaled work request of a message completed.
    pub(crate) fn on_sent(&mut self, number: u64) {
        if let Ok(send) = self.find(SendHandle(number)) {
            send.under_way = send.under_way.saturating_sub(1);
            send.left += 1;
            self.end_if_done(number);
        }
    }

    /// A message of which nothing follows and all has left is over.
    fn end_if_done(&mut self, number: u64) {
        let Ok(send) = self.find(SendHandle(number)) else { return };
        if send.open || !send.ranges.is_empty() || send.under_way > 0 {
            return;
        }
        send.over = true;
        let ranges = std::mem::take(&mut send.ranges);
        if self.spare.len() < SPARE {
            self.spare.push(ranges);
        }
        let done = &self.done.parts[self.part];
        done.mark(number);
        if number != self.first {
            return;
        }
        while self.messages.front().is_some_and(|send| send.over) {
            self.messages.pop_front();
            self.first += 1;
        }
        // What has left far ahead of the others could not be said before.
        for number in done.advance(self.first).take_while(|&n| n < self.started) {
            let at = (number - self.first) as usize;
            if self.messages.get(at).is_some_and(|send| send.over) {
                done.mark(number);
            }
        }
    }

    /// Whether something waits for the peer to post a receive.
    pub(crate) fn is_blocked(&self) -> bool {
        // A stream whose first part is to follow waits, too: who hands out parts as they can leave begins when its receive is there.
        let waits = |send: &Send| !send.over && (send.open || !send.ranges.is_empty());
        let beyond = self.started.saturating_sub(self.cleared).min(self.messages.len() as u64) as usize;
        self.messages.iter().rev().take(beyond).any(waits)
    }

    /// Posts as much as there is room for: one WRITE with immediate for each packet.
    pub(crate) fn pump(
        &mut self,
        now: Instant,
        nic: &mut Nic,
        qps: &[Vec<Qpn>],
        turns: &Turns,
        peer: &QpInfo,
    ) -> Result<(), SdrError> {
        let cleared = self.cleared;
        let mut result = Ok(());
        let mut rung = 0u64;
        while let Some(&number) = self.ready.front().filter(|&&number| number < cleared) {
            // One that is ready is not over.
            let Ok(send) = self.find(SendHandle(number)) else { break };
            match send.pump(number, nic, qps, turns, peer, &mut rung) {
                Ok(()) => {
                    self.ready.pop_front();
                    // Of some nothing is for this engine, so nothing of them will leave.
                    self.end_if_done(number);
                }
                // There is room when what was posted has left.
                Err(PostError::QueueFull) => break,
                Err(other) => {
                    result = Err(other.into());
                    break;
                }
            }
        }
        let touched = qps.iter().enumerate().filter(|(generation, _)| rung >> generation & 1 == 1);
        touched.flat_map(|(_, channels)| channels).for_each(|&qpn| nic.ring_doorbell(now, qpn));
        result
    }
}

impl Send {
    fn pump(
        &mut self,
        number: u64,
        nic: &mut Nic,
        qps: &[Vec<Qpn>],
        turns: &Turns,
        peer: &QpInfo,
        rung: &mut u64,
    ) -> Result<(), PostError> {
        let (slot, generation) = place(number, peer.slots, qps.len() as u8);
        let channels = &qps[usize::from(generation)];
        let rkey = peer.generations[usize::from(generation)].key;
        let (mtu, base) = (u64::from(peer.mtu.bytes()), u64::from(slot) * peer.slot_len);
        while let Some(range) = self.ranges.front_mut() {
            while range.next < range.end {
                let packet = range.next;
                // The others are for other engines.
                let Some(channel) = turns.place(packet) else {
                    range.next += 1;
                    continue;
                };
                let offset = u64::from(packet) * mtu;
                let len = mtu.min(self.len.saturating_sub(offset)) as u32;
                let sge = range.memory.map(|(addr, lkey)| Sge { addr: addr.wrapping_add(offset), len, lkey });
                let imm = peer.split.pack(slot, packet, peer.split.piece(self.imm.unwrap_or(0), packet));
                // The last one on each channel tells when all have left.
                let signaled = packet + turns.all() >= range.end;
                let wr = SendWr {
                    wr_id: number,
                    op: SendOp::WriteImm { remote_addr: base + offset, rkey, imm },
                    data: Data::Gather(sge.as_slice()),
                    flags: SendFlags { signaled, ..SendFlags::default() },
                    best_effort: None,
                    to: None,
                };
                nic.write_send(channels[channel], &wr)?;
                *rung |= 1 << generation;
                self.under_way += u32::from(signaled);
                range.next += 1;
            }
            self.ranges.pop_front();
        }
        Ok(())
    }
}
