//! The Nodes of a simulated network: hosts, switches, and whatever else has ports.

use std::any::Any;

use softnic_nic::Nic;
use softnic_shift::DualNic;
use softnic_wire::Node;

use softnic_switch::Switch;

/// A Node that can stand in a simulated network.
pub trait SimNode: Node + Any {
    /// The NIC of a host, whatever software is on it; `None` where the Node is no host.
    fn nic(&mut self) -> Option<&mut Nic> {
        None
    }

    /// A NIC of several, by its place; others have one, at place 0.
    fn nic_at(&mut self, place: usize) -> Option<&mut Nic> {
        if place == 0 { self.nic() } else { None }
    }

    /// The place of the NIC that frames of a port are for.
    fn place_of(&self, _port: usize) -> usize {
        0
    }

    /// The default NIC with its backup that it is; `None` where the Node is none.
    fn dual(&mut self) -> Option<&mut DualNic> {
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

impl SimNode for DualNic {
    fn nic(&mut self) -> Option<&mut Nic> {
        Some(&mut self.nic)
    }

    fn nic_at(&mut self, place: usize) -> Option<&mut Nic> {
        if place == 0 { Some(&mut self.nic) } else { self.backup() }
    }

    fn place_of(&self, port: usize) -> usize {
        usize::from(port == DualNic::BACKUP)
    }

    fn dual(&mut self) -> Option<&mut DualNic> {
        Some(self)
    }
}
