//! Receives of the swarm, a queue pair's own and shared ones, and what must be in them when they complete.

use std::collections::VecDeque;

use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{Completion, RecvWr, SendOp, SrqId, Status, WcOpcode};
use softnic_nic::{QpAttr, QpKind};
use softnic_wire::Qpn;
use softnic_wire::grh::{self, Grh};

use super::Swarm;
use super::ground::{AreaId, Content, UNTOUCHED, expect_bytes};
use super::sending::{Destination, Message};
use super::setup::groups;

/// Marks the wr_id of a receive.
const RECEIVE: u64 = 1 << 63;

/// A receive queue.
pub(super) struct Queue {
    host: usize,
    pub(super) ground: usize,
    pub(super) srq: Option<SrqId>,
    /// Whose it is; a shared one is nobody's.
    pub(super) owner: Option<Qpn>,
    /// Areas that are not posted.
    pub(super) free: Vec<AreaId>,
    posted: VecDeque<(u64, AreaId)>,
    next: u64,
    /// It is filled up when fewer than this are left, as an event says; 0: whenever there is room.
    limit: u32,
    /// The event came, or nothing was posted yet.
    hungry: bool,
    /// Some message in it may be there in part: UC takes what comes.
    pub(super) partial: bool,
}

impl Queue {
    /// Whether none of them is posted.
    pub(super) fn all_free(&self) -> bool {
        self.posted.is_empty()
    }

    pub(super) fn new(host: usize, ground: usize, srq: Option<SrqId>, limit: u32) -> Queue {
        Queue {
            host,
            ground,
            srq,
            owner: None,
            free: Vec::new(),
            posted: VecDeque::new(),
            next: 0,
            limit,
            hungry: true,
            partial: false,
        }
    }
}

impl Swarm {
    /// Fills up the receive queues, those of lazy programs sometimes.
    pub(super) fn post_receives(&mut self, hurry: bool) -> Result<(), String> {
        for i in 0..self.queues.len() {
            if !hurry && self.random.chance(self.world.lazy_receiver) {
                continue;
            }
            // A lazy program posts one at a time.
            let most = if self.world.lazy_receiver > 0.0 && self.queues[i].limit == 0 { 1 } else { usize::MAX };
            let dead = self.queues[i].owner.is_some_and(|qpn| {
                self.qps.iter().any(|qp| qp.qpn == qpn && qp.host == self.queues[i].host && qp.dead)
            });
            if dead || self.queues[i].limit > 0 && !self.queues[i].hungry {
                continue;
            }
            let mut posted = 0;
            while !self.queues[i].free.is_empty() && posted < most {
                self.post_receive(i)?;
                posted += 1;
            }
            let Queue { host, limit, srq, .. } = self.queues[i];
            if let (Some(srq), true) = (srq, limit > 0 && posted > 0) {
                self.queues[i].hungry = false;
                self.pair.nic(host).set_srq_limit(srq, limit).map_err(|e| e.to_string())?;
            }
        }
        Ok(())
    }

    fn post_receive(&mut self, i: usize) -> Result<(), String> {
        let queue = &mut self.queues[i];
        let any = self.random.below(queue.free.len() as u64) as usize;
        let area = queue.free.swap_remove(any);
        let sges = self.grounds[queue.ground].scatter(area, &mut self.random);
        let wr_id = RECEIVE | ((i as u64) << 32) | queue.next;
        queue.next += 1;
        queue.posted.push_back((wr_id, area));
        let nic = self.pair.nic(queue.host);
        let wr = RecvWr { wr_id, sges: &sges, best_effort: None };
        let posted = match (queue.srq, queue.owner) {
            (Some(srq), _) => nic.post_srq_recv(srq, &wr),
            (None, owner) => nic.post_recv(owner.unwrap_or_default(), &wr),
        };
        posted.map_err(|e| format!("post_recv: {e}"))
    }

    /// A shared queue has fewer receives than its limit.
    pub(super) fn on_srq_limit(&mut self, host: usize, srq: SrqId) -> Result<(), String> {
        let queue = self.queues.iter_mut().find(|q| q.host == host && q.srq == Some(srq));
        let queue = queue.ok_or("an event of an unknown shared receive queue")?;
        if queue.limit == 0 || queue.hungry {
            return Err("SRQ_LIMIT without a limit that was set".into());
        }
        queue.hungry = true;
        self.done.srq_limits += 1;
        Ok(())
    }

    pub(super) fn is_receive(wr_id: u64) -> bool {
        wr_id & RECEIVE != 0
    }

