//! Work of the program's: to the default's queue pair as ever, or to where the connection is.

use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{PostError, RecvWr, SendWr};
use softnic_nic::{ModifyError, Nic, QpAttr};
use softnic_wire::failover::{Phase, Side};
use softnic_wire::{Instant, Qpn};

use super::{Backup, DualNic};
use crate::connection::{Connection, Stage, parts};
use crate::work::{Recv, Send, translate_all};

impl DualNic {
    /// The connection of a queue pair, for [`DualNic::write_send`]; `None` where it is only the default NIC's.
    pub fn connection(&self, qpn: Qpn) -> Option<usize> {
        self.backup.as_ref()?.by_qpn.get(&qpn).copied()
    }

    /// Writes a send work request that keeps to the queue pair's rules.
    ///
    /// # Errors
    /// As [`Nic::write_checked_send`].
    #[inline]
    pub fn write_send(&mut self, at: usize, wr: &SendWr<'_>) -> Result<(), PostError> {
        let Some(Some(connection)) = self.backup.as_mut().and_then(|backup| backup.connections.get_mut(at)) else {
            return Err(PostError::State);
        };
        let Connection { plain, guard, .. } = connection;
        let wr = plain.flagged(wr);
        match guard {
            Some(guard) if guard.machine.phase() != Phase::Default || !guard.queue.is_empty() => {
                let phase = guard.machine.phase();
                if phase == Phase::Failed {
                    return self.nic.write_checked_send(plain.qpn, &wr);
                }
                if guard.queue.len() >= plain.init.caps.max_send_wr as usize {
                    return Err(PostError::QueueFull);
                }
                guard.queue.push_back(Send::new(&wr, false));
                Ok(())
            }
            _ => {
                self.nic.write_checked_send(plain.qpn, &wr).map_err(|error| kept(&self.nic, plain.qpn, error))?;
                plain.count_send(&wr.op);
                Ok(())
            }
        }
    }

    /// Publishes what was written.
    #[inline]
    pub fn ring_doorbell(&mut self, now: Instant, at: usize) {
        let DualNic { nic, backup: Some(backup) } = self else { return };
        let Some(Some(connection)) = backup.connections.get(at) else { return };
        if connection.guard.as_ref().is_some_and(|guard| !guard.queue.is_empty()) {
            backup.pump(nic, now, at);
            backup.perform(nic, now, at);
        } else {
            nic.ring_doorbell(now, connection.plain.qpn);
        }
    }

    /// Posts a receive that keeps to the queue pair's rules.
    ///
    /// # Errors
    /// As [`Nic::post_checked_recv`].
    #[inline]
    pub fn post_recv_at(&mut self, at: usize, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let DualNic { nic, backup: Some(backup) } = self else { return Err(PostError::State) };
        let Some(Some(connection)) = backup.connections.get_mut(at) else { return Err(PostError::State) };
        let Connection { plain, guard, .. } = connection;
        match guard {
            Some(guard)
                if guard.machine.phase() != Phase::Failed
                    && (guard.machine.recv_on() == Side::Backup || !guard.recvs.is_empty()) =>
            {
                if guard.recvs.len() >= plain.init.caps.max_recv_wr as usize {
                    return Err(PostError::QueueFull);
                }
                guard.recvs.push_back(Recv::new(wr, false));
                backup.pump_recvs(nic, at);
            }
            _ => {
                nic.post_checked_recv(plain.qpn, wr).map_err(|error| kept(nic, plain.qpn, error))?;
                plain.count_recv();
            }
        }
        Ok(())
    }

    /// Posts a send work request, by the number of its queue pair.
    ///
    /// # Errors
    /// As [`Nic::post_send`].
    pub fn post_send(&mut self, now: Instant, qpn: Qpn, wr: &SendWr<'_>) -> Result<(), PostError> {
        let Some(at) = self.connection(qpn) else { return self.nic.post_send(now, qpn, wr) };
        self.nic.rules(qpn).ok_or(PostError::State)?.0.check(wr)?;
        self.write_send(at, wr)?;
        self.ring_doorbell(now, at);
        Ok(())
    }

    /// Posts a receive, by the number of its queue pair.
    ///
    /// # Errors
    /// As [`Nic::post_recv`].
    pub fn post_recv(&mut self, qpn: Qpn, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let Some(at) = self.connection(qpn) else { return self.nic.post_recv(qpn, wr) };
        self.nic.rules(qpn).ok_or(PostError::State)?.1.check(wr)?;
        self.post_recv_at(at, wr)
    }

