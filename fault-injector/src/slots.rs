//! Memory for frames under way: fixed slots, taken and given back without allocation once there are enough.

/// Names a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotId(u32);

/// Slots are made a chunk at a time, so that growing never moves a frame.
const CHUNK: usize = 256;

/// A pool of slots of one size.
#[derive(Debug, Clone)]
pub struct Slots {
    slot_len: usize,
    limit: usize,
    chunks: Vec<Box<[u8]>>,
    free: Vec<u32>,
}

impl Slots {
    /// None yet; as many will be made as are in use at a time.
    pub fn new(slot_len: usize) -> Slots {
        Slots::bounded(slot_len, usize::MAX)
    }

    /// None yet, and never more than `limit`.
    pub fn bounded(slot_len: usize, limit: usize) -> Slots {
        Slots { slot_len, limit, chunks: Vec::new(), free: Vec::new() }
    }

    /// A slot with anything in it; `None` when the limit is reached.
    #[inline]
    pub fn take(&mut self) -> Option<SlotId> {
        if self.free.is_empty() {
            let made = self.chunks.len() * CHUNK;
            let more = CHUNK.min(self.limit.saturating_sub(made));
            if more == 0 {
                return None;
            }
            self.chunks.push(vec![0; more * self.slot_len].into());
            self.free.extend((made as u32..(made + more) as u32).rev());
        }
        self.free.pop().map(SlotId)
    }

    /// A slot with the same first `len` bytes.
    pub fn copy(&mut self, id: SlotId, len: usize) -> Option<SlotId> {
        let copy = self.take()?;
        let [(from, at), (to, to_at)] = [id, copy].map(|i| self.place(i));
        if from == to {
            self.chunks[from].copy_within(at..at + len, to_at);
        } else if let Ok([a, b]) = self.chunks.get_disjoint_mut([from, to]) {
            b[to_at..to_at + len].copy_from_slice(&a[at..at + len]);
        }
        Some(copy)
    }

    /// Takes a slot back.
    #[inline]
    pub fn give_back(&mut self, id: SlotId) {
        self.free.push(id.0);
    }

    /// The bytes of a slot.
    #[inline]
    pub fn get_mut(&mut self, id: SlotId) -> &mut [u8] {
        let (chunk, at) = self.place(id);
        &mut self.chunks[chunk][at..at + self.slot_len]
    }

    /// Bytes of each slot.
    pub fn slot_len(&self) -> usize {
        self.slot_len
    }

    #[inline]
    fn place(&self, id: SlotId) -> (usize, usize) {
        (id.0 as usize / CHUNK, id.0 as usize % CHUNK * self.slot_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_bounded_reused_and_copied_within_and_across_chunks() {
        let mut slots = Slots::bounded(8, 300);
        let ids: Vec<_> = (0..300).map(|_| slots.take().expect("room")).collect();
        assert_eq!(slots.take(), None);
        for (i, id) in ids.iter().enumerate() {
            slots.get_mut(*id).copy_from_slice(&(i as u64).to_le_bytes());
        }
        for (from, free) in [(0, 1), (2, 299), (298, 3)] {
            slots.give_back(ids[free]);
            let copy = slots.copy(ids[from], 8).expect("the one given back");
            assert_eq!(copy, ids[free]);
            assert_eq!(slots.get_mut(copy), (from as u64).to_le_bytes());
        }
        assert_eq!(slots.copy(ids[0], 8), None);
        assert_eq!(slots.get_mut(ids[100]), 100u64.to_le_bytes(), "the others are what they were");
    }
}
