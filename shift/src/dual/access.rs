//! Work of the program: posted to the default's queue pair, or to the side that the connection uses.

use softnic_nic::Nic;
use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{PostError, RecvWr, SendFlags, SendWr};
use softnic_wire::failover::{Phase, Side};
use softnic_wire::{Instant, Qpn};

use super::{DualNic, OWN_SENDS};
use crate::connection::{Connection, Guard, Plain, parts};
use crate::work::{Recv, Send};

impl DualNic {
    /// The connection of a queue pair, for [`DualNic::write_send`]; `None` if only the default NIC has the queue pair.
    pub fn connection(&self, qpn: Qpn) -> Option<usize> {
        self.backup.as_ref()?.by_qpn.get(&qpn).copied()
    }

    /// Whether sends of a connection may be written directly to the default's queue pair ([`Nic::write_checked_send`]), which costs least.
    /// The answer holds until an event concerns one of the NICs. [`DualNic::ring_direct`] counts such sends.
    #[inline]
    pub fn is_direct(&self, at: usize) -> bool {
        let Some(Some(Connection { plain, guard, .. })) = self.backup.as_ref().and_then(|all| all.connections.get(at))
        else {
            return false;
        };
        let as_made = !plain.init.sig_all && plain.init.caps.max_send_wr >= OWN_SENDS;
        as_made
            && self.nic.qp_state(plain.qpn) != Some(QpState::Error)
            && guard.as_ref().is_none_or(|guard| !guard.keeps_sends())
    }

    /// Rings the doorbell for sends that were written directly; `messages` of them consume a receive.
    #[inline]
    pub fn ring_direct(&mut self, now: Instant, at: usize, messages: u32) {
        let DualNic { nic, backup: Some(backup) } = self else { return };
        let Some(Some(Connection { plain, .. })) = backup.connections.get_mut(at) else { return };
        plain.written = plain.written.wrapping_add(messages);
        nic.ring_doorbell(now, plain.qpn);
    }

    /// Writes a send work request that has been checked against the queue pair's rules.
    ///
    /// # Errors
    /// As [`Nic::write_checked_send`].
    #[inline]
    pub fn write_send(&mut self, at: usize, wr: &SendWr<'_>) -> Result<(), PostError> {
        let DualNic { nic, backup: Some(backup) } = self else { return Err(PostError::State) };
        let Some(Some(connection)) = backup.connections.get_mut(at) else { return Err(PostError::State) };
        let Connection { plain, guard, .. } = connection;
        if plain.init.sig_all && !wr.flags.signaled {
            let flags = SendFlags { signaled: true, ..wr.flags };
            return self.write_send(at, &SendWr { flags, ..*wr });
        }
        match guard {
            Some(guard) if guard.keeps_sends() => keep_send(nic, plain, guard, wr),
            // The actual queue pair has more room than the program requested, and the program's completion queue may not.
            _ if plain.init.caps.max_send_wr < OWN_SENDS && outstanding(nic, plain) >= plain.init.caps.max_send_wr => {
                Err(PostError::QueueFull)
            }
            _ => match nic.write_checked_send(plain.qpn, wr) {
                Ok(()) => {
                    plain.count_send(&wr.op);
                    Ok(())
                }
                Err(error) => Err(kept(nic, plain.qpn, error)),
            },
        }
    }

    /// Rings the doorbell for sends that were written.
    #[inline]
    pub fn ring_doorbell(&mut self, now: Instant, at: usize) {
        let DualNic { nic, backup: Some(backup) } = self else { return };
        let Some(Some(connection)) = backup.connections.get(at) else { return };
        if connection.guard.as_ref().is_some_and(|guard| !guard.queue.is_empty()) {
            backup.catch_up(nic);
            backup.meet_doom(nic, now, at);
            backup.pump(nic, now, at);
            backup.perform(nic, now, at);
        } else {
            nic.ring_doorbell(now, connection.plain.qpn);
        }
    }

    /// Posts a receive that has been checked against the queue pair's rules.
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
                backup.catch_up(nic);
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

    /// Posts a send work request, by queue pair number.
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

    /// Posts a receive, by queue pair number.
    ///
    /// # Errors
    /// As [`Nic::post_recv`].
    pub fn post_recv(&mut self, qpn: Qpn, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let Some(at) = self.connection(qpn) else { return self.nic.post_recv(qpn, wr) };
        self.nic.rules(qpn).ok_or(PostError::State)?.1.check(wr)?;
        self.post_recv_at(at, wr)
    }

    /// Sends the acknowledgements that a connection owes now, at either NIC ([`Nic::release_acks`]).
    pub fn release_acks(&mut self, qpn: Qpn) {
        self.nic.release_acks(qpn);
        if let Some(backup) = &mut self.backup
            && let Some(&at) = backup.by_qpn.get(&qpn)
            // The backup has received nothing for a calm connection.
            && backup.connections[at].as_ref().is_some_and(|connection| !connection.calm)
            && let Some((_, guard)) = parts(&mut backup.connections, at)
        {
            backup.nic.release_acks(guard.backup);
        }
    }
}

/// Keeps a send until its side can take it. The queue pair's capacity limits the number of sends, kept or outstanding: the program's
/// completion queue may have room for just these.
#[cold]
fn keep_send(nic: &mut Nic, plain: &Plain, guard: &mut Guard, wr: &SendWr<'_>) -> Result<(), PostError> {
    if guard.machine.phase() == Phase::Failed && guard.doomed.is_none() {
        return nic.write_checked_send(plain.qpn, wr);
    }
    let at_default = match guard.machine.send_side() {
        Some(Side::Default) => outstanding(nic, plain) as usize,
        _ => 0,
    };
    if guard.queue.len() + guard.at_backup.len() + at_default >= plain.init.caps.max_send_wr.max(1) as usize {
        return Err(PostError::QueueFull);
    }
    guard.queue.push_back(Send::new(wr, false));
    Ok(())
}

/// Sends outstanding at the default's queue pair, including work of our own.
fn outstanding(nic: &Nic, plain: &Plain) -> u32 {
    let vitals = nic.vitals(plain.qpn).unwrap_or_default();
    vitals.posted.wrapping_sub(vitals.completed)
}

/// The error for work that was not accepted. A queue pair that has just halted accepts none, and the connection's state is about to change:
/// the program retries, as if the queue were full.
#[cold]
fn kept(nic: &Nic, qpn: Qpn, error: PostError) -> PostError {
    match error {
        PostError::State if nic.qp_state(qpn) == Some(QpState::Error) => PostError::QueueFull,
        error => error,
    }
}
