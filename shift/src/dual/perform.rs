//! Carries out the actions of the state machine on the two queue pairs of a connection.

use softnic_nic::transports::memory::Access;
use softnic_nic::transports::planted::{Bug, planted};
use softnic_nic::transports::{Data, OutstandingSend, RecvWr, SendFlags, SendOp, SendProgress, SendWr, Sge};
use softnic_nic::{Connection as Settings, Nic, QpAttr};
use softnic_wire::failover::{Phase, Side, Status};
use softnic_wire::{Instant, Psn, Qpn};

use super::{Backup, Notice};
use crate::connection::{Guard, Sent, parts};
use crate::machine::{Action, Refusal};
use crate::work::{Recv, Send, changes_keys, may_repeat};

/// How far the PSNs of a reconnected queue pair are ahead of its old ones. A late packet of the old connection is then behind the expected
/// PSN, and is handled as a duplicate.
const NEXT_LIFE: u32 = 1 << 21;

impl Backup {
    /// Carries out all pending actions of the state machine.
    pub(super) fn perform(&mut self, nic: &mut Nic, now: Instant, at: usize) {
        while let Some((plain, guard)) = parts(&mut self.connections, at)
            && let Some(action) = guard.machine.poll_action()
        {
            let qpn = plain.qpn;
            match action {
                Action::Halt(side) => self.halt(nic, now, at, side),
                Action::MoveRecvs(from) => self.move_recvs(nic, at, from),
                Action::CountRecvs => self.count_recvs(nic, at),
                Action::Publish { by, wake } => self.publish(nic, now, at, by, wake),
                Action::TakeSends { from, received } => self.take_sends(nic, at, from, received),
                Action::Remake(side) => self.remake(nic, at, side),
                Action::Probe => self.probe(nic, now, at),
                Action::Trust => nic.set_patience(qpn, None),
                Action::Fence => self.fence(now, at),
                Action::Release => {
                    self.pump_recvs(nic, at);
                    self.pump(nic, now, at);
                }
                Action::Fail(why) => self.fail(nic, now, at, why),
                Action::Tell(side, reason) => {
                    match side {
                        Side::Backup => self.counters.failovers += 1,
                        Side::Default => self.counters.failbacks += 1,
                    }
                    self.forget_keys(at);
                    self.notices.push_back(Notice::Moved(qpn, side, reason));
                }
            }
        }
        self.note(at);
    }

    /// Halts a side with its work in place. Outstanding work must be such that it may be executed twice (§4.3.2).
    fn halt(&mut self, nic: &mut Nic, now: Instant, at: usize, side: Side) {
        let Backup { nic: backup, connections, own_wr_id, .. } = self;
        let Some((plain, guard)) = parts(connections, at) else { return };
        let of = if side == Side::Default { nic } else { backup };
        let qpn = guard.qp(plain.qpn, side);
        if !planted(Bug::ShiftCounterEarly) {
            let _ = of.halt_qp(qpn);
        }
        guard.halted[side as usize] = true;
        // The duration of a failover is measured only if outstanding work waits for it.
        let mut work = of.outstanding_sends(qpn).into_iter().flatten();
        if guard.failed_at.is_none() && work.any(|send| side == Side::Backup || send.wr.wr_id != *own_wr_id) {
            guard.failed_at = Some(now);
        }
        (guard.probe_at, guard.notice_at) = match side {
            Side::Default => (None, None),
            Side::Backup => (guard.probe_at, guard.notice_at),
        };
        guard.owes_status &= side == Side::Backup;
        let first = if side == Side::Default { guard.attr.sq_psn.unwrap_or(Psn::new(0)) } else { guard.backup_psn };
        let next = match of.next_psns(qpn) {
            Some(psns) if !planted(Bug::ShiftOldPsns) => psns.send.add(NEXT_LIFE),
            _ => first,
        };
        guard.machine.set_next_psn(side, next);
        let mut outstanding = of.outstanding_sends(qpn).into_iter().flatten();
        if outstanding.any(|send| !may_repeat(&send.wr.op)) || guard.queue.iter().any(|send| changes_keys(&send.op)) {
            guard.machine.fail(Refusal::Unsafe);
        }
    }

