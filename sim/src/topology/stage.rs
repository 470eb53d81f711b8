//! A network without flows: its hosts, for software that brings its own queue pairs and drives them.

use std::time::Duration;

use softnic_nic::{Connection, ModifyError, QpInit};
use softnic_wire::{Psn, Qpn};

use super::Topology;
use super::world::World;
use crate::pair::timeout_code;
use crate::simulator::Simulator;
use crate::workload::Cc;

/// A network and its hosts, in virtual time.
pub struct Stage<'t> {
    world: World<'t>,
}

/// One end of a connection between two hosts.
#[derive(Debug, Clone, Copy)]
pub struct StageEnd {
    /// The host.
    pub host: usize,
    /// What its queue pair is made with.
    pub init: QpInit,
}

impl<'t> Stage<'t> {
    /// The network of a topology, whatever flows it has; the same topology and seed give the same.
    pub fn new(topology: &'t Topology, seed: u64) -> Stage<'t> {
        Stage { world: World::new(topology, seed, None, None) }
    }

    /// The world: hosts are its first Nodes.
    pub fn sim(&mut self) -> &mut Simulator<'t> {
        &mut self.world.sim
    }

    /// The network.
    pub fn topology(&self) -> &'t Topology {
        self.world.topology
    }

    /// Bits a second of a host's link.
    pub fn line_rate(&self, host: usize) -> u64 {
        self.world.line_rate(host)
    }

    /// A round trip with every queue on the way full.
    pub fn longest_round_trip(&self) -> Duration {
        self.world.longest_round_trip()
    }

    /// The ACK timeout that the topology says, else the smallest of at least four of the longest round trips.
    pub fn timeout(&self) -> u8 {
        let usual = || timeout_code(self.longest_round_trip().saturating_mul(4));
        self.world.topology.timeout.unwrap_or_else(usual)
    }

    /// Makes a queue pair at each of two hosts and connects them; their numbers.
    ///
    /// # Errors
    /// When a NIC refuses one.
    pub fn connect(&mut self, ends: [StageEnd; 2], timeout: u8, cc: Cc) -> Result<[Qpn; 2], ModifyError> {
        let mut qpns = [Qpn::new(0); 2];
        for (qpn, end) in qpns.iter_mut().zip(&ends) {
            let made = self.world.sim.nic(end.host).create_qp(&end.init);
            *qpn = made.map_err(|_| ModifyError::NoSuchQp)?;
        }
        let psns = [0; 2].map(|_: u32| Psn::new(self.world.draw()));
        for side in 0..2 {
            let (host, peer) = (ends[side].host, ends[1 - side].host);
            let connection = Connection {
                path: self.world.path(host, peer, qpns[side].value(), 0),
                dest_qp: qpns[1 - side],
                mtu: self.world.topology.mtu,
                sq_psn: psns[side],
                rq_psn: psns[1 - side],
                timeout,
                retry_cnt: self.world.topology.retry,
                ..Connection::default()
            };
            let rate = self.world.line_rate(host);
            let nic = self.world.sim.nic(host);
            nic.connect(qpns[side], &connection)?;
            // Every connected transport takes one.
            let _ = nic.set_congestion_control(qpns[side], cc.make(rate, Duration::ZERO));
        }
        Ok(qpns)
    }
}
