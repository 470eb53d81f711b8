//! How the 32 bits of a packet's immediate data are divided: number of the message, number of the packet in it, a piece of the program's
//! own immediate (SDR-RDMA §3.2.4).

use core::fmt;
use core::str::FromStr;

/// Bits of the immediate, from the highest down: message, packet, user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Split {
    message: u8,
    packet: u8,
    user: u8,
}

/// Why bits cannot be divided like that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "immediate data is divided into three numbers that add up to 32, the first two at least 1, as in 10+18+4 or 8+22+2"
)]
pub struct SplitError;

impl Split {
    /// As the paper has it: 1024 messages, of up to 1 GiB at a path MTU of 4096.
    pub const PAPER: Split = Split { message: 10, packet: 18, user: 4 };

    /// So many bits each.
    pub const fn new(message: u8, packet: u8, user: u8) -> Result<Split, SplitError> {
        let adds_up = message as u32 + packet as u32 + user as u32 == 32;
        if adds_up && message > 0 && packet > 0 { Ok(Split { message, packet, user }) } else { Err(SplitError) }
    }

    /// Bits of the message, the packet and the user's part.
    pub const fn bits(self) -> [u8; 3] {
        [self.message, self.packet, self.user]
    }

    /// Messages that can be told apart.
    pub const fn messages(self) -> u64 {
        1 << self.message
    }

    /// Packets that a message can have.
    pub const fn packets(self) -> u64 {
        1 << self.packet
    }

    /// Pieces that the user's immediate goes in; none where it has no bits.
    pub const fn pieces(self) -> u32 {
        if self.user == 0 { 0 } else { 32u32.div_ceil(self.user as u32) }
    }

    /// The immediate of a packet.
    #[inline]
    pub const fn pack(self, message: u32, packet: u32, piece: u32) -> u32 {
        message << (32 - self.message) | packet << self.user | piece
    }

    /// Message, packet and piece of an immediate.
    #[inline]
    pub const fn unpack(self, imm: u32) -> (u32, u32, u32) {
        let message = imm >> (32 - self.message);
        let packet = (imm >> self.user) & (u32::MAX >> (32 - self.packet));
        (message, packet, imm & ((1 << self.user) - 1))
    }

    /// The piece of the user's immediate that a packet has: each packet has one, in turn, so that a lost packet of a long message takes
    /// nothing of it away.
    #[inline]
    pub const fn piece(self, user: u32, packet: u32) -> u32 {
        match self.pieces() {
            0 => 0,
            n => user >> ((packet % n) * self.user as u32) & ((1 << self.user) - 1),
        }
    }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}+{}", self.message, self.packet, self.user)
    }
}

impl FromStr for Split {
    type Err = SplitError;

    fn from_str(text: &str) -> Result<Split, SplitError> {
        let mut bits = text.split('+').map(|n| n.trim().parse());
        match (bits.next(), bits.next(), bits.next(), bits.next()) {
            (Some(Ok(message)), Some(Ok(packet)), Some(Ok(user)), None) => Split::new(message, packet, user),
            _ => Err(SplitError),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn splits_are_read_and_written_and_what_does_not_add_up_is_refused() {
        for text in ["10+18+4", "8+22+2", "16+12+4", "1+31+0", "31+1+0", "2+28+2"] {
            assert_eq!(text.parse::<Split>().unwrap().to_string(), text);
        }
        for text in ["", "10+18", "10+18+5", "0+28+4", "32+0+0", "10+18+4+0", "a+b+c", "-1+29+4", "255+255+34"] {
            assert_eq!(text.parse::<Split>(), Err(SplitError), "{text}");
        }
        assert_eq!((Split::PAPER.messages(), Split::PAPER.packets() * 4096, Split::PAPER.pieces()), (1024, 1 << 30, 8));
        assert_eq!("8+22+2".parse::<Split>().unwrap().pieces(), 16);
        assert_eq!(Split::PAPER.pack(1, 2, 3), 1 << 22 | 2 << 4 | 3);
    }

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked(m in 1u8..=31, p in 1u8..=31, values: [u32; 3], user: u32, at in 0u32..100_000) {
            prop_assume!(m + p <= 32);
            let split = Split::new(m, p, 32 - m - p).unwrap();
            let [a, b, c] = split.bits().map(|n| ((1u64 << n) - 1) as u32);
            let parts = (values[0] & a, values[1] & b, values[2] & c);
            prop_assert_eq!(split.unpack(split.pack(parts.0, parts.1, parts.2)), parts);
            // Any packets in a row that are as many as there are pieces have all of the user's immediate.
            let mut found = 0u32;
            for i in 0..split.pieces() {
                let shift = (at + i) % split.pieces() * u32::from(split.bits()[2]);
                found |= split.piece(user, at + i) << shift;
            }
            prop_assert_eq!(found, if split.pieces() == 0 { 0 } else { user });
        }
    }
}
