//! Further rows of parity of a message that is being sent: each is sent once, when the peer asks for it.

use super::super::super::Io;
use super::super::encoder::Encoder;
use super::{Part, Shape, Write};

/// Further rows of a group: those that were asked for, and those that were sent.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Further {
    asked: u32,
    sent: u32,
}

impl Write {
    /// The peer asks for the first so many further rows of a group. Whether some of them are new, and are to be sent; `None` where there are
    /// no such rows.
    pub(in super::super) fn is_asked_for_rows(&mut self, shape: &Shape, number: u32, rows: u32) -> Option<bool> {
        let (block, group) = shape.layout.place_of(number);
        // The peer has what it completed meanwhile.
        let Some(at) = block.checked_sub(self.first_block) else { return Some(false) };
        let begun = self.blocks.get_mut(at as usize)?;
        let further = begun.further.get_mut(group as usize).filter(|_| begun.shape.is_protected())?;
        if rows > shape.layout.group(&begun.shape, group).spare {
            return None;
        }
        let is_new = rows > further.asked;
        // Those that wait to be sent are sent with these.
        let waits = further.asked > further.sent;
        further.asked = further.asked.max(rows);
        self.pending += u32::from(is_new && !waits);
        Some(is_new && !waits)
    }

    /// Hands out the further rows of a group that were asked for; `None` where they are not needed any more, or there is no memory for them:
    /// then the peer asks for chunks.
    pub(in super::super) fn hand_out_further(
        &mut self,
        io: &mut Io<'_>,
        shape: &Shape,
        encoder: &mut Encoder,
        number: u32,
    ) -> Option<Part> {
        self.pending -= 1;
        let (block, group) = shape.layout.place_of(number);
        let at = block.checked_sub(self.first_block).filter(|_| self.outcome.is_none())? as usize;
        let begun = self.blocks.get_mut(at)?;
        let (block, further) = (begun.shape, &mut begun.further[group as usize]);
        let of = shape.layout.group(&block, group);
        let rows = of.rows + further.sent..of.rows + further.asked;
        let (count, offset) = (rows.len() as u64, u64::from(rows.start) * u64::from(of.row_len));
        // What there is no memory for counts as sent: it is not asked for again.
        further.sent = further.asked;
        let memory = self.bytes(&shape.layout, &block, 0, block.chunks);
        let parity = encoder.further_rows(io.nic, &shape.layout, (&block, group), rows, memory)?;
        io.counters.rows_asked_for += count;
        // How long the answer took says nothing of the round trip.
        self.any_repeated = true;
        Some(self.hand_out_rows(io, shape, (at, group), offset, parity))
    }
}
