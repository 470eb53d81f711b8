//! Layers below queue pairs: frames pass through authentication and shims. Also the memory that the shims share.

use softnic_transports::qp::{PayloadMode, QueuePair};
use softnic_transports::shim::{ReceivedFrame, Shim, ShimAction, ShimPools, ShimResources};
use softnic_wire::{Instant, Layout, Qpn, icrc};

use super::{Nic, ObjectError};

impl Nic {
    /// Handles a frame for a queue pair with authentication or a shim. Returns whether the queue pair may have frames to send now.
    #[inline(never)]
    pub(super) fn receive_through_layers(
        &mut self,
        now: Instant,
        index: u32,
        frame: &mut [u8],
        mut layout: Layout,
    ) -> bool {
        let Some(Some(slot)) = self.slots.get_mut(index as usize) else { return false };
        if !slot.endpoint.unseal(frame, &mut layout, &mut self.shared.counters) {
            return false;
        }
        match slot.endpoint.has_shim() {
            true => self.receive_through_shim(now, index, frame, layout),
            false => self.deliver(now, index, frame, layout),
        }
    }

    /// Handles a plain frame for a queue pair with a shim.
    fn receive_through_shim(&mut self, now: Instant, index: u32, frame: &[u8], layout: Layout) -> bool {
        let Some(Some(slot)) = self.slots.get_mut(index as usize) else { return false };
        let resources = ShimResources { pools: &mut self.pools, counters: &mut self.shared.counters };
        let received = ReceivedFrame { frame, bth: layout.bth, end: layout.end };
        match slot.endpoint.receive_by_shim(now, &received, resources) {
            ShimAction::Deliver => self.deliver(now, index, frame, layout),
            ShimAction::DeliverAndPoll => {
                let active = self.deliver(now, index, frame, layout);
                self.deliver_held(now, index) || active
            }
            ShimAction::Hold => self.deliver_held(now, index),
            ShimAction::Consume => {
                if layout.traffic_class(frame).is_some_and(|c| c & 3 == 3) {
                    self.shared.counters.np_ecn_marked_roce_packets += 1;
                    slot.endpoint.qp.on_shim_marked(now);
                }
                self.deliver_held(now, index);
                true
            }
        }
    }

    /// Delivers the frames that a shim held back or recovered, and arms its timer. Returns whether the queue pair may have frames to send
    /// now.
    fn deliver_held(&mut self, now: Instant, index: u32) -> bool {
        // Taken out meanwhile, so that the frame does not borrow the NIC that it is delivered to.
        let mut held = std::mem::take(&mut self.held);
        let mut active = false;
        while let Some(Some(slot)) = self.slots.get_mut(index as usize) {
            let resources = ShimResources { pools: &mut self.pools, counters: &mut self.shared.counters };
            let Some(len) = slot.endpoint.poll_deliver(now, &mut held, resources) else { break };
            let len = len.min(held.len());
            let frame = &mut held[..len];
            let Ok(layout) = Layout::locate(frame) else { continue };
            // The ICRC is checked, whatever the shim did with the frame.
            if self.payload == PayloadMode::Real && icrc::verify(frame, &layout).is_err() {
                self.shared.counters.rx_icrc_encapsulated += 1;
                continue;
            }
            active |= self.deliver(now, index, frame, layout);
        }
        self.held = held;
        self.rearm(index);
        active
    }

    /// Handles a timeout of a shim.
    pub(super) fn handle_shim_timeout(&mut self, now: Instant, index: u32) {
        let Some(Some(slot)) = self.slots.get_mut(index as usize) else { return };
        let resources = ShimResources { pools: &mut self.pools, counters: &mut self.shared.counters };
        slot.endpoint.handle_shim_timeout(now, resources);
        self.deliver_held(now, index);
    }

    /// Installs a shim below a queue pair.
    pub fn set_shim(&mut self, qpn: Qpn, shim: Option<Box<dyn Shim>>) -> Result<(), ObjectError> {
        let index = self.index_of(qpn).ok_or(ObjectError::NoSuchQp)?;
        self.reset_shim(index);
        if let Some(Some(slot)) = self.slots.get_mut(index as usize) {
            slot.endpoint.set_shim(shim);
        }
        Ok(())
    }

    /// Calls the shim of a queue pair, if it is an `S` and the peer agreed to it. Frames that the shim then has are sent.
    pub fn with_shim<S: Shim, T>(&mut self, qpn: Qpn, call: impl FnOnce(&mut S) -> T) -> Result<T, ObjectError> {
        let (index, slot, _) = self.slot(qpn).ok_or(ObjectError::NoSuchQp)?;
        let result = call(slot.endpoint.agreed_shim().ok_or(ObjectError::WrongKind)?);
        self.activate(index);
        Ok(result)
    }

    /// The memory shared by shims: tests change its size before any shim exists, to see what happens when it runs out.
    #[doc(hidden)]
    pub fn shim_pools(&mut self) -> &mut ShimPools {
        &mut self.pools
    }

    /// Removes a shim, which returns its memory.
    pub(super) fn reset_shim(&mut self, index: u32) {
        let Some(Some(slot)) = self.slots.get_mut(index as usize) else { return };
        slot.endpoint.reset_shim(ShimResources { pools: &mut self.pools, counters: &mut self.shared.counters });
    }
}
