//! What happened to both NICs since the last look, and what follows from it for each connection.

use softnic_nic::Nic;
use softnic_nic::transports::planted::{Bug, planted};
use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{Completion, Event, Status as WcStatus};
use softnic_wire::failover::{Phase, Side, Status};
use softnic_wire::{Instant, Layout, Node, bth};

use super::Backup;
use crate::connection::{Stage, parts};
use crate::machine::{Reason, Refusal};

impl Backup {
    /// An event of a NIC: for the program, or for us.
    pub(super) fn take_event(&mut self, side: Side, event: Event) {
        match event {
            Event::QpHalted(..) | Event::PortErr | Event::PortActive => {
                self.failures.push((side, event));
                self.due = true;
            }
            Event::SqDrained(qpn) if side == Side::Default => {
                if let Some(&at) = self.by_qpn.get(&qpn)
                    && let Some((_, guard)) = parts(&mut self.connections, at)
                {
                    guard.drain.iter_mut().for_each(|drain| drain.notify = false);
                }
                self.events.push_back(event);
            }
            // The backup's objects are ours; its end is seen by its completions.
            _ if side == Side::Backup => {}
            event => self.events.push_back(event),
        }
    }

    /// A frame came in at the backup.
    #[inline]
    pub(super) fn handle_frame(&mut self, nic: &mut Nic, now: Instant, frame: &mut [u8], layout: Layout) {
        self.catch_up(nic);
        if self.agenda.any_unsettled() {
            self.expect_news(Side::Backup, frame, &layout);
        }
        self.nic.handle_located(now, Nic::WIRE, frame, layout);
        self.due = true;
        if self.agenda.is_wary() {
            self.progress(nic, now);
        }
    }

    /// A frame comes in at a side: the connection that it is for may learn something by it that no event tells, that work of ours is done
    /// or that the peer has written its status.
    pub(super) fn expect_news(&mut self, side: Side, frame: &[u8], layout: &Layout) {
        let Ok(header) = bth::Packet::new_checked(frame.get(layout.bth..).unwrap_or_default()) else { return };
        let at = match side {
            Side::Default => self.by_qpn.get(&header.dest_qp()),
            Side::Backup => self.by_backup.get(&header.dest_qp()),
        };
        if let Some(&at) = at {
            self.due |= self.agenda.on_frame(at);
        }
    }

    /// Looks at everything.
    pub(super) fn progress(&mut self, nic: &mut Nic, now: Instant) {
        self.catch_up(nic);
        self.due = false;
        while let Some(event) = nic.poll_event() {
            self.take_event(Side::Default, event);
        }
        while let Some(event) = self.nic.poll_event() {
            self.take_event(Side::Backup, event);
        }
        // What completed did so before anything failed.
        self.drain(nic, now);
        for (side, event) in std::mem::take(&mut self.failures) {
            self.handle_failure(nic, now, side, event);
        }
        self.due = false;
        while let Some(mad) = nic.poll_mad() {
            self.handle_mad(nic, now, Side::Default, &mad);
        }
        while let Some(mad) = self.nic.poll_mad() {
            self.handle_mad(nic, now, Side::Backup, &mad);
        }
        for at in self.agenda.take_due(now) {
            self.look_at(nic, now, at);
        }
    }

    /// Tells what completed at the backup, and then what follows from it.
    pub(super) fn drain(&mut self, nic: &mut Nic, now: Instant) {
        while let Ok(Some(completion)) = self.nic.poll_cq(self.send_cq) {
            self.take_send(nic, now, &completion);
        }
        while let Ok(Some(completion)) = self.nic.poll_cq(self.recv_cq) {
            self.take_recv(nic, now, &completion);
        }
        for at in self.agenda.take_touched() {
            let broken = parts(&mut self.connections, at).is_some_and(|(_, guard)| std::mem::take(&mut guard.broken));
            match broken {
                true => self.end(nic, now, at),
                false => self.look_at(nic, now, at),
            }
        }
    }

