//! What the swarm's programs send: every operation of every transport, through regions and windows, to one and to many.

use softnic_nic::QpKind;
use softnic_nic::transports::{Data, Datagram, SendFlags, SendOp, SendWr};
use softnic_sim::pair::{Between, QKEY};
use softnic_wire::Qpn;

use super::ground::{AreaId, Content, cut};
use super::{Drain, Swarm};

/// A message from posting to completion.
pub(super) struct Message {
    pub(super) op: SendOp,
    pub(super) data: Vec<u8>,
    /// Where its bytes come from, or a READ or atomic puts them, in the ground of its queue pair; inline ones have none.
    pub(super) local: Vec<AreaId>,
    /// Where a WRITE goes, in the ground of the peer.
    pub(super) target: Option<AreaId>,
    /// The window that it goes through, and the one that it binds or takes away.
    pub(super) through: Option<usize>,
    pub(super) changes: Option<usize>,
    /// It must be refused: its key is good for nothing, or not for all of its bytes.
    pub(super) refused: bool,
    /// A READ behind it brings back what it wrote.
    pub(super) read_back: bool,
    /// What a READ may bring as well, byte for byte, because its memory changes.
    pub(super) other: Option<Vec<u8>>,
    pub(super) to: Option<Destination>,
    /// The queue pairs that got it, for transports that do not promise that once.
    pub(super) delivered: Vec<usize>,
    pub(super) signaled: bool,
    pub(super) solicited: bool,
}

/// Where a datagram goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Destination {
    One(usize),
    Group(usize),
}

/// A message that is not posted yet.
pub(super) struct Draft {
    pub(super) op: SendOp,
    pub(super) data: Vec<u8>,
    pub(super) target: Option<AreaId>,
    pub(super) through: Option<usize>,
    pub(super) changes: Option<usize>,
    pub(super) refused: bool,
    pub(super) fence: bool,
    pub(super) to: Option<Destination>,
    pub(super) other: Option<Vec<u8>>,
}

impl Draft {
    pub(super) fn new(op: SendOp, data: Vec<u8>) -> Draft {
        let (target, through, changes, to, other) = (None, None, None, None, None);
        Draft { op, data, target, through, changes, refused: false, fence: false, to, other }
    }
}

/// Whether data comes back.
fn takes_data(op: &SendOp) -> bool {
    matches!(op, SendOp::Read { .. } | SendOp::FetchAdd { .. } | SendOp::CompareSwap { .. })
}

/// Whether nothing is sent at all.
fn is_local(op: &SendOp) -> bool {
    matches!(op, SendOp::BindWindow(_) | SendOp::LocalInv { .. })
}

impl Swarm {
    /// Posts a message where there is room for one.
    pub(super) fn post_sends(&mut self) -> Result<(), String> {
        for q in 0..self.qps.len() {
            let qp = &self.qps[q];
            let outstanding = qp.messages.len() - qp.completed;
            let more = qp.messages.len() < self.total() && outstanding < self.world.depth as usize;
            if !more || qp.dead {
                continue;
            }
            let draft = match qp.kind {
                QpKind::Rc => self.draft_rc(q)?,
                QpKind::Uc => {
                    let data = self.any_data(self.world.max_len);
                    match self.reach_beyond(q, &data) {
                        Some(draft) => draft,
                        None => self.draft_message(q, data, 4, None)?,
                    }
                }
                _ => self.draft_datagram(),
            };
            self.post(q, draft)?;
        }
        Ok(())
    }

