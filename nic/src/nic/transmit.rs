//! The transmit path: which queue pair sends next, by which port, and when one must be called again.

use softnic_transports::negotiation::FallbackReason;
use softnic_transports::prefetch;
use softnic_transports::qp::{QueuePair, earlier};
use softnic_wire::{Instant, Layout, Node, TxFrame};

use super::{Nic, Shared, Turns};
use crate::address_handles::AddressHandle;
use crate::qp::Slot;

/// Number of bytes that a queue pair sends in its turn: four of the longest frames, so that with thousands of queue pairs, fetching the
/// state of each does not dominate the cost of a packet. A turn ends with the frame that uses it up, and the excess is deducted from the
/// next turn.
const QUANTUM: u32 = 4 * super::MAX_FRAME as u32;

/// Maximum number of frames that [`Nic::loop_back`] carries in one call, so that a driver's loop continues.
const LOOP_BATCH: usize = 256;

impl Shared {
    /// The address handle of the datagram that a queue pair sends next.
    #[inline]
    fn next_address(&self, slot: &Slot) -> Option<&AddressHandle> {
        self.ahs.get(slot.endpoint.qp.next_address()?)
    }
}

impl Nic {
    /// Marks the queue pair in slot `index` as active: it may have frames to send, and its timer may have changed.
    #[inline]
    pub(super) fn activate(&mut self, index: u32) {
        let Some(Some(slot)) = self.slots.get(index as usize) else { return };
        let (queued, port) = (slot.queued, self.port_of(slot));
        if queued != Some(port) {
            // The queue pair is in the list of the other port, which may never be polled: the wire may be down, with only loopback in use.
            if let Some(other) = queued {
                self.dequeue(index, other);
            }
            self.enqueue(index, port);
        }
        self.rearm(index);
    }

    /// Removes a queue pair from the list of a port, and ends its turn if it has the turn.
    pub(super) fn dequeue(&mut self, index: u32, port: usize) {
        if self.turns[port].ready.front() == Some(&index) {
            self.turns[port].left = 0;
        }
        self.turns[port].ready.retain(|&i| i != index);
    }

    #[inline]
    fn enqueue(&mut self, index: u32, port: usize) {
        if let Some(Some(slot)) = self.slots.get_mut(index as usize) {
            slot.queued = Some(port);
            self.turns[port].ready.push_back(index);
        }
    }

    /// The queue pair that sends next by `port`. Round robin by bytes, so that senders of short packets get as much as others, and the
    /// state of a queue pair is fetched once for many short packets.
    #[inline]
    fn whose_turn(&mut self, port: usize) -> Option<u32> {
        if self.turns[port].left > 0 {
            let index = self.turns[port].ready.front().copied()?;
            match self.slots.get(index as usize) {
                // The next packet of a datagram queue pair may leave by another port; that includes one that was posted meanwhile.
                Some(Some(slot)) if slot.peer.is_none() && self.port_of(slot) != port => self.turns[port].left = 0,
                _ => return Some(index),
            }
        }
        while let Some(&index) = self.turns[port].ready.front() {
            let leaves_by = match self.slots.get(index as usize) {
                Some(Some(slot)) => {
                    self.turns[port].left = QUANTUM.saturating_sub(slot.debt).max(1);
                    self.port_of(slot)
                }
                _ => port,
            };
            if leaves_by == port {
                self.prefetch_next(port);
                return Some(index);
            }
            self.dequeue(index, port);
            self.enqueue(index, leaves_by);
        }
        None
    }

    /// While one queue pair has its turn, the data of the following ones is prefetched: the work of the next, the state of the second, and
    /// the slot of the third.
    #[inline]
    fn prefetch_next(&self, port: usize) {
        let behind = |i: usize| self.turns[port].ready.get(i).and_then(|&index| self.slots.get(index as usize));
        if let Some(slot) = behind(3) {
            prefetch(slot);
        }
        if let Some(Some(slot)) = behind(2) {
            slot.endpoint.qp.prefetch_state();
        }
        if let Some(Some(slot)) = behind(1) {
            slot.endpoint.qp.prefetch_work();
        }
    }

    /// The queue pair at the head of the list has sent this many bytes.
    fn spend(&mut self, index: u32, port: usize, bytes: usize) {
        let (left, bytes) = (self.turns[port].left, bytes as u32);
        let Some(Some(slot)) = self.slots.get(index as usize) else { return };
        // The next datagram may leave by another port, and only that port is polled for it.
        let leaves_by = self.port_of(slot);
        if bytes < left && leaves_by == port {
            self.turns[port].left = left - bytes;
            return;
        }
        self.turns[port].left = 0;
        if let Some(Some(slot)) = self.slots.get_mut(index as usize) {
            slot.debt = bytes.saturating_sub(left);
        }
        self.turns[port].ready.pop_front();
        self.enqueue(index, leaves_by);
    }

    /// The queue pair at the head of the list has no frame to send and leaves the list, so that idle queue pairs cost nothing.
    #[inline]
    fn end_turn(&mut self, index: u32, port: usize) {
        self.turns[port].left = 0;
        self.turns[port].ready.pop_front();
        if let Some(Some(slot)) = self.slots.get_mut(index as usize) {
            (slot.queued, slot.debt) = (None, 0);
        }
    }

    /// The port by which a queue pair's next frame leaves: fixed for a connection, given by the address handle for a datagram.
    #[inline]
    fn port_of(&self, slot: &Slot) -> usize {
        match slot.peer {
            Some(_) => slot.port,
            None => self.shared.next_address(slot).map_or(Nic::WIRE, |a| a.port),
        }
    }