    /// A queue pair halted, or a port is down or up.
    fn handle_failure(&mut self, nic: &mut Nic, now: Instant, side: Side, event: Event) {
        match event {
            Event::QpHalted(qpn, status) => {
                let at = match side {
                    Side::Default => self.by_qpn.get(&qpn),
                    Side::Backup => self.by_backup.get(&qpn),
                };
                let Some(&at) = at else { return };
                match parts(&mut self.connections, at) {
                    Some((_, guard)) if guard.stage == Stage::Ready && status == WcStatus::RetryExcErr => {
                        guard.halted[side as usize] = true;
                        guard.machine.on_failure(now, side, Reason::Retries);
                        self.perform(nic, now, at);
                    }
                    // Without a backup, or because the peer posts no receives: as if there was none.
                    _ => self.let_fail(nic, now, at),
                }
            }
            Event::PortErr if !self.down[side as usize] => {
                self.down[side as usize] = true;
                for at in 0..self.connections.len() {
                    if self.guard(at).is_some_and(|guard| guard.stage == Stage::Ready) {
                        self.lose_port(nic, now, at, side);
                        self.perform(nic, now, at);
                    }
                }
                // The port is what both are: it is down when none is left.
                if self.down == [true; 2] {
                    self.told_down = true;
                    self.events.push_back(Event::PortErr);
                }
            }
            Event::PortActive => {
                self.down[side as usize] = false;
                if std::mem::take(&mut self.told_down) {
                    self.events.push_back(Event::PortActive);
                }
            }
            _ => {}
        }
    }

    /// A queue pair of the default halted that has no backup: its work is flushed as ever.
    fn let_fail(&mut self, nic: &mut Nic, now: Instant, at: usize) {
        let Some(Some(connection)) = self.connections.get_mut(at) else { return };
        match &mut connection.guard {
            Some(guard) if guard.stage == Stage::Ready => {
                guard.machine.fail(Refusal::Peer);
                self.perform(nic, now, at);
            }
            _ => {
                let error = softnic_nic::QpAttr { state: Some(QpState::Error), ..softnic_nic::QpAttr::default() };
                let _ = nic.modify_qp(connection.plain.qpn, &error);
                self.stop_meeting(at);
            }
        }
    }

    /// The port of a side is down. A queue pair that had an error of its own before has nothing to go on with.
    fn lose_port(&mut self, nic: &Nic, now: Instant, at: usize, side: Side) {
        let Some((plain, guard)) = parts(&mut self.connections, at) else { return };
        match nic.has_failed(plain.qpn) && !guard.halted[0] {
            true => guard.machine.fail(Refusal::Peer),
            false => guard.machine.on_failure(now, side, Reason::Port),
        }
    }

    /// A send at the backup ended.
    fn take_send(&mut self, nic: &mut Nic, now: Instant, completion: &Completion) {
        let Some(&at) = self.by_backup.get(&completion.qpn) else { return };
        let Some((plain, guard)) = parts(&mut self.connections, at) else { return };
        let (mut ended, mut any) = (None, false);
        while guard.at_backup.front().is_some_and(|sent| sent.seq <= completion.wr_id) {
            ended = guard.at_backup.pop_front();
            any |= ended.as_ref().is_some_and(|sent| sent.send.is_some());
        }
        let went_well = completion.status == WcStatus::Success;
        if let Some(send) = ended.and_then(|sent| sent.send)
            && (send.flags.signaled || !went_well)
        {
            let qpn = if planted(Bug::ShiftQpn) { completion.qpn } else { plain.qpn };
            let own = Completion { wr_id: send.wr_id, qpn, ..*completion };
            let _ = nic.push_completion(plain.init.send_cq, own);
        }
        if went_well {
            // Our own handshake comes a round trip before the program's first work.
            if any && let Some(at) = guard.failed_at.take() {
                self.counters.note_time(now - at);
            }
            if guard.fence.is_some_and(|fence| fence <= completion.wr_id) {
                guard.fence = None;
                guard.machine.on_drained();
            }
        } else {
            // An error of the program's own: the connection has ended as it would have at the default.
            guard.broken |= guard.machine.phase() != Phase::Failed;
        }
        self.agenda.touch(at);
    }

