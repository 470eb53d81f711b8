//! A host that is watched: whatever is given to it, and whatever it sends, is shown to an observer.

use softnic_nic::Nic;
use softnic_trace::Observer;
use softnic_wire::{Instant, Layout, Node, TxFrame};

use crate::node::SimNode;

/// A host with one NIC, and its observer.
pub(crate) struct Traced {
    pub(crate) host: Box<dyn SimNode>,
    pub(crate) observer: Observer,
}

impl Traced {
    fn settled(&mut self, now: Instant) {
        if let Some(nic) = self.host.nic() {
            self.observer.settled(now, nic);
        }
    }
}

impl Node for Traced {
    fn handle_frame(&mut self, now: Instant, port: usize, frame: &mut [u8]) {
        if let Some(nic) = self.host.nic() {
            self.observer.received(now, nic, frame);
        }
        self.host.handle_frame(now, port, frame);
        self.settled(now);
    }

    fn handle_located(&mut self, now: Instant, port: usize, frame: &mut [u8], _: Layout) {
        self.handle_frame(now, port, frame);
    }

    fn poll_transmit(&mut self, now: Instant, port: usize, tx: &mut TxFrame<'_>) -> bool {
        self.settled(now);
        let sent = self.host.poll_transmit(now, port, tx);
        if let (true, Some(nic)) = (sent, self.host.nic()) {
            let (head, _) = tx.segments();
            self.observer.sent(now, nic, head);
        }
        sent
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.host.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.host.handle_timeout(now);
        self.settled(now);
    }
}

impl SimNode for Traced {
    fn nic(&mut self) -> Option<&mut Nic> {
        self.host.nic()
    }
}
