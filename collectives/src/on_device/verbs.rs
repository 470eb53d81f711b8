//! The verbs of a rank on a NIC of the runtime.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant as Clock;

use softnic_runtime::api::{
    Access, CompletionQueue, Context, MemoryRegion, ProtectionDomain, QpOptions, Qpn, QueuePair,
};
use softnic_transports::qp::Caps;
use softnic_transports::{BestEffort, Completion, PostError, RecvWr, SendWr, Transport};
use softnic_wire::Instant;

use super::error::{DeviceError, refused};
use crate::endpoint::{Memory, Verbs};
use crate::fabric::Refused;
use crate::run::Options;

/// The verbs of a rank on a NIC of the runtime.
pub(super) struct DeviceVerbs {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    pub(super) queue_pairs: BTreeMap<u32, QueuePair>,
    regions: BTreeMap<u32, MemoryRegion>,
    /// When the group's time began.
    began: Clock,
}

impl DeviceVerbs {
    /// Room for so many completions; time counts from `began`.
    pub(super) fn new(context: &Context, completions: usize, began: Clock) -> Result<DeviceVerbs, DeviceError> {
        Ok(DeviceVerbs {
            pd: context.alloc_pd(),
            cq: context.create_cq(completions).map_err(refused)?,
            queue_pairs: BTreeMap::new(),
            regions: BTreeMap::new(),
            began,
        })
    }

    /// A queue pair that is not connected yet: for words where it takes bytes inline, else for data.
    pub(super) fn make(&self, options: &Options, transport: Transport, caps: Caps) -> Result<QueuePair, DeviceError> {
        let usual = QpOptions::new(transport.kind(), &self.cq);
        let cc = if caps.max_inline > 0 || !options.cc.is_for(transport) { usual.cc } else { options.cc };
        let qp = QpOptions { caps, transport, cc, sig_all: false, ..usual };
        self.pd.create_qp(&qp).map_err(refused)
    }
}

impl Verbs for &mut DeviceVerbs {
    fn has_payload(&self) -> bool {
        true
    }

    fn register(&mut self, _: u64, len: u64, _: bool) -> Result<Memory, Refused> {
        let region = self.pd.alloc_mr(len.max(8) as usize, Access::LOCAL_WRITE).map_err(|e| Refused(e.to_string()))?;
        let memory = Memory { base: region.addr(), key: region.lkey(), buffer: Some(Arc::clone(region.buffer())) };
        self.regions.insert(memory.key, region);
        Ok(memory)
    }

    fn deregister(&mut self, memory: &Memory) -> Result<(), Refused> {
        self.regions.remove(&memory.key);
        Ok(())
    }

    fn open_key(&mut self, memory: &Memory) -> Result<u32, Refused> {
        let Some(buffer) = &memory.buffer else { return Err(Refused("memory without bytes".into())) };
        let region = self.pd.reg_mr(buffer, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
        let region = region.map_err(|e| Refused(e.to_string()))?;
        let key = region.rkey();
        self.regions.insert(key, region);
        Ok(key)
    }

    fn close_key(&mut self, key: u32) {
        // The last clone: when it is gone no engine uses the memory by this key any more.
        self.regions.remove(&key);
    }

    fn post_receive(&mut self, now: Instant, qpn: Qpn, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let qp = self.queue_pairs.get(&qpn.value()).ok_or(PostError::State)?;
        match wr.best_effort {
            Some(BestEffort { deadline: Some(at), .. }) => qp.post_recv_within(wr, at.saturating_since(now)),
            _ => qp.post_recv(wr),
        }
    }

    fn post_send(&mut self, now: Instant, qpn: Qpn, wr: &SendWr<'_>) -> Result<(), PostError> {
        let qp = self.queue_pairs.get(&qpn.value()).ok_or(PostError::State)?;
        match wr.best_effort {
            Some(BestEffort { deadline: Some(at), .. }) => qp.post_send_within(wr, at.saturating_since(now)),
            _ => qp.post_send(wr),
        }
    }

    fn poll(&mut self) -> Option<Completion> {
        self.cq.poll_one().ok().flatten()
    }

    fn clock(&self) -> Option<Instant> {
        Some(Instant::ZERO + self.began.elapsed())
    }
}
