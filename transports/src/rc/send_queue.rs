//! The send queue of a queue pair: work requests in a ring, each with the numbers its packets will have.

use softnic_wire::PathMtu;
use softnic_wire::segment::{MAX_MESSAGE, MessageKind};

use crate::wr::Data;
use crate::{PostError, SendOp, SendWr, Sge};

/// A work request in the queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    pub(super) wr_id: u64,
    pub(super) op: SendOp,
    pub(super) signaled: bool,
    pub(super) solicited: bool,
    pub(super) fence: bool,
    inline: bool,
    sges: u8,
    pub(super) len: u32,
    /// The number of its first packet, counted from the first that the queue pair ever sent: PSNs wrap, numbers do not.
    pub(super) first: u64,
    pub(super) packets: u32,
    /// Bytes that all work requests before it send.
    bytes: u64,
    /// How many messages that use up a receive of the peer were posted up to and including this one: what credits bound.
    pub(super) sends: u32,
}

impl Slot {
    #[inline]
    pub(super) fn last(&self) -> u64 {
        self.first + u64::from(self.packets) - 1
    }

    /// Whether the message takes a receive of the peer.
    #[inline]
    pub(super) fn uses_receive(&self) -> bool {
        matches!(self.op, SendOp::Send | SendOp::SendImm { .. } | SendOp::WriteImm { .. })
    }

    /// Whether it is answered by data, not by an acknowledgement: READs and atomics. One request packet stands for all of
    /// its PSNs.
    #[inline]
    pub(super) fn awaits_data(&self) -> bool {
        matches!(self.op, SendOp::Read { .. } | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. })
    }

    /// What kind of message it sends; `None` for READs and atomics.
    #[inline]
    pub(super) fn kind(&self) -> Option<MessageKind> {
        match self.op {
            SendOp::Send => Some(MessageKind::Send),
            SendOp::SendImm { .. } => Some(MessageKind::SendImm),
            SendOp::Write { .. } => Some(MessageKind::Write),
            SendOp::WriteImm { .. } => Some(MessageKind::WriteImm),
            SendOp::Read { .. } | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => None,
        }
    }
}

