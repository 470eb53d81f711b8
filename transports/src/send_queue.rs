//! The send queue of a queue pair: a ring of work requests, each with the numbers of its packets.

mod slot;
#[cfg(test)]
mod tests;

pub(crate) use slot::{Slot, completion};
use softnic_wire::{Instant, PathMtu};

use crate::best_effort::Kept;
use crate::invariants::{Tally, invariant};
use crate::posting::SendRules;
use crate::prefetch::prefetch;
use crate::wr::Data;
use crate::{BestEffort, PostError, SendWr, Sge, Vitals};

/// Number of messages of one full-length packet that a queue pair sends in a turn, plus the one before them.
const TURN: u32 = 5;

/// The numbering of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Numbering {
    /// The request of a READ covers the PSNs of all its responses (IBA 9.7.2).
    Standard,
    /// Every request packet has one number, and answers with data are numbered separately.
    Apart,
}

/// The bytes of a message, as given in the work request.
pub(crate) enum Source<'a> {
    Gather(&'a [Sge]),
    Inline(&'a [u8]),
}

/// Work requests from `head`, the oldest one not done, to `tail`, the next one to be written. Positions only grow, and wrap at 2^32; a
/// slot's index is its position modulo the ring's size.
#[derive(Debug)]
pub(crate) struct SendQueue {
    slots: Box<[Slot]>,
    sges: Box<[Sge]>,
    inline: Box<[u8]>,
    best_effort: Kept,
    max_wr: u32,
    rules: SendRules,
    head: u32,
    published: u32,
    tail: u32,
    /// The number of the first packet of the next work request to be published.
    end: u64,
    /// Number of bytes that all published work requests send.
    end_bytes: u64,
    /// The number of the packet that answers the next published READ or atomic.
    end_answers: u64,
    next_send: u32,
    /// Number of published local operations that were not executed yet, and a position before which there is none.
    locals: u32,
    locals_from: u32,
    tally: Tally,
    /// The position of the last look-up: packets are mostly looked up in order.
    cached: u32,
}

impl SendQueue {
    pub(crate) fn new(max_wr: u32, rules: SendRules) -> SendQueue {
        let size = max_wr.max(1).next_power_of_two() as usize;
        SendQueue {
            slots: vec![Slot::EMPTY; size].into(),
            sges: vec![Sge::default(); size * usize::from(rules.max_sge)].into(),
            inline: vec![0; size * usize::from(rules.max_inline)].into(),
            best_effort: Kept::new(rules.deadlines(), size),
            max_wr,
            rules,
            head: 0,
            published: 0,
            tail: 0,
            end: 0,
            end_bytes: 0,
            end_answers: 0,
            next_send: 0,
            locals: 0,
            locals_from: 0,
            tally: Tally::default(),
            cached: 0,
        }
    }

    #[inline]
    fn place(&self, position: u32) -> usize {
        position as usize & (self.slots.len() - 1)
    }

    #[inline]
    fn max_sge(&self) -> usize {
        usize::from(self.rules.max_sge)
    }

    #[inline]
    fn max_inline(&self) -> usize {
        usize::from(self.rules.max_inline)
    }

    /// The best-effort attributes of the work request at `position`.
    #[inline]
    pub(crate) fn best_effort(&self, position: u32) -> BestEffort {
        self.best_effort.get(position)
    }

    /// The stride of the work request at a position.
    #[inline]
    pub(crate) fn stride(&self, position: u32) -> u16 {
        self.best_effort.stride(position)
    }

    /// The earliest deadline; [`NEVER`](crate::best_effort::NEVER) if there is none.
    #[inline]
    pub(crate) fn earliest_deadline(&self) -> Instant {
        self.best_effort.earliest()
    }

    /// The earliest deadline of all published work requests, and the position of its work request.
    #[inline]
    pub(crate) fn first_deadline(&self) -> Option<(u32, Instant)> {
        self.best_effort.first_deadline()
    }

    /// The deadline that binds the work request at a position.
    #[inline]
    pub(crate) fn deadline_of(&self, position: u32) -> Option<Instant> {
        self.best_effort.deadline_of(position)
    }

    /// Empties the queue.
    pub(crate) fn clear(&mut self) {
        (self.head, self.published, self.tail, self.cached) = (0, 0, 0, 0);
        (self.end, self.end_bytes, self.end_answers) = (0, 0, 0);
        (self.next_send, self.locals, self.locals_from) = (0, 0, 0);
        self.best_effort.clear();
        self.tally.forget();
    }

    /// The rules for work requests.
    #[inline]
    pub(crate) fn rules(&self) -> &SendRules {
        &self.rules
    }

    /// Whether work requests may have deadlines from now on, if the queue was created for them.
    pub(crate) fn keep_deadlines(&mut self, keeps: bool) {
        self.rules.set_deadlines(keeps);
    }

    /// Writes a work request that follows the rules. It is not executed before it is published.
    pub(crate) fn write(&mut self, wr: &SendWr<'_>, sig_all: bool) -> Result<(), PostError> {
        if self.tail.wrapping_sub(self.head) >= self.max_wr {
            return Err(PostError::QueueFull);
        }
        invariant!(self.rules.check(wr).is_ok(), "nobody checked {wr:?}");
        let (at, max_sge, max_inline) = (self.place(self.tail), self.max_sge(), self.max_inline());
        let (sges, inline) = match wr.data {
            Data::Inline(bytes) => {
                self.inline[at * max_inline..][..bytes.len()].copy_from_slice(bytes);
                (0, true)
            }
            Data::Gather(sges) => {
                match sges {
                    // The case of most messages.
                    [sge] => self.sges[at * max_sge] = *sge,
                    _ => self.sges[at * max_sge..][..sges.len()].copy_from_slice(sges),
                }
                (sges.len() as u8, false)
            }
        };
        self.best_effort.set(self.tail, wr.best_effort);
        self.slots[at] = Slot {
            wr_id: wr.wr_id,
            op: wr.op,
            signaled: wr.flags.signaled || sig_all,
            solicited: wr.flags.solicited,
            fence: wr.flags.fence,
            inline,
            awaits_data: wr.op.awaits_data(),
            uses_receive: wr.op.uses_receive(),
            local: wr.op.is_local(),
            executed: false,
            sges,
            to: wr.to,
            len: wr.data.len() as u32,
            first: 0,
            packets: 0,
            bytes: 0,
            sends: 0,
            answers: 0,
        };
        self.tail = self.tail.wrapping_add(1);
        self.tally.posted();
        Ok(())
    }

    /// Publishes the written work requests: from now on each packet has its number.
    pub(crate) fn publish(&mut self, mtu: PathMtu, numbering: Numbering) {
        self.publish_while(mtu, numbering, |_| true);
    }

    /// Publishes the local operations before the first work request with packets. They have no packets, so the numbering does not matter.
    pub(crate) fn publish_locals(&mut self, mtu: PathMtu) {
        self.publish_while(mtu, Numbering::Standard, |slot| slot.local);
    }

    #[inline(always)]
    fn publish_while(&mut self, mtu: PathMtu, numbering: Numbering, ready: impl Fn(&Slot) -> bool) {
        while self.published != self.tail {
            let at = self.place(self.published);
            let slot = &mut self.slots[at];
            if !ready(slot) {
                return;
            }
            slot.first = self.end;
            let local = slot.local;
            slot.packets = if local { 0 } else { mtu.packets(slot.len) };
            if numbering == Numbering::Apart && slot.awaits_data {
                slot.answers = self.end_answers;
                self.end_answers += u64::from(slot.packets);
                slot.packets = 1;
            }
            if local && self.locals == 0 {
                self.locals_from = self.published;
            }
            self.locals += u32::from(local);
            self.next_send = self.next_send.wrapping_add(u32::from(slot.uses_receive()));
            slot.sends = self.next_send;
            slot.bytes = self.end_bytes;
            self.end_bytes += if slot.awaits_data() || local { 0 } else { u64::from(slot.len) };
            self.end += u64::from(slot.packets);
            self.best_effort.enter(self.published);
            self.published = self.published.wrapping_add(1);
        }
    }

    /// Whether no work request was executed, completely or partly, as far as the queue knows.
    pub(crate) fn is_untouched(&self) -> bool {
        self.head == 0 && self.iter().all(|slot| !slot.executed)
    }

    /// Unpublishes work requests of which nothing was sent: they will be numbered again.
    pub(crate) fn unpublish(&mut self) {
        self.best_effort.clear();
        self.published = self.head;
        (self.end, self.end_bytes, self.end_answers) = (0, 0, 0);
        (self.next_send, self.locals) = (0, 0);
    }

    /// The oldest local operation that was not executed, and its position.
    #[inline]
    pub(crate) fn next_local(&mut self) -> Option<(u32, Slot)> {
        if self.locals == 0 {
            return None;
        }
        // Local operations are executed in order, so the search continues from the last position, unless that work request is done.
        let mut position = if self.get(self.locals_from).is_some() { self.locals_from } else { self.head };
        while let Some(&slot) = self.get(position) {
            if slot.local && !slot.executed {
                self.locals_from = position;
                return Some((position, slot));
            }
            position = position.wrapping_add(1);
        }
        None
    }

    /// The local operation at `position` was executed.
    pub(crate) fn set_executed(&mut self, position: u32) {
        let at = self.place(position);
        self.slots[at].executed = true;
        self.locals -= 1;
    }

    /// The number after the last published packet.
    #[inline]
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// The work request at a position, which must exist.
    #[inline]
    pub(crate) fn at(&self, position: u32) -> &Slot {
        &self.slots[self.place(position)]
    }

    #[inline]
    pub(crate) fn get(&self, position: u32) -> Option<&Slot> {
        if position.wrapping_sub(self.head) >= self.published.wrapping_sub(self.head) {
            return None;
        }
        Some(self.at(position))
    }

    /// The work request at a position, published or not.
    pub(crate) fn written(&self, position: u32) -> Option<&Slot> {
        (position.wrapping_sub(self.head) < self.tail.wrapping_sub(self.head)).then(|| self.at(position))
    }

    /// All published work requests, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Slot> {
        let count = self.published.wrapping_sub(self.head);
        (0..count).filter_map(move |i| self.get(self.head.wrapping_add(i)))
    }

    /// The oldest work request that is not done.
    #[inline]
    pub(crate) fn head(&self) -> Option<&Slot> {
        self.get(self.head)
    }

    #[inline]
    pub(crate) fn head_position(&self) -> u32 {
        self.head
    }

    /// The number of posted and of completed work requests.
    pub(crate) fn vitals(&self) -> Vitals {
        Vitals { posted: self.tail, completed: self.head, ..Vitals::default() }
    }

    /// A work request that left the queue ended: with a completion, or successfully and unsignaled.
    #[inline]
    pub(crate) fn note_end(&mut self) {
        self.tally.ended();
    }

    /// Checks the invariants of the queue itself.
    pub(crate) fn check_invariants(&self) {
        let len = self.tail.wrapping_sub(self.head);
        invariant!(len <= self.max_wr, "{len} work requests in a queue for {}", self.max_wr);
        let published = self.published.wrapping_sub(self.head);
        invariant!(published <= len, "more is published than was written");
        self.tally.check(len, "send queue");
    }

    /// The oldest work request is done.
    #[inline]
    pub(crate) fn drop_head(&mut self) {
        self.best_effort.drop_head(self.head);
        self.head = self.head.wrapping_add(1);
    }

    /// Removes the oldest work request.
    pub(crate) fn pop(&mut self) -> Option<Slot> {
        let slot = *self.head()?;
        self.drop_head();
        Some(slot)
    }

    /// Removes the oldest of all written work requests, published or not; for flushing.
    pub(crate) fn pop_any(&mut self) -> Option<Slot> {
        (self.published, self.locals) = (self.tail, 0);
        self.pop()
    }

    /// Prefetches the work requests after the last one looked up: as many as a turn may send.
    #[inline]
    pub(crate) fn prefetch(&self) {
        for i in 0..TURN {
            let at = self.place(self.cached.wrapping_add(i));
            prefetch(&self.slots[at]);
            if let Some(sge) = self.sges.get(at * self.max_sge()) {
                prefetch(sge);
            }
        }
    }

    /// The request at `position` was sent at this time.
    pub(crate) fn set_left(&mut self, position: u32, now: Instant) {
        let at = self.place(position);
        self.slots[at].answers = now.as_nanos();
    }

    /// Whether a published local operation was not executed yet.
    #[inline]
    pub(crate) fn has_locals(&self) -> bool {
        self.locals != 0
    }

    /// The position of the work request that contains packet number `n`, if it is the last one looked up or the next.
    #[inline]
    pub(crate) fn locate_near(&mut self, n: u64) -> Option<u32> {
        let near = [self.cached, self.cached.wrapping_add(1)];
        let position = near.into_iter().find(|&p| self.get(p).is_some_and(|s| s.holds(n)))?;
        self.cached = position;
        Some(position)
    }

    /// The position of the work request that contains packet number `n`.
    #[inline]
    pub(crate) fn locate(&mut self, n: u64) -> Option<u32> {
        if let Some(position) = self.locate_near(n) {
            return Some(position);
        }
        // There may be a local operation in between.
        let behind = self.cached.wrapping_add(2);
        if self.get(behind).is_some_and(|s| s.holds(n)) {
            self.cached = behind;
            return Some(behind);
        }
        // Numbers grow from slot to slot. Of several slots that start with the same number, only the last has packets.
        let (mut from, mut to) = (0, self.published.wrapping_sub(self.head));
        while from < to {
            let middle = from + (to - from) / 2;
            if self.at(self.head.wrapping_add(middle)).first <= n { from = middle + 1 } else { to = middle }
        }
        let position = self.head.wrapping_add(from.checked_sub(1)?);
        if !self.at(position).holds(n) {
            return None;
        }
        self.cached = position;
        Some(position)
    }

    /// Number of messages before packet `n` that use a receive of the peer.
    pub(crate) fn sends_before(&mut self, n: u64) -> u32 {
        match self.locate(n).and_then(|position| self.get(position)) {
            None => self.next_send,
            Some(slot) => slot.sends.wrapping_sub(u32::from(slot.uses_receive())),
        }
    }

    /// Number of bytes that a work request and all published ones after it send.
    pub(crate) fn bytes_from(&self, slot: &Slot) -> u64 {
        self.end_bytes - slot.bytes
    }

    /// Number of payload bytes in the packets before number `n`.
    pub(crate) fn bytes_before(&mut self, n: u64, mtu: PathMtu) -> u64 {
        match self.locate(n).and_then(|position| self.get(position)) {
            None => self.end_bytes,
            Some(slot) if slot.awaits_data() => slot.bytes,
            Some(slot) => slot.bytes + ((n - slot.first) * u64::from(mtu.bytes())).min(u64::from(slot.len)),
        }
    }

    /// The approximate number of payload bytes in packet number `n` and all later packets, and the number of these packets.
    pub(crate) fn left_from(&mut self, n: u64, mtu: PathMtu) -> (u64, u64) {
        let bytes = self.end_bytes - self.bytes_before(n, mtu);
        let requests = self.locate(n).map_or(0, |position| self.published.wrapping_sub(position));
        (bytes, bytes / u64::from(mtu.bytes()) + u64::from(requests))
    }

    /// The source of the bytes of the work request at `position`.
    #[inline]
    pub(crate) fn source(&self, position: u32, slot: &Slot) -> Source<'_> {
        let at = self.place(position);
        if slot.inline {
            Source::Inline(&self.inline[at * self.max_inline()..][..slot.len as usize])
        } else {
            Source::Gather(&self.sges[at * self.max_sge()..][..usize::from(slot.sges)])
        }
    }
}

/// Number of bytes that a packet of XP in the middle of its message reads here.
#[cfg(test)]
pub(crate) fn read() -> usize {
    crate::footprint::of_fields!(SendQueue: slots, sges, best_effort, head, published)
        + crate::footprint::of_fields!(SendRules: max_sge)
}
