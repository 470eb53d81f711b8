//! Receives of an SDR queue pair: which are posted, and in which slot and generation each is.

use softnic_nic::transports::planted::{Bug, planted};
use softnic_nic::{Nic, SlotTarget};

use crate::Local;
use crate::arrivals::{Arrivals, Receive, chunks};
use crate::attr::QpAttr;
use crate::bitmap::{Bitmap, Pool};
use crate::error::SdrError;

/// A receive that was posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecvHandle(pub(crate) u64);

impl RecvHandle {
    /// Its number: the send of the same number lands here.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// The receives.
pub(crate) struct Receives {
    /// Receives that were posted since the beginning.
    pub(crate) posted: u64,
    slots: Box<[Option<Receive>]>,
    generations: u8,
    /// The root key of each generation; one for all, where they share it.
    pub(crate) keys: Vec<u32>,
    pool: Pool,
    /// Of no receive.
    nothing: Bitmap,
}

impl Receives {
    pub(crate) fn new(attr: &QpAttr) -> Receives {
        let mut pool = Pool::default();
        let nothing = pool.take(0);
        let slots = (0..attr.slots).map(|_| None).collect();
        Receives { posted: 0, slots, generations: attr.generations, keys: Vec::new(), pool, nothing }
    }

    /// The slot and the generation of a message.
    fn place(&self, number: u64) -> (u32, u8) {
        place(number, self.slots.len() as u32, self.generations)
    }

    fn key(&self, generation: u8) -> u32 {
        self.keys[usize::from(generation) % self.keys.len()]
    }

    /// Posts the next receive: from now on its packets find it.
    pub(crate) fn post(
        &mut self,
        attr: &QpAttr,
        memory: Local,
        nic: &mut Nic,
        arrivals: impl FnOnce(&mut Nic) -> Option<&mut Arrivals>,
    ) -> Result<RecvHandle, SdrError> {
        if memory.len > attr.max_message {
            return Err(SdrError::TooLong(memory.len, attr.max_message));
        }
        let (number, (slot, generation)) = (self.posted, self.place(self.posted));
        if self.slots[slot as usize].is_some() {
            return Err(SdrError::Full(self.slots.len() as u32));
        }
        let Local { key, addr, len } = memory;
        nic.set_indirect_slot(self.key(generation), slot, Some(SlotTarget { key, addr, len }))?;
        let receive = Receive { number, len, bitmap: self.pool.take(chunks(attr, len)) };
        if let Some(arrivals) = arrivals(nic) {
            arrivals.post(slot, generation, &receive);
        }
        self.slots[slot as usize] = Some(receive);
        self.posted += 1;
        Ok(RecvHandle(number))
    }

    fn find(&self, handle: RecvHandle) -> Result<&Receive, SdrError> {
        let (slot, _) = self.place(handle.0);
        self.slots[slot as usize].as_ref().filter(|r| r.number == handle.0).ok_or(SdrError::NoSuchMessage)
    }

    pub(crate) fn bitmap(&self, handle: RecvHandle) -> Result<&Bitmap, SdrError> {
        Ok(&self.find(handle)?.bitmap)
    }

    /// Completes a receive: from now on nothing is written to its memory, and no bit of it is set.
    pub(crate) fn complete(
        &mut self,
        handle: RecvHandle,
        nic: &mut Nic,
        arrivals: impl FnOnce(&mut Nic) -> Option<&mut Arrivals>,
    ) -> Result<(), SdrError> {
        self.find(handle)?;
        let (slot, generation) = self.place(handle.0);
        if !planted(Bug::SdrSlotEmptiedLate) {
            nic.set_indirect_slot(self.key(generation), slot, None)?;
        }
        if let Some(arrivals) = arrivals(nic) {
            arrivals.complete(slot, &self.nothing);
        }
        if let Some(receive) = self.slots[slot as usize].take() {
            self.pool.give_back(receive.bitmap);
        }
        Ok(())
    }
}

/// The slot and the generation of a message.
pub(crate) fn place(number: u64, slots: u32, generations: u8) -> (u32, u8) {
    let slots = u64::from(slots);
    ((number % slots) as u32, (number / slots % u64::from(generations)) as u8)
}
