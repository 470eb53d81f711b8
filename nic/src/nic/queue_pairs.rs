//! The calls that make, change and use queue pairs.

use softnic_transports::congestion::CongestionControl;
use softnic_transports::memory::Bind;
use softnic_transports::negotiation::Choice;
use softnic_transports::outstanding::OutstandingSends;
use softnic_transports::qp::{Caps, Config, QpState, SharedReceives};
use softnic_transports::shim::Shim;
use softnic_transports::wr::Data;
use softnic_transports::{PostError, QueuePair, RecvWr, SendFlags, SendOp, SendWr};
use softnic_wire::{Instant, Qpn};

use super::objects::{ObjectError, place};
use super::{Nic, Shared};
use crate::qp::{AnyQp, Line, ModifyError, QpAttr, QpInit, QpKind, Slot, each};
use crate::srq::Srq;

/// The scatter/gather elements that a queue may be made with.
pub const MAX_SGE: u32 = 32;
/// The work requests that a queue may hold.
pub const MAX_WR: u32 = 1 << 21;
/// The inline data that a queue pair may be made with.
pub const MAX_INLINE: u32 = 1024;

impl Nic {
    /// Makes a queue pair.
    pub fn create_qp(&mut self, init: &QpInit) -> Result<Qpn, ObjectError> {
        self.check_pd(init.pd)?;
        let Caps { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline } = init.caps;
        if max_send_wr.max(max_recv_wr) > MAX_WR || max_send_sge.max(max_recv_sge) > MAX_SGE || max_inline > MAX_INLINE
        {
            return Err(ObjectError::TooLarge);
        }
        for cq in [init.send_cq, init.recv_cq] {
            self.cq(cq).map_err(|_| ObjectError::NoSuchCq)?;
        }
        let srq = match init.srq {
            None => None,
            Some(id) => {
                let Srq { pd, max_sge, .. } = *self.srq(id)?;
                Some(SharedReceives { id, pd, max_sge })
            }
        };
        let index = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len()) as u32;
        let qpn = self.take_number(init.kind, index)?;
        let QpInit { pd, send_cq, recv_cq, caps, sig_all, .. } = *init;
        let config = Config {
            qpn,
            pd,
            send_cq,
            recv_cq,
            srq,
            caps,
            sig_all,
            payload: self.payload,
            halt_on_retry_exceeded: init.halt_on_retry_exceeded,
        };
        if init.lowar.is_some() {
            self.buffers.provide(self.port.mtu.bytes() as usize);
        }
        let slot = Slot::new(init, &config, self.port.mtu, &mut *self.random);
        place(&mut self.slots, slot);
        for ready in &mut self.ready {
            ready.reserve(self.slots.len());
        }
        self.count_users(init, 1);
        Ok(qpn)
    }

    /// A number for the queue pair in slot `index`: one that nobody can guess, or the one of QP1.
    fn take_number(&mut self, kind: QpKind, index: u32) -> Result<Qpn, ObjectError> {
        if kind == QpKind::Gsi {
            if self.gsi.is_some() {
                return Err(ObjectError::NoNumbers);
            }
            self.gsi = Some(index);
            return Ok(Qpn::GSI);
        }
        // 0 and 1 are the management QPs, the last is for multicast.
        let owner = self.owner;
        let reserved = |n: u32| n < 2 || n == Qpn::MULTICAST.value() || !owner.owns(Qpn::new(n));
        let qpn = self.qpns.insert(&mut *self.random, reserved, |_| index).ok_or(ObjectError::NoNumbers)?;
        Ok(Qpn::new(qpn))
    }

    fn count_users(&mut self, init: &QpInit, by: i32) {
        for cq in [init.send_cq, init.recv_cq] {
            if let Ok(cq) = self.cq(cq) {
                cq.users = cq.users.wrapping_add_signed(by);
            }
        }
        if let Some(Ok(srq)) = init.srq.map(|id| self.srq(id)) {
            srq.users = srq.users.wrapping_add_signed(by);
        }
    }

    /// Destroys a queue pair; its work is forgotten.
    pub fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), ObjectError> {
        let index = match qpn {
            Qpn::GSI => self.gsi.take(),
            _ => self.qpns.remove(qpn.value()),
        };
        let index = index.ok_or(ObjectError::NoSuchQp)?;
        self.reset_shim(index);
        let slot = self.slots[index as usize].take();
        for port in 0..self.ready.len() {
            self.dequeue(index, port);
        }
        for group in &mut self.groups {
            group.members.retain(|&m| m != index);
        }
        self.groups.retain(|g| !g.members.is_empty());
        self.refusals.retain(|&i| i != index);
        self.shared.regions.forget_queue_pair(qpn);
        self.forget_events(|event| event.qpn() == Some(qpn));
        if let Some(slot) = slot {
            self.count_users(&slot.init, -1);
        }
        Ok(())
    }

    /// The slot of the queue pair with a number.
    #[inline]
    pub(super) fn index_of(&self, qpn: Qpn) -> Option<u32> {
        match qpn {
            Qpn::GSI => self.gsi,
            _ => self.qpns.get(qpn.value()).copied(),
        }
    }

    /// The slot of a queue pair, with what its methods need beside it.
    pub(super) fn slot(&mut self, qpn: Qpn) -> Option<(u32, &mut Slot, &mut Shared)> {
        let index = self.index_of(qpn)?;
        let slot = self.slots.get_mut(index as usize)?.as_mut()?;
        Some((index, slot, &mut self.shared))
    }

    /// Changes the state or the attributes of a queue pair.
    pub fn modify_qp(&mut self, qpn: Qpn, attr: &QpAttr) -> Result<(), ModifyError> {
        if attr.path.is_some_and(|p| !self.port.addresses.contains(&p.addresses.src())) {
            return Err(ModifyError::NotOurAddress);
        }
        if let Some(asked) = attr.mtu.filter(|&mtu| mtu > self.port.mtu) {
            return Err(ModifyError::PathMtu { asked: asked.bytes(), port: self.port.mtu.bytes() });
        }
        let port = attr.path.map(|p| self.port_to(p.addresses.dst()));
        let silent = attr.path.is_some_and(|p| self.silent_peers.is_silent(p.addresses.dst()));
        let line = Line { silent, mtu: self.link_mtu, payload: self.payload };
        if attr.state == Some(QpState::Reset) {
            self.index_of(qpn).into_iter().for_each(|index| self.reset_shim(index));
        }
        let (index, slot, shared) = self.slot(qpn).ok_or(ModifyError::NoSuchQp)?;
        slot.modify(attr, line, shared)?;
        slot.port = port.unwrap_or(slot.port);
        if slot.peer.is_some() && slot.offer.is_some() {
            self.refusals.push_back(index);
        }
        self.tell_of_fallback(index);
        // What waited may go now.
        self.activate(index);
        Ok(())
    }

    fn slot_of(&self, qpn: Qpn) -> Option<&Slot> {
        self.slots.get(self.index_of(qpn)? as usize)?.as_ref()
    }

    /// The program will not answer any more on a queue pair: what waits for its answer goes.
    pub fn release_acks(&mut self, qpn: Qpn) {
        let Some((index, slot, _)) = self.slot(qpn) else { return };
        match &mut slot.qp {
            AnyQp::Rc(qp) => qp.release_ack(),
            AnyQp::Sr(qp) => qp.release_ack(),
            _ => {}
        }
        self.activate(index);
    }

    /// The state of a queue pair.
    pub fn qp_state(&self, qpn: Qpn) -> Option<QpState> {
        let slot = self.slot_of(qpn)?;
        Some(each!(&slot.qp, qp => qp.state()))
    }

    /// What the requests of a queue pair are sent by that offers an extension of RC; `None` for others.
    pub fn choice(&self, qpn: Qpn) -> Option<Choice> {
        self.slot_of(qpn)?.choice()
    }

    /// What a queue pair was made with, and all attributes that were set since it left the reset state.
    pub fn query_qp(&self, qpn: Qpn) -> Option<(QpInit, QpAttr)> {
        let slot = self.slot_of(qpn)?;
        let state = each!(&slot.qp, qp => qp.state());
        Some((slot.init, QpAttr { state: Some(state), ..slot.attr }))
    }

    /// The sends of a reliable connection that have not completed, oldest first: what is in place where one halted. `None` for others.
    pub fn outstanding_sends(&self, qpn: Qpn) -> Option<OutstandingSends<'_>> {
        match &self.slot_of(qpn)?.qp {
            AnyQp::Rc(qp) => Some(qp.outstanding_sends()),
            AnyQp::Sr(qp) => Some(qp.outstanding_sends()),
            _ => None,
        }
    }

    /// Puts a congestion controller in charge of a queue pair.
    pub fn set_congestion_control(
        &mut self,
        qpn: Qpn,
        cc: Option<Box<dyn CongestionControl>>,
    ) -> Result<(), ObjectError> {
        let (_, slot, _) = self.slot(qpn).ok_or(ObjectError::NoSuchQp)?;
        // Datagrams go to many, over many links: there is no pace for all.
        match &mut slot.qp {
            AnyQp::Rc(qp) => qp.set_congestion_control(cc),
            AnyQp::Sr(qp) => qp.set_congestion_control(cc),
            AnyQp::Uc(qp) => qp.set_congestion_control(cc),
            _ => return Err(ObjectError::WrongKind),
        }
        Ok(())
    }

    /// Puts a shim below a queue pair.
    pub fn set_shim(&mut self, qpn: Qpn, shim: Option<Box<dyn Shim>>) -> Result<(), ObjectError> {
        let index = self.index_of(qpn).ok_or(ObjectError::NoSuchQp)?;
        self.reset_shim(index);
        if let Some(Some(slot)) = self.slots.get_mut(index as usize) {
            slot.shim = shim;
            slot.shim_due = slot.shim.is_some();
        }
        Ok(())
    }

    // ---- work ----

    /// Writes a send work request; nothing is sent before the doorbell rings.
    pub fn write_send(&mut self, qpn: Qpn, wr: &SendWr<'_>) -> Result<(), PostError> {
        let (_, slot, _) = self.slot(qpn).ok_or(PostError::State)?;
        each!(&mut slot.qp, qp => qp.write_send(wr))
    }

    /// Publishes the send work requests written so far.
    pub fn ring_doorbell(&mut self, now: Instant, qpn: Qpn) {
        let Some((index, slot, shared)) = self.slot(qpn) else { return };
        each!(&mut slot.qp, qp => qp.ring_doorbell(now, shared));
        self.activate(index);
    }

    /// Writes a send work request and rings the doorbell.
    pub fn post_send(&mut self, now: Instant, qpn: Qpn, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.write_send(qpn, wr)?;
        self.ring_doorbell(now, qpn);
        Ok(())
    }

    /// Posts a receive.
    pub fn post_recv(&mut self, qpn: Qpn, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let (_, slot, shared) = self.slot(qpn).ok_or(PostError::State)?;
        each!(&mut slot.qp, qp => qp.post_recv(wr, shared))
    }

    /// Binds a memory window of type 1 by a work request; its key from then on. `bind.rkey` is not looked at: a window of
    /// type 1 gets its key from the NIC (IBA 10.6.7.2.3).
    pub fn bind_mw(
        &mut self,
        now: Instant,
        qpn: Qpn,
        wr_id: u64,
        bind: &Bind,
        flags: SendFlags,
    ) -> Result<u32, PostError> {
        let rkey = next_key(bind.window);
        let op = SendOp::BindWindow(Bind { rkey, ..*bind });
        self.post_send(now, qpn, &SendWr { wr_id, op, data: Data::Gather(&[]), flags, deadline: None, to: None })?;
        Ok(rkey)
    }
}

/// The key that follows `key` for the same window: only the low eight bits change (as ibv_inc_rkey does).
pub fn next_key(key: u32) -> u32 {
    key & !0xff | key.wrapping_add(1) & 0xff
}
