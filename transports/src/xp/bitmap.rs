//! The bitmap of a receive or READ: one bit for each packet, in memory given by the program.

use softnic_wire::Qpn;

use crate::memory::{Access, AccessError, Memory, PdId, Region};
use crate::wr::Sge;

/// A program's memory for the bits of one message.
#[derive(Clone, Copy)]
pub(super) struct Bitmap {
    pub(super) qpn: Qpn,
    pub(super) pd: PdId,
    pub(super) memory: Sge,
}

/// The result for a bit.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Bit {
    /// The bit is newly set.
    New,
    /// The bit was set before.
    Known,
    /// The bitmap has no such bit.
    Outside,
}

impl Bitmap {
    fn region(&self, at: u32) -> Region {
        let Bitmap { qpn, pd, memory } = *self;
        Region { qpn, pd, key: memory.lkey, addr: memory.addr.wrapping_add(at.into()), access: Access::LOCAL_WRITE }
    }

    /// Clears all bits.
    pub(super) fn clear(&self, memory: &impl Memory) -> Result<(), AccessError> {
        const ZEROS: [u8; 256] = [0; 256];
        for at in (0..self.memory.len).step_by(ZEROS.len()) {
            let len = ZEROS.len().min((self.memory.len - at) as usize);
            memory.write(self.region(at), &ZEROS[..len])?;
        }
        Ok(())
    }

    /// Whether packet `index` arrived before.
    pub(super) fn look(&self, index: u32, memory: &impl Memory) -> Result<Bit, AccessError> {
        if index / 8 >= self.memory.len {
            return Ok(Bit::Outside);
        }
        let byte = self.byte(index, memory)?;
        Ok(if byte >> (index % 8) & 1 == 1 { Bit::Known } else { Bit::New })
    }

    /// Sets the bit of packet `index`, which must be inside the bitmap.
    pub(super) fn set(&self, index: u32, memory: &impl Memory) -> Result<(), AccessError> {
        let byte = self.byte(index, memory)? | 1 << (index % 8);
        memory.write(self.region(index / 8), &[byte])
    }

    fn byte(&self, index: u32, memory: &impl Memory) -> Result<u8, AccessError> {
        let mut byte = [0];
        memory.read(self.region(index / 8), &mut byte)?;
        Ok(byte[0])
    }
}