    fn any_data(&mut self, max: u32) -> Vec<u8> {
        let r = &mut self.random;
        let len = r.below(u64::from(max) + 1) as usize;
        let mut data: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| r.next_u64().to_le_bytes()).collect();
        data.truncate(len);
        data
    }

    fn draft_rc(&mut self, q: usize) -> Result<Draft, String> {
        let data = self.any_data(self.world.max_len);
        if let Some(draft) = self.reach_beyond(q, &data) {
            return Ok(draft);
        }
        if let Some(draft) = self.read_back(q) {
            return Ok(draft);
        }
        if let Some(draft) = self.read_what_changes(q, &data)? {
            return Ok(draft);
        }
        // Windows end with the connection that they were made for.
        let windows = self.world.windows > 0 && !self.qps[q].dying && !self.qps[q].reborn;
        if windows {
            if self.random.chance(0.2)
                && let Some(draft) = self.change_window(q)?
            {
                return Ok(draft);
            }
            if self.random.chance(self.world.stale)
                && let Some(draft) = self.use_stale_key(q, data.clone())
            {
                return Ok(draft);
            }
            if self.random.chance(0.1)
                && let Some(draft) = self.send_and_invalidate(q, data.clone())
            {
                return Ok(draft);
            }
        }
        let through = if windows && self.random.chance(0.5) { self.usable_window(q, data.len()) } else { None };
        self.draft_message(q, data, 7, through)
    }

    /// One of the first `kinds` operations of a connection: four that UC has too, then READ and atomics.
    fn draft_message(&mut self, q: usize, data: Vec<u8>, kinds: u64, through: Option<usize>) -> Result<Draft, String> {
        let (kind, imm) = (self.random.below(kinds), self.random.next_u32());
        match kind {
            0 => return Ok(Draft::new(SendOp::Send, data)),
            1 => return Ok(Draft::new(SendOp::SendImm { imm }, data)),
            5 | 6 => return Ok(self.draft_atomic(q, kind == 5, through)),
            _ => {}
        }
        let peer = self.qps[q].peer;
        let (remote_addr, rkey, at) = match through {
            Some(w) => self.room_in_window(w, data.len()),
            None => {
                let ground = &mut self.grounds[self.qps[peer].ground];
                let at = ground.reserve(data.len(), 1)?;
                (ground.buffer.addr() + at as u64, ground.key, at)
            }
        };
        let ground = &mut self.grounds[self.qps[peer].ground];
        let target = ground.area(at, data.len(), Content::Each(data.clone()));
        let op = match kind {
            2 => SendOp::Write { remote_addr, rkey },
            3 => SendOp::WriteImm { remote_addr, rkey, imm },
            _ => {
                ground.fill(target, data.clone());
                SendOp::Read { remote_addr, rkey }
            }
        };
        let target = (kind != 4).then_some(target);
        Ok(Draft { target, through, ..Draft::new(op, data) })
    }

    fn draft_atomic(&mut self, q: usize, is_add: bool, through: Option<usize>) -> Draft {
        let (add, swap, hit) = (self.random.next_u64(), self.random.next_u64(), self.random.chance(0.7));
        let change = |was: u64| match is_add {
            true => was.wrapping_add(add),
            false if hit => swap,
            false => was,
        };
        let (remote_addr, rkey, was) = match through {
            Some(w) => self.count_in_window(w, change),
            None => {
                let peer = self.qps[q].peer;
                let peer = &mut self.qps[peer];
                let was = peer.counter;
                peer.counter = change(was);
                let ground = &mut self.grounds[peer.ground];
                ground.expect(peer.counter_area, Content::Exact(peer.counter.to_ne_bytes().to_vec()));
                (ground.addr(peer.counter_area), ground.key, was)
            }
        };
        let op = if is_add {
            SendOp::FetchAdd { remote_addr, rkey, add }
        } else {
            SendOp::CompareSwap { remote_addr, rkey, compare: was ^ u64::from(!hit), swap }
        };
        Draft { through, ..Draft::new(op, was.to_ne_bytes().to_vec()) }
    }

    fn draft_datagram(&mut self) -> Draft {
        let data = self.any_data(self.world.max_len.min(self.world.mtu.bytes()));
        let imm = self.random.next_u32();
        let op = if self.random.chance(0.5) { SendOp::Send } else { SendOp::SendImm { imm } };
        // Leaves and spines route: they know no way to a group.
        let to = if self.world.network.between != Between::LeafSpine && self.random.chance(0.3) {
            Destination::Group(self.random.below(self.members.len() as u64) as usize)
        } else {
            let all: Vec<usize> = (0..self.qps.len()).filter(|&d| self.qps[d].kind == QpKind::Ud).collect();
            Destination::One(all[self.random.below(all.len() as u64) as usize])
        };
        Draft { to: Some(to), ..Draft::new(op, data) }
    }

    /// Where the network finds a destination.
    fn datagram(&self, from: usize, to: Destination) -> Datagram {
        let (ah, dest_qp) = match to {
            Destination::One(d) => (self.pair.host_of(self.qps[d].host), self.qps[d].qpn),
            Destination::Group(g) => (2 + g, Qpn::MULTICAST),
        };
        Datagram { ah: self.ahs[from][ah], dest_qp, qkey: QKEY }
    }

    fn post(&mut self, q: usize, draft: Draft) -> Result<(), String> {
        let Draft { op, data, target, through, changes, refused, fence, to, other } = draft;
        let to_where = to.map(|to| self.datagram(self.qps[q].host, to));
        let total = self.total();
        let (r, qp) = (&mut self.random, &mut self.qps[q]);
        let ground = &mut self.grounds[qp.ground];
        let last = qp.messages.len() + 1 == total;
        let full = qp.messages.len() - qp.completed + 1 == self.world.depth as usize;
        let signaled = last || full || is_local(&op) || r.chance(0.7);
        let mut local = Vec::new();
        let inline = data.len() <= 64 && r.chance(0.5) && !takes_data(&op) && !is_local(&op);
        if !inline && !is_local(&op) {
            let mut rest = &data[..];
            for n in cut(r, data.len(), 16) {
                let (piece, behind) = rest.split_at(n);
                let content = if other.is_some() { Content::Any } else { Content::Each(piece.to_vec()) };
                let area = ground.room(n, content)?;
                if !takes_data(&op) {
                    ground.fill(area, piece.to_vec());
                } else if refused {
                    ground.wipe(area, super::ground::UNTOUCHED);
                }
                local.push(area);
                rest = behind;
            }
        }
        let sges = ground.sges(&local);
        let solicited = r.chance(0.2);
        let wr = SendWr {
            wr_id: ((q as u64) << 32) | qp.messages.len() as u64,
            op,
            data: if inline { Data::Inline(&data) } else { Data::Gather(&sges) },
            flags: SendFlags { signaled, solicited, fence: fence || r.chance(0.2) },
            best_effort: None,
            to: to_where,
        };
        let (host, qpn, peer, index) = (qp.host, qp.qpn, qp.peer, qp.messages.len());
        self.pair.nic(host).write_send(qpn, &wr).map_err(|e| format!("post_send: {e}"))?;
        let delivered = Vec::new();
        qp.messages.push(Message {
            op,
            data,
            local,
            target,
            through,
            changes,
            refused,
            read_back: false,
            other,
            to,
            delivered,
            signaled,
            solicited,
        });
        let uses_receive = !is_local(&op) && !takes_data(&op) && !matches!(op, SendOp::Write { .. });
        if uses_receive && qp.kind == QpKind::Rc {
            self.qps[peer].receiving.push_back(index);
        }
        // Several work requests may share a doorbell; the last must have one. Who is drained begins nothing new.
        let drained = matches!(self.qps[q].drain, Drain::Done(_));
        if last || full || drained || self.random.chance(0.6) {
            self.ring(q);
        }
        Ok(())
    }

    /// Rings the doorbell of a queue pair.
    pub(super) fn ring(&mut self, q: usize) {
        let (host, qpn, now) = (self.qps[q].host, self.qps[q].qpn, self.pair.sim.now().instant());
        self.pair.nic(host).ring_doorbell(now, qpn);
        self.pair.touch(host);
    }
}
