//! The calls that create, change and use queue pairs.

use std::net::IpAddr;
use std::time::Duration;

use softnic_transports::congestion::{CongestionControl, EqdsConfig};
use softnic_transports::memory::Bind;
use softnic_transports::negotiation::Choice;
use softnic_transports::qp::{
    Caps, Config, ModifyError, NoCongestionControl, PayloadMode, QpAttr, QpKind, QpState, QueuePair, SharedReceives,
};
use softnic_transports::{
    AuthError, Data, Endpoint, Misfits, PostError, RecvRules, RecvWr, Secret, SendFlags, SendOp, SendRules, SendWr,
    Vitals,
};
use softnic_wire::mad::vendor::Extensions;
use softnic_wire::{Instant, Qpn};

use super::objects::{ObjectError, place};
use super::{Nic, Shared};
use crate::qp::{QpInit, Slot};
use crate::source_rates::SourceRates;
use crate::srq::Srq;

/// Number of freed queue pair numbers that are not reused yet. A connection manager keeps the number of a closed connection for some
/// seconds, and refuses a new connection with that number.
const RESTING: usize = 1024;

/// Maximum number of scatter/gather elements of a queue.
pub const MAX_SGE: u32 = 32;
/// Maximum number of work requests in a queue.
pub const MAX_WR: u32 = 1 << 21;
/// Maximum inline data of a queue pair.
pub const MAX_INLINE: u32 = 1024;