    pub(super) fn on_receive(&mut self, host: usize, c: Completion) -> Result<(), String> {
        let q = self.qp_of(host, c.qpn)?;
        let i = self.qps[q].queue;
        let queue = &mut self.queues[i];
        let at = queue.posted.iter().position(|(id, _)| *id == c.wr_id);
        let at = at.ok_or_else(|| format!("a receive completed that was not posted, or twice: {c:?}"))?;
        if queue.srq.is_none() && at != 0 {
            return Err(format!("receives completed out of order: {c:?}"));
        }
        let Some((_, area)) = queue.posted.remove(at) else { return Ok(()) };
        queue.free.push(area);
        let ground = queue.ground;
        let found = self.grounds[ground].read(area);
        self.grounds[ground].wipe(area, UNTOUCHED);
        if c.status != Status::Success {
            return self.on_failed_receive(q, c);
        }
        let (prefix, expected) = match self.qps[q].kind {
            QpKind::Rc => (Vec::new(), self.expect_reliable(q, &c)?),
            QpKind::Uc => (Vec::new(), self.expect_unreliable(q, &c, &found)?),
            _ => (found[..grh::LEN].to_vec(), self.expect_datagram(q, &c, &found)?),
        };
        let mut whole = [prefix, expected].concat();
        // Behind the message, and in front of one that has no bytes here, may be what was lost of another.
        if self.queues[i].partial {
            return expect_bytes(&found[..whole.len()], &whole, "a receive");
        }
        whole.resize(found.len(), UNTOUCHED);
        expect_bytes(&found, &whole, "a receive")
    }

    fn on_failed_receive(&mut self, q: usize, c: Completion) -> Result<(), String> {
        let peer = &self.qps[self.qps[q].peer];
        let refused = || peer.messages[peer.life_start..].iter().filter(|m| m.refused);
        let invalidates = refused().any(|m| matches!(m.op, SendOp::SendInv { .. }));
        let writes = refused().any(|m| matches!(m.op, SendOp::WriteImm { .. }));
        match c.status {
            Status::WrFlushErr if self.qps[q].dying => Ok(()),
            Status::RemInvReqErr if self.qps[q].dying && invalidates => Ok(()),
            Status::LocAccessErr if self.qps[q].dying && writes => Ok(()),
            _ => Err(format!("receive {:#x}: {}", c.wr_id, c.status)),
        }
    }

    /// The message that a reliable connection must have brought; the bytes of the receive.
    fn expect_reliable(&mut self, q: usize, c: &Completion) -> Result<Vec<u8>, String> {
        let qp = &mut self.qps[q];
        let (peer, ground) = (qp.peer, qp.ground);
        let index = qp.receiving.pop_front().ok_or("a receive completed without a message for it")?;
        let m = &self.qps[peer].messages[index];
        if m.refused || self.qps[peer].messages[self.qps[peer].life_start..index].iter().any(|m| m.refused) {
            return Err(format!("message {index} arrived, and access had been refused"));
        }
        fits(m, c, None, m.data.len())?;
        self.check_written_before(peer, index)?;
        let m = &self.qps[peer].messages[index];
        if c.opcode == WcOpcode::RecvWriteImm {
            let target = m.target.ok_or("a WRITE without a target")?;
            expect_bytes(&self.grounds[ground].read(target), &m.data, "a WRITE with immediate")?;
            return Ok(Vec::new());
        }
        let (data, op, changes) = (m.data.clone(), m.op, m.changes);
        if let Some(w) = changes {
            self.window_changed(w, &op);
        }
        Ok(data)
    }

    /// Some message of an unreliable connection: one that was sent, whole, behind the last one.
    fn expect_unreliable(&mut self, q: usize, c: &Completion, found: &[u8]) -> Result<Vec<u8>, String> {
        let (peer, ground, last) = (self.qps[q].peer, self.qps[q].ground, self.qps[q].last);
        let (duplicates, reorders) = (self.world.duplicates, self.world.reorders);
        let mut why = String::from("safety: nobody sent that");
        for index in 0..self.qps[peer].messages.len() {
            let m = &self.qps[peer].messages[index];
            if m.refused {
                continue;
            }
            if let Err(e) = fits(m, c, None, m.data.len()) {
                why = if c.imm.is_some() && imm_of(&m.op) == c.imm { e } else { why };
                continue;
            }
            let write = c.opcode == WcOpcode::RecvWriteImm;
            let bytes = match m.target {
                Some(target) if write => self.grounds[ground].read(target),
                _ => found[..m.data.len()].to_vec(),
            };
            if bytes != m.data {
                why = format!("safety: a message was placed that nobody sent so: {c:?}");
                continue;
            }
            let behind = last.is_none_or(|l| index > l || reorders || duplicates && index == l);
            if !behind || !m.delivered.is_empty() && !duplicates {
                why = format!("message {index} came twice, or behind {last:?}");
                continue;
            }
            let data = if write { Vec::new() } else { m.data.clone() };
            self.qps[peer].messages[index].delivered.push(q);
            self.qps[q].last = Some(index);
            self.done.uc += 1;
            return Ok(data);
        }
        Err(why)
    }