    /// A receive at the backup ended: the program's, or the one by which the peer wakes us.
    fn take_recv(&mut self, nic: &mut Nic, now: Instant, completion: &Completion) {
        let Some(&at) = self.by_backup.get(&completion.qpn) else { return };
        self.agenda.touch(at);
        if completion.wr_id == self.own_wr_id {
            return;
        }
        let Some((plain, guard)) = parts(&mut self.connections, at) else { return };
        let own = Completion { qpn: plain.qpn, ..*completion };
        let _ = nic.push_completion(plain.init.recv_cq, own);
        if completion.status == WcStatus::Success {
            if let Some(at) = guard.failed_at.take() {
                self.counters.note_time(now - at);
            }
        } else {
            guard.broken |= guard.machine.phase() != Phase::Failed;
        }
    }

    /// Looks whether anything has changed for one connection.
    pub(super) fn look_at(&mut self, nic: &mut Nic, now: Instant, at: usize) {
        self.agenda.looks += 1;
        self.meet(nic, now, at);
        if self.guard(at).is_some_and(|guard| guard.stage == Stage::Unprotected) {
            return self.give_up(nic, at);
        }
        self.read_status(nic, now, at);
        let Some((plain, guard)) = parts(&mut self.connections, at) else { return };
        let completed = nic.vitals(plain.qpn).map(|vitals| vitals.completed).unwrap_or_default();
        let is_done = |wanted: Option<u32>| wanted.is_some_and(|at| completed.wrapping_sub(at) < 1 << 31);
        if is_done(guard.probe_at) {
            guard.probe_at = None;
            guard.machine.on_probe(now);
            if self.down[1] {
                // What goes by the backup waits there: the default, which was seen to work, is better.
                guard.machine.on_failure(now, Side::Backup, Reason::Port);
            }
        }
        if is_done(guard.notice_at) {
            guard.notice_at = None;
            guard.machine.on_notified(now);
        }
        guard.machine.on_time(now);
        self.perform(nic, now, at);
        if self.guard(at).is_some_and(|guard| guard.owes_status) {
            self.publish(nic, now, at, Side::Default, false);
        }
        self.ask_for_key(now, at);
        if self.pump_recvs(nic, at) {
            parts(&mut self.connections, at).into_iter().for_each(|(_, guard)| guard.machine.fail(Refusal::Key));
        }
        self.pump(nic, now, at);
        self.check_drained(nic, at);
        self.perform(nic, now, at);
    }

    /// A connection has its backup from now on. A port that went down before uses up no retries, so nothing else would tell of it.
    pub(super) fn check_port(&mut self, nic: &Nic, now: Instant, at: usize) {
        if self.down[0] {
            self.lose_port(nic, now, at, Side::Default);
        }
    }

    /// The peer's status, where it is another one.
    fn read_status(&mut self, nic: &mut Nic, now: Instant, at: usize) {
        let Some((plain, guard)) = parts(&mut self.connections, at) else { return };
        if guard.stage != Stage::Ready {
            return;
        }
        // What nobody with the connection's secret wrote is as nothing.
        let Ok(Some(status)) = Status::parse(&guard.peer_status(), &guard.secrets[1]) else { return };
        let begins = status.epoch > guard.machine.epoch();
        if begins && nic.has_failed(plain.qpn) && !guard.halted[0] {
            // Our end had an error of its own: there is nothing to go on with. One that has just halted, and whose event has not had its
            // turn, has everything.
            guard.machine.fail(Refusal::Peer);
            return self.perform(nic, now, at);
        }
        guard.machine.on_status(now, &status);
        self.perform(nic, now, at);
        let Some((_, guard)) = parts(&mut self.connections, at) else { return };
        if guard.recv_moved && status.epoch == guard.machine.epoch() {
            // One into which a message still arrives is withdrawn when that has come.
            let settled = status.woke || self.withdraw_own_recv(at);
            parts(&mut self.connections, at).into_iter().for_each(|(_, guard)| guard.recv_moved = !settled);
        }
    }
}
