//! Completions and events of the swarm: sends end once and in order, and who waits for an event gets it.

use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{Completion, Event, SendOp, Status, WcOpcode};
use softnic_nic::{Notify, QpAttr, QpKind};

use super::ground::{Content, expect_bytes};
use super::lowar::either;
use super::{Drain, Qp, Swarm};

/// What the program makes of memory that is its own again: what is sent of it later would be wrong.
const SCRIBBLE: u8 = 0xee;

impl Swarm {
    /// Looks at all completion queues, those of lazy programs sometimes, and at all events.
    pub(super) fn collect(&mut self, hurry: bool) -> Result<(), String> {
        if self.world.drops {
            self.notice_who_gave_up()?;
        }
        for i in 0..self.cqs.len() {
            if hurry || !self.random.chance(self.world.lazy_poll) {
                self.poll(i)?;
            }
        }
        for host in 0..self.pair.nics() {
            while let Some(event) = self.pair.nic(host).poll_event() {
                self.on_event(host, event)?;
            }
        }
        Ok(())
    }

    /// Where a full queue drops the same again and again, a connection may run out of retries. Its program tells the other end,
    /// which would not know.
    fn notice_who_gave_up(&mut self) -> Result<(), String> {
        for q in 0..self.qps.len() {
            let Qp { host, qpn, peer, dying, kind, .. } = self.qps[q];
            if dying || kind != QpKind::Rc || self.pair.nic(host).qp_state(qpn) != Some(QpState::Error) {
                continue;
            }
            for end in [q, peer] {
                (self.qps[end].dying, self.qps[end].gave_up) = (true, true);
            }
            let attr = QpAttr { state: Some(QpState::Error), ..QpAttr::default() };
            let (host, qpn) = (self.qps[peer].host, self.qps[peer].qpn);
            self.pair.nic(host).modify_qp(qpn, &attr).map_err(|e| e.to_string())?;
            self.done.gave_up += 1;
        }
        Ok(())
    }

    /// Takes all completions of a queue. Where an event was asked for it must have come, and otherwise not.
    fn poll(&mut self, i: usize) -> Result<(), String> {
        let (host, id, armed) = (self.cqs[i].host, self.cqs[i].id, self.cqs[i].armed);
        while let Some(cq) = self.pair.nic(host).poll_completion_event() {
            let found = self.cqs.iter_mut().find(|c| c.host == host && c.id == cq);
            let found = found.filter(|c| c.armed.is_some() && !c.event);
            found.ok_or("a completion event that nobody asked for")?.event = true;
        }
        let mut due = false;
        while let Some(c) = self.pair.nic(host).poll_cq(id).map_err(|e| e.to_string())? {
            due |= match armed {
                None => false,
                Some(Notify::Next) => true,
                Some(Notify::Solicited) => c.solicited || c.status != Status::Success,
            };
            self.pair.sim.record(c.wr_id ^ (c.status as u64) << 40 ^ u64::from(c.byte_len));
            if Swarm::is_receive(c.wr_id) { self.on_receive(host, c)? } else { self.on_send(host, c)? }
        }
        if due != self.cqs[i].event {
            return Err(if due { "a completion without its event" } else { "an event without a completion" }.into());
        }
        if due {
            self.cqs[i].event = false;
            let what = if self.random.chance(0.5) { Notify::Next } else { Notify::Solicited };
            self.cqs[i].armed = Some(what);
            self.pair.nic(host).req_notify_cq(id, what).map_err(|e| e.to_string())?;
            self.done.completion_events += 1;
        }
        Ok(())
    }

    fn on_send(&mut self, host: usize, c: Completion) -> Result<(), String> {
        let q = self.qp_of(host, c.qpn)?;
        let index = (c.wr_id & 0xffff_ffff) as usize;
        let qp = &self.qps[q];
        if c.wr_id >> 32 != q as u64 || index < qp.completed || index >= qp.messages.len() {
            return Err(format!("a send completed twice, or was never posted: {c:?}"));
        }
        let success = c.status == Status::Success;
        if success && matches!(qp.drain, Drain::Done(_)) {
            return Err(format!("message {index} was sent though the send queue is drained"));
        }
        if !success && !self.may_fail(q, index, c.status) || success && qp.failed {
            return Err(format!("message {index}, {:?}: {}", qp.messages[index].op, c.status));
        }
        for i in qp.completed..index {
            if self.qps[q].messages[i].signaled {
                return Err(format!("message {i}: its completion is missing"));
            }
            self.settle(q, i)?;
        }
        let m = &self.qps[q].messages[index];
        if success {
            if !m.signaled || c.opcode != opcode_of(&m.op) {
                return Err(format!("message {index}: not asked for, or of the wrong kind: {c:?}"));
            }
            self.settle(q, index)?;
        } else {
            self.give_up(q, index);
        }
        self.qps[q].completed = index + 1;
        Ok(())
    }

    /// Whether a message may end so: only on a connection on which somebody used a key that is not good for that.
    fn may_fail(&self, q: usize, index: usize, status: Status) -> bool {
        let qp = &self.qps[q];
        let refused = qp.messages[index].refused;
        let peer = &self.qps[qp.peer];
        let peer_refused = peer.messages[peer.life_start..].iter().any(|m| m.refused);
        let invalidates =
            qp.messages[qp.life_start..].iter().any(|m| m.refused && matches!(m.op, SendOp::SendInv { .. }));
        match status {
            Status::RemAccessErr => refused && !qp.failed,
            // The NAK was lost, and who sent it says no more; or a key could not be taken away, of which no NAK tells.
            Status::RetryExcErr => qp.dying && !qp.failed && (self.world.lossy || invalidates),
            Status::WrFlushErr => qp.failed || qp.dying && (peer_refused || qp.gave_up),
            _ => false,
        }
    }

