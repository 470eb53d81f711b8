//! What a simulated network is made of: hosts and switches.

use softnic_nic::Nic;
use softnic_wire::{Instant, Node, TxFrame};

use crate::simulator::Simulator;
use crate::switch::Switch;

/// A host or a switch.
pub enum AnyNode {
    /// A host's NIC.
    Host(Box<Nic>),
    /// A switch.
    Switch(Box<Switch>),
}

impl Node for AnyNode {
    fn handle_frame(&mut self, now: Instant, port: usize, frame: &mut [u8]) {
        match self {
            AnyNode::Host(nic) => nic.handle_frame(now, port, frame),
            AnyNode::Switch(switch) => switch.handle_frame(now, port, frame),
        }
    }

    fn poll_transmit(&mut self, now: Instant, port: usize, tx: &mut TxFrame<'_>) -> bool {
        match self {
            AnyNode::Host(nic) => nic.poll_transmit(now, port, tx),
            AnyNode::Switch(switch) => switch.poll_transmit(now, port, tx),
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self {
            AnyNode::Host(nic) => nic.poll_timeout(),
            AnyNode::Switch(switch) => switch.poll_timeout(),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        match self {
            AnyNode::Host(nic) => nic.handle_timeout(now),
            AnyNode::Switch(switch) => switch.handle_timeout(now),
        }
    }
}

impl Simulator<'_, AnyNode> {
    /// The NIC of a host. Call [`Simulator::touch`] after giving it work.
    ///
    /// # Panics
    /// When that Node is a switch: a mistake of who made the network.
    pub fn nic(&mut self, host: usize) -> &mut Nic {
        match self.node(host) {
            AnyNode::Host(nic) => nic,
            AnyNode::Switch(_) => panic!("Node {host} is a switch"),
        }
    }
}
