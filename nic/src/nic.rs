//! A NIC: its objects and the calls that make and change them. The data path is in `receive` and `transmit`.

mod receive;
mod transmit;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::rc::Rc;

use softnic_transports::completion::CqId;
use softnic_transports::congestion::CongestionControl;
use softnic_transports::memory::{Access, AccessError, AtomicOp, PdId, Region};
use softnic_transports::qp::{PayloadMode, QpState};
use softnic_transports::rc::Caps;
use softnic_transports::shim::Shim;
use softnic_transports::{
    Completion, CompletionSink, Counters, CqOverflow, Host, Memory, PostError, QueuePair, RecvWr, SendWr,
};
use softnic_wire::template::Addresses;
use softnic_wire::{Instant, MacAddr, Path, Qpn};

use crate::cq::{Cq, CqError};
use crate::memory::{Buffer, MrError, Regions};
use crate::qp::{AnyQp, ModifyError, QpAttr, QpInit, Slot, each};
use crate::table::{Generator, RandomTable};
use crate::timers::Timers;

/// The port of a NIC: where it is on the network.
#[derive(Debug, Clone)]
pub struct Port {
    /// Its MAC address.
    pub mac: MacAddr,
    /// Its addresses, in the order of its GID table.
    pub addresses: Vec<IpAddr>,
}

/// What a NIC is made with.
#[derive(Debug, Clone)]
pub struct NicConfig {
    /// Where it is on the network.
    pub port: Port,
    /// Whether frames carry their payload; only a simulation leaves it out.
    pub payload: PayloadMode,
}

/// What all queue pairs share: memory, completion queues, counters.
struct Shared {
    regions: Regions,
    cqs: Vec<Option<Cq>>,
    counters: Counters,
}

impl Memory for Shared {
    #[inline]
    fn check(&self, region: Region, len: u64) -> Result<(), AccessError> {
        self.regions.check(region, len)
    }

    #[inline]
    fn read(&self, region: Region, out: &mut [u8]) -> Result<(), AccessError> {
        self.regions.read(region, out)
    }

    #[inline]
    fn write(&self, region: Region, bytes: &[u8]) -> Result<(), AccessError> {
        self.regions.write(region, bytes)
    }

    fn atomic(&self, region: Region, op: AtomicOp) -> Result<u64, AccessError> {
        self.regions.atomic(region, op)
    }
}

impl CompletionSink for Shared {
    fn complete(&mut self, cq: CqId, completion: Completion) -> Result<(), CqOverflow> {
        match self.cqs.get_mut(cq.0 as usize) {
            Some(Some(cq)) => cq.push(completion),
            _ => Err(CqOverflow),
        }
    }
}

impl Host for Shared {
    #[inline]
    fn counters(&mut self) -> &mut Counters {
        &mut self.counters
    }
}

/// A software RDMA NIC.
pub struct Nic {
    port: Port,
    payload: PayloadMode,
    random: Box<dyn Generator>,
    shared: Shared,
    pds: Vec<bool>,
    /// Queue pair number to slot.
    qpns: RandomTable<u32>,
    slots: Vec<Option<Slot>>,
    /// Queue pairs that may have something to send, in turn.
    ready: VecDeque<u32>,
    timers: Timers,
    /// Room for a frame that a shim hands over.
    held: Box<[u8]>,
}

/// The longest frame there is: path MTU 4096 with every header.
const MAX_FRAME: usize = 4096 + 256;

/// Why an object was not made or destroyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// There is no such protection domain.
    #[error("no such protection domain")]
    NoSuchPd,
    /// There is no such completion queue.
    #[error("no such completion queue")]
    NoSuchCq,
    /// There is no such queue pair.
    #[error("no such queue pair")]
    NoSuchQp,
    /// Something still uses it.
    #[error("it is still in use")]
    Busy,
    /// As many as there are numbers for.
    #[error("no number is left")]
    NoNumbers,
    /// More work requests, elements or inline bytes than any queue pair may hold.
    #[error("the capabilities are beyond what a queue pair may have")]
    TooLarge,
}

/// The scatter/gather elements that a queue pair may be made with.
pub const MAX_SGE: u32 = 32;
/// The work requests that each queue of a queue pair may hold.
pub const MAX_WR: u32 = 1 << 21;
/// The inline data that a queue pair may be made with.
pub const MAX_INLINE: u32 = 1024;

