//! Whether a queue pair has a backup, and where it is with it.

use softnic_shift::{DualNic, Reason, Refusal};
use softnic_wire::Qpn;
use softnic_wire::failover::Phase;

use super::QueuePair;

/// Whether a queue pair has a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// The NIC has no backup.
    NoBackup,
    /// The NIC has a backup, and the queue pair has none there: it is not connected, its peer has not answered yet or has no backup, or queue
    /// pairs of its kind are not protected.
    Unprotected,
    /// The queue pair has a backup at both ends.
    Protected(QpFailover),
}

/// Where a protected queue pair is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpFailover {
    /// Where its sends are.
    pub phase: Phase,
    /// Why it last left a path; `None`: it never did.
    pub reason: Option<Reason>,
    /// Why it ended in errors, in [`Phase::Failed`].
    pub refusal: Option<Refusal>,
    /// How often it left a path.
    pub switches: u32,
}

impl Protection {
    fn of(node: &DualNic, qpn: Qpn) -> Protection {
        match node.machine(qpn) {
            _ if node.failover_counters().is_none() => Protection::NoBackup,
            Some(machine) if node.is_protected(qpn) => Protection::Protected(QpFailover {
                phase: machine.phase(),
                reason: (machine.epoch() > 0).then(|| machine.reason()),
                refusal: machine.refusal(),
                switches: machine.epoch(),
            }),
            _ => Protection::Unprotected,
        }
    }
}

impl QueuePair {
    /// Whether it has a backup, and where it is with it.
    pub fn protection(&self) -> Protection {
        Protection::of(self.0.engine.control().dual(), self.0.qpn)
    }
}
