//! The messages between the two ends that carry no data: which receives are posted, and the question for it (SDR-RDMA §3.2.3).
//!
//! They go over an unreliable connection of their own. Each says all that the ones before it said, so a lost one costs time and nothing
//! else.

/// Bytes of a message.
pub const LEN: usize = 24;
/// The version of these bytes.
const VERSION: u8 = 1;

/// What a message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Clear to send: so many receives were posted since the beginning.
    Cts,
    /// The sender waits: it knows of so many.
    Ask,
}

/// A control message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control {
    /// What it says.
    pub kind: Kind,
    /// The token of the end that it is for.
    pub token: u32,
    /// Counts the messages of its sender, so that tools can tell a repeated one from one that came twice.
    pub sequence: u32,
    /// Receives.
    pub count: u64,
}

impl Control {
    /// The bytes.
    pub fn encode(&self) -> [u8; LEN] {
        let mut b = [0; LEN];
        b[0] = VERSION;
        b[1] = match self.kind {
            Kind::Cts => 1,
            Kind::Ask => 2,
        };
        b[4..8].copy_from_slice(&self.token.to_be_bytes());
        b[8..12].copy_from_slice(&self.sequence.to_be_bytes());
        b[16..24].copy_from_slice(&self.count.to_be_bytes());
        b
    }

    /// Reads the bytes; `None` where they are no message of this version.
    pub fn decode(b: &[u8]) -> Option<Control> {
        let b = b.first_chunk::<LEN>().filter(|_| b.len() == LEN && b[0] == VERSION)?;
        let kind = match b[1] {
            1 => Kind::Cts,
            2 => Kind::Ask,
            _ => return None,
        };
        let word = |at: usize| u32::from_be_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        Some(Control {
            kind,
            token: word(4),
            sequence: word(8),
            count: u64::from(word(16)) << 32 | u64::from(word(20)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_byte_for_byte() {
        let cts = Control { kind: Kind::Cts, token: 0x0102_0304, sequence: 7, count: 0x1_0000_0002 };
        let bytes = cts.encode();
        assert_eq!(bytes, [1, 1, 0, 0, 1, 2, 3, 4, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2]);
        assert_eq!(Control::decode(&bytes), Some(cts));
        assert_eq!(Control::decode(&bytes[..23]), None);
        assert_eq!(Control::decode(&[&bytes[..], &[0]].concat()), None);
        for (at, byte) in [(0, 2), (1, 0), (1, 3)] {
            let mut wrong = bytes;
            wrong[at] = byte;
            assert_eq!(Control::decode(&wrong), None);
        }
    }
}
