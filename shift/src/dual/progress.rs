//! Collects the events of both NICs since the last check, and derives their effect on each connection.

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
    /// Takes an event of a NIC, which concerns the program or failover.
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
            // The program does not know the backup's objects. Completions show when one of them ends.
            _ if side == Side::Backup => {}
            event => self.events.push_back(event),
        }
    }

    /// Handles a frame that arrived at the backup.
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

    /// Schedules a check of the connection that a frame is for: the frame may complete work of our own, or carry the peer's status, and neither
    /// produces an event.
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

    /// Handles all events, MADs and due checks.
    pub(super) fn progress(&mut self, nic: &mut Nic, now: Instant) {
        self.catch_up(nic);
        self.due = false;
        while let Some(event) = nic.poll_event() {
            self.take_event(Side::Default, event);
        }
        while let Some(event) = self.nic.poll_event() {
            self.take_event(Side::Backup, event);
        }
        // Work that completed did so before any failure.
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

    /// Delivers the completions of the backup, then checks their connections.
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

    /// Handles a halted queue pair, or a port that went down or up.
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
                    // The connection has no backup, or the peer posts no receives: it ends as on a single NIC.
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
                // The program sees one port, which is down when both ports are.
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

    /// Lets a connection fail whose queue pair halted and that has no backup to move to: its work is flushed.
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

    /// Handles a port that is down. A queue pair that had an error of its own before cannot continue elsewhere.
    fn lose_port(&mut self, nic: &Nic, now: Instant, at: usize, side: Side) {
        let Some((plain, guard)) = parts(&mut self.connections, at) else { return };
        match nic.has_failed(plain.qpn) && !guard.halted[0] {
            true => guard.machine.fail(Refusal::Peer),
            false => guard.machine.on_failure(now, side, Reason::Port),
        }
    }

    /// Handles a completed send at the backup.
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
            // Work of our own does not count: it completes a round trip before the program's first work.
            if any && let Some(at) = guard.failed_at.take() {
                self.counters.note_time(now - at);
            }
            if guard.fence.is_some_and(|fence| fence <= completion.wr_id) {
                guard.fence = None;
                guard.machine.on_drained();
            }
        } else {
            // The program caused the error: the connection ends as it would have at the default.
            guard.broken |= guard.machine.phase() != Phase::Failed;
        }
        self.agenda.touch(at);
    }

    /// Handles a completed receive at the backup: the program's, or the one by which the peer wakes this end.
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

    /// Checks one connection for changes.
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
                // Work at the backup waits for its port. The default, which was just seen to work, is better.
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

    /// Leaves the default at once if its port went down before the connection had a backup: such a port uses up no retries, so no event follows.
    pub(super) fn check_port(&mut self, nic: &Nic, now: Instant, at: usize) {
        if self.down[0] {
            self.lose_port(nic, now, at, Side::Default);
        }
    }

    /// Reads the peer's status, and acts on it if it has changed.
    fn read_status(&mut self, nic: &mut Nic, now: Instant, at: usize) {
        let Some((plain, guard)) = parts(&mut self.connections, at) else { return };
        if guard.stage != Stage::Ready {
            return;
        }
        // A status without a valid MAC of the connection's secret is ignored.
        let Ok(Some(status)) = Status::parse(&guard.peer_status(), &guard.secrets[1]) else { return };
        let begins = status.epoch > guard.machine.epoch();
        if begins && nic.has_failed(plain.qpn) && !guard.halted[0] {
            // The local queue pair failed by an error of its own, so there is no work to move. A queue pair that has only halted, and whose event is
            // still pending, has all of its work.
            guard.machine.fail(Refusal::Peer);
            return self.perform(nic, now, at);
        }
        guard.machine.on_status(now, &status);
        self.perform(nic, now, at);
        let Some((_, guard)) = parts(&mut self.connections, at) else { return };
        if guard.recv_moved && status.epoch == guard.machine.epoch() {
            // If a message is arriving into the receive, the receive is withdrawn after the message is complete.
            let settled = status.woke || self.withdraw_own_recv(at);
            parts(&mut self.connections, at).into_iter().for_each(|(_, guard)| guard.recv_moved = !settled);
        }
    }
}
