//! The state of one connection: counters from the start, and the guard that it has while it is protected.

use std::collections::VecDeque;
use std::sync::Arc;

use softnic_nic::transports::SendOp;
use softnic_nic::{Buffer, QpAttr, QpInit};
use softnic_wire::failover::{BackupQp, Object, Phase, Side, Status};
use softnic_wire::{Instant, Path, Psn, Qpn};

use crate::machine::{Machine, Refusal};
use crate::work::{Recv, Send};

/// Bytes of the control memory: the peer's status, written by the peer, followed by the local status, from which it is sent.
pub(crate) const CONTROL: usize = 2 * Status::LEN;

/// A reliable connection of the default NIC.
pub(crate) struct Connection {
    pub(crate) plain: Plain,
    /// The connection cannot be protected: a peer that asks is answered at once, and need not wait.
    pub(crate) refused: bool,
    /// The connection was found to have no backup. There is no further attempt until it is reset.
    pub(crate) gave_up: bool,
    /// The default's queue pair is as the program made it: the connection has no guard, or the guard is calm ([`Guard::is_calm`]).
    pub(crate) calm: bool,
    pub(crate) guard: Option<Box<Guard>>,
}

/// State of every connection that can be protected.
pub(crate) struct Plain {
    pub(crate) qpn: Qpn,
    /// The attributes requested by the program. The actual queue pair has more room, and `sig_all` is off.
    pub(crate) init: QpInit,
    /// Messages posted to a NIC that consume a receive; wraps around.
    pub(crate) written: u32,
    /// Receives posted to a NIC; wraps around.
    pub(crate) recvs: u32,
}

impl Connection {
    pub(crate) fn new(qpn: Qpn, init: &QpInit) -> Connection {
        Connection {
            plain: Plain { qpn, init: *init, written: 0, recvs: 0 },
            refused: false,
            gave_up: false,
            calm: true,
            guard: None,
        }
    }
}

impl Plain {
    #[inline]
    pub(crate) fn count_send(&mut self, op: &SendOp) {
        self.written = self.written.wrapping_add(u32::from(op.uses_receive()));
    }

    #[inline]
    pub(crate) fn count_recv(&mut self) {
        self.recvs = self.recvs.wrapping_add(1);
    }
}

/// The two parts of a protected connection.
pub(crate) fn parts(connections: &mut [Option<Connection>], at: usize) -> Option<(&mut Plain, &mut Guard)> {
    let Connection { plain, guard, .. } = connections.get_mut(at)?.as_mut()?;
    Some((plain, guard.as_deref_mut()?))
}

/// How far the setup of the backup has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The peer, or the store, is being asked.
    Meeting,
    /// The peer's backup is known, the path to it is not.
    NoPath,
    /// The peer's backup is known from a store entry, whose author is not yet proven.
    Proving,
    /// Both backup queue pairs are connected, as far as this end knows.
    Ready,
    /// The connection has no backup, and behaves as on a single NIC.
    Unprotected,
}

/// A work request posted at the backup's queue pair.
pub(crate) struct Sent {
    /// Its `wr_id` there.
    pub(crate) seq: u64,
    /// The program's work request, as posted; `None` for one of our own.
    pub(crate) send: Option<Send>,
}

