//! One connection: what is counted of it from the beginning, and what it has from the time on that it is protected.

use std::collections::VecDeque;
use std::sync::Arc;

use softnic_nic::transports::SendOp;
use softnic_nic::{Buffer, QpAttr, QpInit};
use softnic_wire::failover::{BackupQp, Object, Phase, Side, Status};
use softnic_wire::{Instant, Path, Psn, Qpn};

use crate::machine::{Machine, Refusal};
use crate::work::{Recv, Send};

/// Bytes of the control memory: the peer's status, which it writes, and behind it ours, as it leaves.
pub(crate) const CONTROL: usize = 2 * Status::LEN;

/// A reliable connection of the default NIC.
pub(crate) struct Connection {
    pub(crate) plain: Plain,
    /// It cannot be protected: a peer that asks need not wait.
    pub(crate) refused: bool,
    /// It was found to have no backup, and is not tried again in this life.
    pub(crate) gave_up: bool,
    /// Its queue pair at the default is as the program has made it: it has no guard, or nothing has happened to it ([`Guard::is_calm`]).
    pub(crate) calm: bool,
    pub(crate) guard: Option<Box<Guard>>,
}

/// What every connection has that can be protected.
pub(crate) struct Plain {
    pub(crate) qpn: Qpn,
    /// What the program asked for; its queue pair has room for more, and no send of it is signaled by itself.
    pub(crate) init: QpInit,
    /// Messages that take a receive and were given to a NIC; counts round.
    pub(crate) written: u32,
    /// Receives that were given to a NIC; counts round.
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

/// A connection that is protected, in its two parts.
pub(crate) fn parts(connections: &mut [Option<Connection>], at: usize) -> Option<(&mut Plain, &mut Guard)> {
    let Connection { plain, guard, .. } = connections.get_mut(at)?.as_mut()?;
    Some((plain, guard.as_deref_mut()?))
}

/// How far the two ends are with their backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The peer is asked, or the store is.
    Meeting,
    /// The peer's backup is known, the way there is not.
    NoPath,
    /// The peer's backup is known from a store, and who wrote the entry is not.
    Proving,
    /// Both backup queue pairs are connected, as far as we know.
    Ready,
    /// It has no backup: as if there was none.
    Unprotected,
}

/// A work request at the backup's queue pair.
pub(crate) struct Sent {
    /// Its name there.
    pub(crate) seq: u64,
    /// The program's, as it was posted; `None` for one of our own.
    pub(crate) send: Option<Send>,
}

/// What a protected connection has.
pub(crate) struct Guard {
    pub(crate) stage: Stage,
    /// The attributes of the default's queue pair, as the program set them.
    pub(crate) attr: QpAttr,
    /// The program has made it ready to receive, and not to send: one that only answers may stay so.
    pub(crate) receives_only: bool,
    pub(crate) backup: Qpn,
    pub(crate) control: Arc<Buffer>,
    /// Its key at each NIC.
    pub(crate) control_keys: [u32; 2],
    /// The first PSN that we send by the backup.
    pub(crate) backup_psn: Psn,
    pub(crate) nonce: [u8; 16],
    /// Of our own statuses, and of the peer's.
    pub(crate) secrets: [[u8; 16]; 2],
    pub(crate) peer: Option<BackupQp>,
    pub(crate) path: Option<Path>,
    /// When to ask the peer or the store again, and how often that was done.
    pub(crate) ask_at: Option<Instant>,
    pub(crate) asked: u32,
    /// Under what the store has our backup.
    pub(crate) stored: Option<Object>,
    /// Entries of the peer's that were not proven.
    pub(crate) dropped: u32,
    /// What the peer's entries about regions have, as its proof says.
    pub(crate) region_nonce: Option<[u8; 16]>,
    pub(crate) machine: Machine,
    /// The queue pair of each side has halted.
    pub(crate) halted: [bool; 2],
    /// Sends that wait for their side.
    pub(crate) queue: VecDeque<Send>,
    /// Receives that wait for a key.
    pub(crate) recvs: VecDeque<Recv>,
    /// Sends at the backup's queue pair, also those that completed without a word.
    pub(crate) at_backup: VecDeque<Sent>,
    pub(crate) next_seq: u64,
    /// The fence's name at the backup.
    pub(crate) fence: Option<u64>,
    /// How many sends of the default's queue pair will be done when a probe, or the notification, is.
    pub(crate) probe_at: Option<u32>,
    pub(crate) notice_at: Option<u32>,
    /// Receives were moved to the backup, behind the one by which the peer wakes us, and the peer has not been heard since.
    pub(crate) recv_moved: bool,
    /// The epoch of the last status that we wrote.
    pub(crate) published: u32,
    /// The default's queue had no room for our status: it goes before whatever the program sends next.
    pub(crate) owes_status: bool,
    /// Work at the backup ended in an error of the program's own.
    pub(crate) broken: bool,
    /// When the last failure was seen, until something goes well again.
    pub(crate) failed_at: Option<Instant>,
    /// The peer's key that was asked for, and when to ask again.
    pub(crate) wanted: Option<(u32, Instant)>,
    /// The last one that the store was asked for.
    pub(crate) looked_up: Option<u32>,
    /// Work of it waits for a region to be registered at the backup.
    pub(crate) keyless: bool,
    /// The program has it drain its sends (SQD).
    pub(crate) drain: Option<Drain>,
    /// It cannot go on, and nothing of the program's was to be sent: it ends in errors with the next send, as one without
    /// a backup does.
    pub(crate) doomed: Option<Refusal>,
}

/// The program wants no send to begin (SQD).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drain {
    /// An event is to tell when all that was begun is done.
    pub(crate) notify: bool,
    /// The default's queue pair drains by itself: nothing had failed when it was asked to, and it was not connected anew since. Else what
    /// waits is kept here, and what was given to a NIC counts as begun.
    pub(crate) by_nic: bool,
}

impl Guard {
    /// Whether a send of the program's is kept here, and not given to the default's queue pair.
    #[inline]
    pub(crate) fn keeps_sends(&self) -> bool {
        self.machine.phase() != Phase::Default
            || !self.queue.is_empty()
            || self.owes_status
            || self.drain.is_some_and(|drain| !drain.by_nic)
    }

    /// Whether nothing has happened to it: the default's queue pair is as the program has made it, and does by itself what the program wants of
    /// it, and nothing was done at the backup for the program.
    pub(crate) fn is_calm(&self) -> bool {
        self.machine.epoch() == 0
            && self.machine.is_settled()
            && self.halted == [false; 2]
            && self.queue.is_empty()
            && self.drain.is_none()
            && self.doomed.is_none()
            && !self.owes_status
    }

    /// Whether the program sees its queue pair as it was, whatever the default's is by now.
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

    /// The peer's status as it lies in our memory.
    pub(crate) fn peer_status(&self) -> [u8; Status::LEN] {
        let mut block = [0; Status::LEN];
        self.control.read_at(0, &mut block);
        block
    }

    /// Whether something may happen to it that no event tells of.
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

    /// When to look at it although nothing happens.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let wanted = self.wanted.map(|(_, at)| at);
        [self.ask_at, self.machine.poll_timeout(), wanted].into_iter().flatten().min()
    }
}
