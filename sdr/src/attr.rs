//! The attributes of an SDR queue pair, and what must fit together.

use softnic_wire::PathMtu;
pub use softnic_wire::sdr::{MAX_CHANNELS, MAX_GENERATIONS, MAX_SLOTS, packets};

pub(crate) use softnic_wire::sdr::Split;
use softnic_wire::sdr::control;

use crate::reliable::Scheme;

/// What an SDR queue pair is made with. Both ends have the same path MTU, generations and channels; all else is the receiver's to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpAttr {
    /// Bytes of the longest message that is received.
    pub max_message: u64,
    /// Bytes that a bit of the bitmap stands for: a multiple of the path MTU.
    pub chunk: u32,
    /// The division of immediates.
    pub split: Split,
    /// Receives that can be posted at a time.
    pub slots: u32,
    /// How often the numbers of messages may come round before a late packet can be taken for one of a later message.
    pub generations: u8,
    /// Queue pairs that the packets of a message go by in turn.
    pub channels: u8,
    /// Path MTU.
    pub mtu: PathMtu,
    /// Each generation has a root key of its own, so that a late packet is discarded, and not written into the buffer that has its slot
    /// now. The paper has one key for all.
    pub key_per_generation: bool,
    /// What is late, came before or is a lie is dropped before it is placed. A NIC that is not ours cannot do that.
    pub screened: bool,
    /// Work requests that each queue pair holds.
    pub send_depth: u32,
    /// Bytes of the longest control message: more than those of the SDK where something on top of it has its own.
    pub control_len: u32,
}

impl Default for QpAttr {
    fn default() -> QpAttr {
        QpAttr {
            max_message: 16 << 20,
            chunk: 64 << 10,
            split: Split::PAPER,
            slots: 64,
            generations: 4,
            channels: 1,
            mtu: PathMtu::B4096,
            key_per_generation: true,
            screened: true,
            send_depth: 256,
            control_len: control::LEN as u32,
        }
    }
}

/// What does not fit together, and what would.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AttrError {
    /// A chunk is whole packets.
    #[error("a chunk of {0} bytes is no multiple of the path MTU {1}: {2} is")]
    Chunk(u32, u32, u32),
    /// The split has too few bits for the packets of the longest message.
    #[error("a message of {0} bytes has {1} packets of {2}, and {3} has numbers for {4}: it takes {5} bits")]
    Packets(u64, u64, u32, Split, u64, u32),
    /// The split has too few bits for the receives.
    #[error("{0} receives need {2} bits, and {1} has {3}")]
    Slots(u32, Split, u32, u32),
    /// A number is out of its range.
    #[error("{0} is from {1} to {2}, not {3}")]
    Range(&'static str, u64, u64, u64),
    /// Further rows of parity, of a scheme that has none.
    #[error("further rows of parity are for sdr-ec: {0} has none")]
    Rows(Scheme),
}

impl QpAttr {
    /// What does not fit together, if anything.
    pub fn check(&self) -> Result<(), AttrError> {
        let range = |what, from: u64, to: u64, n: u64| match (from..=to).contains(&n) {
            true => Ok(()),
            false => Err(AttrError::Range(what, from, to, n)),
        };
        range("the number of generations", 1, MAX_GENERATIONS.into(), self.generations.into())?;
        range("the number of channels", 1, MAX_CHANNELS.into(), self.channels.into())?;
        range("the number of receives", 1, MAX_SLOTS.into(), self.slots.into())?;
        range("the number of work requests", 1, 1 << 16, self.send_depth.into())?;
        range("the longest control message", control::LEN as u64, self.mtu.bytes().into(), self.control_len.into())?;
        range("the longest message", 1, 1 << 40, self.max_message)?;
        let mtu = self.mtu.bytes();
        if self.chunk == 0 || !self.chunk.is_multiple_of(mtu) {
            let next = self.chunk.max(1).div_ceil(mtu).saturating_mul(mtu);
            return Err(AttrError::Chunk(self.chunk, mtu, next));
        }
        let packets = packets(self.max_message, self.mtu).max(self.split.pieces().into());
        if packets > self.split.packets() {
            let bits = u64::BITS - (packets - 1).leading_zeros();
            return Err(AttrError::Packets(self.max_message, packets, mtu, self.split, self.split.packets(), bits));
        }
        if u64::from(self.slots) > self.split.messages() {
            let bits = u32::BITS - (self.slots - 1).leading_zeros();
            return Err(AttrError::Slots(self.slots, self.split, bits, self.split.bits()[0].into()));
        }
        Ok(())
    }

    /// Bytes of a slot of the root key: each begins where packets of all its messages fit.
    pub fn slot_len(&self) -> u64 {
        let packets = packets(self.max_message, self.mtu).max(self.split.pieces().into());
        (packets * u64::from(self.mtu.bytes())).next_power_of_two()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_with_what_would() {
        let good = QpAttr::default();
        assert_eq!(good.check(), Ok(()));
        let said = |attr: QpAttr| attr.check().unwrap_err().to_string();
        assert_eq!(
            said(QpAttr { chunk: 5000, ..good }),
            "a chunk of 5000 bytes is no multiple of the path MTU 4096: 8192 is"
        );
        assert_eq!(
            said(QpAttr { chunk: 0, ..good }),
            "a chunk of 0 bytes is no multiple of the path MTU 4096: 4096 is"
        );
        assert_eq!(
            said(QpAttr { max_message: 2 << 30, ..good }),
            "a message of 2147483648 bytes has 524288 packets of 4096, and 10+18+4 has numbers for 262144: it takes 19 bits"
        );
        assert_eq!(said(QpAttr { slots: 1025, ..good }), "1025 receives need 11 bits, and 10+18+4 has 10");
        assert_eq!(said(QpAttr { channels: 0, ..good }), "the number of channels is from 1 to 16, not 0");
        assert_eq!(said(QpAttr { generations: 17, ..good }), "the number of generations is from 1 to 16, not 17");
        let largest = QpAttr { max_message: 1 << 30, slots: 1024, ..good };
        assert_eq!((largest.check(), largest.slot_len()), (Ok(()), 1 << 30));
        assert_eq!(QpAttr { max_message: 4097, ..good }.slot_len(), 8 * 4096, "the pieces of an immediate fit, too");
    }
}
