//! The connection manager at the backup: its messages that come to QP1 there are handed on, and whoever drives the Node has the manager.

use std::collections::VecDeque;

use softnic_nic::ReceivedMad;
use softnic_wire::mad::{Class, Packet};
use softnic_wire::{Path, Qpn};

use super::DualNic;
use crate::connection::Stage;

/// MADs that wait to be taken.
const WAITING: usize = 256;

/// MADs of the connection manager that came to the backup.
#[derive(Default)]
pub(super) struct ManagerMads(VecDeque<ReceivedMad>);

impl ManagerMads {
    /// Takes a MAD if it is the manager's. Of too many those that came last are lost, as any datagram may be.
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
    /// The way from the backup to the peer's, of a connection whose peer has proven its own.
    pub fn backup_path(&self, qpn: Qpn) -> Option<Path> {
        let backup = self.backup.as_ref()?;
        backup.guard(*backup.by_qpn.get(&qpn)?).filter(|guard| guard.stage == Stage::Ready)?.path
    }

    /// Whether each port is up: the default's, and the backup's.
    pub fn ports_up(&self) -> [bool; 2] {
        self.backup.as_ref().map_or([true, false], |backup| backup.down.map(|down| !down))
    }

    /// The oldest MAD of the connection manager that came to QP1 of the backup. Those of the default go to whoever has its QP1.
    pub fn poll_manager_mad(&mut self) -> Option<ReceivedMad> {
        self.backup.as_mut()?.manager_mads.0.pop_front()
    }
}
