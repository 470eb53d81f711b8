//! The Nodes of a simulated network: hosts, switches, and whatever else has ports.

use std::any::Any;

use softnic_nic::Nic;
use softnic_wire::Node;

use softnic_switch::Switch;

/// A Node that can stand in a simulated network.
pub trait SimNode: Node + Any {
    /// The NIC of a host, whatever software is on it; `None` where the Node is no host.
    fn nic(&mut self) -> Option<&mut Nic> {
        None
    }

    /// A NIC of several behind one port, by its place; others have one, at place 0.
    fn nic_at(&mut self, place: usize) -> Option<&mut Nic> {
        if place == 0 { self.nic() } else { None }
    }

    /// The switch that it is, or that it has in it; `None` where the Node is none.
    fn switch(&mut self) -> Option<&mut Switch> {
        None
    }
}

impl SimNode for Nic {
    fn nic(&mut self) -> Option<&mut Nic> {
        Some(self)
    }
}

impl SimNode for Switch {
    fn switch(&mut self) -> Option<&mut Switch> {
        Some(self)
    }
}
