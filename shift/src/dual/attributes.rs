//! States and attributes of a protected queue pair, as the program sets and sees them, whichever NIC is in use.

use softnic_nic::transports::Event;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::{QpState, check_rules};
use softnic_nic::{ModifyError, Nic, QpAttr, QpKind};
use softnic_wire::failover::{Phase, Side};
use softnic_wire::{Instant, Qpn};

use super::owed::Owed;
use super::perform::timeout_code;
use super::{Backup, DualNic};
use crate::connection::{Connection, Drain, Guard, Stage, parts};

impl DualNic {
    /// Modifies a queue pair at the program's request. A connection that moves to the error state, or is reset, is no longer protected: its
    /// work at either NIC is flushed (error) or dropped (reset).
    ///
    /// # Errors
    /// As [`Nic::modify_qp`].
    pub fn modify_qp(&mut self, now: Instant, qpn: Qpn, attr: &QpAttr) -> Result<(), ModifyError> {
        let DualNic { nic, backup: Some(backup) } = self else { return self.nic.modify_qp(qpn, attr) };
        let Some(&at) = backup.by_qpn.get(&qpn) else { return nic.modify_qp(qpn, attr) };
        let connection = backup.connections.get(at).and_then(Option::as_ref);
        let rises = |state| matches!(state, QpState::Init | QpState::ReadyToReceive | QpState::ReadyToSend);
        if !connection.is_some_and(|connection| connection.calm && attr.state.is_none_or(rises)) {
            return self.modify_at(now, at, qpn, attr);
        }
        // The default's queue pair executes the change; its counterpart at the backup follows later.
        let has_guard = connection.is_some_and(|connection| connection.guard.is_some());
        nic.modify_qp(qpn, attr)?;
        if has_guard {
            backup.owed.push(Owed::Attributes { at, sends: attr.state == Some(QpState::ReadyToSend) });
        }
        Ok(())
    }

    /// Modifies a queue pair that ends or drains, or that is not calm.
    #[cold]
    fn modify_at(&mut self, now: Instant, at: usize, qpn: Qpn, attr: &QpAttr) -> Result<(), ModifyError> {
        let DualNic { nic, backup: Some(backup) } = self else { return self.nic.modify_qp(qpn, attr) };
        let Some(Some(Connection { plain, guard, refused, gave_up, calm })) = backup.connections.get_mut(at) else {
            return nic.modify_qp(qpn, attr);
        };
        match attr.state {
            Some(QpState::Reset) => {
                nic.modify_qp(qpn, attr)?;
                (plain.written, plain.recvs, *refused, *gave_up, *calm) = (0, 0, false, false, true);
                if let Some(guard) = guard.take() {
                    backup.leave_guard(nic, at, guard);
                }
                Ok(())
            }
            _ if guard.is_none() => nic.modify_qp(qpn, attr),
            Some(QpState::Error) => {
                backup.catch_up(nic);
                backup.end(nic, now, at);
                nic.modify_qp(qpn, attr)
            }
            _ => {
                backup.catch_up(nic);
                backup.modify(nic, now, at, attr)
            }
        }
    }

    /// The state and attributes of a queue pair, as the program set them.
    pub fn query_qp(&self, qpn: Qpn) -> Option<(QpState, QpAttr)> {
        let (_, attr) = self.nic.query_qp(qpn)?;
        let state = self.nic.qp_state(qpn)?;
        let Some(guard) = self.disguise(qpn) else { return Some((state, attr)) };
        let shown = shown_state(guard, state);
        let attr = match guard.is_hidden() || shown != state {
            true => guard.attr,
            // A reconnected queue pair has other PSNs, and lets the peer write its status.
            false => QpAttr { sq_psn: guard.attr.sq_psn, rq_psn: guard.attr.rq_psn, access: guard.attr.access, ..attr },
        };
        Some((shown, QpAttr { state: Some(shown), ..attr }))
    }

    /// The state of a queue pair, as the program set it.
    pub fn qp_state(&self, qpn: Qpn) -> Option<QpState> {
        let state = self.nic.qp_state(qpn)?;
        Some(self.disguise(qpn).map_or(state, |guard| shown_state(guard, state)))
    }

    /// The guard that stands in for the default's queue pair, if that may differ from what the program made.
    fn disguise(&self, qpn: Qpn) -> Option<&Guard> {
        let backup = self.backup.as_ref()?;
        let connection = backup.connections.get(*backup.by_qpn.get(&qpn)?)?.as_ref()?;
        connection.guard.as_deref().filter(|_| !connection.calm)
    }
}

