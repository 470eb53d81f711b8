//! A host on a link with priority-based flow control: frames of a priority that its switch has paused wait.

use std::collections::VecDeque;

use softnic_nic::Nic;
use softnic_switch::pfc::Paused;
use softnic_wire::pause::{self, PRIORITIES};
use softnic_wire::{Instant, Layout, Node, TxFrame};

use crate::node::SimNode;

/// Frames of one priority that wait here. When there are as many the NIC is asked for no more, of whatever priority: a NIC does not know of
/// priorities, so this is its send queue for each of them.
const MAX_WAITING: usize = 1024;

/// A frame that the NIC sent, its length on the wire, and its place in the order of all.
struct Waiting {
    order: u64,
    frame: Vec<u8>,
    wire_len: usize,
}

/// A host, and what its switch has paused. It never pauses the switch: a NIC takes in what comes at once.
pub(crate) struct PausedHost {
    host: Box<dyn SimNode>,
    rate: u64,
    paused: Paused,
    waiting: [VecDeque<Waiting>; PRIORITIES],
    next: u64,
}

impl PausedHost {
    /// On a link of this rate.
    pub(crate) fn new(host: Box<dyn SimNode>, rate: u64) -> PausedHost {
        PausedHost { host, rate, paused: Paused::default(), waiting: Default::default(), next: 0 }
    }

    /// The oldest frame that waits for nothing any more.
    fn take(&mut self, now: Instant) -> Option<Waiting> {
        let heads = self.waiting.iter_mut().enumerate().filter(|(priority, _)| !self.paused.is_paused(now, *priority));
        let oldest = heads.filter(|(_, queue)| !queue.is_empty()).map(|(_, queue)| queue);
        oldest.min_by_key(|queue| queue.front().map_or(u64::MAX, |head| head.order))?.pop_front()
    }
}

impl Node for PausedHost {
    fn handle_frame(&mut self, now: Instant, port: usize, frame: &mut [u8]) {
        if pause::Repr::is_mac_control(frame) {
            self.paused.hear(now, frame, self.rate);
        } else {
            self.host.handle_frame(now, port, frame);
        }
    }

    fn handle_located(&mut self, now: Instant, port: usize, frame: &mut [u8], _: Layout) {
        self.handle_frame(now, port, frame);
    }

    fn poll_transmit(&mut self, now: Instant, port: usize, tx: &mut TxFrame<'_>) -> bool {
        if port != Nic::WIRE {
            return self.host.poll_transmit(now, port, tx);
        }
        if let Some(Waiting { frame, wire_len, .. }) = self.take(now) {
            return tx.put_frame_elided(&frame, wire_len).is_ok();
        }
        while self.waiting.iter().all(|queue| queue.len() < MAX_WAITING) {
            if !self.host.poll_transmit(now, port, tx) {
                return false;
            }
            let (frame, _) = tx.segments();
            let priority = pause::priority(frame);
            if !self.paused.is_paused(now, priority) {
                return true;
            }
            let (frame, wire_len) = (frame.to_vec(), tx.wire_len());
            self.waiting[priority].push_back(Waiting { order: self.next, frame, wire_len });
            self.next += 1;
        }
        false
    }

    fn poll_timeout(&self) -> Option<Instant> {
        [self.host.poll_timeout(), self.paused.next_end()].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.paused.expire(now);
        if self.host.poll_timeout().is_some_and(|at| at <= now) {
            self.host.handle_timeout(now);
        }
    }
}

impl SimNode for PausedHost {
    fn nic(&mut self) -> Option<&mut Nic> {
        self.host.nic()
    }

    fn nic_at(&mut self, place: usize) -> Option<&mut Nic> {
        self.host.nic_at(place)
    }
}