    /// A datagram that was sent to this queue pair, and not more often than the link sends it.
    fn expect_datagram(&mut self, q: usize, c: &Completion, found: &[u8]) -> Result<Vec<u8>, String> {
        let src_qp = c.src_qp.ok_or("a datagram without a sender")?;
        let header = found.first_chunk::<{ grh::LEN }>().ok_or("a receive without room for the header")?;
        let Ok(header) = Grh::parse(header) else {
            return Err("safety: a datagram without a network header".into());
        };
        let network = self.world.network;
        let from_host = [0, 1].into_iter().find(|&h| network.address(h).0 == header.src());
        let from = self.qp_at(from_host.ok_or("a datagram from nowhere")?, src_qp)?;
        let host = self.pair.host_of(self.qps[q].host);
        for index in 0..self.qps[from].messages.len() {
            let m = &self.qps[from].messages[index];
            let dgid = match m.to {
                Some(Destination::One(d)) if d == q => network.address(host).0,
                Some(Destination::Group(g)) if self.members[g].contains(&q) => groups(network.ipv6)[g],
                _ => continue,
            };
            let times = m.delivered.iter().filter(|&&d| d == q).count();
            let right = fits(m, c, c.src_qp, m.data.len() + grh::LEN).is_ok() && dgid == header.dst();
            if right && found[grh::LEN..][..m.data.len()] == m.data && (times == 0 || self.world.duplicates) {
                let data = m.data.clone();
                self.qps[from].messages[index].delivered.push(q);
                self.done.ud += 1;
                return Ok(data);
            }
        }
        Err(format!("safety: nobody sent this datagram to there, or not that often: {c:?}"))
    }

    /// At the end: receives that are still posted are as they were, but where messages may have come in part.
    pub(super) fn settle_receives(&mut self) {
        for (i, queue) in self.queues.iter().enumerate() {
            if queue.partial || self.qps.iter().any(|qp| qp.queue == i && qp.dying) {
                for &(_, area) in &queue.posted {
                    self.grounds[queue.ground].expect(area, Content::Any);
                }
            }
        }
    }

    /// When all is over: queue pairs give back, once, the receives that nobody used, and shared queues hold the others.
    pub(super) fn check_none_lost(&mut self) -> Result<(), String> {
        for qp in &mut self.qps {
            qp.dying = true;
            let attr = QpAttr { state: Some(QpState::Error), ..QpAttr::default() };
            self.pair.nic(qp.host).modify_qp(qp.qpn, &attr).map_err(|e| e.to_string())?;
        }
        self.collect(true)?;
        for queue in &self.queues {
            // A shared queue does not say what it holds, but it takes no more than it has room for.
            let lost = if let Some(srq) = queue.srq {
                let wr = RecvWr { wr_id: 0, sges: &[], best_effort: None };
                let nic = self.pair.nic(queue.host);
                std::iter::from_fn(|| nic.post_srq_recv(srq, &wr).ok()).count() != queue.free.len()
            } else {
                !queue.posted.is_empty()
            };
            if lost {
                return Err(format!("receives were lost, or there are too many: {:?}", queue.posted));
            }
        }
        Ok(())
    }

    /// At the end of a world where nothing is lost: all that was sent has arrived.
    pub(super) fn check_all_arrived(&mut self) -> Result<(), String> {
        for qp in self.qps.iter().filter(|qp| qp.kind != QpKind::Rc) {
            for (index, m) in qp.messages.iter().enumerate() {
                let expected = match (m.to, m.op) {
                    (Some(Destination::One(d)), _) => vec![d],
                    (Some(Destination::Group(g)), _) => self.members[g].clone(),
                    (None, SendOp::Write { .. }) => Vec::new(),
                    (None, _) if m.refused => Vec::new(),
                    (None, _) => vec![qp.peer],
                };
                let mut delivered = m.delivered.clone();
                delivered.sort_unstable();
                if delivered != expected {
                    return Err(format!(
                        "message {index} of {:?} {:?} went to {delivered:?} instead of {expected:?}, and nothing was lost",
                        qp.kind, qp.qpn
                    ));
                }
                if let Some(target) = m.target {
                    self.grounds[self.qps[qp.peer].ground].expect(target, Content::Exact(m.data.clone()));
                }
            }
        }
        Ok(())
    }
}

/// Whether a completion of a receive is what a message brings.
fn fits(m: &Message, c: &Completion, src_qp: Option<Qpn>, byte_len: usize) -> Result<(), String> {
    let (opcode, imm, invalidated) = match m.op {
        SendOp::Send => (WcOpcode::Recv, None, None),
        SendOp::SendImm { imm } => (WcOpcode::Recv, Some(imm), None),
        SendOp::SendInv { rkey } => (WcOpcode::Recv, None, Some(rkey)),
        SendOp::WriteImm { imm, .. } => (WcOpcode::RecvWriteImm, Some(imm), None),
        _ => return Err(format!("{:?} used up a receive", m.op)),
    };
    let expected = (opcode, byte_len as u32, imm, invalidated, src_qp, m.solicited, None);
    let found = (c.opcode, c.byte_len, c.imm, c.invalidated, c.src_qp, c.solicited, c.partial);
    if found == expected { Ok(()) } else { Err(format!("receive completion {c:?}, expected {expected:?}")) }
}

fn imm_of(op: &SendOp) -> Option<u32> {
    match op {
        SendOp::SendImm { imm } | SendOp::WriteImm { imm, .. } => Some(*imm),
        _ => None,
    }
}