    /// Counts the completed receives, and moves the others from one side to the other.
    fn move_recvs(&mut self, nic: &mut Nic, at: usize, from: Side) {
        let Backup { nic: backup, connections, default_keys, own_wr_id, .. } = self;
        let Some((plain, guard)) = parts(connections, at) else { return };
        let of = if from == Side::Default { &mut *nic } else { &mut *backup };
        let mut taken = Vec::new();
        let _ = of.take_recvs(guard.qp(plain.qpn, from), |wr| taken.push(Recv::new(wr, true)));
        taken.retain(|recv| recv.wr_id != *own_wr_id);
        let waiting = guard.recvs.iter().filter(|recv| recv.counted).count();
        guard.machine.set_recv_count(plain.recvs.wrapping_sub((taken.len() + waiting) as u32));
        if from == Side::Backup {
            // The keys of these receives are the backup's.
            for sge in taken.iter_mut().flat_map(|recv| &mut recv.sges) {
                sge.lkey = default_keys.get(&sge.lkey).copied().unwrap_or(sge.lkey);
            }
        }
        // Moved receives go before those that wait for a key.
        for recv in taken.into_iter().rev() {
            guard.recvs.push_front(recv);
        }
        self.pump_recvs(nic, at);
        match (from, parts(&mut self.connections, at)) {
            (Side::Backup, _) => self.await_peer(at),
            (Side::Default, Some((_, guard))) => guard.recv_moved = true,
            (Side::Default, None) => {}
        }
    }

    /// Counts the completed receives, and leaves the others in place.
    fn count_recvs(&mut self, nic: &mut Nic, at: usize) {
        let Backup { nic: backup, connections, own_wr_id, .. } = self;
        let Some((plain, guard)) = parts(connections, at) else { return };
        let side = guard.machine.recv_on();
        let of = if side == Side::Default { &*nic } else { &*backup };
        let posted = of.outstanding_recvs(guard.qp(plain.qpn, side)).into_iter().flatten();
        let posted = posted.filter(|recv| recv.wr_id != *own_wr_id).count();
        let waiting = guard.recvs.iter().filter(|recv| recv.counted).count();
        guard.machine.set_recv_count(plain.recvs.wrapping_sub((posted + waiting) as u32));
    }

    /// Posts a receive of our own at the backup: the peer's WRITE with immediate consumes it, and wakes this end.
    pub(super) fn await_peer(&mut self, at: usize) {
        let Backup { nic: backup, connections, own_wr_id, .. } = self;
        if let Some((_, guard)) = parts(connections, at) {
            let _ = backup.post_checked_recv(guard.backup, &RecvWr { wr_id: *own_wr_id, sges: &[], best_effort: None });
        }
    }

    /// Withdraws the receive that waits for an immediate: the peer's status came without one, so the peer's next message would consume the receive.
    pub(super) fn withdraw_own_recv(&mut self, at: usize) -> bool {
        let Backup { nic: backup, connections, own_wr_id, .. } = self;
        let Some((_, guard)) = parts(connections, at) else { return true };
        let mut taken = Vec::new();
        let withdrawn = backup.take_recvs(guard.backup, |wr| taken.push(Recv::new(wr, true))).is_ok();
        for recv in taken.iter().filter(|recv| recv.wr_id != *own_wr_id) {
            let _ = backup.post_checked_recv(guard.backup, &recv.wr());
        }
        withdrawn
    }

    /// Writes the local status into the peer's memory.
    pub(super) fn publish(&mut self, nic: &mut Nic, now: Instant, at: usize, by: Side, wake: bool) {
        let Backup { nic: backup, connections, own_wr_id, .. } = self;
        let Some((plain, guard)) = parts(connections, at) else { return };
        let Some(peer) = guard.peer else { return };
        let status = guard.machine.status();
        guard.published = status.epoch;
        let mut block = [0; Status::LEN];
        status.emit(&guard.secrets[0], &mut block);
        guard.control.write_at(Status::LEN, &block);
        let (remote_addr, rkey) = (peer.control_addr, peer.control_keys[by as usize]);
        let op = match wake {
            true => SendOp::WriteImm { remote_addr, rkey, imm: status.recv_count },
            false => SendOp::Write { remote_addr, rkey },
        };
        let ours = guard.control.addr() + Status::LEN as u64;
        let sges = [Sge { addr: ours, len: Status::LEN as u32, lkey: guard.control_keys[by as usize] }];
        match by {
            Side::Default => {
                let posted = post_own(nic, now, plain.qpn, *own_wr_id, op, &sges);
                guard.owes_status = posted.is_none();
                if guard.machine.awaits_notice() {
                    guard.notice_at = posted;
                }
            }
            Side::Backup => _ = post_at_backup(backup, now, guard, op, &sges),
        }
    }

