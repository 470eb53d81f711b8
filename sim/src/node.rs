//! The Nodes of a simulated network: hosts, switches, and whatever else has ports.

use std::any::Any;

use softnic_nic::Nic;
use softnic_wire::Node;

use crate::switch::Switch;

/// A Node that can stand in a simulated network.
pub trait SimNode: Node + Any {
    /// The NIC of a host, whatever software is on it; `None` where the Node is no host.
    fn nic(&mut self) -> Option<&mut Nic> {
        None
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
