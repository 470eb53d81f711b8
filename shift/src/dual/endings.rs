//! How connections end: in errors, or at the program's request.

use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{Completion, Status as WcStatus, WcOpcode};
use softnic_nic::{Nic, QpAttr};
use softnic_wire::Instant;
use softnic_wire::failover::{Phase, Side};

use super::{Backup, Notice};
use crate::connection::{Sent, Stage, parts};
use crate::machine::Refusal;
use crate::work::{Recv, Send};

impl Backup {
    /// Completes all work in errors, in the order in which it was posted.
    pub(super) fn fail(&mut self, nic: &mut Nic, now: Instant, at: usize, why: Refusal) {
        // Earlier completions are delivered first.
        self.drain(nic, now);
        if matches!(why, Refusal::BothSides | Refusal::Silence) && self.is_idle(nic, at) {
            return self.doom(nic, at, why);
        }
        self.fail_now(nic, now, at, why);
    }

    /// Whether the program has no sends outstanding or waiting.
    fn is_idle(&mut self, nic: &Nic, at: usize) -> bool {
        let Backup { connections, own_wr_id, .. } = self;
        let Some((plain, guard)) = parts(connections, at) else { return false };
        let mut outstanding = nic.outstanding_sends(plain.qpn).into_iter().flatten();
        guard.queue.is_empty()
            && guard.at_backup.iter().all(|sent| sent.send.is_none())
            && outstanding.all(|send| send.wr.wr_id == *own_wr_id)
    }

    /// Marks an idle connection as unable to continue. A program that only receives gets no error, as without a backup; its next send fails.
    /// No further work of our own is sent, and receives stay in place.
    fn doom(&mut self, nic: &mut Nic, at: usize, why: Refusal) {
        let Backup { nic: backup, connections, .. } = self;
        let Some((plain, guard)) = parts(connections, at) else { return };
        let _ = (nic.halt_qp(plain.qpn), backup.halt_qp(guard.backup));
        (guard.halted, guard.doomed) = ([true; 2], Some(why));
        (guard.probe_at, guard.notice_at) = (None, None);
        guard.recv_moved = false;
    }

    /// Ends a connection that cannot continue, when the program sends.
    pub(super) fn meet_doom(&mut self, nic: &mut Nic, now: Instant, at: usize) {
        let doomed = parts(&mut self.connections, at).and_then(|(_, guard)| guard.doomed.take());
        if let Some(why) = doomed {
            self.fail_now(nic, now, at, why);
        }
    }

    fn fail_now(&mut self, nic: &mut Nic, now: Instant, at: usize, why: Refusal) {
        self.flush(nic, at, Some(WcStatus::RetryExcErr));
        // Notify the peer, which may wait for our answer, if the backup still sends. Otherwise the peer's wait times out.
        let wake = self.guard(at).is_some_and(|guard| {
            let status = guard.machine.status();
            status.woke && guard.published != status.epoch
        });
        self.publish(nic, now, at, Side::Backup, wake);
        self.counters.refused += 1;
        if let Some((plain, _)) = parts(&mut self.connections, at) {
            self.notices.push_back(Notice::Failed(plain.qpn, why));
        }
    }

    /// Ends a connection because the program does, or because the program received an error of its own.
    pub(super) fn end(&mut self, nic: &mut Nic, now: Instant, at: usize) {
        self.drain(nic, now);
        let Some((_, guard)) = parts(&mut self.connections, at) else { return };
        if guard.machine.phase() == Phase::Failed && guard.doomed.take().is_none() {
            return;
        }
        guard.machine.fail(Refusal::Peer);
        while guard.machine.poll_action().is_some() {}
        self.flush(nic, at, None);
        self.stop_meeting(at);
        self.note(at);
    }

    /// Stops the setup of the backup for a connection that ended before it had one.
    pub(super) fn stop_meeting(&mut self, at: usize) {
        let Some((_, guard)) = parts(&mut self.connections, at) else { return };
        if guard.stage != Stage::Ready {
            (guard.stage, guard.ask_at) = (Stage::Unprotected, None);
            self.mark(at);
        }
    }

    /// Flushes the work of both sides and the work that waits. The first send gets the given status, if any.
    fn flush(&mut self, nic: &mut Nic, at: usize, mut first: Option<WcStatus>) {
        let Backup { nic: backup, connections, own_wr_id, .. } = self;
        let Some((plain, guard)) = parts(connections, at) else { return };
        let (qpn, init) = (plain.qpn, plain.init);
        guard.recv_moved = false;
        // After the end, nothing may access the program's memory.
        let mut recvs = backup.outstanding_recvs(guard.backup).into_iter().flatten();
        let in_use =
            recvs.any(|recv| recv.wr_id != *own_wr_id) || guard.at_backup.iter().any(|sent| sent.send.is_some());
        if in_use {
            let _ = backup.halt_qp(guard.backup);
        }
        let sent = backup.outstanding_sends(guard.backup).into_iter().flatten().map(|send| send.wr.wr_id).next();
        let at_backup: Vec<Sent> = guard.at_backup.drain(..).collect();
        let left = at_backup.into_iter().filter(|entry| sent.is_some_and(|first| entry.seq >= first));
        let mut sends: Vec<Send> = left.filter_map(|entry| entry.send).collect();
        // The default flushes its outstanding sends itself, before all that waits.
        let own = nic.outstanding_sends(qpn).into_iter().flatten();
        let outstanding = own.filter(|send| send.wr.wr_id != *own_wr_id).count();
        if outstanding > 0 {
            first = None;
        }
        let error = QpAttr { state: Some(QpState::Error), ..QpAttr::default() };
        let mut recvs: Vec<Recv> = Vec::new();
        let _ = backup.take_recvs(guard.backup, |wr| recvs.push(Recv::new(wr, true)));
        recvs.retain(|recv| recv.wr_id != *own_wr_id);
        recvs.extend(guard.recvs.drain(..));
        // Work of the default was posted earlier, so it is flushed first.
        if sends.is_empty() {
            let _ = nic.modify_qp(qpn, &error);
        }
        sends.extend(guard.queue.drain(..));
        for send in &sends {
            // No work succeeds after an error.
            let status = match send.covered && first.is_some() {
                true => WcStatus::Success,
                false => first.take().unwrap_or(WcStatus::WrFlushErr),
            };
            if status != WcStatus::Success || send.flags.signaled {
                let _ = nic.push_completion(init.send_cq, send.completion(status, qpn));
            }
        }
        for recv in &recvs {
            let flushed = Completion::new(recv.wr_id, WcStatus::WrFlushErr, WcOpcode::Recv, qpn);
            let _ = nic.push_completion(init.recv_cq, flushed);
        }
        let _ = nic.modify_qp(qpn, &error);
    }
}