/// State of a protected connection.
pub(crate) struct Guard {
    pub(crate) stage: Stage,
    /// The attributes of the default's queue pair, as the program set them.
    pub(crate) attr: QpAttr,
    /// The program has made the queue pair ready to receive, but not ready to send. A program that only responds may leave it so.
    pub(crate) receives_only: bool,
    pub(crate) backup: Qpn,
    pub(crate) control: Arc<Buffer>,
    /// The key of the control memory at each NIC.
    pub(crate) control_keys: [u32; 2],
    /// The first local send PSN at the backup.
    pub(crate) backup_psn: Psn,
    pub(crate) nonce: [u8; 16],
    /// Secrets of the local statuses, and of the peer's.
    pub(crate) secrets: [[u8; 16]; 2],
    pub(crate) peer: Option<BackupQp>,
    pub(crate) path: Option<Path>,
    /// When to ask the peer or the store again, and how often that was done.
    pub(crate) ask_at: Option<Instant>,
    pub(crate) asked: u32,
    /// The store key under which the local backup is published.
    pub(crate) stored: Option<Object>,
    /// Entries of the peer's that were dropped as unproven.
    pub(crate) dropped: u32,
    /// The nonce that the peer's region entries must carry, as given in its proof.
    pub(crate) region_nonce: Option<[u8; 16]>,
    pub(crate) machine: Machine,
    /// For each side, whether its queue pair has halted.
    pub(crate) halted: [bool; 2],
    /// Sends that wait for their side.
    pub(crate) queue: VecDeque<Send>,
    /// Receives that wait for a key.
    pub(crate) recvs: VecDeque<Recv>,
    /// Sends at the backup's queue pair, including unsignaled ones that completed without a completion.
    pub(crate) at_backup: VecDeque<Sent>,
    pub(crate) next_seq: u64,
    /// The `wr_id` of the fence at the backup.
    pub(crate) fence: Option<u64>,
    /// The number of completed sends of the default's queue pair at which a probe, or the notification, is complete.
    pub(crate) probe_at: Option<u32>,
    pub(crate) notice_at: Option<u32>,
    /// Receives were moved to the backup, behind the receive by which the peer wakes this end, and no status has come from the peer since.
    pub(crate) recv_moved: bool,
    /// The epoch of the last status that was written to the peer.
    pub(crate) published: u32,
    /// The default's queue had no room for the local status: it is posted before the program's next send.
    pub(crate) owes_status: bool,
    /// Work at the backup ended in an error that the program caused.
    pub(crate) broken: bool,
    /// When the last failure was detected, until work completes again.
    pub(crate) failed_at: Option<Instant>,
    /// The peer's key that was asked for, and when to ask again.
    pub(crate) wanted: Option<(u32, Instant)>,
    /// The last key that the store was asked for.
    pub(crate) looked_up: Option<u32>,
    /// Work of this connection waits for a region to be registered at the backup.
    pub(crate) keyless: bool,
    /// The program drains the sends of this queue pair (SQD).
    pub(crate) drain: Option<Drain>,
    /// The connection cannot continue, and the program had no sends outstanding. It ends in errors with the next send, as a
    /// connection without a backup does.
    pub(crate) doomed: Option<Refusal>,
}

/// The program has moved the queue pair to SQD: no further send may begin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drain {
    /// An event is due when all sends that had begun are complete.
    pub(crate) notify: bool,
    /// The default's queue pair drains by itself: no failure had happened when SQD was requested, and the queue pair was not reconnected since.
    /// Otherwise the waiting sends are kept here, and a send that was posted to a NIC counts as begun.
    pub(crate) by_nic: bool,
}

impl Guard {
    /// Whether a send of the program is kept here instead of being posted to the default's queue pair.
    #[inline]
    pub(crate) fn keeps_sends(&self) -> bool {
        self.machine.phase() != Phase::Default
            || !self.queue.is_empty()
            || self.owes_status
            || self.drain.is_some_and(|drain| !drain.by_nic)
    }

    /// Whether the default's queue pair is as the program made it and executes the program's calls by itself, and the backup has done no work
    /// for the program.
    pub(crate) fn is_calm(&self) -> bool {
        self.machine.epoch() == 0
            && self.machine.is_settled()
            && self.halted == [false; 2]
            && self.queue.is_empty()
            && self.drain.is_none()
            && self.doomed.is_none()
            && !self.owes_status
    }

    /// Whether the program is shown its queue pair as it was, whatever the state of the default's queue pair.
    pub(crate) fn is_hidden(&self) -> bool {
        let phase = self.machine.phase();
        let elsewhere = phase != Phase::Default || self.machine.recv_on() == Side::Backup || self.halted[0];
        self.doomed.is_some() || self.stage == Stage::Ready && phase != Phase::Failed && elsewhere
    }

    /// The queue pair of a side.
    pub(crate) fn qp(&self, default: Qpn, side: Side) -> Qpn {
        match side {
            Side::Default => default,
            Side::Backup => self.backup,
        }
    }

    /// The peer's status, as it lies in local memory.
    pub(crate) fn peer_status(&self) -> [u8; Status::LEN] {
        let mut block = [0; Status::LEN];
        self.control.read_at(0, &mut block);
        block
    }

    /// Whether the connection may change without an event.
    pub(crate) fn is_unsettled(&self) -> bool {
        match self.stage {
            Stage::Meeting | Stage::NoPath | Stage::Proving => true,
            Stage::Ready => {
                let idle = self.queue.is_empty() && self.recvs.is_empty() && !self.owes_status;
                !(idle && (self.machine.is_settled() || self.machine.phase() == Phase::Failed))
            }
            Stage::Unprotected => false,
        }
    }

    /// When to check the connection without an event.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let wanted = self.wanted.map(|(_, at)| at);
        [self.ask_at, self.machine.poll_timeout(), wanted].into_iter().flatten().min()
    }
}
