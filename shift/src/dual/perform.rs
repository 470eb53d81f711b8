//! What the states of a connection ask for, done to its two queue pairs.

use softnic_nic::transports::memory::Access;
use softnic_nic::transports::planted::{Bug, planted};
use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{
    Completion, Data, PostError, RecvWr, SendFlags, SendOp, SendWr, Sge, Status as WcStatus, WcOpcode,
};
use softnic_nic::{Connection as Settings, Nic, QpAttr};
use softnic_wire::failover::{Phase, Side, Status};
use softnic_wire::{Instant, Psn, Qpn};

use super::{Backup, Notice};
use crate::connection::{Guard, Sent, parts};
use crate::machine::{Action, Refusal};
use crate::work::{MissingKey, Recv, Send, changes_keys, may_repeat, takes_receive};

/// How far the PSNs of a queue pair's next life are ahead of its last: whatever of the old one still comes then is behind them, and is taken
/// for what has come already.
const NEXT_LIFE: u32 = 1 << 21;

impl Backup {
    /// Does all that the states of a connection ask for.
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
                    self.notices.push_back(Notice::Moved(qpn, side, reason));
                }
            }
        }
        if self.guard(at).is_some_and(Guard::is_unsettled) {
            self.unsettle(at);
        }
    }

    /// Stops a side with its work in place. What is outstanding must be such that it may be carried out twice (§4.3.2).
    fn halt(&mut self, nic: &mut Nic, now: Instant, at: usize, side: Side) {
        let Backup { nic: backup, connections, own_wr_id, .. } = self;
        let Some((plain, guard)) = parts(connections, at) else { return };
        let of = if side == Side::Default { nic } else { backup };
        let qpn = guard.qp(plain.qpn, side);
        if !planted(Bug::ShiftCounterEarly) {
            let _ = of.halt_qp(qpn);
        }
        guard.halted[side as usize] = true;
        // How long a failover takes is how long somebody's work waits for it.
        let mut work = of.outstanding_sends(qpn).into_iter().flatten();
        if guard.failed_at.is_none() && work.any(|send| side == Side::Backup || send.wr.wr_id != *own_wr_id) {
            guard.failed_at = Some(now);
        }
        (guard.probe_at, guard.notice_at) = match side {
            Side::Default => (None, None),
            Side::Backup => (guard.probe_at, guard.notice_at),
        };
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

    /// Counts the receives that are done, and moves the others from a side to the other.
    fn move_recvs(&mut self, nic: &mut Nic, at: usize, from: Side) {
        let Backup { nic: backup, connections, regions, own_wr_id, .. } = self;
        let Some((plain, guard)) = parts(connections, at) else { return };
        let of = if from == Side::Default { &mut *nic } else { &mut *backup };
        let mut taken = Vec::new();
        let _ = of.take_recvs(guard.qp(plain.qpn, from), |wr| taken.push(Recv::new(wr, true)));
        taken.retain(|recv| recv.wr_id != *own_wr_id);
        let waiting = guard.recvs.iter().filter(|recv| recv.counted).count();
        guard.machine.set_recv_count(plain.recvs.wrapping_sub((taken.len() + waiting) as u32));
        if from == Side::Backup {
            // Their keys are the backup's.
            let back = |key: u32| regions.iter().find(|(_, region)| region.key == key).map(|(&default, _)| default);
            for recv in &mut taken {
                recv.sges.iter_mut().for_each(|sge| sge.lkey = back(sge.lkey).unwrap_or(sge.lkey));
            }
        }
        // Behind those that were moved are those that wait for a key.
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

    /// Counts the receives that are done, where they are.
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

    /// A receive of our own waits at the backup: by it the peer wakes us.
    pub(super) fn await_peer(&mut self, at: usize) {
        let Backup { nic: backup, connections, own_wr_id, .. } = self;
        if let Some((_, guard)) = parts(connections, at) {
            let _ = backup.post_checked_recv(guard.backup, &RecvWr { wr_id: *own_wr_id, sges: &[], best_effort: None });
        }
    }

    /// The peer's status came without an immediate, so the receive that waits for one would be taken by the peer's next message.
    pub(super) fn withdraw_own_recv(&mut self, at: usize) {
        let Backup { nic: backup, connections, own_wr_id, .. } = self;
        let Some((_, guard)) = parts(connections, at) else { return };
        let mut taken = Vec::new();
        let _ = backup.take_recvs(guard.backup, |wr| taken.push(Recv::new(wr, true)));
        for recv in taken.iter().filter(|recv| recv.wr_id != *own_wr_id) {
            let _ = backup.post_checked_recv(guard.backup, &recv.wr());
        }
    }

    /// Writes our status into the peer's memory.
    fn publish(&mut self, nic: &mut Nic, now: Instant, at: usize, by: Side, wake: bool) {
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
                if guard.machine.awaits_notice() {
                    guard.notice_at = posted;
                }
            }
            Side::Backup => _ = post_at_backup(backup, now, guard, op, &sges),
        }
    }

    /// Takes the sends out of a side that was left: those that the peer has are done, the others wait for the other side.
    fn take_sends(&mut self, nic: &mut Nic, at: usize, from: Side, received: u32) {
        let Backup { nic: backup, connections, own_wr_id, counters, .. } = self;
        let Some((plain, guard)) = parts(connections, at) else { return };
        let mut taken: Vec<Send> = match from {
            Side::Default => {
                let all = nic.outstanding_sends(plain.qpn).into_iter().flatten();
                all.filter(|send| send.wr.wr_id != *own_wr_id).map(|send| Send::new(&send.wr, true)).collect()
            }
            Side::Backup => {
                let all = backup.outstanding_sends(guard.backup).into_iter().flatten();
                let first = all.map(|send| send.wr.wr_id).next().unwrap_or(guard.next_seq);
                let left = guard.at_backup.iter().filter(|sent| sent.seq >= first);
                left.filter_map(|sent| sent.send.clone()).collect()
            }
        };
        let messages = |sends: &[Send]| sends.iter().filter(|send| takes_receive(&send.op)).count() as u32;
        // Those that the peer has are done, though nobody was told yet.
        let waits = |send: &&Send| send.counted && !send.covered && takes_receive(&send.op);
        let waiting = guard.queue.iter().filter(waits).count() as u32;
        let done = plain.written.wrapping_sub(messages(&taken)).wrapping_sub(waiting);
        let covered = match received.wrapping_sub(done) {
            // It counted before the last of what went by the other side came, where its receives stayed: of this side
            // it has none.
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
        // A message that came says that all before it came; but the data of a READ may be lost on its way back.
        let ends = taken.iter().enumerate().filter(|(_, send)| takes_receive(&send.op)).map(|(i, _)| i + 1);
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
    }

    /// Connects the queue pair of a side anew, with PSNs that no packet of its last life fits.
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
        let reset = QpAttr { state: Some(QpState::Reset), ..QpAttr::default() };
        // Where the address is gone it stays halted, until a probe finds it again.
        let made = of.modify_qp(qpn, &reset).and_then(|()| of.connect(qpn, &settings));
        guard.halted[side as usize] = made.is_err();
        if side == Side::Default && guard.machine.phase() == Phase::Fallback {
            of.set_patience(qpn, Some(timeout_code(config.times.probe)));
        }
        if side == Side::Backup && guard.machine.recv_on() == Side::Default {
            self.await_peer(at);
        }
    }

    /// An empty WRITE by the default: it is answered when the way there and back is whole.
    fn probe(&mut self, nic: &mut Nic, now: Instant, at: usize) {
        // An address that was gone, as those of IPv6 are while their link is down, may be there again.
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

    /// A signaled send of our own, because the program has none.
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

    /// Gives sends that wait to the side that they belong to.
    pub(super) fn pump(&mut self, nic: &mut Nic, now: Instant, at: usize) {
        let Backup { nic: backup, connections, regions, remote_keys, counters, due, .. } = self;
        let Some((plain, guard)) = parts(connections, at) else { return };
        let mut rings = [false; 2];
        let mut failed = None;
        while let (Some(send), Some(side)) = (guard.queue.front(), guard.machine.send_side()) {
            let of = if side == Side::Default { &*nic } else { &*backup };
            let vitals = of.vitals(guard.qp(plain.qpn, side)).unwrap_or_default();
            // What is beyond the program's own room is ours.
            if vitals.posted.wrapping_sub(vitals.completed) >= plain.init.caps.max_send_wr {
                break;
            }
            if send.covered {
                // It is told when all before it is: a READ may have to be carried out again.
                let told = |sent: &Sent| sent.send.as_ref().is_none_or(|send| !send.flags.signaled);
                if vitals.posted != vitals.completed || !guard.at_backup.iter().all(told) {
                    break;
                }
                if send.flags.signaled {
                    let _ = nic.push_completion(plain.init.send_cq, send.completion(WcStatus::Success, plain.qpn));
                }
                if let Some(at) = guard.failed_at.take() {
                    counters.note_time(now - at);
                }
                guard.queue.pop_front();
                continue;
            }
            let posted = match side {
                Side::Default => nic.write_checked_send(plain.qpn, &send.wr()),
                Side::Backup => {
                    // A key that the default has not either is the program's error, and told as such.
                    let local =
                        |key| regions.get(&key).map(|region| region.key).or((!nic.has_region(key)).then_some(key));
                    let peer = guard.attr.path.map(|path| path.addresses.dst());
                    let remote = |key| remote_keys.get(&(peer?, key)).copied();
                    match send.translated(local, remote) {
                        _ if changes_keys(&send.op) => {
                            failed = Some(Refusal::Unsafe);
                            break;
                        }
                        Ok(there) => {
                            let wr = SendWr { wr_id: guard.next_seq, ..there.wr() };
                            let wr = if planted(Bug::ShiftKeys) { SendWr { op: send.op, ..wr } } else { wr };
                            backup.write_checked_send(guard.backup, &wr)
                        }
                        // It is made in the background, and we are told.
                        Err(MissingKey::Local(_)) => break,
                        Err(MissingKey::Remote(key)) => {
                            if guard.wanted.is_none_or(|(wanted, _)| wanted != key) {
                                guard.wanted = Some((key, now));
                                *due = true;
                            }
                            break;
                        }
                    }
                }
            };
            match posted {
                Ok(()) => {}
                Err(PostError::QueueFull) => break,
                // A queue pair that halted meanwhile: its end is about to be known.
                Err(_) => break,
            }
            rings[side as usize] = true;
            let Some(mut send) = guard.queue.pop_front() else { break };
            if !send.counted {
                plain.count_send(&send.op);
                send.counted = true;
            }
            if side == Side::Backup {
                let signaled = send.flags.signaled;
                guard.at_backup.push_back(Sent { seq: guard.next_seq, send: Some(send) });
                guard.next_seq += 1;
                if signaled && guard.machine.phase() == Phase::WaitSignaled {
                    guard.fence = Some(guard.next_seq - 1);
                    guard.machine.on_fence_sent();
                }
            }
        }
        if rings[0] {
            nic.ring_doorbell(now, plain.qpn);
        }
        if rings[1] {
            backup.ring_doorbell(now, guard.backup);
        }
        if let Some(why) = failed {
            guard.machine.fail(why);
        }
    }

    /// Everything ends in errors, in the order in which it was posted.
    fn fail(&mut self, nic: &mut Nic, now: Instant, at: usize, why: Refusal) {
        // What completed before is told before.
        self.drain(nic, now);
        self.flush(nic, at, Some(WcStatus::RetryExcErr));
        // The peer, which may wait for us, learns of it where the backup still sends. Else it finds that we are silent.
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

    /// The program itself ends a connection, or an error of its own that was told does.
    pub(super) fn end(&mut self, nic: &mut Nic, now: Instant, at: usize) {
        self.drain(nic, now);
        let Some((_, guard)) = parts(&mut self.connections, at) else { return };
        if guard.machine.phase() == Phase::Failed {
            return;
        }
        guard.machine.fail(Refusal::Peer);
        while guard.machine.poll_action().is_some() {}
        self.flush(nic, at, None);
    }

    /// Flushes the work of both sides, and what waits; the first send with a status of its own where one is given.
    fn flush(&mut self, nic: &mut Nic, at: usize, mut first: Option<WcStatus>) {
        let Backup { nic: backup, connections, own_wr_id, .. } = self;
        let Some((plain, guard)) = parts(connections, at) else { return };
        let (qpn, init) = (plain.qpn, plain.init);
        // Nothing of the program's memory is used any more behind its end.
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
        // What the default still has it flushes itself, before all that waits.
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
        // Its own come first: they were posted before.
        if sends.is_empty() {
            let _ = nic.modify_qp(qpn, &error);
        }
        sends.extend(guard.queue.drain(..));
        for send in &sends {
            // Behind an error nothing goes well any more.
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

/// Posts work of our own to the default's queue pair. Nobody is told when it is done; how many sends are done then. `None` where the queue
/// pair takes nothing: one that has halted meanwhile is known soon.
fn post_own(nic: &mut Nic, now: Instant, qpn: Qpn, wr_id: u64, op: SendOp, sges: &[Sge]) -> Option<u32> {
    let (data, flags) = (Data::Gather(sges), SendFlags::default());
    nic.write_checked_send(qpn, &SendWr { wr_id, op, data, flags, best_effort: None, to: None }).ok()?;
    nic.ring_doorbell(now, qpn);
    nic.vitals(qpn).map(|vitals| vitals.posted)
}

/// The same to the backup's, where its completion is seen; whether there was room.
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

/// The code of the longest ACK timeout that is no longer than a time.
fn timeout_code(limit: std::time::Duration) -> u8 {
    (1..31).rev().find(|&n| (4096u128 << n) <= limit.as_nanos()).unwrap_or(1)
}

/// The settings of a connection as its queue pair has them.
pub(super) fn settings_of(attr: &QpAttr) -> Settings {
    let usual = Settings::default();
    Settings {
        port: attr.port.unwrap_or(usual.port),
        path: attr.path,
        dest_qp: attr.dest_qp.unwrap_or(usual.dest_qp),
        mtu: attr.mtu.unwrap_or(usual.mtu),
        sq_psn: attr.sq_psn.unwrap_or(usual.sq_psn),
        rq_psn: attr.rq_psn.unwrap_or(usual.rq_psn),
        // Statuses are written, also where the program lets its peer read alone; its regions' rights are as ever.
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