impl Nic {
    /// A NIC without any object. Keys and queue pair numbers come from `random`.
    pub fn new(config: NicConfig, random: Box<dyn Generator>) -> Nic {
        Nic {
            port: config.port,
            payload: config.payload,
            random,
            shared: Shared { regions: Regions::new(), cqs: Vec::new(), counters: Counters::default() },
            pds: Vec::new(),
            qpns: RandomTable::new(24),
            slots: Vec::new(),
            ready: VecDeque::new(),
            timers: Timers::default(),
            held: vec![0; MAX_FRAME].into(),
        }
    }

    /// The NIC's counters.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Where it is on the network.
    pub fn port(&self) -> &Port {
        &self.port
    }

    /// A path from this port to `dst`, whose next hop has the MAC address `dst_mac`, with the usual settings: ECN-capable,
    /// 64 hops. `None` when the port has no address of that IP version.
    pub fn path_to(&self, dst: IpAddr, dst_mac: MacAddr, entropy: u32) -> Option<Path> {
        let src = *self.port.addresses.iter().find(|a| a.is_ipv4() == dst.is_ipv4())?;
        Some(Path {
            src_mac: self.port.mac,
            dst_mac,
            tags: [None; 2],
            addresses: Addresses::new(src, dst)?,
            traffic_class: 0b10, // ECT(0), as hardware sends
            flow_label: 0,
            hop_limit: 64,
            // The range of the IBTA's recommendation (annex A17.3.2): dynamic ports, one for each flow.
            src_port: 0xc000 | ((entropy ^ entropy >> 14) & 0x3fff) as u16,
        })
    }

    // ---- protection domains, memory, completion queues ----

    /// Makes a protection domain.
    pub fn alloc_pd(&mut self) -> PdId {
        self.pds.push(true);
        PdId(self.pds.len() as u32 - 1)
    }

    /// Destroys a protection domain that nothing uses.
    pub fn dealloc_pd(&mut self, pd: PdId) -> Result<(), ObjectError> {
        self.check_pd(pd)?;
        if self.shared.regions.any_in(pd) || self.slots.iter().flatten().any(|s| s.init.pd == pd) {
            return Err(ObjectError::Busy);
        }
        self.pds[pd.0 as usize] = false;
        Ok(())
    }

    fn check_pd(&self, pd: PdId) -> Result<(), ObjectError> {
        match self.pds.get(pd.0 as usize) {
            Some(true) => Ok(()),
            _ => Err(ObjectError::NoSuchPd),
        }
    }

    /// Registers memory; the key is both its lkey and its rkey.
    pub fn reg_mr(&mut self, pd: PdId, buffer: &Rc<Buffer>, access: Access) -> Result<u32, MrError> {
        self.check_pd(pd).map_err(|_| MrError::NoSuchPd)?;
        self.shared.regions.register(pd, buffer, access, false, &mut *self.random)
    }

    /// Registers memory whose addresses in work requests begin at 0.
    pub fn reg_mr_zero_based(&mut self, pd: PdId, buffer: &Rc<Buffer>, access: Access) -> Result<u32, MrError> {
        self.check_pd(pd).map_err(|_| MrError::NoSuchPd)?;
        self.shared.regions.register(pd, buffer, access, true, &mut *self.random)
    }

    /// A region that reads as zeros and forgets what is written, at every address.
    pub fn alloc_null_mr(&mut self, pd: PdId, access: Access) -> Result<u32, MrError> {
        self.check_pd(pd).map_err(|_| MrError::NoSuchPd)?;
        self.shared.regions.register_null(pd, access, &mut *self.random)
    }

    /// Forgets a region; its key is refused from now on.
    pub fn dereg_mr(&mut self, key: u32) -> Result<(), MrError> {
        self.shared.regions.deregister(key)
    }

    /// Makes a completion queue for `capacity` completions.
    pub fn create_cq(&mut self, capacity: usize) -> CqId {
        self.shared.cqs.push(Some(Cq::new(capacity)));
        CqId(self.shared.cqs.len() as u32 - 1)
    }

    /// Destroys a completion queue that no queue pair uses.
    pub fn destroy_cq(&mut self, cq: CqId) -> Result<(), CqError> {
        let slot = self.shared.cqs.get_mut(cq.0 as usize).ok_or(CqError::NoSuchCq)?;
        match slot {
            None => Err(CqError::NoSuchCq),
            Some(cq) if cq.users > 0 => Err(CqError::Busy),
            Some(_) => {
                *slot = None;
                Ok(())
            }
        }
    }