    /// A message is done: what it says is so is so.
    fn settle(&mut self, q: usize, index: usize) -> Result<(), String> {
        let qp = &self.qps[q];
        let m = &qp.messages[index];
        if m.refused && qp.kind == QpKind::Rc {
            return Err(format!("safety: message {index} had access that it must not have: {:?}", m.op));
        }
        let ground = &mut self.grounds[qp.ground];
        if matches!(m.op, SendOp::Read { .. } | SendOp::FetchAdd { .. } | SendOp::CompareSwap { .. }) {
            let found: Vec<u8> = m.local.iter().flat_map(|&area| ground.read(area)).collect();
            let expected = m.other.as_ref().map_or(m.data.clone(), |other| either(&found, &m.data, other));
            expect_bytes(&found, &expected, "what a READ or atomic brought")?;
        }
        for &area in &m.local {
            ground.wipe(area, SCRIBBLE);
        }
        if let (Some(target), QpKind::Rc) = (m.target, qp.kind) {
            let theirs = &mut self.grounds[self.qps[qp.peer].ground];
            expect_bytes(&theirs.read(target), &m.data, "a completed WRITE")?;
            theirs.expect(target, Content::Exact(m.data.clone()));
            // Who was written to may use the memory for something else now: nothing that was under way twice may come back.
            if matches!(m.op, SendOp::Write { .. }) && self.random.chance(0.5) && !m.read_back {
                theirs.wipe(target, SCRIBBLE);
            }
        }
        let (through, changes, op) = (m.through, m.changes, m.op);
        if let Some(w) = through {
            self.window_used(w);
        }
        // A SEND that invalidates is told of by its receiver.
        if let (Some(w), SendOp::BindWindow(_) | SendOp::LocalInv { .. }) = (changes, op) {
            self.window_changed(w, &op);
        }
        self.done.messages += 1;
        Ok(())
    }

    /// A message failed: it may have been carried out, or in part.
    fn give_up(&mut self, q: usize, index: usize) {
        let through = self.qps[q].messages[index].through;
        if let Some(w) = through {
            self.window_used(w);
        }
        self.qps[q].failed = true;
        self.done.failed += 1;
    }

    fn on_event(&mut self, host: usize, event: Event) -> Result<(), String> {
        match event {
            Event::SqDrained(qpn) => self.on_drained(host, qpn)?,
            Event::SrqLimit(srq) => self.on_srq_limit(host, srq)?,
            Event::FellBack(..) | Event::Unauthenticated(..) => {}
            Event::QpAccessErr(qpn) | Event::LastWqeReached(qpn) => {
                let q = self.qp_of(host, qpn)?;
                if !self.qps[q].dying {
                    return Err(format!("{event} on a connection with nothing wrong"));
                }
            }
            _ => return Err(format!("an event that nothing gave reason for: {event}")),
        }
        Ok(())
    }

    fn on_drained(&mut self, host: usize, qpn: softnic_wire::Qpn) -> Result<(), String> {
        let q = self.qp_of(host, qpn)?;
        // What was done before the event may be waiting still.
        let cq = self.cqs.iter().position(|c| c.host == host && c.id == self.qps[q].send_cq);
        self.poll(cq.ok_or("no completion queue")?)?;
        if self.qps[q].drain != Drain::Asked {
            return Err("SQ_DRAINED that nobody asked for".into());
        }
        self.qps[q].drain = Drain::Done(1 + self.random.below(60) as u32);
        self.done.drained += 1;
        Ok(())
    }

    /// Drains send queues now and then, and lets them go on after a while.
    pub(super) fn drain(&mut self, hurry: bool) -> Result<(), String> {
        for q in 0..self.qps.len() {
            let (host, qpn) = (self.qps[q].host, self.qps[q].qpn);
            let state = self.pair.nic(host).qp_state(qpn);
            if state == Some(QpState::Error) {
                if !self.qps[q].dying {
                    return Err(format!("{qpn:?} stopped with nothing wrong"));
                }
                (self.qps[q].dead, self.qps[q].drain) = (true, Drain::No);
                continue;
            }
            let ready = state == Some(QpState::ReadyToSend);
            let attr = match self.qps[q].drain {
                Drain::No if ready && !hurry && self.random.chance(self.world.drains) => {
                    self.qps[q].drain = Drain::Asked;
                    QpAttr { state: Some(QpState::SendQueueDrain), sqd_notify: Some(true), ..QpAttr::default() }
                }
                Drain::Done(0) => {
                    self.qps[q].drain = Drain::No;
                    QpAttr { state: Some(QpState::ReadyToSend), ..QpAttr::default() }
                }
                Drain::Done(n) => {
                    self.qps[q].drain = Drain::Done(if hurry { 0 } else { n - 1 });
                    continue;
                }
                _ => continue,
            };
            self.pair.nic(host).modify_qp(qpn, &attr).map_err(|e| e.to_string())?;
            self.pair.touch(host);
        }
        Ok(())
    }
}

fn opcode_of(op: &SendOp) -> WcOpcode {
    match op {
        SendOp::Send | SendOp::SendImm { .. } | SendOp::SendInv { .. } => WcOpcode::Send,
        SendOp::Write { .. } | SendOp::WriteImm { .. } => WcOpcode::Write,
        SendOp::Read { .. } => WcOpcode::Read,
        SendOp::CompareSwap { .. } => WcOpcode::CompareSwap,
        SendOp::FetchAdd { .. } => WcOpcode::FetchAdd,
        SendOp::LocalInv { .. } => WcOpcode::LocalInv,
        SendOp::BindWindow(_) => WcOpcode::BindWindow,
    }
}