    #[inline]
    pub(super) fn rearm(&mut self, index: u32) {
        let Some(Some(slot)) = self.slots.get(index as usize) else { return };
        self.timers.arm(index, slot.endpoint.poll_timeout());
    }

    /// Writes one frame of the queue pair in slot `index`, if it has one. The second result says whether the queue pair is a connection.
    #[inline]
    fn transmit(&mut self, now: Instant, index: u32, tx: &mut TxFrame<'_>) -> (bool, bool) {
        match self.slots.get_mut(index as usize) {
            Some(Some(slot)) if slot.peer.is_some() => {
                let sent = slot.endpoint.poll_transmit(now, tx, &mut self.shared, &mut self.pools);
                self.timers.arm(index, slot.endpoint.poll_timeout());
                (sent, true)
            }
            _ => (self.transmit_datagram(now, index, tx), false),
        }
    }

    /// Writes one frame of a datagram queue pair.
    #[inline(never)]
    fn transmit_datagram(&mut self, now: Instant, index: u32, tx: &mut TxFrame<'_>) -> bool {
        let Some(Some(slot)) = self.slots.get_mut(index as usize) else { return false };
        let multicast = self.shared.next_address(slot).is_some_and(|a| a.multicast);
        let sent = slot.endpoint.poll_transmit(now, tx, &mut self.shared, &mut self.pools);
        self.timers.arm(index, slot.endpoint.poll_timeout());
        if sent && multicast && !self.groups.is_empty() {
            self.deliver_to_self(now, tx);
        }
        sent
    }

    /// Delivers a packet to a group to the members on this NIC, too, because no switch returns it (IBA 10.5.2.1).
    fn deliver_to_self(&mut self, now: Instant, tx: &TxFrame<'_>) {
        // Taken out meanwhile, so that the frame does not borrow the NIC that it is delivered to.
        let mut held = std::mem::take(&mut self.held);
        let (a, b) = tx.segments();
        let len = a.len() + b.len();
        if len <= held.len() {
            held[..a.len()].copy_from_slice(a);
            held[a.len()..len].copy_from_slice(b);
            self.receive(now, Nic::LOOPBACK, &mut held[..len]);
        }
        self.held = held;
    }

    /// Carries frames between this NIC's own queue pairs; for drivers that inject no faults into them. Returns whether there was any frame.
    pub fn loop_back(&mut self, now: Instant) -> bool {
        let Turns { ready, mads, .. } = &self.turns[Nic::LOOPBACK];
        if ready.is_empty() && mads.is_empty() {
            return false;
        }
        let mut frame = [0; super::MAX_FRAME];
        for i in 0..LOOP_BATCH {
            let mut tx = TxFrame::new(&mut frame);
            if !self.poll_transmit(now, Nic::LOOPBACK, &mut tx) {
                return i > 0;
            }
            let len = tx.segments().0.len();
            self.handle_frame(now, Nic::LOOPBACK, &mut frame[..len]);
        }
        true
    }
}

impl Node for Nic {
    fn handle_frame(&mut self, now: Instant, port: usize, frame: &mut [u8]) {
        if self.carries(port) {
            self.receive(now, port, frame);
        }
    }

    fn handle_located(&mut self, now: Instant, port: usize, frame: &mut [u8], layout: Layout) {
        if self.carries(port) {
            self.receive_located(now, port, frame, layout);
        }
    }

    fn poll_transmit(&mut self, now: Instant, port: usize, tx: &mut TxFrame<'_>) -> bool {
        if self.layer.is_some() {
            self.progress_layer_if_due(now);
        }
        if !self.carries(port) {
            return false;
        }
        if !self.turns[port].mads.is_empty() && self.transmit_mad(port, tx) {
            return true;
        }
        while let Some(index) = self.whose_turn(port) {
            let (sent, connected) = self.transmit(now, index, tx);
            if sent {
                let bytes = tx.wire_len();
                self.shared.counters.sent_pkts += 1;
                self.shared.counters.sent_bytes += bytes as u64;
                match self.turns[port].left.checked_sub(bytes as u32) {
                    // The next frame of a connection leaves by the same port.
                    Some(left) if left > 0 && connected => self.turns[port].left = left,
                    _ => self.spend(index, port, bytes),
                }
                return true;
            }
            self.end_turn(index, port);
        }
        // The work that the layer posts now is sent before its next turn.
        self.layer.is_some() && self.progress_layer_if_sent(now) && self.poll_transmit(now, port, tx)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match &self.layer {
            None => self.timers.next(),
            Some(layer) => earlier(self.timers.next(), layer.poll_timeout()),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some(index) = self.timers.pop(now) {
            let Some(Some(slot)) = self.slots.get_mut(index as usize) else { continue };
            slot.endpoint.handle_timeout(now, &mut self.shared);
            let silent = slot.endpoint.fallback_reason() == Some(FallbackReason::Silent)
                && slot.endpoint.refusal() != Some(FallbackReason::Unauthenticated);
            if let (Some(peer), true, false) = (slot.peer, silent, slot.told_fallback) {
                self.silent_peers.note_silent(peer);
            }
            if slot.endpoint.has_shim() {
                self.handle_shim_timeout(now, index);
            }
            self.tell_of_fallback(index);
            self.activate(index);
        }
        if self.layer.is_some() {
            self.handle_layer_timeout(now);
        }
    }
}
