//! A block at the receiver: the packets that have arrived, and their sums.

use softnic_wire::Psn;

use super::buffers::{Body, Pool, Unit};
use super::{Code, MAX_DEPTH};

/// A block of one message.
pub(super) struct Block {
    active: bool,
    pub(super) code: Code,
    pub(super) base: Psn,
    /// Number of packets in the block; 0 while unknown.
    n: u8,
    came: u8,
    /// All packets that arrived had a unit for their sum.
    sound: bool,
    /// One bit per packet, starting with `base`.
    bitmap: [u64; 4],
    /// The sums to which a packet was added, one bit each.
    touched: u64,
    units: [Unit; MAX_DEPTH as usize],
}

impl Block {
    pub(super) fn new(code: Code) -> Block {
        Block {
            active: false,
            code,
            base: Psn::new(0),
            n: 0,
            came: 0,
            sound: true,
            bitmap: [0; 4],
            touched: 0,
            units: [Unit::NONE; MAX_DEPTH as usize],
        }
    }

    /// Starts with the packet `base`.
    #[inline]
    pub(super) fn begin(&mut self, base: Psn, code: Code, pool: &mut Pool) {
        if code != self.code {
            pool.release(&mut self.units);
        }
        (self.touched, self.active) = (0, true);
        (self.base, self.code) = (base, code);
        (self.n, self.came, self.sound, self.bitmap) = (0, 0, true, [0; 4]);
    }

    /// The block is complete, or given up.
    #[inline]
    pub(super) fn end(&mut self, pool: &mut Pool) {
        if self.active {
            pool.end_block(&mut self.units[..usize::from(self.code.c())]);
            self.active = false;
        }
    }

    /// Frees all units of the block.
    pub(super) fn reset(&mut self, pool: &mut Pool) {
        pool.release(&mut self.units);
        self.active = false;
    }

    #[inline]
    pub(super) fn is_active(&self) -> bool {
        self.active
    }

    /// Number of packets of the block, if known.
    #[inline]
    pub(super) fn len(&self) -> Option<u8> {
        (self.n > 0).then_some(self.n)
    }

    /// The distance of a packet from the start of the block.
    #[inline]
    pub(super) fn offset(&self, psn: Psn) -> u32 {
        psn.forward_from(self.base)
    }

    /// Whether a packet at this offset can belong to the block. `begins_message` says whether it starts its message.
    #[inline]
    pub(super) fn takes(&self, offset: u32, begins_message: bool) -> bool {
        let end = self.len().unwrap_or(self.code.r());
        offset < u32::from(end) && !(begins_message && offset > 0)
    }

    #[inline]
    pub(super) fn has(&self, offset: u32) -> bool {
        self.bitmap[offset as usize / 64] & 1 << (offset % 64) != 0
    }

    /// Whether all packets have arrived or were recovered.
    #[inline]
    pub(super) fn is_complete(&self) -> bool {
        self.active && self.n > 0 && self.came == self.n
    }

    /// Whether the missing packets can still be recovered.
    pub(super) fn is_sound(&self) -> bool {
        self.sound
    }

    /// Whether the packet is the next one, and no earlier one is missing.
    #[inline]
    pub(super) fn goes_on_with(&self, psn: Psn) -> bool {
        self.active && self.sound && self.base.add(u32::from(self.came)) == psn
    }

    /// Adds the next packet, as determined by [`Block::goes_on_with`].
    #[inline]
    pub(super) fn add_next(&mut self, body: &Body<'_>, ends_message: bool, pool: &mut Pool) {
        let offset = u32::from(self.came);
        self.mark(offset);
        self.add_to_sum(offset, body, pool);
        if ends_message || self.came == self.code.r() {
            self.end(pool);
        }
    }

    /// Adds a packet that [`Block::takes`]; `ends_message` says whether it is the last one of its message.
    #[inline]
    pub(super) fn add(&mut self, offset: u32, body: &Body<'_>, ends_message: bool, pool: &mut Pool) {
        if self.has(offset) {
            return;
        }
        self.mark(offset);
        if ends_message || offset + 1 == u32::from(self.code.r()) {
            self.n = offset as u8 + 1;
        }
        if self.sound {
            self.add_to_sum(offset, body, pool);
        }
    }

    /// Adds a packet to its sum; without a unit for that sum, no packet of the block can be recovered.
    #[inline]
    fn add_to_sum(&mut self, offset: u32, body: &Body<'_>, pool: &mut Pool) {
        // Avoids a division if there is only one sum.
        let isn = if self.code.c() == 1 { 0 } else { offset as usize % usize::from(self.code.c()) };
        let unit = &mut self.units[isn];
        if self.touched & 1 << isn == 0 {
            self.touched |= 1 << isn;
            pool.renew(unit);
        }
        self.sound = *unit != Unit::NONE && pool.add(*unit, body);
    }

    /// A packet arrived or was recovered.
    #[inline]
    pub(super) fn mark(&mut self, offset: u32) {
        self.bitmap[offset as usize / 64] |= 1 << (offset % 64);
        self.came += 1;
    }

    /// The sender reports that the block has `n` packets; returns whether that is possible.
    pub(super) fn learn_len(&mut self, n: u8) -> bool {
        let known = self.len().is_none_or(|known| known == n);
        let room = known && (u32::from(n)..u32::from(self.code.r())).all(|offset| !self.has(offset));
        if room {
            self.n = n;
        }
        room
    }

    /// The packets of a sum that have not arrived: the first of them, and whether it is the only one.
    pub(super) fn missing(&self, isn: u8) -> Option<(u32, bool)> {
        let mut missing = (u32::from(isn)..u32::from(self.n)).step_by(usize::from(self.code.c()));
        let first = missing.by_ref().find(|&offset| !self.has(offset))?;
        Some((first, missing.all(|offset| self.has(offset))))
    }

    /// The sum of the packets of one interleaving that have arrived.
    pub(super) fn unit(&self, isn: u8) -> Unit {
        if self.touched & 1 << isn == 0 { Unit::NONE } else { self.units[usize::from(isn)] }
    }
}