    /// The oldest completion of a queue.
    pub fn poll_cq(&mut self, cq: CqId) -> Result<Option<Completion>, CqError> {
        match self.shared.cqs.get_mut(cq.0 as usize) {
            Some(Some(cq)) => cq.poll(),
            _ => Err(CqError::NoSuchCq),
        }
    }

    // ---- queue pairs ----

    /// Makes a queue pair of a reliable connection.
    pub fn create_qp(&mut self, init: &QpInit) -> Result<Qpn, ObjectError> {
        self.check_pd(init.pd)?;
        let Caps { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline } = init.caps;
        if max_send_wr.max(max_recv_wr) > MAX_WR || max_send_sge.max(max_recv_sge) > MAX_SGE || max_inline > MAX_INLINE
        {
            return Err(ObjectError::TooLarge);
        }
        for cq in [init.send_cq, init.recv_cq] {
            if !matches!(self.shared.cqs.get(cq.0 as usize), Some(Some(_))) {
                return Err(ObjectError::NoSuchCq);
            }
        }
        let index = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        // 0 and 1 are the management QPs, the last is for multicast.
        let reserved = |n: u32| n < 2 || n == Qpn::MULTICAST.value();
        let qpn = self.qpns.insert(&mut *self.random, reserved, |_| index as u32).ok_or(ObjectError::NoNumbers)?;
        let qpn = Qpn::new(qpn);
        let slot = Some(Slot::new_rc(qpn, init, self.payload));
        if index == self.slots.len() {
            self.slots.push(slot);
        } else {
            self.slots[index] = slot;
        }
        self.ready.reserve(self.slots.len());
        self.count_users(init, 1);
        Ok(qpn)
    }

    fn count_users(&mut self, init: &QpInit, by: i32) {
        for cq in [init.send_cq, init.recv_cq] {
            if let Some(Some(cq)) = self.shared.cqs.get_mut(cq.0 as usize) {
                cq.users = cq.users.wrapping_add_signed(by);
            }
        }
    }

    /// Destroys a queue pair; its work is forgotten.
    pub fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), ObjectError> {
        let index = self.qpns.remove(qpn.value()).ok_or(ObjectError::NoSuchQp)?;
        let slot = self.slots[index as usize].take();
        self.ready.retain(|&i| i != index);
        if let Some(slot) = slot {
            self.count_users(&slot.init, -1);
        }
        Ok(())
    }

    /// The slot of a queue pair, with what its methods need beside it.
    fn slot(&mut self, qpn: Qpn) -> Option<(u32, &mut Slot, &mut Shared)> {
        let index = *self.qpns.get(qpn.value())?;
        let slot = self.slots.get_mut(index as usize)?.as_mut()?;
        Some((index, slot, &mut self.shared))
    }

    /// Changes the state or the attributes of a queue pair.
    pub fn modify_qp(&mut self, qpn: Qpn, attr: &QpAttr) -> Result<(), ModifyError> {
        if attr.path.is_some_and(|p| !self.port.addresses.contains(&p.addresses.src())) {
            return Err(ModifyError::NotOurAddress);
        }
        let (_, slot, shared) = self.slot(qpn).ok_or(ModifyError::NoSuchQp)?;
        slot.modify(attr, shared)
    }

    /// The state of a queue pair.
    pub fn qp_state(&self, qpn: Qpn) -> Option<QpState> {
        let index = *self.qpns.get(qpn.value())?;
        let slot = self.slots.get(index as usize)?.as_ref()?;
        Some(each!(&slot.qp, qp => qp.state()))
    }

    /// Puts a congestion controller in charge of a queue pair.
    pub fn set_congestion_control(
        &mut self,
        qpn: Qpn,
        cc: Option<Box<dyn CongestionControl>>,
    ) -> Result<(), ObjectError> {
        let (_, slot, _) = self.slot(qpn).ok_or(ObjectError::NoSuchQp)?;
        let AnyQp::Rc(qp) = &mut slot.qp;
        qp.set_congestion_control(cc);
        Ok(())
    }

    /// Puts a shim below a queue pair.
    pub fn set_shim(&mut self, qpn: Qpn, shim: Option<Box<dyn Shim>>) -> Result<(), ObjectError> {
        let (_, slot, _) = self.slot(qpn).ok_or(ObjectError::NoSuchQp)?;
        slot.shim = shim;
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
}
