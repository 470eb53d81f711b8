//! What ranks say to each other beside the data: each message is 48 bytes on the reliable queue pair.
//!
//! | bytes | Hello | Ready | Abort | Tail | Keys |
//! |---|---|---|---|---|---|
//! | 0 | 1 | 2 | 3 | 4 | 5 |
//! | 1 | version, 1 | | | | |
//! | 2, 3, 4, 5 | operation, algorithm, type, reduction | 0 | 0 | 0 | messages, 1 or 2; 0; 0; 0 |
//! | 6..8 | 0 | | | | |
//! | 8..16 | which collective of the group, from 0 | | | | |
//! | 16..20 | ranks of the group | 0 | the rank that is to blame | 0 | the first message, from 0 |
//! | 20..24 | root | 0 | 0 | 0 | its key |
//! | 24..32 | bytes of the buffer | 0 | 0 | 0 | its address |
//! | 32..36 | proposal in ns, 32..40; all ones for none | 0 | 0 | 0 | the key of the next, or 0 |
//! | 36..44 | | 0 | 0 | 0 | its address, or 0 |
//! | 44..48 | 0 | | | | |
//!
//! Numbers are big-endian. What is anything else is no message, and counted. A Tail follows each other message and says nothing: by the gap
//! before it the peer sees in a round trip that the message was lost, where silence would last until the ACK timeout.

use crate::call::{Algorithm, Call, Element, Operation, Reduction};
use crate::fabric::Window;

/// Messages whose keys one Keys tells, at most.
pub const KEYS: usize = 2;
/// Bytes of a message.
pub const LEN: usize = 48;
const VERSION: u8 = 1;

/// A message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// The rank begins a collective.
    Hello {
        /// Which, from 0.
        number: u64,
        /// What it calls.
        call: Call,
        /// Ranks of its group.
        ranks: u32,
        /// The time that it proposes for this collective, in nanoseconds, if it has news (§3.1.2).
        proposal: Option<u64>,
    },
    /// The rank has posted its receives: messages may come.
    Ready {
        /// Which collective.
        number: u64,
    },
    /// The rank gives up.
    Abort {
        /// Which collective.
        number: u64,
        /// On account of which rank.
        culprit: u32,
    },
    /// Where messages to this rank go, and by which key, of those whose senders have to know; before its Ready.
    Keys {
        /// Which collective.
        number: u64,
        /// The first message of them: the n-th from the rank that is told to this one, from 0.
        first: u32,
        /// Where it and the next one go.
        windows: [Option<Window>; KEYS],
    },
    /// Nothing.
    Tail {
        /// Which collective.
        number: u64,
    },
}

impl Control {
    /// As bytes.
    pub fn emit(&self) -> [u8; LEN] {
        let mut out = [0; LEN];
        let (kind, number) = match self {
            Control::Hello { number, .. } => (1, number),
            Control::Ready { number } => (2, number),
            Control::Abort { number, .. } => (3, number),
            Control::Tail { number } => (4, number),
            Control::Keys { number, .. } => (5, number),
        };
        [out[0], out[1]] = [kind, VERSION];
        out[8..16].copy_from_slice(&number.to_be_bytes());
        match self {
            Control::Hello { call, ranks, proposal, .. } => {
                let (operation, root) = match call.operation {
                    Operation::AllReduce => (0, 0),
                    Operation::ReduceScatter => (1, 0),
                    Operation::AllGather => (2, 0),
                    Operation::AllToAll => (3, 0),
                    Operation::Broadcast { root } => (4, root as u32),
                    Operation::Barrier => (5, 0),
                };
                out[2..6].copy_from_slice(&[operation, call.algorithm as u8, call.element as u8, call.reduction as u8]);
                out[16..20].copy_from_slice(&ranks.to_be_bytes());
                out[20..24].copy_from_slice(&root.to_be_bytes());
                out[24..32].copy_from_slice(&call.bytes.to_be_bytes());
                out[32..40].copy_from_slice(&proposal.unwrap_or(u64::MAX).to_be_bytes());
            }
            Control::Abort { culprit, .. } => out[16..20].copy_from_slice(&culprit.to_be_bytes()),
            Control::Keys { first, windows, .. } => {
                out[2] = windows.iter().flatten().count() as u8;
                out[16..20].copy_from_slice(&first.to_be_bytes());
                for (i, window) in windows.iter().enumerate() {
                    let Window { addr, key } = window.unwrap_or(Window { addr: 0, key: 0 });
                    out[20 + 12 * i..24 + 12 * i].copy_from_slice(&key.to_be_bytes());
                    out[24 + 12 * i..32 + 12 * i].copy_from_slice(&addr.to_be_bytes());
                }
            }
            Control::Ready { .. } | Control::Tail { .. } => {}
        }
        out
    }

