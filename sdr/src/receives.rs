//! Receives of an SDR queue pair: which are posted, and in which slot and generation each is.

use crate::Local;
use crate::arrivals::Receive;
use crate::attr::{QpAttr, packets};
use crate::bitmap::{Bitmap, Pool};
use crate::error::SdrError;
use crate::turns::Turns;

/// A receive that was posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecvHandle(pub(crate) u64);

impl RecvHandle {
    /// Its number: the send of the same number lands here.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// A receive that each engine is to know before the peer hears of it.
#[derive(Debug, Clone)]
pub struct Posting {
    pub(crate) slot: u32,
    pub(crate) generation: u8,
    pub(crate) receive: Receive,
    pub(crate) memory: Local,
}

impl Posting {
    /// The receive.
    pub fn handle(&self) -> RecvHandle {
        RecvHandle(self.receive.number)
    }

    /// What the program sees of it.
    pub fn bitmap(&self) -> &Bitmap {
        &self.receive.bitmap
    }
}

/// The receives.
pub(crate) struct Receives {
    /// Receives that were posted since the beginning.
    pub(crate) posted: u64,
    slots: Box<[Option<Receive>]>,
    generations: u8,
    pool: Pool,
}

impl Receives {
    pub(crate) fn new(attr: &QpAttr) -> Receives {
        let slots = (0..attr.slots).map(|_| None).collect();
        Receives { posted: 0, slots, generations: attr.generations, pool: Pool::default() }
    }

    /// Whether so many more can be posted.
    pub(crate) fn has_room(&self, count: u32) -> bool {
        let slots = self.slots.len() as u64;
        u64::from(count) <= slots
            && (0..u64::from(count)).all(|i| self.slots[((self.posted + i) % slots) as usize].is_none())
    }

    /// The next receive, which has its place from now on.
    pub(crate) fn next(&mut self, attr: &QpAttr, turns: &Turns, memory: Local) -> Result<Posting, SdrError> {
        if memory.len > attr.max_message {
            return Err(SdrError::TooLong(memory.len, attr.max_message));
        }
        let number = self.posted;
        let (slot, generation) = place(number, self.slots.len() as u32, self.generations);
        let room = &mut self.slots[slot as usize];
        if room.is_some() {
            return Err(SdrError::Full(self.slots.len() as u32));
        }
        let chunk_packets = attr.chunk / attr.mtu.bytes();
        let bitmap = self.pool.take_shared(turns, packets(memory.len, attr.mtu) as u32, chunk_packets);
        let receive = Receive { number, len: memory.len, bitmap };
        *room = Some(receive.clone());
        self.posted += 1;
        Ok(Posting { slot, generation, receive, memory })
    }

    /// The newest one could not be posted after all.
    pub(crate) fn take_back(&mut self, posting: Posting) {
        self.slots[posting.slot as usize] = None;
        self.posted -= 1;
        self.pool.give_back(posting.receive.bitmap);
    }

    fn find(&self, handle: RecvHandle) -> Result<&Receive, SdrError> {
        let (slot, _) = place(handle.0, self.slots.len() as u32, self.generations);
        self.slots[slot as usize].as_ref().filter(|r| r.number == handle.0).ok_or(SdrError::NoSuchMessage)
    }

    pub(crate) fn bitmap(&self, handle: RecvHandle) -> Result<&Bitmap, SdrError> {
        Ok(&self.find(handle)?.bitmap)
    }

    /// A receive is over, at all engines.
    pub(crate) fn remove(&mut self, handle: RecvHandle) {
        let (slot, _) = place(handle.0, self.slots.len() as u32, self.generations);
        if let Some(receive) = self.slots[slot as usize].take() {
            self.pool.give_back(receive.bitmap);
        }
    }
}

/// The slot and the generation of a message.
pub(crate) fn place(number: u64, slots: u32, generations: u8) -> (u32, u8) {
    let slots = u64::from(slots);
    ((number % slots) as u32, (number / slots % u64::from(generations)) as u8)
}
