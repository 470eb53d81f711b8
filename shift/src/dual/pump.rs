//! Posts the work that waits to the side that it belongs to.

use softnic_nic::Nic;
use softnic_nic::transports::planted::{Bug, planted};
use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{PostError, SendWr, Status as WcStatus};
use softnic_wire::Instant;
use softnic_wire::failover::{Phase, Side};

use super::{Backup, OWN_SENDS};
use crate::connection::{Sent, parts};
use crate::machine::Refusal;
use crate::work::{MissingKey, changes_keys, translate_all};

impl Backup {
    /// Posts waiting sends to their side.
    pub(super) fn pump(&mut self, nic: &mut Nic, now: Instant, at: usize) {
        self.retire(at, now);
        let Backup { nic: backup, connections, regions, without_shadow, remote_keys, counters, due, keyless, .. } =
            self;
        let Some((plain, guard)) = parts(connections, at) else { return };
        let mut rings = [false; 2];
        let mut failed = None;
        while let (Some(send), Some(side)) = (guard.queue.front(), guard.machine.send_side()) {
            if guard.drain.is_some() && !send.begun && !send.covered || guard.owes_status && side == Side::Default {
                break;
            }
            let of = if side == Side::Default { &*nic } else { &*backup };
            let vitals = of.vitals(guard.qp(plain.qpn, side)).unwrap_or_default();
            // The remaining room is for work of our own.
            let room = match side {
                Side::Default => plain.init.caps.max_send_wr,
                Side::Backup => plain.init.caps.max_send_wr.max(2 * OWN_SENDS) - OWN_SENDS,
            };
            if vitals.posted.wrapping_sub(vitals.completed) >= room {
                break;
            }
            if send.covered {
                // The completion is delivered after those of all earlier sends: a READ among them may have to be executed again.
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
                    // A key that the default does not have either is the program's error, and the NIC reports it.
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
                        Err(MissingKey::Local(key)) if without_shadow.contains(&key) => {
                            failed = Some(Refusal::Key);
                            break;
                        }
                        // The region is registered in the background; `wake_keyless` follows.
                        Err(MissingKey::Local(_)) => {
                            if !std::mem::replace(&mut guard.keyless, true) {
                                keyless.push(at);
                            }
                            break;
                        }
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
                // The queue pair halted meanwhile: its event is pending.
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

    /// Drops unsignaled sends at the backup that have completed although no signaled send behind them has. A program may never post a signaled
    /// one.
    fn retire(&mut self, at: usize, now: Instant) {
        let Backup { nic: backup, connections, counters, .. } = self;
        let Some((_, guard)) = parts(connections, at) else { return };
        // A queue pair in the error state completes every send with a status: those completions are taken first.
        if guard.at_backup.is_empty() || backup.qp_state(guard.backup) != Some(QpState::ReadyToSend) {
            return;
        }
        let vitals = backup.vitals(guard.backup).unwrap_or_default();
        let outstanding = vitals.posted.wrapping_sub(vitals.completed) as usize;
        let silent = |sent: &Sent| sent.send.as_ref().is_some_and(|send| !send.flags.signaled);
        while guard.at_backup.len() > outstanding && guard.at_backup.front().is_some_and(silent) {
            guard.at_backup.pop_front();
            guard.failed_at.take().into_iter().for_each(|at| counters.note_time(now - at));
        }
    }

    /// Posts waiting receives to their side. Returns whether one needs a region that the backup will never have; then the connection has
    /// failed.
    pub(super) fn pump_recvs(&mut self, nic: &mut Nic, at: usize) -> bool {
        let Backup { nic: backup, connections, regions, without_shadow, keyless, .. } = self;
        let Some((plain, guard)) = parts(connections, at) else { return false };
        let side = guard.machine.recv_on();
        while let Some(recv) = guard.recvs.front() {
            let posted = match side {
                Side::Default => nic.post_checked_recv(plain.qpn, &recv.wr()),
                Side::Backup => {
                    let mut there = recv.clone();
                    // A key that the default does not have either is the program's error, and the NIC reports it.
                    let local =
                        |key| regions.get(&key).map(|region| region.key).or((!nic.has_region(key)).then_some(key));
                    if let Err(missing) = translate_all(&mut there.sges, local) {
                        if matches!(missing, MissingKey::Local(key) if without_shadow.contains(&key)) {
                            return true;
                        } else if !std::mem::replace(&mut guard.keyless, true) {
                            keyless.push(at);
                        }
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
        false
    }
}
