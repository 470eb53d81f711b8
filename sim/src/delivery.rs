//! Messages that nobody acknowledges: which of them arrived, when, and whether with the bytes that were sent.

use std::collections::VecDeque;
use std::sync::Arc;

use softnic_nic::Buffer;

/// A message that so many others have overtaken counts as lost.
const SLACK: u64 = 1 << 16;

/// Messages that were sent and have not arrived: when each was posted, in order.
#[derive(Default)]
pub(crate) struct UnderWay {
    posted_at: VecDeque<Option<u64>>,
    /// The number of the oldest.
    first: u64,
}

impl UnderWay {
    pub(crate) fn post(&mut self, now: u64) {
        self.posted_at.push_back(Some(now));
    }

    /// A message arrived that says it is number `imm`, as far as 32 bits tell; its number, and when it was posted. `None`
    /// when it came before: the link sends some twice.
    pub(crate) fn arrive(&mut self, imm: u32) -> Option<(u64, u64)> {
        let ahead = u64::from(imm.wrapping_sub(self.first as u32));
        let number = self.first + ahead;
        let at = self.posted_at.get_mut(ahead as usize)?.take()?;
        while self.posted_at.front().is_some_and(|p| p.is_none() || self.first + SLACK < number) {
            self.posted_at.pop_front();
            self.first += 1;
        }
        Some((number, at))
    }

    /// Whether all that was posted has arrived, or counts as lost.
    pub(crate) fn is_empty(&self) -> bool {
        self.posted_at.is_empty()
    }
}

/// Whether `len` bytes at offset `from` of what was sent are those at offset `to` of what was received.
pub(crate) fn same_bytes([sent, received]: [&Arc<Buffer>; 2], from: usize, to: usize, len: usize) -> bool {
    let (mut a, mut b) = ([0; 4096], [0; 4096]);
    (0..len).step_by(a.len()).all(|at| {
        let n = a.len().min(len - at);
        sent.read_at(from + at, &mut a[..n]);
        received.read_at(to + at, &mut b[..n]);
        a[..n] == b[..n]
    })
}
