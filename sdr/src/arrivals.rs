//! The receiving end of the data path: each packet of a message sets a bit, and the last one of a chunk the chunk's (SDR-RDMA §3.2.4, §3.3).

use std::any::Any;

use softnic_nic::Sink;
use softnic_nic::transports::planted::{Bug, planted};
use softnic_nic::transports::{Arrival, Completion};
use softnic_wire::Qpn;

use crate::attr::QpAttr;
use crate::bitmap::Bitmap;
use crate::counters::Counters;
use crate::turns::Turns;
use softnic_wire::sdr::Split;

/// A receive that is posted.
#[derive(Debug, Clone)]
pub struct Receive {
    /// Its number.
    pub number: u64,
    /// Bytes of its memory.
    pub len: u64,
    /// What the program sees of it.
    pub bitmap: Bitmap,
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
    /// Packets of each chunk that are to come to this engine, and have not.
    left: Vec<u32>,
    bitmap: Bitmap,
    imm: u32,
    /// Pieces of the immediate that have come.
    pieces: u32,
}

impl Message {
    /// Bytes of a packet of it.
    #[inline]
    fn packet_len(&self, packet: u32, mtu: u32) -> Option<u32> {
        match self.packets.checked_sub(packet)? {
            0 => None,
            1 => Some(self.last_len),
            _ => Some(mtu),
        }
    }

    /// Whether a packet without bytes stands for none of its own: it lies behind the end of what is sent, which may be shorter than the
    /// receive, and has a piece of the immediate.
    #[inline]
    fn is_piece(&self, packet: u32, len: u32, mtu: u32) -> bool {
        len == 0 && self.packet_len(packet, mtu) != Some(0)
    }
}

/// A slot of the root key.
enum Slot {
    /// Nothing was ever posted here.
    Unused,
    Posted(Message),
    /// What was posted here is completed.
    Done {
        generation: u8,
    },
}

/// Why a packet is none of what is posted.
#[derive(Clone, Copy)]
enum Miss {
    /// Its message was completed: its slot points nowhere.
    IntoNull,
    /// The slot of its message serves a later one.
    OldGeneration,
    /// It came before.
    Duplicate,
    /// It cannot be.
    Rejected,
}

/// A queue pair that data comes by.
struct Source {
    qpn: Qpn,
    generation: u8,
    channel: u32,
    /// What its peer writes by.
    key: u32,
}

/// The sink of the data queue pairs of an SDR queue pair, all of them or those of one engine.
pub struct Arrivals {
    split: Split,
    turns: Turns,
    mtu: u32,
    chunk_packets: u32,
    slot_len: u64,
    screened: bool,
    slots: Box<[Slot]>,
    sources: Vec<Source>,
    /// One more than the number of the newest message of which something came.
    pub(crate) seen: u64,
    pub(crate) counters: Counters,
    /// Memory of messages that are over, for the next ones.
    spare: Vec<Message>,
}

impl Arrivals {
    /// Of all queue pairs; these and receives are to follow.
    pub fn new(attr: &QpAttr) -> Arrivals {
        Arrivals::of(attr, Turns::new(attr.channels, 1, 0))
    }

    /// Of the queue pairs that one of several engines has.
    pub fn at_engine(attr: &QpAttr, engines: u8, engine: u8) -> Arrivals {
        Arrivals::of(attr, Turns::new(attr.channels, engines, engine))
    }

    pub(crate) fn of(attr: &QpAttr, turns: Turns) -> Arrivals {
        Arrivals {
            split: attr.split,
            turns,
            mtu: attr.mtu.bytes(),
            chunk_packets: attr.chunk / attr.mtu.bytes(),
            slot_len: attr.slot_len(),
            screened: attr.screened,
            slots: (0..attr.slots).map(|_| Slot::Unused).collect(),
            sources: Vec::new(),
            seen: 0,
            counters: Counters::default(),
            spare: Vec::new(),
        }
    }

    /// A queue pair: a channel of a generation, whose peer writes by this key.
    pub fn add_queue_pair(&mut self, qpn: Qpn, generation: u8, channel: u8, key: u32) {
        self.sources.push(Source { qpn, generation, channel: channel.into(), key });
    }

    /// A receive is posted in a slot that is free.
    pub fn post(&mut self, slot: u32, generation: u8, receive: &Receive) {
        let count = receive.len.div_ceil(self.mtu.into()).max(1) as u32;
        let chunks = count.div_ceil(self.chunk_packets);
        let mut message = self.spare.pop().unwrap_or_else(|| {
            let (bitmap, came, left) = (receive.bitmap.clone(), Vec::new(), Vec::new());
            Message { number: 0, generation, packets: 0, last_len: 0, came, left, bitmap, imm: 0, pieces: 0 }
        });
        message.came.clear();
        message.came.resize(count.div_ceil(64) as usize, 0);
        message.left.clear();
        if self.chunk_packets > 1 {
            let (turns, whole) = (self.turns, self.chunk_packets);
            let chunk = |i: u32| turns.count(i * whole, count.min((i + 1) * whole));
            message.left.extend((0..chunks).map(chunk));
        }
        let last_len = (receive.len - u64::from(count - 1) * u64::from(self.mtu)) as u32;
        (message.number, message.generation, message.packets, message.last_len) =
            (receive.number, generation, count, last_len);
        (message.bitmap, message.imm, message.pieces) = (receive.bitmap.clone(), 0, 0);
        self.slots[slot as usize] = Slot::Posted(message);
    }

