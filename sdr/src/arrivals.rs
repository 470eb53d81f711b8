//! The receiving end of the data path: each packet of a message sets a bit, and the last one of a chunk the chunk's (SDR-RDMA §3.2.4, §3.3).

use std::any::Any;

use softnic_nic::Sink;
use softnic_nic::transports::{Arrival, Completion, Status};
use softnic_wire::Qpn;

use crate::attr::{QpAttr, packets};
use crate::bitmap::Bitmap;
use crate::counters::Counters;
use crate::split::Split;

/// A receive that is posted.
pub(crate) struct Receive {
    pub(crate) number: u64,
    pub(crate) len: u64,
    pub(crate) bitmap: Bitmap,
}

/// A receive as packets find it.
struct Message {
    number: u64,
    generation: u8,
    /// Packets of it, at least one.
    packets: u32,
    /// Bytes of the last one.
    last_len: u32,
    /// Packets that have come.
    came: Vec<u64>,
    /// Packets of each chunk that have not.
    left: Vec<u32>,
    bitmap: Bitmap,
    imm: u32,
    /// Pieces of the immediate that have come.
    pieces: u32,
}

/// A slot of the root key.
enum Slot {
    /// Nothing was ever posted here.
    Unused,
    Posted(Box<Message>),
    /// What was posted here is completed.
    Done {
        generation: u8,
    },
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// A packet of the message in that slot.
    Placed { slot: u32, packet: u32, piece: u32 },
    /// Of a message that was completed: its slot points nowhere.
    IntoNull,
    /// Of a message whose slot serves a later one.
    OldGeneration,
    /// It came before.
    Duplicate,
    /// It cannot be a packet of what is posted.
    Rejected,
}

/// The sink of all data queue pairs of an SDR queue pair.
pub(crate) struct Arrivals {
    split: Split,
    mtu: u32,
    chunk_packets: u32,
    slot_len: u64,
    screened: bool,
    slots: Box<[Slot]>,
    /// The queue pairs, each with its generation and the key that it writes by.
    queue_pairs: Vec<(Qpn, u8, u32)>,
    /// The packet that was let through, and completes next.
    admitted: Option<Fate>,
    /// One more than the number of the newest message of which something came.
    pub(crate) seen: u64,
    pub(crate) counters: Counters,
    /// Memory of messages that are over, for the next ones.
    spare: Vec<Box<Message>>,
}

impl Arrivals {
    pub(crate) fn new(attr: &QpAttr) -> Arrivals {
        Arrivals {
            split: attr.split,
            mtu: attr.mtu.bytes(),
            chunk_packets: attr.chunk / attr.mtu.bytes(),
            slot_len: attr.slot_len(),
            screened: attr.screened,
            slots: (0..attr.slots).map(|_| Slot::Unused).collect(),
            queue_pairs: Vec::new(),
            admitted: None,
            seen: 0,
            counters: Counters::default(),
            spare: Vec::new(),
        }
    }

    /// A queue pair of a generation, whose peer writes by this key.
    pub(crate) fn add_queue_pair(&mut self, qpn: Qpn, generation: u8, key: u32) {
        self.queue_pairs.push((qpn, generation, key));
    }

    /// A receive is posted in a slot that is free.
    pub(crate) fn post(&mut self, slot: u32, generation: u8, receive: &Receive) {
        let count = receive.len.div_ceil(self.mtu.into()).max(1) as u32;
        let chunks = count.div_ceil(self.chunk_packets);
        let mut message = self.spare.pop().unwrap_or_else(|| {
            let (bitmap, none) = (receive.bitmap.clone(), Vec::new());
            let (came, left) = (none, Vec::new());
            Box::new(Message { number: 0, generation, packets: 0, last_len: 0, came, left, bitmap, imm: 0, pieces: 0 })
        });
        message.came.clear();
        message.came.resize(count.div_ceil(64) as usize, 0);
        message.left.clear();
        if self.chunk_packets > 1 {
            message.left.resize(chunks as usize, self.chunk_packets);
            if let Some(last) = message.left.last_mut() {
                *last = count - (chunks - 1) * self.chunk_packets;
            }
        }
        let last_len = (receive.len - u64::from(count - 1) * u64::from(self.mtu)) as u32;
        (message.number, message.generation, message.packets, message.last_len) =
            (receive.number, generation, count, last_len);
        (message.bitmap, message.imm, message.pieces) = (receive.bitmap.clone(), 0, 0);
        self.slots[slot as usize] = Slot::Posted(message);
    }

    /// The receive in a slot is completed: nothing that comes for it counts any more.
    pub(crate) fn complete(&mut self, slot: u32, nothing: &Bitmap) {
        let place = &mut self.slots[slot as usize];
        let Slot::Posted(message) = place else { return };
        let done = Slot::Done { generation: message.generation };
        if let Slot::Posted(mut message) = std::mem::replace(place, done) {
            message.bitmap = nothing.clone();
            self.spare.push(message);
        }
    }

