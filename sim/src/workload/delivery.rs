//! What arrives of messages that nobody acknowledges: which of them, when, and with the right bytes in the right place.

use std::collections::VecDeque;

use softnic_nic::transports::{Completion, Status};

use super::{A, B, Flow, Op, Run, SimError};

/// A message that so many others have overtaken counts as lost.
const SLACK: u64 = 1 << 16;

/// Messages that were sent and have not arrived: when each was posted, in order.
#[derive(Default)]
pub(super) struct UnderWay {
    posted_at: VecDeque<Option<u64>>,
    /// The number of the oldest.
    first: u64,
}

impl UnderWay {
    pub(super) fn post(&mut self, now: u64) {
        self.posted_at.push_back(Some(now));
    }

    /// A message arrived that says it is number `imm`, as far as 32 bits tell; its number, and when it was posted. `None`
    /// when it came before: the link sends some twice.
    fn arrive(&mut self, imm: u32) -> Option<(u64, u64)> {
        let ahead = u64::from(imm.wrapping_sub(self.first as u32));
        let number = self.first + ahead;
        let at = self.posted_at.get_mut(ahead as usize)?.take()?;
        while self.posted_at.front().is_some_and(|p| p.is_none() || self.first + SLACK < number) {
            self.posted_at.pop_front();
            self.first += 1;
        }
        Some((number, at))
    }
}

impl Run<'_, '_> {
    /// A receive of the second host completed.
    pub(super) fn count_delivery(&mut self, c: Completion) -> Result<(), SimError> {
        let (qp, slot) = ((c.wr_id >> 40) as usize, c.wr_id & 0xff_ffff_ffff);
        let now = self.pair.sim.now().instant().as_nanos();
        self.pair.sim.record(c.wr_id ^ (now << 20) ^ ((c.status as u64) << 60));
        if c.status != Status::Success {
            return Ok(());
        }
        let Some((number, posted_at)) = c.imm.and_then(|imm| self.flows[qp].under_way.arrive(imm)) else {
            return Ok(());
        };
        self.done += 1;
        self.last_completion = now;
        self.times.record(now - posted_at);
        let from = number % self.slots;
        let to = if self.options.op == Op::Write { from } else { slot };
        self.compare(qp, from, to)
    }

    /// The message just received must be what was sent: what lies in a slot of the sender never changes.
    fn compare(&self, qp: usize, from: u64, to: u64) -> Result<(), SimError> {
        let Flow { buffers: Some([sent, received]), .. } = &self.flows[qp] else { return Ok(()) };
        let (mut a, mut b) = ([0; 4096], [0; 4096]);
        let size = self.options.size as usize;
        let (from, to) = ((from * self.stride[A]) as usize, (to * self.stride[B]) as usize + self.header);
        for at in (0..size).step_by(a.len()) {
            let n = a.len().min(size - at);
            sent.read_at(from + at, &mut a[..n]);
            received.read_at(to + at, &mut b[..n]);
            if a[..n] != b[..n] {
                return Err(SimError::Data { qp, slot: from / size });
            }
        }
        Ok(())
    }
}