impl Nic {
    /// Creates a queue pair.
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
                let Srq { pd, queue, .. } = self.srq(id)?;
                Some(SharedReceives { id, pd: *pd, rules: *queue.rules() })
            }
        };
        let index = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len()) as u32;
        let qpn = self.take_number(init.kind(), index)?;
        let QpInit { pd, send_cq, recv_cq, caps, sig_all, prompt_acks, limit_flight, halt_on_retry_exceeded, .. } =
            *init;
        let config = Config {
            qpn,
            pd,
            send_cq,
            recv_cq,
            recv_sink: self.cq(recv_cq).is_ok_and(|cq| cq.is_sink()),
            srq,
            caps,
            sig_all,
            prompt_acks,
            limit_flight,
            payload: if init.never_elided { PayloadMode::Real } else { self.payload },
            halt_on_retry_exceeded,
        };
        // The port of a datagram queue pair is not known yet.
        let mtu = self.ports.iter().map(|wire| wire.port.mtu).min().unwrap_or(self.port().mtu);
        self.pools.provide(init.transport, mtu);
        let transaction_id = self.transaction_id(init, qpn);
        let endpoint = Endpoint::new(init.transport, init.kind(), &config, mtu, transaction_id);
        let keeps_deadlines = endpoint.qp.recv_rules().deadlines;
        if srq.is_some_and(|srq| srq.rules.deadlines) && !keeps_deadlines {
            self.return_number(qpn);
            return Err(ObjectError::WrongKind);
        }
        place(&mut self.slots, Slot::new(init, endpoint));
        for turns in &mut self.turns {
            turns.ready.reserve(self.slots.len());
        }
        self.count_users(init, 1);
        Ok(qpn)
    }

    /// Authenticates every packet of a queue pair from now on, by a secret shared with the peer. A peer without the secret cannot
    /// communicate with the queue pair.
    ///
    /// # Errors
    /// When the queue pair is not of a reliable connection, or has been connected, or its frames carry no payload.
    pub fn authenticate(&mut self, qpn: Qpn, secret: &Secret) -> Result<(), ObjectError> {
        if self.payload == PayloadMode::Elided {
            return Err(AuthError::Elided.into());
        }
        let transaction_id = self.draw_transaction_id(qpn);
        let (_, slot, _) = self.slot(qpn).ok_or(ObjectError::NoSuchQp)?;
        Ok(slot.endpoint.authenticate(secret, transaction_id)?)
    }

    /// An unguessable random number, as used for keys; for software on the NIC.
    pub fn draw(&mut self) -> u32 {
        self.random.next_u32()
    }

    /// A nonce for one negotiation, never drawn before.
    fn draw_nonce(&mut self) -> [u8; 16] {
        let mut nonce = [0; 16];
        nonce.chunks_exact_mut(4).for_each(|part| part.copy_from_slice(&self.random.next_u32().to_be_bytes()));
        nonce
    }

    fn transaction_id(&mut self, init: &QpInit, qpn: Qpn) -> u64 {
        if init.transport.extension() == Extensions::NONE {
            return 0;
        }
        self.draw_transaction_id(qpn)
    }

    /// The transaction id that ties an answer to the offers of a queue pair. It is unguessable, and contains the queue pair number, so that
    /// an answer finds its queue pair.
    pub(super) fn draw_transaction_id(&mut self, qpn: Qpn) -> u64 {
        let (high, low) = (self.random.next_u32(), self.random.next_u32());
        u64::from(high) << 32 | u64::from(low & 0xff) << 24 | u64::from(qpn.value())
    }

    /// Assigns a number to the queue pair in slot `index`: an unguessable one, or that of QP1.
    fn take_number(&mut self, kind: QpKind, index: u32) -> Result<Qpn, ObjectError> {
        if kind == QpKind::Gsi {
            if self.gsi.is_some() {
                return Err(ObjectError::NoNumbers);
            }
            self.gsi = Some(index);
            self.source_rates = Some(SourceRates::new());
            return Ok(Qpn::GSI);
        }
        // 0 and 1 are the management queue pairs; the last number is for multicast.
        const RESERVED: usize = 3;
        let (owner, random, resting) = (self.owner, &mut self.random, &mut self.resting_qpns);
        let free = owner.count().saturating_sub(self.qpns.len() + RESERVED);
        if free == 0 {
            return Err(ObjectError::NoNumbers);
        }
        // If few numbers are left, the ones freed longest ago are reused.
        resting.truncate(RESTING.min(free / 2));
        let reserved = |n: u32| n < 2 || n == Qpn::MULTICAST.value() || resting.contains(&n);
        let mut own = || owner.number(random.next_u32());
        let qpn = self.qpns.insert(&mut own, reserved, |_| index).ok_or(ObjectError::NoNumbers)?;
        Ok(Qpn::new(qpn))
    }

    /// Frees the number of a queue pair; returns its slot.
    fn return_number(&mut self, qpn: Qpn) -> Option<u32> {
        match qpn {
            Qpn::GSI => {
                self.source_rates = None;
                self.gsi.take()
            }
            _ => {
                self.resting_qpns.push_front(qpn.value());
                self.resting_qpns.truncate(RESTING);
                self.qpns.remove(qpn.value())
            }
        }
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

    /// Destroys a queue pair; its work is dropped.
    pub fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), ObjectError> {
        let index = self.return_number(qpn).ok_or(ObjectError::NoSuchQp)?;
        self.reset_shim(index);
        let slot = self.slots[index as usize].take();
        for port in 0..self.turns.len() {
            self.dequeue(index, port);
        }
        for group in &mut self.groups {
            group.members.retain(|&m| m != index);
        }
        self.groups.retain(|g| !g.members.is_empty());
        self.shared.regions.forget_queue_pair(qpn);
        self.forget_events(|event| event.qpn() == Some(qpn));
        if let Some(slot) = slot {
            self.count_users(&slot.init, -1);
        }
        Ok(())
    }

    /// The slot of the queue pair with this number.
    #[inline]
    pub(super) fn index_of(&self, qpn: Qpn) -> Option<u32> {
        match qpn {
            Qpn::GSI => self.gsi,
            _ => self.qpns.get(qpn.value()).copied(),
        }
    }

    /// The slot of a queue pair, with the shared state that its methods need.
    pub(super) fn slot(&mut self, qpn: Qpn) -> Option<(u32, &mut Slot, &mut Shared)> {
        let index = self.index_of(qpn)?;
        let slot = self.slots.get_mut(index as usize)?.as_mut()?;
        Some((index, slot, &mut self.shared))
    }

    /// Changes the state or the attributes of a queue pair.
    pub fn modify_qp(&mut self, qpn: Qpn, attr: &QpAttr) -> Result<(), ModifyError> {
        let slot = self.slot_of(qpn).ok_or(ModifyError::NoSuchQp)?;
        let number = usize::from(attr.port.or(slot.endpoint.attributes().port).unwrap_or(1));
        let wire = self.wire(number).ok_or(ModifyError::Range("port"))?;
        if attr.path.is_some_and(|p| !wire.has(p.addresses.src())) {
            return Err(ModifyError::NotOurAddress);
        }
        if let Some(asked) = attr.mtu.filter(|&mtu| mtu > wire.port.mtu) {
            return Err(ModifyError::PathMtu { asked: asked.bytes(), port: wire.port.mtu.bytes() });
        }
        let peer = attr.path.map(|p| p.addresses.dst());
        let port = peer.map(|peer| self.port_to(number, peer));
        let begins = slot.endpoint.is_authenticated() && attr.state == Some(QpState::ReadyToReceive);
        let nonce = if begins { self.draw_nonce() } else { [0; 16] };
        let props = self.path_props(number, peer, nonce);
        if attr.state == Some(QpState::Reset) {
            self.index_of(qpn).into_iter().for_each(|index| self.reset_shim(index));
        }
        let (index, slot, shared) = self.slot(qpn).ok_or(ModifyError::NoSuchQp)?;
        slot.endpoint.modify(attr, &props, shared)?;
        slot.port = port.unwrap_or(slot.port);
        (slot.peer, slot.local) = (slot.endpoint.peer(), slot.endpoint.local());
        slot.told_fallback &= attr.state != Some(QpState::Reset);
        self.tell_of_fallback(index);
        // Waiting work may be sent now.
        self.activate(index);
        if let Some(layer) = &mut self.layer {
            layer.due = true;
        }
        Ok(())
    }

    /// Records the round-trip time to a peer, as its connection manager measured it. Queue pairs connected to the peer later use it to wait
    /// for answers.
    pub fn note_round_trip(&mut self, peer: IpAddr, rtt: Duration) {
        self.round_trips.note(peer, rtt);
    }

    pub(super) fn slot_of(&self, qpn: Qpn) -> Option<&Slot> {
        self.slots.get(self.index_of(qpn)? as usize)?.as_ref()
    }

    /// Releases the acknowledgements of a queue pair that wait for the program's reply, because the program will send none.
    pub fn release_acks(&mut self, qpn: Qpn) {
        let Some((index, slot, _)) = self.slot(qpn) else { return };
        slot.endpoint.qp.release_ack();
        self.activate(index);
    }

    /// The state of a queue pair.
    pub fn qp_state(&self, qpn: Qpn) -> Option<QpState> {
        Some(self.slot_of(qpn)?.endpoint.qp.state())
    }

    /// Whether a queue pair is in the error state and its work is flushed, rather than halted.
    pub fn has_failed(&self, qpn: Qpn) -> bool {
        self.slot_of(qpn)
            .is_some_and(|slot| slot.endpoint.qp.state() == QpState::Error && !slot.endpoint.qp.is_halted())
    }

    /// The protocol by which a queue pair with an offered extension sends its requests; `None` for other queue pairs.
    pub fn choice(&self, qpn: Qpn) -> Option<Choice> {
        self.slot_of(qpn)?.endpoint.choice()
    }

    /// Whether a queue pair negotiates, or has negotiated, extensions with its peer. Then it may have frames to send as soon as it is ready
    /// to receive.
    pub fn negotiates(&self, qpn: Qpn) -> bool {
        self.slot_of(qpn).is_some_and(|slot| slot.endpoint.negotiates())
    }

    /// The initial attributes of a queue pair, and all attributes set since it left the reset state.
    pub fn query_qp(&self, qpn: Qpn) -> Option<(QpInit, QpAttr)> {
        let slot = self.slot_of(qpn)?;
        Some((slot.init, slot.endpoint.attributes()))
    }

    /// The state of a queue pair, for observers.
    pub fn vitals(&self, qpn: Qpn) -> Option<Vitals> {
        Some(self.slot_of(qpn)?.endpoint.qp.vitals())
    }

    /// All queue pairs.
    pub fn queue_pairs(&self) -> impl Iterator<Item = Qpn> {
        self.slots.iter().flatten().map(|slot| slot.endpoint.qp.qpn())
    }

    /// The queue pairs that got packets which did not fit, with the numbers of such packets.
    pub fn misfits(&self) -> impl Iterator<Item = (Qpn, Misfits)> {
        let slots = self.slots.iter().flatten().map(|slot| (slot.endpoint.qp.qpn(), slot.misfits()));
        slots.filter(|&(_, misfits)| misfits != Misfits::default())
    }

    /// Sets the congestion controller of a queue pair.
    pub fn set_congestion_control(
        &mut self,
        qpn: Qpn,
        cc: Option<Box<dyn CongestionControl>>,
    ) -> Result<(), ObjectError> {
        let (_, slot, _) = self.slot(qpn).ok_or(ObjectError::NoSuchQp)?;
        // Datagrams go to many destinations, over many links: no single pace fits all.
        slot.endpoint.qp.set_congestion_control(cc).map_err(|NoCongestionControl| ObjectError::WrongKind)
    }

    /// Makes a queue pair's sends wait for credit of its peer, if the peer agrees (EQDS). Call this before the queue pair is connected.
    ///
    /// # Errors
    /// When the transport has no credit.
    pub fn use_credit(&mut self, qpn: Qpn, config: Option<EqdsConfig>) -> Result<(), ObjectError> {
        let negotiates = self.negotiates(qpn);
        let transaction_id = if negotiates { 0 } else { self.draw_transaction_id(qpn) };
        let (_, slot, _) = self.slot(qpn).ok_or(ObjectError::NoSuchQp)?;
        if !matches!(slot.endpoint.qp.state(), QpState::Reset | QpState::Init) {
            return Err(ObjectError::WrongKind);
        }
        slot.endpoint.use_credit(config, transaction_id).map_err(|NoCongestionControl| ObjectError::WrongKind)
    }

    // ---- work ----

    /// The rules for the work requests of a queue pair: for programs that post through another thread and need the result of the check at
    /// once.
    pub fn rules(&self, qpn: Qpn) -> Option<(SendRules, RecvRules)> {
        let slot = self.slot_of(qpn)?;
        Some((*slot.endpoint.qp.send_rules(), *slot.endpoint.qp.recv_rules()))
    }

    /// Writes a send work request; it is not sent before the doorbell rings.
    pub fn write_send(&mut self, qpn: Qpn, wr: &SendWr<'_>) -> Result<(), PostError> {
        let (_, slot, _) = self.slot(qpn).ok_or(PostError::State)?;
        let qp = &mut slot.endpoint.qp;
        qp.send_rules().check(wr)?;
        qp.write_send(wr)
    }

    /// Writes a send work request that was already checked against the queue pair's rules.
    pub fn write_checked_send(&mut self, qpn: Qpn, wr: &SendWr<'_>) -> Result<(), PostError> {
        let (_, slot, _) = self.slot(qpn).ok_or(PostError::State)?;
        slot.endpoint.qp.write_send(wr)
    }

    /// Publishes the send work requests written so far.
    pub fn ring_doorbell(&mut self, now: Instant, qpn: Qpn) {
        let Some((index, slot, shared)) = self.slot(qpn) else { return };
        slot.endpoint.qp.ring_doorbell(now, shared);
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
        let (_, slot, _) = self.slot(qpn).ok_or(PostError::State)?;
        slot.endpoint.qp.recv_rules().check(wr)?;
        self.post_checked_recv(qpn, wr)
    }

    /// Posts a receive that was already checked against the queue pair's rules.
    pub fn post_checked_recv(&mut self, qpn: Qpn, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let (index, slot, shared) = self.slot(qpn).ok_or(PostError::State)?;
        slot.endpoint.qp.post_recv(wr, shared)?;
        // Possibly no packet arrives that would arm the timer.
        if wr.best_effort.is_some() {
            self.rearm(index);
        }
        Ok(())
    }

    /// Binds a memory window of type 1 by a work request; returns its new key. `bind.rkey` is ignored: a window of type 1 gets its key from
    /// the NIC (IBA 10.6.7.2.3).
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
        self.post_send(now, qpn, &SendWr { wr_id, op, data: Data::Gather(&[]), flags, best_effort: None, to: None })?;
        Ok(rkey)
    }
}

/// The next key for the same window: only the low eight bits change (as by ibv_inc_rkey).
pub fn next_key(key: u32) -> u32 {
    key & !0xff | key.wrapping_add(1) & 0xff
}