    /// Changes a queue pair as the program asks. A connection that goes to the error state, or is reset, is not protected any more: its work,
    /// at whichever NIC it is, is flushed or forgotten.
    ///
    /// # Errors
    /// As [`Nic::modify_qp`].
    pub fn modify_qp(&mut self, now: Instant, qpn: Qpn, attr: &QpAttr) -> Result<(), ModifyError> {
        let DualNic { nic, backup: Some(backup) } = self else { return self.nic.modify_qp(qpn, attr) };
        let at = backup.by_qpn.get(&qpn).copied();
        match (at, attr.state) {
            (Some(at), Some(QpState::Error)) if backup.guard(at).is_some() => {
                backup.end(nic, now, at);
                nic.modify_qp(qpn, attr)
            }
            (Some(at), Some(QpState::Reset)) => {
                nic.modify_qp(qpn, attr)?;
                if let Some(Some(Connection { plain, guard, .. })) = backup.connections.get_mut(at) {
                    (plain.written, plain.recvs) = (0, 0);
                    if let Some(guard) = guard.take() {
                        backup.drop_guard(nic, at, &guard);
                    }
                }
                Ok(())
            }
            (Some(at), Some(QpState::ReadyToSend)) if backup.guard(at).is_some_and(|guard| guard.receives_only) => {
                backup.make_ready_to_send(nic, at, attr)
            }
            (Some(at), _) => {
                nic.modify_qp(qpn, attr)?;
                if let Some((_, guard)) = parts(&mut backup.connections, at) {
                    guard.attr.access = attr.access.or(guard.attr.access);
                }
                Ok(())
            }
            (None, _) => nic.modify_qp(qpn, attr),
        }
    }

    /// Acknowledgements that a connection owes, at whichever NIC, leave now ([`Nic::release_acks`]).
    pub fn release_acks(&mut self, qpn: Qpn) {
        self.nic.release_acks(qpn);
        if let Some(backup) = &mut self.backup
            && let Some(guard) = backup.by_qpn.get(&qpn).and_then(|&at| parts(&mut backup.connections, at))
        {
            backup.nic.release_acks(guard.1.backup);
        }
    }

    /// The state of a queue pair, and its attributes, as the program set them.
    pub fn query_qp(&self, qpn: Qpn) -> Option<(QpState, QpAttr)> {
        let (_, attr) = self.nic.query_qp(qpn)?;
        let state = self.nic.qp_state(qpn)?;
        let guard = self.backup.as_ref().and_then(|backup| backup.guard(*backup.by_qpn.get(&qpn)?));
        let attr = QpAttr { access: guard.map_or(attr.access, |guard| guard.attr.access), ..attr };
        match guard {
            // Whatever its queue pairs are by now, the program has not made it ready to send.
            Some(guard) if guard.receives_only && (guard.halted[0] || state == QpState::ReadyToSend) => {
                Some((QpState::ReadyToReceive, guard.attr))
            }
            Some(guard) if guard.stage == Stage::Ready && guard.machine.phase() != Phase::Failed => {
                // While the other side is used, or this one connected anew, the program need not know.
                let hidden = guard.machine.phase() != Phase::Default || guard.machine.recv_on() == Side::Backup;
                match hidden {
                    true => Some((QpState::ReadyToSend, guard.attr)),
                    false => Some((state, QpAttr { sq_psn: guard.attr.sq_psn, rq_psn: guard.attr.rq_psn, ..attr })),
                }
            }
            _ => Some((state, attr)),
        }
    }
}

/// Why work is not taken. A queue pair that has just halted takes none, and what becomes of it is about to be known: the work waits as if
/// there was no room.
fn kept(nic: &Nic, qpn: Qpn, error: PostError) -> PostError {
    match error {
        PostError::State if nic.qp_state(qpn) == Some(QpState::Error) => PostError::QueueFull,
        error => error,
    }
}

impl Backup {
    /// The program makes a connection ready to send that has its backup since it was ready to receive.
    fn make_ready_to_send(&mut self, nic: &mut Nic, at: usize, attr: &QpAttr) -> Result<(), ModifyError> {
        let Some((plain, guard)) = parts(&mut self.connections, at) else { return Err(ModifyError::NoSuchQp) };
        if nic.qp_state(plain.qpn) == Some(QpState::ReadyToReceive) {
            nic.modify_qp(plain.qpn, attr)?;
        }
        // One that was connected anew meanwhile sends already, and has these when it is the next time.
        guard.receives_only = false;
        let QpAttr { sq_psn, timeout, retry_cnt, rnr_retry, max_rd_atomic, .. } = *attr;
        guard.attr = QpAttr { sq_psn, timeout, retry_cnt, rnr_retry, max_rd_atomic, ..guard.attr };
        let unused = guard.stage == Stage::Ready && guard.machine.epoch() == 0;
        if unused && self.connect_backup(at) {
            self.await_peer(at);
        }
        Ok(())
    }

    /// Gives receives that wait to the side that they belong to.
    pub(super) fn pump_recvs(&mut self, nic: &mut Nic, at: usize) {
        let Backup { nic: backup, connections, regions, .. } = self;
        let Some((plain, guard)) = parts(connections, at) else { return };
        let side = guard.machine.recv_on();
        while let Some(recv) = guard.recvs.front() {
            let posted = match side {
                Side::Default => nic.post_checked_recv(plain.qpn, &recv.wr()),
                Side::Backup => {
                    let mut there = recv.clone();
                    // A key that the default has not either is the program's error, and told as such.
                    let local =
                        |key| regions.get(&key).map(|region| region.key).or((!nic.has_region(key)).then_some(key));
                    if translate_all(&mut there.sges, local).is_err() {
                        break;
                    }
                    backup.post_checked_recv(guard.backup, &there.wr())
                }
            };
            if posted.is_err() {
                break;
            }
            if !recv.counted {
                plain.count_recv();
            }
            guard.recvs.pop_front();
        }
    }
}
