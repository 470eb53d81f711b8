//! A host that is watched: whatever is given to it, and whatever it sends, is shown to an observer.

use softnic_nic::Nic;
use softnic_shift::DualNic;
use softnic_trace::Observer;
use softnic_wire::{Instant, Layout, Node, TxFrame};

use crate::node::SimNode;

/// A host, and the observer of one of its NICs.
pub(crate) struct Traced {
    pub(crate) host: Box<dyn SimNode>,
    /// Which of its NICs.
    pub(crate) place: usize,
    pub(crate) observer: Observer,
}

impl Traced {
    fn settled(&mut self, now: Instant) {
        if let Some(nic) = self.host.nic_at(self.place) {
            self.observer.settled(now, nic);
        }
    }
}

impl Node for Traced {
    fn handle_frame(&mut self, now: Instant, port: usize, frame: &mut [u8]) {
        if self.host.place_of(port) == self.place
            && let Some(nic) = self.host.nic_at(self.place)
        {
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
        if sent
            && self.host.place_of(port) == self.place
            && let Some(nic) = self.host.nic_at(self.place)
        {
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

    fn nic_at(&mut self, place: usize) -> Option<&mut Nic> {
        self.host.nic_at(place)
    }

    fn place_of(&self, port: usize) -> usize {
        self.host.place_of(port)
    }

    fn dual(&mut self) -> Option<&mut DualNic> {
        self.host.dual()
    }
}
