//! Work of the program's: to the default's queue pair as ever, or to where the connection is.

use softnic_nic::Nic;
use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{PostError, RecvWr, SendWr};
use softnic_wire::failover::{Phase, Side};
use softnic_wire::{Instant, Qpn};

use super::DualNic;
use crate::connection::{Connection, parts};
use crate::work::{Recv, Send};

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
            Some(guard) if guard.keeps_sends() => {
                if guard.machine.phase() == Phase::Failed && guard.doomed.is_none() {
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
            backup.meet_doom(nic, now, at);
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
                if guard.doomed.is_some()
                    || guard.machine.phase() != Phase::Failed
                        && (guard.machine.recv_on() == Side::Backup || !guard.recvs.is_empty()) =>
            {
                if guard.recvs.len() >= plain.init.caps.max_recv_wr as usize {
                    return Err(PostError::QueueFull);
                }
                guard.recvs.push_back(Recv::new(wr, false));
                if backup.pump_recvs(nic, at) {
                    backup.mark(at);
                }
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

    /// Acknowledgements that a connection owes, at whichever NIC, leave now ([`Nic::release_acks`]).
    pub fn release_acks(&mut self, qpn: Qpn) {
        self.nic.release_acks(qpn);
        if let Some(backup) = &mut self.backup
            && let Some(guard) = backup.by_qpn.get(&qpn).and_then(|&at| parts(&mut backup.connections, at))
        {
            backup.nic.release_acks(guard.1.backup);
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
