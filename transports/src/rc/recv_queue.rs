//! The receive queue of a queue pair, and scattering a message over a receive.

use crate::memory::{Access, AccessError, PdId, Region};
use crate::wr::scatter;
use crate::{Memory, PostError, RecvWr, Sge};

/// A posted receive.
#[derive(Debug, Clone, Copy)]
pub(super) struct Receive {
    pub(super) wr_id: u64,
    /// Bytes that fit in.
    pub(super) capacity: u64,
    sges: u8,
}

#[derive(Debug)]
pub(super) struct RecvQueue {
    slots: Box<[Receive]>,
    sges: Box<[Sge]>,
    max_wr: u32,
    max_sge: usize,
    head: u32,
    tail: u32,
}

impl RecvQueue {
    pub(super) fn new(max_wr: u32, max_sge: u32) -> RecvQueue {
        let size = max_wr.max(1).next_power_of_two() as usize;
        RecvQueue {
            slots: vec![Receive { wr_id: 0, capacity: 0, sges: 0 }; size].into(),
            sges: vec![Sge::default(); size * max_sge as usize].into(),
            max_wr,
            max_sge: max_sge as usize,
            head: 0,
            tail: 0,
        }
    }

    #[inline]
    fn place(&self, position: u32) -> usize {
        position as usize & (self.slots.len() - 1)
    }

    pub(super) fn clear(&mut self) {
        (self.head, self.tail) = (0, 0);
    }

    pub(super) fn post(&mut self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        if self.len() >= self.max_wr {
            return Err(PostError::QueueFull);
        }
        if wr.sges.len() > self.max_sge {
            return Err(PostError::TooManySges);
        }
        let at = self.place(self.tail);
        self.sges[at * self.max_sge..][..wr.sges.len()].copy_from_slice(wr.sges);
        let capacity = wr.sges.iter().map(|s| u64::from(s.len)).sum();
        self.slots[at] = Receive { wr_id: wr.wr_id, capacity, sges: wr.sges.len() as u8 };
        self.tail = self.tail.wrapping_add(1);
        Ok(())
    }

    /// Receives posted and not used up.
    #[inline]
    pub(super) fn len(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }

    /// The receive that the next message goes into.
    #[inline]
    pub(super) fn head(&self) -> Option<Receive> {
        (self.len() > 0).then(|| self.slots[self.place(self.head)])
    }

    pub(super) fn pop(&mut self) -> Option<Receive> {
        let receive = self.head()?;
        self.head = self.head.wrapping_add(1);
        Some(receive)
    }

    /// Places bytes at `offset` of the message in the receive at the head.
    #[inline]
    pub(super) fn scatter(
        &self,
        pd: PdId,
        receive: &Receive,
        offset: u64,
        bytes: &[u8],
        memory: &impl Memory,
    ) -> Result<(), AccessError> {
        let at = self.place(self.head);
        let sges = &self.sges[at * self.max_sge..][..usize::from(receive.sges)];
        let region = |key, addr| Region { pd, key, addr, access: Access::LOCAL_WRITE };
        scatter(sges, offset, bytes, |sge, at, part| memory.write(region(sge.lkey, sge.addr.wrapping_add(at)), part))
    }
}