    /// The receive in a slot is completed: nothing that comes for it counts any more.
    pub fn complete(&mut self, slot: u32, nothing: &Bitmap) {
        let place = &mut self.slots[slot as usize];
        let Slot::Posted(message) = place else { return };
        let done = Slot::Done { generation: message.generation };
        if let Slot::Posted(mut message) = std::mem::replace(place, done) {
            message.bitmap = nothing.clone();
            self.spare.push(message);
        }
    }

    /// Whether this immediate says a packet of what is posted, with so many bytes, by this queue pair; `target` is where it goes, and by which
    /// key, where that is known.
    #[inline]
    fn find(&self, qpn: Qpn, imm: u32, len: u32, target: Option<(u64, u32)>) -> Result<(), Miss> {
        let (id, packet, _) = self.split.unpack(imm);
        let source = self.sources.iter().find(|source| source.qpn == qpn);
        let Some(&Source { generation, channel, key, .. }) = source else { return Err(Miss::Rejected) };
        // What comes by another channel than its own may have come before to another engine, and nobody would know.
        if self.turns.channel(packet) != channel {
            return Err(Miss::Rejected);
        }
        let message = match self.slots.get(id as usize) {
            Some(Slot::Posted(message)) => message,
            Some(Slot::Done { generation: last }) if *last == generation => return Err(Miss::IntoNull),
            Some(Slot::Done { .. }) => return Err(Miss::OldGeneration),
            Some(Slot::Unused) | None => return Err(Miss::Rejected),
        };
        if message.generation != generation && !planted(Bug::SdrGenerationUnchecked) {
            return Err(Miss::OldGeneration);
        }
        if message.is_piece(packet, len, self.mtu) {
            return if packet < self.split.pieces() { Ok(()) } else { Err(Miss::Rejected) };
        }
        if message.packet_len(packet, self.mtu) != Some(len) {
            return Err(Miss::Rejected);
        }
        if let Some((addr, by)) = target.filter(|_| len > 0)
            && (by != key || addr != u64::from(id) * self.slot_len + u64::from(packet) * u64::from(self.mtu))
        {
            return Err(Miss::Rejected);
        }
        if message.came[packet as usize / 64] >> (packet % 64) & 1 == 1 {
            return Err(Miss::Duplicate);
        }
        Ok(())
    }

    #[cold]
    fn count(&mut self, miss: Miss) {
        let counters = &mut self.counters;
        *match miss {
            Miss::IntoNull => &mut counters.into_null,
            Miss::OldGeneration => &mut counters.old_generation,
            Miss::Duplicate => &mut counters.duplicates,
            Miss::Rejected => &mut counters.rejected,
        } += 1;
    }

    /// The packet of this immediate, with so many bytes, is in place. It is read from there anew: what two calls leave to each other in memory
    /// the second one waits for.
    #[inline]
    fn place(&mut self, imm: u32, len: u32) {
        self.counters.packets += 1;
        let (slot, packet, piece) = self.split.unpack(imm);
        let (chunk_packets, pieces, width) = (self.chunk_packets, self.split.pieces(), self.split.bits()[2]);
        let (mtu, alone) = (self.mtu, self.turns.is_alone());
        let Some(Slot::Posted(message)) = self.slots.get_mut(slot as usize) else { return };
        self.seen = self.seen.max(message.number + 1);
        let carried = if planted(Bug::SdrPieceMisplaced) { packet + 1 } else { packet };
        if let Some(index) = carried.checked_rem(pieces)
            && message.pieces >> index & 1 == 0
        {
            let piece = piece.checked_shl(index * u32::from(width)).unwrap_or(0);
            message.imm |= piece;
            message.pieces |= 1 << index;
            if !alone {
                message.bitmap.bits().add_piece(1 << index, piece, u32::MAX >> (32 - pieces));
            } else if message.pieces.count_ones() == pieces {
                message.bitmap.bits().set_value(message.imm);
            }
        }
        if message.is_piece(packet, len, mtu) {
            return;
        }
        message.came[packet as usize / 64] |= 1 << (packet % 64);
        let bits = message.bitmap.bits();
        if chunk_packets == 1 {
            return if alone { bits.set_alone(packet as usize) } else { bits.set(packet as usize) };
        }
        let chunk = packet / chunk_packets;
        let left = &mut message.left[chunk as usize];
        *left -= 1;
        if *left == 0 && !alone {
            bits.finish_part(chunk as usize);
        } else if *left == 0 || planted(Bug::SdrBitEarly) && *left == 1 {
            bits.set_alone(chunk as usize);
        }
    }
}

impl Sink for Arrivals {
    /// Data comes as arrivals alone: nothing else sets a bit.
    fn on_completion(&mut self, _: &Completion) {}

    fn on_arrival(&mut self, arrival: &Arrival) {
        if self.screened {
            return self.place(arrival.imm, arrival.byte_len);
        }
        match self.find(arrival.qpn, arrival.imm, arrival.byte_len, None) {
            Ok(()) => self.place(arrival.imm, arrival.byte_len),
            Err(miss) => self.count(miss),
        }
    }

    fn admits(&mut self, a: &Arrival) -> bool {
        if !self.screened {
            return true;
        }
        let found = self.find(a.qpn, a.imm, a.byte_len, Some((a.remote_addr, a.rkey)));
        if let Err(miss) = found {
            self.count(miss);
        }
        found.is_ok()
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
