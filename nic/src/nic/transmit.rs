//! The way out: which queue pair sends next, and when one wants to be woken.

use softnic_transports::QueuePair;
use softnic_wire::{Instant, TxFrame};

use super::Nic;
use crate::node::Node;
use crate::qp::each;

impl Nic {
    /// Something happened to the queue pair in slot `index`: it may have something to send, and its timer may have moved.
    #[inline]
    pub(super) fn activate(&mut self, index: u32) {
        let Some(Some(slot)) = self.slots.get_mut(index as usize) else { return };
        if !slot.queued {
            slot.queued = true;
            self.ready.push_back(index);
        }
        self.rearm(index);
    }

    #[inline]
    fn rearm(&mut self, index: u32) {
        let Some(Some(slot)) = self.slots.get(index as usize) else { return };
        self.timers.arm(index, each!(&slot.qp, qp => qp.poll_timeout()));
        if let Some(shim) = &slot.shim {
            self.timers.arm(index, shim.poll_timeout());
        }
    }

    /// One frame of the queue pair in slot `index`.
    #[inline]
    fn transmit(&mut self, now: Instant, index: u32, tx: &mut TxFrame<'_>) -> bool {
        let Some(Some(slot)) = self.slots.get_mut(index as usize) else { return false };
        if slot.shim.as_mut().is_some_and(|shim| shim.poll_transmit(now, tx)) {
            return true;
        }
        let sent = each!(&mut slot.qp, qp => qp.poll_transmit(now, tx, &mut self.shared));
        if let (true, Some(shim)) = (sent, &mut slot.shim) {
            shim.on_transmit(now, tx);
        }
        sent
    }
}

impl Node for Nic {
    fn handle_frame(&mut self, now: Instant, _port: usize, frame: &mut [u8]) {
        self.receive(now, frame);
    }

    fn poll_transmit(&mut self, now: Instant, _port: usize, tx: &mut TxFrame<'_>) -> bool {
        // Round robin, a packet each. A queue pair that has nothing leaves the list, so idle ones cost nothing.
        while let Some(&index) = self.ready.front() {
            let sent = self.transmit(now, index, tx);
            self.ready.pop_front();
            if sent {
                self.ready.push_back(index);
            } else if let Some(Some(slot)) = self.slots.get_mut(index as usize) {
                slot.queued = false;
            }
            self.rearm(index);
            if sent {
                let counters = &mut self.shared.counters;
                counters.sent_pkts += 1;
                counters.sent_bytes += tx.wire_len() as u64;
                return true;
            }
        }
        false
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some(index) = self.timers.pop(now) {
            let Some(Some(slot)) = self.slots.get_mut(index as usize) else { continue };
            each!(&mut slot.qp, qp => qp.handle_timeout(now, &mut self.shared));
            if let Some(shim) = &mut slot.shim {
                shim.handle_timeout(now);
                self.deliver_held(now, index);
            }
            self.activate(index);
        }
    }
}
