//! Packets of XP for the victims, about where their message is, and what the victims' own work says of best effort.

use softnic_nic::transports::BestEffort;
use softnic_wire::Instant;
use softnic_wire::opcode::HeaderSet;
use softnic_wire::xp::{XpCredit, XpEth, XpFeedback, XpReport};

use super::{Fuzz, RECEIVES, Victim};
use crate::common::*;

/// Bits for more packets than any message here has.
const BITMAP: usize = 8;

impl Fuzz {
    /// A packet of the message that the peer is in, of the next one, or of one that is over.
    pub(super) fn best_effort_frame(&mut self, v: usize) -> Vec<u8> {
        let low = [0x04, 0x04, 0x05, 0x0a, 0x0a, 0x0b, 0x0c][self.below(7) as usize];
        let ahead = match self.below(20) {
            0..4 => 1,
            4 => self.below(40) as i32 - 20,
            _ => 0,
        };
        self.victims[v].message += ahead;
        let Victim { message, used, psn, .. } = self.victims[v];
        let mut xp = self.fragment(message);
        xp.receive = (used + self.below(10) / 8) as u16;
        if low != 0x0a && low != 0x0c {
            xp.flags |= XpEth::RECEIVE;
        }
        if low == 0x0c {
            (xp.flags, xp.offset) = (0, 0);
        }
        if ahead < 0 {
            self.victims[v].message = message - ahead;
        }
        self.victims[v].psn += 1;
        let len = if low == 0x0c { 0 } else { 256.min(xp.len.saturating_sub(xp.offset)) };
        // As much as a packet with a stride reaches over.
        let reth_len = if low == 0x0c { xp.len } else { len };
        self.packet_of(v, 0xe0 | low, psn, (len, reth_len), xp)
    }

    /// Data of a READ that the victim may have made, or feedback.
    pub(super) fn best_effort_answer(&mut self, v: usize) -> Vec<u8> {
        let (sent, opcode) = (self.victims[v].sent, if self.chance(50) { 0xf0 } else { 0xf1 });
        let message = sent - self.below(6) as i32;
        let xp = self.fragment(message);
        let len = if opcode == 0xf0 { 256.min(xp.len.saturating_sub(xp.offset)) } else { 0 };
        let psn = sent - self.below(2) as i32;
        self.packet_of(v, opcode, psn, (len, len), xp)
    }

    /// The header of one of its packets: a message has a length by its number, unless somebody lies.
    fn fragment(&mut self, message: i32) -> XpEth {
        let wqe_seq = self.w.options.psn.wrapping_add_signed(message) & 0x00ff_ffff;
        let len = [700, 0, 100, 256, 1024][(wqe_seq % 5) as usize];
        let offset = self.below(len / 256 + 1) * 256;
        let stride = match (len, offset) {
            (1024, 0) if self.chance(50) => 4,
            _ => 1,
        };
        let flags = if offset + 256 >= len { XpEth::LAST } else { 0 };
        let mut xp = XpEth { flags, wqe_seq, offset, len, stride, receive: 0 };
        match self.below(60) {
            0 => xp.wqe_seq = self.below(1 << 24),
            1 => xp.offset = self.numbers.any(),
            2 => xp.len = self.below(3000),
            // Not so many that a WRITE leaves the memory that it may write.
            3 => xp.stride = [0, 2, 3, 4, 4096, 65535][self.below(6) as usize],
            4 => xp.flags ^= XpEth::LAST,
            5 => xp.flags = self.below(256) as u8,
            _ => {}
        }
        xp
    }

    /// The body of feedback or credit, where the headers of a packet have one.
    pub(super) fn report(&mut self, headers: HeaderSet) -> Option<XpReport> {
        let (held, marks, bytes) = (self.below(100_000), self.below(100), self.below(1 << 20).into());
        if headers.contains(HeaderSet::XP_CREDIT) {
            let flags = if marks < 50 { XpCredit::ASKS } else { 0 };
            return Some(XpReport::Credit(XpCredit { flags, giver: 9, granted: held, wanted: self.numbers.any() }));
        }
        let feedback = XpFeedback { held, marks, bytes, credit: 0 };
        headers.contains(HeaderSet::XP_FEEDBACK).then_some(XpReport::Feedback(feedback))
    }

    /// What a work request of a victim with XP says: a deadline, soon, far or over, a stride, a bitmap.
    pub(super) fn promises(&mut self, v: usize) -> Option<BestEffort> {
        if !self.victims[v].best_effort || self.chance(50) {
            return None;
        }
        let now = self.w.now.as_nanos();
        let deadline = match self.below(8) {
            0 => None,
            1 => Some(Instant::from_nanos(now.saturating_sub(1000))),
            2 => Some(Instant::from_nanos(now + 3_000_000_000)),
            _ => Some(Instant::from_nanos(now + u64::from(self.below(300_000)))),
        };
        let stride = [0, 1, 2, 4, 256, 2048, 3][self.below(7) as usize];
        let bitmap = self.chance(30).then(|| self.w.sge(B, RECEIVES.end - BITMAP, BITMAP));
        Some(BestEffort { deadline, stride, bitmap })
    }
}