/// The bytes of a message, as the work request names them.
pub(super) enum Source<'a> {
    Gather(&'a [Sge]),
    Inline(&'a [u8]),
}

/// Work requests from `head`, the oldest that is not done, to `tail`, the next to be written. Positions only grow (and
/// wrap at 2^32); a slot's place is its position modulo the ring's size.
#[derive(Debug)]
pub(super) struct SendQueue {
    slots: Box<[Option<Slot>]>,
    sges: Box<[Sge]>,
    inline: Box<[u8]>,
    max_wr: u32,
    max_sge: usize,
    max_inline: usize,
    head: u32,
    published: u32,
    tail: u32,
    /// The number of the packet that the next published work request begins with.
    end: u64,
    /// Bytes that all published work requests send.
    end_bytes: u64,
    next_send: u32,
    /// Where the last look-up ended: packets are mostly asked for in order.
    cached: u32,
}

impl SendQueue {
    pub(super) fn new(max_wr: u32, max_sge: u32, max_inline: u32) -> SendQueue {
        let size = max_wr.max(1).next_power_of_two() as usize;
        SendQueue {
            slots: vec![None; size].into(),
            sges: vec![Sge::default(); size * max_sge as usize].into(),
            inline: vec![0; size * max_inline as usize].into(),
            max_wr,
            max_sge: max_sge as usize,
            max_inline: max_inline as usize,
            head: 0,
            published: 0,
            tail: 0,
            end: 0,
            end_bytes: 0,
            next_send: 0,
            cached: 0,
        }
    }

    #[inline]
    fn place(&self, position: u32) -> usize {
        position as usize & (self.slots.len() - 1)
    }

    /// Empties the queue.
    pub(super) fn clear(&mut self) {
        (self.head, self.published, self.tail, self.cached) = (0, 0, 0, 0);
        self.slots.fill(None);
        (self.end, self.end_bytes) = (0, 0);
        self.next_send = 0;
    }

    /// Writes a work request that is not yet to be carried out.
    pub(super) fn write(&mut self, wr: &SendWr<'_>, sig_all: bool) -> Result<(), PostError> {
        if self.tail.wrapping_sub(self.head) >= self.max_wr {
            return Err(PostError::QueueFull);
        }
        let takes_data = matches!(wr.op, SendOp::Read { .. } | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. });
        if takes_data && matches!(wr.data, Data::Inline(_)) {
            return Err(PostError::InlineNotAllowed);
        }
        let at = self.place(self.tail);
        let (len, sges, inline) = match wr.data {
            Data::Inline(bytes) => {
                if bytes.len() > self.max_inline {
                    return Err(PostError::InlineTooLong);
                }
                self.inline[at * self.max_inline..][..bytes.len()].copy_from_slice(bytes);
                (bytes.len() as u64, 0, true)
            }
            Data::Gather(sges) => {
                if sges.len() > self.max_sge {
                    return Err(PostError::TooManySges);
                }
                self.sges[at * self.max_sge..][..sges.len()].copy_from_slice(sges);
                (sges.iter().map(|s| u64::from(s.len)).sum(), sges.len() as u8, false)
            }
        };
        if len > u64::from(MAX_MESSAGE) {
            return Err(PostError::MessageTooLong);
        }
        if takes_data && !matches!(wr.op, SendOp::Read { .. }) && len != 8 {
            return Err(PostError::AtomicLength);
        }
        self.slots[at] = Some(Slot {
            wr_id: wr.wr_id,
            op: wr.op,
            signaled: wr.flags.signaled || sig_all,
            solicited: wr.flags.solicited,
            fence: wr.flags.fence,
            inline,
            sges,
            len: len as u32,
            first: 0,
            packets: 0,
            bytes: 0,
            sends: 0,
        });
        self.tail = self.tail.wrapping_add(1);
        Ok(())
    }

    /// Makes what was written ready to be carried out: from now on each packet has its number.
    pub(super) fn publish(&mut self, mtu: PathMtu) {
        while self.published != self.tail {
            let at = self.place(self.published);
            if let Some(slot) = &mut self.slots[at] {
                slot.first = self.end;
                slot.packets = mtu.packets(slot.len);
                self.next_send = self.next_send.wrapping_add(u32::from(slot.uses_receive()));
                slot.sends = self.next_send;
                slot.bytes = self.end_bytes;
                self.end_bytes += if slot.awaits_data() { 0 } else { u64::from(slot.len) };
                self.end += u64::from(slot.packets);
            }
            self.published = self.published.wrapping_add(1);
        }
    }

    /// The number behind the last packet of what is published.
    #[inline]
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    #[inline]
    pub(super) fn get(&self, position: u32) -> Option<&Slot> {
        if position.wrapping_sub(self.head) >= self.published.wrapping_sub(self.head) {
            return None;
        }
        self.slots[self.place(position)].as_ref()
    }

    /// The oldest work request that is not done.
    #[inline]
    pub(super) fn head(&self) -> Option<&Slot> {
        self.get(self.head)
    }

    #[inline]
    pub(super) fn head_position(&self) -> u32 {
        self.head
    }

    /// Takes the oldest work request out.
    pub(super) fn pop(&mut self) -> Option<Slot> {
        let slot = *self.head()?;
        self.head = self.head.wrapping_add(1);
        Some(slot)
    }

    /// Takes out the oldest of all that were written, published or not: for flushing.
    pub(super) fn pop_any(&mut self) -> Option<Slot> {
        self.published = self.tail;
        self.pop()
    }

    /// The position of the work request that packet number `n` belongs to.
    #[inline]
    pub(super) fn locate(&mut self, n: u64) -> Option<u32> {
        let holds = |s: &Slot| n.wrapping_sub(s.first) < u64::from(s.packets);
        for position in [self.cached, self.cached.wrapping_add(1)] {
            if self.get(position).is_some_and(holds) {
                self.cached = position;
                return Some(position);
            }
        }
        let mut position = self.head;
        while let Some(slot) = self.get(position) {
            if holds(slot) {
                self.cached = position;
                return Some(position);
            }
            position = position.wrapping_add(1);
        }
        None
    }

    /// Bytes that the packets before number `n` carry.
    pub(super) fn bytes_before(&mut self, n: u64, mtu: PathMtu) -> u64 {
        match self.locate(n).and_then(|position| self.get(position)) {
            None => self.end_bytes,
            Some(slot) if slot.awaits_data() => slot.bytes,
            Some(slot) => slot.bytes + ((n - slot.first) * u64::from(mtu.bytes())).min(u64::from(slot.len)),
        }
    }

    /// Where the bytes of the work request at `position` come from.
    #[inline]
    pub(super) fn source(&self, position: u32, slot: &Slot) -> Source<'_> {
        let at = self.place(position);
        if slot.inline {
            Source::Inline(&self.inline[at * self.max_inline..][..slot.len as usize])
        } else {
            Source::Gather(&self.sges[at * self.max_sge..][..usize::from(slot.sges)])
        }
    }
}