    /// What becomes of a packet with this immediate and so many bytes, by this queue pair.
    #[inline]
    fn fate(&self, qpn: Qpn, imm: u32, len: u32) -> Fate {
        let (id, packet, piece) = self.split.unpack(imm);
        let Some(&(_, generation, _)) = self.queue_pairs.iter().find(|(known, ..)| *known == qpn) else {
            return Fate::Rejected;
        };
        let message = match self.slots.get(id as usize) {
            Some(Slot::Posted(message)) => message,
            Some(Slot::Done { generation: last }) if *last == generation => return Fate::IntoNull,
            Some(Slot::Done { .. }) => return Fate::OldGeneration,
            Some(Slot::Unused) | None => return Fate::Rejected,
        };
        if message.generation != generation {
            return Fate::OldGeneration;
        }
        if packet >= message.packets {
            // Behind the end, without a byte: a piece of the immediate.
            let is_piece = packet < self.split.pieces() && len == 0;
            return if is_piece { Fate::Placed { slot: id, packet, piece } } else { Fate::Rejected };
        }
        let whole = if packet + 1 == message.packets { message.last_len } else { self.mtu };
        if len != whole {
            return Fate::Rejected;
        }
        if message.came[packet as usize / 64] >> (packet % 64) & 1 == 1 {
            return Fate::Duplicate;
        }
        Fate::Placed { slot: id, packet, piece }
    }

    /// Whether a packet goes where its immediate says, by the key of its generation.
    fn goes_there(&self, arrival: &Arrival, slot: u32, packet: u32) -> bool {
        let addr = u64::from(slot) * self.slot_len + u64::from(packet) * u64::from(self.mtu);
        let key = self.queue_pairs.iter().find(|(qpn, ..)| *qpn == arrival.qpn).map(|&(.., key)| key);
        arrival.byte_len == 0 || arrival.remote_addr == addr && Some(arrival.rkey) == key
    }

    fn count(&mut self, fate: Fate) {
        match fate {
            Fate::Placed { .. } => self.counters.packets += 1,
            Fate::IntoNull => self.counters.into_null += 1,
            Fate::OldGeneration => self.counters.old_generation += 1,
            Fate::Duplicate => self.counters.duplicates += 1,
            Fate::Rejected => self.counters.rejected += 1,
        }
    }

    /// A packet is in place.
    #[inline]
    fn place(&mut self, slot: u32, packet: u32, piece: u32) {
        let (chunk_packets, pieces, bits) = (self.chunk_packets, self.split.pieces(), self.split.bits()[2]);
        let Some(Slot::Posted(message)) = self.slots.get_mut(slot as usize) else { return };
        self.seen = self.seen.max(message.number + 1);
        if let Some(index) = packet.checked_rem(pieces)
            && message.pieces >> index & 1 == 0
        {
            message.imm |= piece.checked_shl(index * u32::from(bits)).unwrap_or(0);
            message.pieces |= 1 << index;
            if message.pieces.count_ones() == pieces {
                message.bitmap.set_imm(message.imm);
            }
        }
        if packet >= message.packets {
            return;
        }
        message.came[packet as usize / 64] |= 1 << (packet % 64);
        if chunk_packets == 1 {
            return message.bitmap.set(packet);
        }
        let chunk = packet / chunk_packets;
        let left = &mut message.left[chunk as usize];
        *left -= 1;
        if *left == 0 {
            message.bitmap.set(chunk);
        }
    }
}

impl Sink for Arrivals {
    fn on_completion(&mut self, completion: &Completion) {
        let (Status::Success, Some(imm)) = (completion.status, completion.imm) else { return };
        let fate = match self.screened {
            true => self.admitted.take(),
            false => Some(self.fate(completion.qpn, imm, completion.byte_len)),
        };
        let Some(fate) = fate else { return };
        self.count(fate);
        if let Fate::Placed { slot, packet, piece } = fate {
            self.place(slot, packet, piece);
        }
    }

    fn admits(&mut self, arrival: &Arrival) -> bool {
        if !self.screened {
            return true;
        }
        let mut fate = self.fate(arrival.qpn, arrival.imm, arrival.byte_len);
        if let Fate::Placed { slot, packet, .. } = fate
            && !self.goes_there(arrival, slot, packet)
        {
            fate = Fate::Rejected;
        }
        if let Fate::Placed { .. } = fate {
            self.admitted = Some(fate);
            return true;
        }
        self.count(fate);
        false
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// Chunks of a receive of so many bytes.
pub(crate) fn chunks(attr: &QpAttr, len: u64) -> u32 {
    packets(len, attr.mtu).div_ceil(u64::from(attr.chunk / attr.mtu.bytes())) as u32
}