/// The state that the program has given a queue pair whose actual state is `state`.
fn shown_state(guard: &Guard, state: QpState) -> QpState {
    match state {
        // Whatever the state of the actual queue pairs, the program has not made this one ready to send.
        _ if guard.receives_only && (guard.is_hidden() || state == QpState::ReadyToSend) => QpState::ReadyToReceive,
        _ if guard.drain.is_some() && (guard.is_hidden() || state == QpState::ReadyToSend) => QpState::SendQueueDrain,
        _ if guard.is_hidden() => QpState::ReadyToSend,
        state => state,
    }
}

impl Backup {
    /// Modifies a connection that has a backup, or is about to get one: the queue pairs of both sides keep equal attributes.
    fn modify(&mut self, nic: &mut Nic, now: Instant, at: usize, attr: &QpAttr) -> Result<(), ModifyError> {
        // Completions are delivered before the change takes effect.
        self.drain(nic, now);
        let drained = self.is_drained(nic, at);
        let Backup { nic: backup, connections, config, .. } = self;
        let Some((plain, guard)) = parts(connections, at) else { return Err(ModifyError::NoSuchQp) };
        let state = nic.qp_state(plain.qpn).ok_or(ModifyError::NoSuchQp)?;
        let from = shown_state(guard, state);
        let to = attr.state.unwrap_or(from);
        // If failover has not touched the connection, the default's queue pair does all of this. A drain emulated here stays so until resumed.
        let undisturbed = guard.machine.is_settled() || guard.stage != Stage::Ready;
        let by_nic = state == from && !guard.is_hidden() && (undisturbed || from == QpState::ReadyToReceive);
        if by_nic {
            nic.modify_qp(plain.qpn, attr)?;
        } else {
            check_rules(QpKind::Rc, from, to, attr)?;
            let addresses = &nic.port().addresses;
            if attr.path.is_some_and(|path| !addresses.contains(&path.addresses.src())) {
                return Err(ModifyError::NotOurAddress);
            }
            if (from, to) == (QpState::SendQueueDrain, QpState::SendQueueDrain) && !drained {
                return Err(ModifyError::NotDrained);
            }
        }
        guard.attr.merge(&QpAttr { state: None, sqd_notify: None, ..*attr });
        match (from, to) {
            (QpState::ReadyToReceive, QpState::ReadyToSend) => guard.receives_only = false,
            (QpState::ReadyToSend, QpState::SendQueueDrain) => {
                guard.drain = Some(Drain { notify: attr.sqd_notify.unwrap_or(false), by_nic });
            }
            (QpState::SendQueueDrain, QpState::ReadyToSend) => guard.drain = None,
            _ => {}
        }
        // Peers write statuses, whatever access the program grants.
        let access = attr.access.map(|access| access | Access::REMOTE_WRITE);
        let changes = QpAttr { state: None, path: None, sq_psn: None, rq_psn: None, access, ..*attr };
        backup.update_qp(guard.backup, &changes);
        if !by_nic && !guard.halted[0] {
            nic.update_qp(plain.qpn, &changes);
            if guard.machine.phase() == Phase::Fallback {
                nic.set_patience(plain.qpn, Some(timeout_code(config.times.probe)));
            }
        }
        self.check_drained(nic, at);
        self.pump(nic, now, at);
        self.perform(nic, now, at);
        Ok(())
    }

    /// Whether all sends are complete that had begun when the program requested SQD.
    fn is_drained(&mut self, nic: &Nic, at: usize) -> bool {
        let Backup { nic: backup, connections, own_wr_id, .. } = self;
        let Some((plain, guard)) = parts(connections, at) else { return false };
        let of = [(Side::Default, nic), (Side::Backup, &*backup)];
        let mut outstanding = of.into_iter().flat_map(|(side, of)| {
            let sends = of.outstanding_sends(guard.qp(plain.qpn, side)).into_iter().flatten();
            sends.map(move |send| (side, send.wr.wr_id))
        });
        let is_own = |side: Side, wr_id: u64| match side {
            Side::Default => wr_id == *own_wr_id,
            Side::Backup => guard.at_backup.iter().any(|sent| sent.seq == wr_id && sent.send.is_none()),
        };
        guard.queue.front().is_none_or(|send| !send.begun && !send.covered)
            && outstanding.all(|(side, wr_id)| is_own(side, wr_id))
    }

    /// Reports to the program that its sends are drained, if no NIC does so.
    pub(super) fn check_drained(&mut self, nic: &Nic, at: usize) {
        let waits = |guard: &Guard| guard.drain.is_some_and(|drain| drain.notify && !drain.by_nic);
        if self.guard(at).is_some_and(waits) && self.is_drained(nic, at) {
            let Some((plain, guard)) = parts(&mut self.connections, at) else { return };
            guard.drain.iter_mut().for_each(|drain| drain.notify = false);
            self.events.push_back(Event::SqDrained(plain.qpn));
        }
    }
}
