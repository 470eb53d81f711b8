//! Connection management at the backup: MADs of the connection manager that reach QP1 there are queued for the driver, which runs the manager.

use std::collections::VecDeque;

use softnic_nic::ReceivedMad;
use softnic_wire::mad::{Class, Packet};
use softnic_wire::{Path, Qpn};

use super::DualNic;
use crate::connection::Stage;

/// The number of MADs that the queue holds.
const WAITING: usize = 256;

/// MADs of the connection manager that arrived at the backup.
#[derive(Default)]
pub(super) struct ManagerMads(VecDeque<ReceivedMad>);

impl ManagerMads {
    /// Takes a MAD if it belongs to the connection manager. When the queue is full, the newest MADs are lost, as any datagram may be.
    pub(super) fn take(&mut self, received: &ReceivedMad) -> bool {
        let is_its = Packet::new_unchecked(&received.mad).mgmt_class() == Class::CM;
        if is_its && self.0.len() < WAITING {
            self.0.push_back(*received);
        }
        is_its
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl DualNic {
    /// The path from the backup to the peer's backup, if the peer has proven its backup.
    pub fn backup_path(&self, qpn: Qpn) -> Option<Path> {
        let backup = self.backup.as_ref()?;
        backup.guard(*backup.by_qpn.get(&qpn)?).filter(|guard| guard.stage == Stage::Ready)?.path
    }

    /// Whether each port is up: the default's, and the backup's.
    pub fn ports_up(&self) -> [bool; 2] {
        self.backup.as_ref().map_or([true, false], |backup| backup.down.map(|down| !down))
    }

    /// The oldest MAD of the connection manager that arrived at QP1 of the backup. Those of the default go to the owner of its QP1.
    pub fn poll_manager_mad(&mut self) -> Option<ReceivedMad> {
        self.backup.as_mut()?.manager_mads.0.pop_front()
    }
}
