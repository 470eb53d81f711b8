//! The end of a run: what it came to, and whether the receiver's memory is what was sent.

use super::Run;
use super::options::{Op, SimError};
use crate::pair::{A, B};
use crate::report::Report;

impl Run<'_, '_> {
    pub(super) fn report(&mut self) -> Result<Report, SimError> {
        // What nobody acknowledges was looked at when it came.
        if self.failed == 0 && !self.stalled && !self.interrupted && self.is_reliable() {
            self.verify()?;
        }
        let o = self.options;
        let seconds = self.last_completion.saturating_sub(self.start) as f64 / 1e9;
        let per_second = |bits: f64| if seconds > 0.0 { bits / seconds } else { 0.0 };
        let links = self.hosts.links().map(|link| self.hosts.sim().link_stats(link));
        // The link that carries the payload.
        let sent = links[usize::from(o.op == Op::Read)];
        let [requester, responder] = [A, B].map(|host| self.hosts.counters(host));
        let mut applied_events = vec![0; o.faults.script.events.len()];
        let of = self.hosts.links();
        self.hosts.sim().count_applied(&of, &mut applied_events);
        let bounded = o.transport.is_bounded();
        let bytes = if bounded { self.delivered.bytes as f64 } else { self.done as f64 * f64::from(o.size) };
        Ok(Report {
            goodput_gbps: per_second(bytes * 8.0) / 1e9,
            link_utilization: per_second(sent.wire_bytes as f64 * 8.0) / o.rate as f64,
            completion_times: self.times.clone(),
            completed: self.done,
            delivered: bounded.then_some(self.delivered),
            chunks: None,
            reliability: None,
            failed: self.failed,
            stalled: self.stalled,
            interrupted: self.interrupted,
            first_failure: self.first_failure,
            tx_packets: requester.sent_requests + requester.retransmitted_packets + requester.lowar_repairs_sent,
            retransmitted_packets: requester.retransmitted_packets,
            virtual_ms: self.last_completion as f64 / 1e6,
            digest: self.hosts.sim().digest(),
            requester,
            responder,
            applied_events,
            links,
            failover: self.hosts.failover(o),
        })
    }

    /// The receiver's memory must be what was sent, slot by slot.
    fn verify(&self) -> Result<(), SimError> {
        let size = self.options.size as usize;
        let (mut sent, mut received) = ([0; 4096], [0; 4096]);
        for (qp, flow) in self.flows.iter().enumerate() {
            let Some([from, to]) = &flow.buffers else { continue };
            let used = self.slots.min(flow.posted) as usize * size;
            for at in (0..used).step_by(sent.len()) {
                let n = sent.len().min(used - at);
                from.read_at(at, &mut sent[..n]);
                to.read_at(at, &mut received[..n]);
                if self.options.op == Op::Atomic {
                    for (i, word) in sent[..n].as_chunks_mut::<8>().0.iter_mut().enumerate() {
                        // Each slot was added to once for each work request on it.
                        let slot = (at / 8 + i) as u64;
                        *word = ((flow.posted - 1 - slot) / self.slots + 1).to_ne_bytes();
                    }
                }
                if sent[..n] != received[..n] {
                    return Err(SimError::Data { qp, slot: at / size });
                }
            }
        }
        Ok(())
    }
}
