//! Completion queues on the engine's side: the rings that programs poll, and the transfer of completions into them.

use std::sync::Arc;

use softnic_nic::Notify;
use softnic_nic::transports::{Completion, CqId, Status};
use softnic_shift::DualNic;
use softnic_sync::cq_arm::Batch;
use softnic_sync::ring::Producer;

use crate::api::cq_shared::CqShared;

/// The engine's end of a completion queue.
pub(crate) struct CqOut {
    pub(crate) ring: Producer<Completion>,
    /// The index of this engine among the engines of its NIC.
    pub(crate) engine: usize,
    pub(crate) shared: Arc<CqShared>,
}

/// All completion queues of an engine.
#[derive(Default)]
pub(super) struct Completions {
    cqs: Vec<Option<CqOut>>,
    /// Completion queues whose ring was full.
    full: Vec<CqId>,
}

impl Completions {
    pub(super) fn add(&mut self, id: CqId, out: CqOut) {
        let at = id.0 as usize;
        if at >= self.cqs.len() {
            self.cqs.resize_with(at + 1, || None);
        }
        self.cqs[at] = Some(out);
    }

    /// Switches a completion queue to another ring.
    pub(super) fn replace_ring(&mut self, id: CqId, ring: Producer<Completion>) {
        if let Some(Some(out)) = self.cqs.get_mut(id.0 as usize) {
            out.ring = ring;
        }
    }

    pub(super) fn remove(&mut self, id: CqId) {
        if let Some(place) = self.cqs.get_mut(id.0 as usize) {
            *place = None;
        }
        self.full.retain(|&full| full != id);
    }

    /// Whether completions wait for room in a ring.
    pub(super) fn any_full(&self) -> bool {
        !self.full.is_empty()
    }

    /// The completion queues that have no room now. The rings are checked again here: when a program polls a completion and then posts a
    /// work request, the next incoming frame may be for that request, and the full ring of before must not delay it.
    #[inline]
    pub(super) fn still_full(&mut self, node: &mut DualNic) -> &[CqId] {
        for i in (0..self.full.len()).rev() {
            let id = self.full.swap_remove(i);
            self.hand_out_of(node, id);
        }
        &self.full
    }

    /// Moves all completions into the rings of the program, as far as there is room.
    #[inline]
    pub(super) fn hand_out(&mut self, node: &mut DualNic) {
        self.still_full(node);
        while let Some(id) = node.nic.poll_completion_event() {
            self.hand_out_of(node, id);
        }
    }

    fn hand_out_of(&mut self, node: &mut DualNic, id: CqId) {
        let Some(Some(out)) = self.cqs.get_mut(id.0 as usize) else { return };
        let mut batch = Batch { first: out.ring.written(), solicited: None };
        loop {
            if out.ring.room() == 0 {
                self.full.push(id);
                break;
            }
            match node.poll_cq(id) {
                Ok(Some(completion)) => {
                    let solicited = completion.solicited || completion.status != Status::Success;
                    // There is room: it was checked above.
                    let _ = out.ring.push(completion);
                    if solicited {
                        batch.solicited = Some(out.ring.written());
                    }
                }
                Ok(None) => {
                    let _ = node.nic.req_notify_cq(id, Notify::Next);
                    break;
                }
                Err(_) => {
                    out.shared.set_overflowed();
                    break;
                }
            }
        }
        if out.ring.written() != batch.first {
            out.shared.on_completions(out.engine, batch);
        }
    }
}