    /// From bytes; `None` where they are no message.
    pub fn parse(bytes: &[u8]) -> Option<Control> {
        let bytes: &[u8; LEN] = bytes.try_into().ok()?;
        let long = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| bytes[at + i]));
        let word = |at: usize| u32::from_be_bytes(std::array::from_fn(|i| bytes[at + i]));
        let number = long(8);
        let message = match bytes[0] {
            1 => {
                let call = Call {
                    operation: match bytes[2] {
                        0 => Operation::AllReduce,
                        1 => Operation::ReduceScatter,
                        2 => Operation::AllGather,
                        3 => Operation::AllToAll,
                        4 => Operation::Broadcast { root: word(20) as usize },
                        5 => Operation::Barrier,
                        _ => return None,
                    },
                    algorithm: *[Algorithm::Ring, Algorithm::Tree, Algorithm::Bcube].get(usize::from(bytes[3]))?,
                    element: *[Element::F32, Element::F16, Element::Bf16, Element::I32].get(usize::from(bytes[4]))?,
                    reduction: *[Reduction::Sum, Reduction::Min, Reduction::Max].get(usize::from(bytes[5]))?,
                    bytes: long(24),
                };
                let proposal = Some(long(32)).filter(|ns| *ns != u64::MAX);
                Control::Hello { number, call, ranks: word(16), proposal }
            }
            2 => Control::Ready { number },
            3 => Control::Abort { number, culprit: word(16) },
            4 => Control::Tail { number },
            5 if (1..=KEYS).contains(&usize::from(bytes[2])) => {
                let window = |i: usize| Window { key: word(20 + 12 * i), addr: long(24 + 12 * i) };
                let windows = std::array::from_fn(|i| (i < usize::from(bytes[2])).then(|| window(i)));
                Control::Keys { number, first: word(16), windows }
            }
            _ => return None,
        };
        // Each message has one form.
        (message.emit() == *bytes).then_some(message)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let call = Call {
            operation: Operation::Broadcast { root: 5 },
            algorithm: Algorithm::Bcube,
            element: Element::I32,
            reduction: Reduction::Max,
            bytes: 1 << 40,
        };
        let hello = Control::Hello { number: 7, call, ranks: 9, proposal: Some(12_345) };
        for message in [
            hello,
            Control::Ready { number: u64::MAX },
            Control::Abort { number: 3, culprit: 8 },
            Control::Tail { number: 9 },
            Control::Keys { number: 2, first: 6, windows: [Some(Window { addr: 1 << 50, key: 7 }), None] },
            Control::Keys { number: 2, first: 6, windows: [Some(Window { addr: 9, key: u32::MAX }); 2] },
        ] {
            assert_eq!(Control::parse(&message.emit()), Some(message));
        }
        assert_eq!(Control::parse(&hello.emit()[..LEN - 1]), None);
    }

    proptest! {
        #[test]
        fn whatever_is_taken_for_a_message_is_one(bytes in proptest::array::uniform32(any::<u8>()), kind in 0u8..7) {
            let mut message = [0; LEN];
            message[8..40].copy_from_slice(&bytes);
            [message[0], message[1], message[2]] = [kind, 1, bytes[0] % 8];
            if let Some(control) = Control::parse(&message) {
                prop_assert_eq!(control.emit(), message);
            }
        }
    }
}