    /// Takes the sends out of a side that was left: those that the peer has received are complete, the others wait for the other side.
    fn take_sends(&mut self, nic: &mut Nic, at: usize, from: Side, received: u32) {
        let Backup { nic: backup, connections, own_wr_id, counters, .. } = self;
        let Some((plain, guard)) = parts(connections, at) else { return };
        let mut taken: Vec<Send> = match from {
            Side::Default => {
                let all = nic.outstanding_sends(plain.qpn).into_iter().flatten();
                let by_nic = guard.drain.is_some_and(|drain| drain.by_nic);
                let begun = |send: &OutstandingSend<'_>| !by_nic || send.progress != SendProgress::Unsent;
                let own = all.filter(|send| send.wr.wr_id != *own_wr_id);
                own.map(|send| Send::new(&send.wr, true).begun(begun(&send))).collect()
            }
            Side::Backup => {
                let all = backup.outstanding_sends(guard.backup).into_iter().flatten();
                let first = all.map(|send| send.wr.wr_id).next().unwrap_or(guard.next_seq);
                let left = guard.at_backup.iter().filter(|sent| sent.seq >= first);
                left.filter_map(|sent| sent.send.clone()).map(|send| send.begun(true)).collect()
            }
        };
        let messages = |sends: &[Send]| sends.iter().filter(|send| send.op.uses_receive()).count() as u32;
        // Sends that the peer has received are complete, although their completions are not yet delivered.
        let waits = |send: &&Send| send.counted && !send.covered && send.op.uses_receive();
        let waiting = guard.queue.iter().filter(waits).count() as u32;
        let done = plain.written.wrapping_sub(messages(&taken)).wrapping_sub(waiting);
        let covered = match received.wrapping_sub(done) {
            // The peer counted before the last message by the other side arrived, because its receives stayed there: of this
            // side's messages it has none.
            behind if behind >= 1 << 31 && messages(&taken) == 0 => 0,
            covered => covered,
        };
        if covered > messages(&taken) {
            guard.machine.fail(Refusal::Lie);
            return;
        }
        if from == Side::Backup {
            guard.at_backup.clear();
        }
        // A received message implies that all earlier sends arrived; but the response data of a READ may have been lost.
        let ends = taken.iter().enumerate().filter(|(_, send)| send.op.uses_receive()).map(|(i, _)| i + 1);
        let behind = ends.take(covered as usize).last().unwrap_or(0);
        for send in &mut taken[..behind] {
            send.covered = !matches!(send.op, SendOp::Read { .. });
        }
        let skipped = taken.iter().filter(|send| send.covered).count() as u64;
        counters.skipped += skipped;
        counters.resubmitted += taken.len() as u64 - skipped;
        for send in taken.into_iter().rev() {
            guard.queue.push_front(send);
        }
        // The program has waited long enough for the first of these sends; a status may precede it.
        let (to, qpn) = match from {
            Side::Default => (backup, guard.backup),
            Side::Backup => (nic, plain.qpn),
        };
        to.hasten_acks(qpn, 2);
    }

    /// Reconnects the queue pair of a side, with PSNs that no packet of the old connection matches.
    fn remake(&mut self, nic: &mut Nic, at: usize, side: Side) {
        let Backup { nic: backup, connections, config, .. } = self;
        let Some((plain, guard)) = parts(connections, at) else { return };
        let of = if side == Side::Default { nic } else { backup };
        let qpn = guard.qp(plain.qpn, side);
        let status = guard.machine.status();
        let Some(peer) = guard.machine.peer() else { return };
        let rq_psn = peer.next_psn[side as usize];
        let mut settings = settings_of(&guard.attr);
        (settings.sq_psn, settings.rq_psn) = (status.next_psn[side as usize], rq_psn);
        if side == Side::Backup {
            let Some(peer) = guard.peer else { return };
            (settings.path, settings.dest_qp) = (guard.path, peer.qpn);
            guard.at_backup.clear();
        }
        // If the address is gone, the queue pair stays halted until a probe finds the address again.
        guard.halted[side as usize] = of.reconnect(qpn, &settings).is_err();
        if side == Side::Default {
            guard.drain.iter_mut().for_each(|drain| drain.by_nic = false);
        }
        if side == Side::Default && guard.machine.phase() == Phase::Fallback {
            of.set_patience(qpn, Some(timeout_code(config.times.probe)));
        }
        if side == Side::Backup && guard.machine.recv_on() == Side::Default {
            self.await_peer(at);
        }
    }

