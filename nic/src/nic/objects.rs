//! The calls that create and change all objects of a NIC except queue pairs: domains, memory, completion and shared receive queues,
//! addresses, multicast groups.

use std::net::IpAddr;
use std::sync::Arc;

use softnic_transports::memory::{Access, AccessError, Bind, PdId, Region};
use softnic_transports::qp::QpKind;
use softnic_transports::{
    AhId, AuthError, Completion, CqId, Event, PostError, RecvRules, RecvWr, SdrOfferError, SrqId,
};
use softnic_wire::{Qpn, Template, bth};

use super::queue_pairs::{MAX_SGE, MAX_WR};
use super::{Group, Nic};
use crate::address::{AddressAttr, AddressError};
use crate::address_handles::AddressHandle;
use crate::cq::{Cq, CqError, Notify, Sink};
use crate::memory::Buffer;
use crate::regions::{MrError, SlotTarget, WindowBinding, WindowType};
use crate::srq::Srq;

/// Why an object was not created or destroyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// There is no such protection domain.
    #[error("no such protection domain")]
    NoSuchPd,
    /// There is no such completion queue.
    #[error("no such completion queue")]
    NoSuchCq,
    /// There is no such shared receive queue.
    #[error("no such shared receive queue")]
    NoSuchSrq,
    /// There is no such queue pair.
    #[error("no such queue pair")]
    NoSuchQp,
    /// Another object still uses it.
    #[error("it is still in use")]
    Busy,
    /// All numbers are in use. QP1 has only one.
    #[error("no number is left")]
    NoNumbers,
    /// More work requests, elements or inline bytes than the maximum for a queue.
    #[error("the capabilities are beyond what a queue may have")]
    TooLarge,
    /// The transport of this queue pair does not support this.
    #[error("this kind of queue pair has no such thing")]
    WrongKind,
    /// The transport is not one of this kind of queue pair.
    #[error("the transport is not one of this kind of queue pair")]
    WrongTransport,
    /// Not an address of a multicast group.
    #[error("not the address of a multicast group")]
    NotMulticast,
    /// The queue pair is not a member of the group.
    #[error("the queue pair is not a member of the multicast group")]
    NotMember,
    /// The queue pair has no authentication.
    #[error(transparent)]
    Auth(#[from] AuthError),
    /// The queue pair does not offer SDR.
    #[error(transparent)]
    Sdr(#[from] SdrOfferError),
}

/// Puts a value into the first free slot of a list; returns its index.
pub(super) fn place<T>(list: &mut Vec<Option<T>>, value: T) -> u32 {
    let index = list.iter().position(Option::is_none).unwrap_or(list.len());
    if index == list.len() {
        list.push(Some(value));
    } else {
        list[index] = Some(value);
    }
    index as u32
}

/// Puts a value into one of the free slots of a list, or appends it; returns its index.
fn reuse<T>(list: &mut Vec<Option<T>>, free: &mut Vec<u32>, value: T) -> u32 {
    match free.pop() {
        Some(index) => {
            list[index as usize] = Some(value);
            index
        }
        None => {
            list.push(Some(value));
            list.len() as u32 - 1
        }
    }
}

impl Nic {
    // ---- protection domains ----

    /// Creates a protection domain.
    pub fn alloc_pd(&mut self) -> PdId {
        let pd = self.next_pd;
        self.pds.insert(pd);
        self.next_pd += 1;
        PdId(pd)
    }

    /// Destroys an unused protection domain.
    pub fn dealloc_pd(&mut self, pd: PdId) -> Result<(), ObjectError> {
        self.check_pd(pd)?;
        let used = self.shared.regions.any_in(pd)
            || self.slots.iter().flatten().any(|s| s.init.pd == pd)
            || self.shared.srqs.iter().flatten().any(|s| s.pd == pd)
            || self.shared.ahs.any_in(pd);
        if used {
            return Err(ObjectError::Busy);
        }
        self.pds.remove(&pd.0);
        Ok(())
    }

    pub(super) fn check_pd(&self, pd: PdId) -> Result<(), ObjectError> {
        match self.pds.contains(&pd.0) {
            true => Ok(()),
            false => Err(ObjectError::NoSuchPd),
        }
    }

    // ---- memory ----

    /// Registers memory; the key is both its lkey and its rkey.
    pub fn reg_mr(&mut self, pd: PdId, buffer: &Arc<Buffer>, access: Access) -> Result<u32, MrError> {
        self.check_pd(pd).map_err(|_| MrError::NoSuchPd)?;
        self.shared.regions.register(pd, buffer, access, false, &mut *self.random)
    }

    /// As [`Nic::reg_mr`], with a key that another NIC of the same device drew: all engines of a device have the same memory regions.
    pub fn reg_mr_as(&mut self, key: u32, pd: PdId, buffer: &Arc<Buffer>, access: Access) -> Result<u32, MrError> {
        self.check_pd(pd).map_err(|_| MrError::NoSuchPd)?;
        self.shared.regions.register_as(key, pd, buffer, access)
    }

    /// As [`Nic::alloc_mw`], with a key that another NIC of the same device drew.
    pub fn alloc_mw_as(&mut self, key: u32, pd: PdId, kind: WindowType) -> Result<u32, MrError> {
        self.check_pd(pd).map_err(|_| MrError::NoSuchPd)?;
        self.shared.regions.alloc_window_as(key, pd, kind)
    }

    /// Copies out of registered memory, with the checks for a local work request of this protection domain; for software on the NIC.
    pub fn read_local(&self, pd: PdId, lkey: u32, addr: u64, out: &mut [u8]) -> Result<(), AccessError> {
        self.shared.regions.read(local(pd, lkey, addr, Access::NONE), out)
    }

    /// Whether a work request of this protection domain has these rights to all of this memory.
    pub fn check_local(&self, pd: PdId, lkey: u32, addr: u64, len: u64, access: Access) -> Result<(), AccessError> {
        self.shared.regions.check(local(pd, lkey, addr, access), len)
    }

    /// Copies into registered memory, with the checks for a local work request of this protection domain.
    pub fn write_local(&self, pd: PdId, lkey: u32, addr: u64, bytes: &[u8]) -> Result<(), AccessError> {
        self.shared.regions.write(local(pd, lkey, addr, Access::LOCAL_WRITE), bytes)
    }

    /// Registers memory whose addresses in work requests start at 0.
    pub fn reg_mr_zero_based(&mut self, pd: PdId, buffer: &Arc<Buffer>, access: Access) -> Result<u32, MrError> {
        self.check_pd(pd).map_err(|_| MrError::NoSuchPd)?;
        self.shared.regions.register(pd, buffer, access, true, &mut *self.random)
    }

    /// Creates a region that reads as zeros and ignores writes, at every address.
    pub fn alloc_null_mr(&mut self, pd: PdId, access: Access) -> Result<u32, MrError> {
        self.check_pd(pd).map_err(|_| MrError::NoSuchPd)?;
        self.shared.regions.register_null(pd, access, &mut *self.random)
    }

    /// As [`Nic::alloc_null_mr`], with a key that another NIC of the same device drew.
    pub fn alloc_null_mr_as(&mut self, key: u32, pd: PdId, access: Access) -> Result<u32, MrError> {
        self.check_pd(pd).map_err(|_| MrError::NoSuchPd)?;
        self.shared.regions.register_null_as(key, pd, access)
    }

    /// Whether the region exists and no window is bound to it, as [`Nic::dereg_mr`] and [`Nic::rereg_mr`] require.
    pub fn check_unbound_mr(&self, key: u32) -> Result<(), MrError> {
        self.shared.regions.check_unbound(key)
    }

    /// Changes the given ones of the domain, the memory and the rights of a region to which no window is bound. The key stays; accesses
    /// that the region does not grant any more are refused from now on (ibv_rereg_mr). After an error nothing has changed.
    pub fn rereg_mr(
        &mut self,
        key: u32,
        pd: Option<PdId>,
        buffer: Option<&Arc<Buffer>>,
        access: Option<Access>,
    ) -> Result<(), MrError> {
        pd.map_or(Ok(()), |pd| self.check_pd(pd)).map_err(|_| MrError::NoSuchPd)?;
        self.shared.regions.reregister(key, pd, buffer, access)
    }

    /// Whether this is the key of a region rather than of a window.
    pub fn has_region(&self, key: u32) -> bool {
        self.shared.regions.is_region(key)
    }

    /// Destroys a region to which no window is bound; its key is refused from now on.
    pub fn dereg_mr(&mut self, key: u32) -> Result<(), MrError> {
        self.shared.regions.deregister(key)
    }

    /// Creates a memory window. It is bound by a work request ([`softnic_transports::SendOp::BindWindow`]).
    pub fn alloc_mw(&mut self, pd: PdId, kind: WindowType) -> Result<u32, MrError> {
        self.check_pd(pd).map_err(|_| MrError::NoSuchPd)?;
        self.shared.regions.alloc_window(pd, kind, &mut *self.random)
    }

    /// Binds a window of type 1, as a work request of a queue pair of another NIC of the same device did: the window is valid here for all
    /// queue pairs of its domain.
    pub fn bind_mw_as(&mut self, qpn: Qpn, pd: PdId, bind: &Bind) -> Result<(), AccessError> {
        self.shared.regions.bind(qpn, pd, bind)
    }

    /// How a window is bound, whatever its current key is.
    pub fn window_binding(&self, key: u32) -> Option<WindowBinding> {
        self.shared.regions.binding(key)
    }

    /// Binds a window of type 1 as it is bound at another NIC of the same device.
    pub fn set_window_binding(&mut self, key: u32, binding: WindowBinding) {
        self.shared.regions.set_binding(key, binding);
    }

    /// Destroys a window, bound or not; its key is refused from now on.
    pub fn dealloc_mw(&mut self, key: u32) -> Result<(), MrError> {
        self.shared.regions.dealloc_window(key)
    }

    /// Creates an indirect key: zero-based, with `slots` slots of `slot_len` bytes, a power of two. No slot has a target yet; writes to
    /// such a slot are discarded and complete normally.
    pub fn alloc_indirect_key(&mut self, pd: PdId, slot_len: u64, slots: u32, access: Access) -> Result<u32, MrError> {
        self.check_pd(pd).map_err(|_| MrError::NoSuchPd)?;
        self.shared.regions.alloc_indirect(pd, (slot_len, slots), access, &mut *self.random)
    }

    /// As [`Nic::alloc_indirect_key`], with a key that another NIC of the same device drew.
    pub fn alloc_indirect_key_as(
        &mut self,
        key: u32,
        pd: PdId,
        slot_len: u64,
        slots: u32,
        access: Access,
    ) -> Result<u32, MrError> {
        self.check_pd(pd).map_err(|_| MrError::NoSuchPd)?;
        self.shared.regions.alloc_indirect_as(key, pd, (slot_len, slots), access)
    }

    /// Sets the target of a slot of an indirect key: memory in a region, or none. Afterwards nothing is written to the previous target. A
    /// region that is the target of a slot cannot be destroyed. After an error nothing has changed.
    pub fn set_indirect_slot(&mut self, key: u32, slot: u32, target: Option<SlotTarget>) -> Result<(), MrError> {
        self.shared.regions.set_slot(key, slot, target)
    }

    /// Destroys an indirect key, whatever the targets of its slots are.
    pub fn dealloc_indirect_key(&mut self, key: u32) -> Result<(), MrError> {
        self.shared.regions.dealloc_indirect(key)
    }

    // ---- completion queues ----

    /// Creates a completion queue for `capacity` completions.
    pub fn create_cq(&mut self, capacity: usize) -> CqId {
        self.add_cq(Cq::new(capacity))
    }

    /// From now on the free numbers of completion queues are reused in ascending order. The NICs of one device have the same numbers, and
    /// so continue to assign the same ones, even after a creation succeeded at only some of them.
    pub fn sort_free_cqs(&mut self) {
        self.free_cqs.sort_unstable_by(|a, b| b.cmp(a));
    }

    fn add_cq(&mut self, cq: Cq) -> CqId {
        CqId(reuse(&mut self.shared.cqs, &mut self.free_cqs, cq))
    }

    /// Creates a completion queue without a limit, which allocates memory as needed: for an owner that empties it at once.
    pub fn create_cq_unbounded(&mut self) -> CqId {
        self.add_cq(Cq::unbounded())
    }

    /// Creates a completion queue that delivers each completion to an object when it occurs. It is never full, never polled and never
    /// armed. WRITEs with immediate need no receive on queue pairs whose receives complete there.
    pub fn create_cq_sink(&mut self, sink: Box<dyn Sink>) -> CqId {
        self.add_cq(Cq::of_sink(sink))
    }

    /// The sink of a completion queue, if it has one.
    pub fn sink_mut(&mut self, cq: CqId) -> Option<&mut dyn Sink> {
        self.cq(cq).ok()?.sink_mut()
    }

    /// Destroys a completion queue that no queue pair uses.
    pub fn destroy_cq(&mut self, cq: CqId) -> Result<(), CqError> {
        let slot = self.shared.cqs.get_mut(cq.0 as usize).ok_or(CqError::NoSuchCq)?;
        match slot {
            None => Err(CqError::NoSuchCq),
            Some(found) if found.users > 0 => Err(CqError::Busy),
            Some(_) => {
                *slot = None;
                self.free_cqs.push(cq.0);
                self.forget_events(|event| event == Event::CqErr(cq));
                self.shared.completion_events.retain(|&id| id != cq);
                Ok(())
            }
        }
    }

    pub(super) fn cq(&mut self, cq: CqId) -> Result<&mut Cq, CqError> {
        match self.shared.cqs.get_mut(cq.0 as usize) {
            Some(Some(cq)) => Ok(cq),
            _ => Err(CqError::NoSuchCq),
        }
    }

    /// Removes the oldest completion of a queue.
    pub fn poll_cq(&mut self, cq: CqId) -> Result<Option<Completion>, CqError> {
        self.cq(cq)?.poll()
    }

    /// Number of completions in a queue.
    pub fn cq_len(&mut self, cq: CqId) -> Result<usize, CqError> {
        Ok(self.cq(cq)?.len())
    }

    /// Removes the completions of one queue pair, because the queue pair was reset.
    pub fn forget_completions(&mut self, cq: CqId, qpn: Qpn) -> Result<(), CqError> {
        self.cq(cq)?.forget(qpn);
        Ok(())
    }

    /// Changes the capacity of a queue; its completions stay.
    pub fn resize_cq(&mut self, cq: CqId, capacity: usize) -> Result<(), CqError> {
        self.cq(cq)?.resize(capacity)
    }

    /// Arms a queue for one event, reported by [`Nic::poll_completion_event`], when a completion arrives. Poll the queue once more
    /// afterwards.
    pub fn req_notify_cq(&mut self, cq: CqId, what: Notify) -> Result<(), CqError> {
        self.cq(cq)?.arm(what)
    }

    // ---- shared receive queues ----

    /// Creates a shared receive queue.
    pub fn create_srq(&mut self, pd: PdId, max_wr: u32, max_sge: u32) -> Result<SrqId, ObjectError> {
        self.create_srq_of(pd, max_wr, RecvRules::new(max_sge))
    }

    /// Creates a shared receive queue whose receives follow the given rules. If receives may have deadlines, only queue pairs that support
    /// deadlines can take receives from it.
    pub fn create_srq_of(&mut self, pd: PdId, max_wr: u32, rules: RecvRules) -> Result<SrqId, ObjectError> {
        self.check_pd(pd)?;
        if max_wr > MAX_WR || u32::from(rules.max_sge) > MAX_SGE {
            return Err(ObjectError::TooLarge);
        }
        Ok(SrqId(reuse(&mut self.shared.srqs, &mut self.free_srqs, Srq::new(pd, max_wr, rules))))
    }

    pub(super) fn srq(&mut self, srq: SrqId) -> Result<&mut Srq, ObjectError> {
        match self.shared.srqs.get_mut(srq.0 as usize) {
            Some(Some(srq)) => Ok(srq),
            _ => Err(ObjectError::NoSuchSrq),
        }
    }

    /// Destroys a shared receive queue that no queue pair uses.
    pub fn destroy_srq(&mut self, srq: SrqId) -> Result<(), ObjectError> {
        if self.srq(srq)?.users > 0 {
            return Err(ObjectError::Busy);
        }
        self.shared.srqs[srq.0 as usize] = None;
        self.free_srqs.push(srq.0);
        self.forget_events(|event| event == Event::SrqLimit(srq));
        Ok(())
    }

    /// Sets the limit: one event is raised when fewer receives than this are left; 0 requests none.
    pub fn set_srq_limit(&mut self, srq: SrqId, limit: u32) -> Result<(), ObjectError> {
        self.srq(srq)?.limit = limit;
        Ok(())
    }

    /// The limit of a shared receive queue: 0 if its event was raised, or if none was requested.
    pub fn srq_limit(&mut self, srq: SrqId) -> Result<u32, ObjectError> {
        Ok(self.srq(srq)?.limit)
    }

    /// Posts a receive to a shared receive queue.
    pub fn post_srq_recv(&mut self, srq: SrqId, wr: &RecvWr<'_>) -> Result<(), PostError> {
        self.srq(srq).map_err(|_| PostError::State)?.queue.rules().check(wr)?;
        self.post_checked_srq_recv(srq, wr)
    }

    /// Posts a receive that was already checked against the rules of the shared receive queue.
    pub fn post_checked_srq_recv(&mut self, srq: SrqId, wr: &RecvWr<'_>) -> Result<(), PostError> {
        self.srq(srq).map_err(|_| PostError::State)?.queue.post(wr)
    }

    // ---- addresses and groups ----

    /// Creates an address handle, for datagrams.
    pub fn create_ah(&mut self, pd: PdId, attr: &AddressAttr) -> Result<AhId, AddressError> {
        self.check_pd(pd).map_err(|_| AddressError::NoSuchPd)?;
        let path = attr.path(self.port_at(attr.port).ok_or(AddressError::NoSuchGid)?)?;
        let handle = AddressHandle {
            pd,
            // The destination queue pair is given by each work request.
            template: Template::new(&path, Qpn::new(0), bth::DEFAULT_PKEY),
            to: attr.dgid.to_canonical(),
            port: self.port_to(attr.port, attr.dgid),
            multicast: attr.dgid.is_multicast(),
        };
        self.shared.ahs.insert(handle).ok_or(AddressError::TooMany)
    }

    /// Destroys an address handle; a datagram that still waits for it fails.
    pub fn destroy_ah(&mut self, ah: AhId) -> Result<(), AddressError> {
        self.shared.ahs.remove(ah).map(|_| ()).ok_or(AddressError::NoSuchAh)
    }

    /// Attaches a datagram queue pair to a group: from now on it receives packets to the group, including those sent by this NIC (IBA
    /// 10.5.1).
    pub fn attach_multicast(&mut self, qpn: Qpn, group: IpAddr) -> Result<(), ObjectError> {
        if !group.is_multicast() {
            return Err(ObjectError::NotMulticast);
        }
        let (index, slot, _) = self.slot(qpn).ok_or(ObjectError::NoSuchQp)?;
        if slot.init.kind() != QpKind::Ud {
            return Err(ObjectError::WrongKind);
        }
        match self.groups.iter_mut().find(|g| g.address == group) {
            Some(g) if g.members.contains(&index) => {}
            Some(g) => g.members.push(index),
            None => self.groups.push(Group { address: group, members: vec![index] }),
        }
        Ok(())
    }

    /// Detaches a queue pair from a group.
    pub fn detach_multicast(&mut self, qpn: Qpn, group: IpAddr) -> Result<(), ObjectError> {
        let (index, ..) = self.slot(qpn).ok_or(ObjectError::NoSuchQp)?;
        let members = self.groups.iter_mut().find(|g| g.address == group).map(|g| &mut g.members);
        let members = members.filter(|m| m.contains(&index)).ok_or(ObjectError::NotMember)?;
        members.retain(|&m| m != index);
        self.groups.retain(|g| !g.members.is_empty());
        Ok(())
    }

    /// The groups that have members among the queue pairs: the port must receive their frames.
    pub fn multicast_groups(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.groups.iter().map(|g| g.address)
    }
}

/// An access that is not made by a queue pair.
fn local(pd: PdId, key: u32, addr: u64, access: Access) -> Region {
    Region { qpn: Qpn::new(0), pd, key, addr, access }
}