    /// Posts an empty WRITE at the default: it is acknowledged when the path works in both directions.
    fn probe(&mut self, nic: &mut Nic, now: Instant, at: usize) {
        // An address that was gone may be back; IPv6 addresses are removed while their link is down.
        if self.guard(at).is_some_and(|guard| guard.halted[0]) {
            self.remake(nic, at, Side::Default);
        }
        let Backup { connections, own_wr_id, .. } = self;
        let Some((plain, guard)) = parts(connections, at) else { return };
        let Some(peer) = guard.peer else { return };
        let op = SendOp::Write { remote_addr: peer.control_addr, rkey: peer.control_keys[0] };
        guard.probe_at = post_own(nic, now, plain.qpn, *own_wr_id, op, &[]);
        if guard.probe_at.is_none() {
            guard.machine.on_no_probe(now);
        }
    }

    /// Posts a signaled send of our own, because the program has none.
    fn fence(&mut self, now: Instant, at: usize) {
        let Backup { nic: backup, connections, .. } = self;
        let Some((_, guard)) = parts(connections, at) else { return };
        let Some(peer) = guard.peer else { return };
        let op = SendOp::Write { remote_addr: peer.control_addr, rkey: peer.control_keys[1] };
        let seq = guard.next_seq;
        match post_at_backup(backup, now, guard, op, &[]) {
            true => {
                guard.fence = Some(seq);
                guard.machine.on_fence_sent();
            }
            false => guard.machine.on_no_fence(now),
        }
    }
}

/// Posts work of our own to the default's queue pair, without a completion. Returns the number of completed sends at which the work is
/// complete; `None` if the queue pair accepts no work. If it has halted meanwhile, an event follows.
fn post_own(nic: &mut Nic, now: Instant, qpn: Qpn, wr_id: u64, op: SendOp, sges: &[Sge]) -> Option<u32> {
    let (data, flags) = (Data::Gather(sges), SendFlags::default());
    nic.write_checked_send(qpn, &SendWr { wr_id, op, data, flags, best_effort: None, to: None }).ok()?;
    nic.ring_doorbell(now, qpn);
    nic.vitals(qpn).map(|vitals| vitals.posted)
}

/// Posts work of our own to the backup's queue pair, with a completion. Returns whether there was room.
fn post_at_backup(backup: &mut Nic, now: Instant, guard: &mut Guard, op: SendOp, sges: &[Sge]) -> bool {
    let flags = SendFlags { signaled: true, ..SendFlags::default() };
    let wr = SendWr { wr_id: guard.next_seq, op, data: Data::Gather(sges), flags, best_effort: None, to: None };
    let posted = backup.write_checked_send(guard.backup, &wr).is_ok();
    if posted {
        guard.at_backup.push_back(Sent { seq: guard.next_seq, send: None });
        guard.next_seq += 1;
        backup.ring_doorbell(now, guard.backup);
    }
    posted
}

/// The code of the longest ACK timeout that does not exceed a limit.
pub(super) fn timeout_code(limit: std::time::Duration) -> u8 {
    (1..31).rev().find(|&n| (4096u128 << n) <= limit.as_nanos()).unwrap_or(1)
}

/// The connection settings that correspond to a queue pair's attributes.
pub(super) fn settings_of(attr: &QpAttr) -> Settings {
    let usual = Settings::default();
    Settings {
        port: attr.port.unwrap_or(usual.port),
        path: attr.path,
        dest_qp: attr.dest_qp.unwrap_or(usual.dest_qp),
        mtu: attr.mtu.unwrap_or(usual.mtu),
        sq_psn: attr.sq_psn.unwrap_or(usual.sq_psn),
        rq_psn: attr.rq_psn.unwrap_or(usual.rq_psn),
        // Peers write statuses, even if the program grants only READs. The access rights of its regions are unchanged.
        access: attr.access.unwrap_or(usual.access) | Access::REMOTE_WRITE,
        qkey: None,
        timeout: attr.timeout.unwrap_or(usual.timeout),
        retry_cnt: attr.retry_cnt.unwrap_or(usual.retry_cnt),
        rnr_retry: attr.rnr_retry.unwrap_or(usual.rnr_retry),
        min_rnr_timer: attr.min_rnr_timer.unwrap_or(usual.min_rnr_timer),
        max_rd_atomic: attr.max_rd_atomic.unwrap_or(usual.max_rd_atomic),
        max_dest_rd_atomic: attr.max_dest_rd_atomic.unwrap_or(usual.max_dest_rd_atomic),
    }
}
