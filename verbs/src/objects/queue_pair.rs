//! Creation and destruction of queue pairs.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};
use std::sync::{Mutex as Lock, MutexGuard};

use softnic_runtime::api::{Caps, Cc, MAX_INLINE, MAX_SGE, QpAttr, QpKind, QpOptions, QpState, QueuePair, Transport};

use crate::abi::*;
use crate::c_result::{check_memory, status};
use crate::codes::state_code;
use crate::environment::environment;
use crate::errno::Errno;
use crate::fork::Generation;
use crate::limits::{MAX_QP_WR, WORK_REQUEST, queue_size};
use crate::objects::building::Builder;
use crate::objects::completion_queue::Cq;
use crate::objects::context::{ContextPtr, Kind, Retire};
use crate::objects::domain::Pd;
use crate::objects::event_queue::{Subject, Unacknowledged};
use crate::objects::handle::{self, Object, ObjectKind, Pointer};
use crate::objects::shared_receive::Srq;

/// The fields of `struct ibv_qp_ex` after `struct ibv_qp`, in its order.
#[repr(C)]
pub(crate) struct BuilderTable {
    pub(crate) comp_mask: u64,
    /// Set by the program before each work request.
    pub(crate) wr_id: AtomicU64,
    pub(crate) wr_flags: AtomicU32,
    pub(crate) atomic_cmp_swp: extern "C" fn(&Qp, u32, u64, u64, u64),
    pub(crate) atomic_fetch_add: extern "C" fn(&Qp, u32, u64, u64),
    pub(crate) bind_mw: extern "C" fn(&Qp, *mut ibv_mw, u32, &ibv_mw_bind_info),
    pub(crate) local_inv: extern "C" fn(&Qp, u32),
    pub(crate) rdma_read: extern "C" fn(&Qp, u32, u64),
    pub(crate) rdma_write: extern "C" fn(&Qp, u32, u64),
    pub(crate) rdma_write_imm: extern "C" fn(&Qp, u32, u64, u32),
    pub(crate) send: extern "C" fn(&Qp),
    pub(crate) send_imm: extern "C" fn(&Qp, u32),
    pub(crate) send_inv: extern "C" fn(&Qp, u32),
    /// A queue pair that requests it is refused.
    pub(crate) send_tso: usize,
    pub(crate) set_ud_addr: extern "C" fn(&Qp, *mut ibv_ah, u32, u32),
    pub(crate) set_xrc_srqn: usize,
    pub(crate) set_inline_data: extern "C" fn(&Qp, *const u8, usize),
    pub(crate) set_inline_data_list: extern "C" fn(&Qp, usize, *const ibv_data_buf),
    pub(crate) set_sge: extern "C" fn(&Qp, u32, u64, u32),
    pub(crate) set_sge_list: extern "C" fn(&Qp, usize, *const ibv_sge),
    pub(crate) start: extern "C" fn(&Qp),
    pub(crate) complete: extern "C" fn(&Qp) -> c_int,
    pub(crate) abort: extern "C" fn(&Qp),
    pub(crate) atomic_write: usize,
    /// Since v46.
    pub(crate) flush: usize,
}
layout!(BuilderTable, 360 - 160, wr_id 168 - 160, wr_flags 176 - 160, atomic_cmp_swp 184 - 160, send 240 - 160,
    set_ud_addr 272 - 160, start 320 - 160, abort 336 - 160);

/// A queue pair, in the form of an extended one, whose start is the plain form.
#[repr(C)]
pub(crate) struct Qp {
    pub(crate) base: ibv_qp,
    pub(crate) table: BuilderTable,
    pub(crate) ours: QpOurs,
}

pub(crate) struct QpOurs {
    /// The process that created it.
    pub(crate) made_in: Generation,
    pub(crate) qp: QueuePair,
    pub(crate) kind: QpKind,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) sig_all: bool,
    /// The address that the program set, to be returned by queries.
    address: Lock<ibv_ah_attr>,
    /// The multicast groups that it is attached to: it cannot be destroyed while there are any.
    groups: Lock<HashSet<IpAddr>>,
    pub(crate) async_events: Unacknowledged,
    /// Whether it was created for the builder interface.
    pub(crate) extended: bool,
    pub(crate) builder: Builder,
    pd: &'static Pd,
    cqs: [&'static Cq; 2],
    srq: Option<&'static Srq>,
}

// SAFETY: the fields that both sides write are atomic or behind a lock; the builder is used by one thread at a time, as its verbs require.
unsafe impl Sync for Qp {}
// SAFETY: as for `Sync` above.
unsafe impl Send for Qp {}

impl Qp {
    pub(crate) fn qpn(&self) -> u32 {
        self.base.qp_num
    }

    pub(crate) fn is_datagram(&self) -> bool {
        self.ours.kind == QpKind::Ud
    }

    pub(crate) fn context(&self) -> ContextPtr<'_> {
        self.ours.pd.context()
    }

    pub(crate) fn address(&self) -> MutexGuard<'_, ibv_ah_attr> {
        self.ours.address.lock().unwrap_or_else(|p| p.into_inner())
    }

    pub(crate) fn groups(&self) -> MutexGuard<'_, HashSet<IpAddr>> {
        self.ours.groups.lock().unwrap_or_else(|p| p.into_inner())
    }

    pub(crate) fn subject(&self) -> Subject {
        Subject::Qp(self.qpn())
    }
}

impl Object for Qp {
    const KIND: ObjectKind = ObjectKind::QueuePair;

    unsafe fn identity(this: *const Qp) -> (u32, *mut ibv_context) {
        // SAFETY: guaranteed by the contract.
        unsafe { ((*this).base.handle, (*this).base.context) }
    }
}

impl Retire for Qp {
    /// The queue pair becomes inactive.
    fn retire(&self) {
        let _ = self.ours.qp.modify(&QpAttr { state: Some(QpState::Reset), ..QpAttr::default() });
    }
}

/// The parameters of a new queue pair, from either struct.
pub(crate) struct Request<'a> {
    pub(crate) pd: Pointer<Pd>,
    pub(crate) qp_context: *mut c_void,
    pub(crate) cqs: [*mut ibv_cq; 2],
    pub(crate) srq: *mut ibv_srq,
    pub(crate) cap: &'a mut ibv_qp_cap,
    pub(crate) qp_type: c_int,
    pub(crate) sig_all: bool,
    pub(crate) extended: bool,
    /// The transport, which determines the loss recovery of an RC queue pair.
    pub(crate) transport: Transport,
}

/// Creates a queue pair; the functions of `table` build its work requests.
pub(crate) fn make(request: Request<'_>, table: BuilderTable) -> Result<Box<Qp>, Errno> {
    let Request { pd, qp_context, cqs, srq, cap, qp_type, sig_all, extended, transport } = request;
    let kind = match qp_type {
        IBV_QPT_RC => QpKind::Rc,
        IBV_QPT_UC => QpKind::Uc,
        IBV_QPT_UD => QpKind::Ud,
        _ => return Err(Errno::EOPNOTSUPP),
    };
    let pd = pd.get()?;
    let (send, recv) = (Pointer::<Cq>::new(cqs[0]).get()?, Pointer::<Cq>::new(cqs[1]).get()?);
    let srq = Pointer::<Srq>::new(srq).optional()?;
    for other in [send.context(), recv.context()].into_iter().chain(srq.map(Srq::context)) {
        pd.context().check_same_nic(other)?;
    }
    if cap.max_send_wr.max(cap.max_recv_wr) > MAX_QP_WR
        || cap.max_send_sge.max(cap.max_recv_sge) > MAX_SGE
        || cap.max_inline_data > MAX_INLINE
    {
        return Err(Errno::EINVAL);
    }
    // Queues of length 0 are used by programs that do not send, or that receive from a shared queue.
    cap.max_send_sge = cap.max_send_sge.max(1);
    cap.max_recv_sge = if srq.is_some() { 0 } else { cap.max_recv_sge.max(1) };
    if srq.is_some() {
        cap.max_recv_wr = 0;
    }
    // Inline data that fits into the ring of work requests is always permitted.
    cap.max_inline_data = cap.max_inline_data.max(64);
    let caps = Caps {
        max_send_wr: if cap.max_send_wr == 0 { 1 } else { queue_size(cap.max_send_wr) },
        max_recv_wr: if cap.max_recv_wr == 0 { 1 } else { queue_size(cap.max_recv_wr) },
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline: cap.max_inline_data,
    };
    let work = |wr: u32, sge: u32| check_memory(wr as usize, WORK_REQUEST + sge as usize * size_of::<ibv_sge>());
    work(caps.max_send_wr, caps.max_send_sge + caps.max_inline.div_ceil(size_of::<ibv_sge>() as u32))?;
    work(caps.max_recv_wr, caps.max_recv_sge)?;
    let options = QpOptions {
        kind,
        send_cq: send.ours.queue.clone(),
        recv_cq: recv.ours.queue.clone(),
        srq: srq.map(|srq| srq.ours.queue.clone()),
        caps,
        sig_all,
        transport,
        cc: environment().map_or(Cc::Window, |environment| environment.cc),
        auth: environment().ok().and_then(|e| e.secret.clone()).filter(|_| kind == QpKind::Rc),
    };
    let qp = pd.ours.domain.create_qp(&options)?;
    // A queue that was not requested has length 0.
    let (sends, receives) = qp.depths();
    cap.max_send_wr = if cap.max_send_wr == 0 { 0 } else { sends.min(MAX_QP_WR) };
    cap.max_recv_wr = if cap.max_recv_wr == 0 { 0 } else { receives.min(MAX_QP_WR) };
    pd.ours.users.add();
    send.ours.users.add();
    recv.ours.users.add();
    if let Some(srq) = srq {
        srq.ours.users.add();
    }
    let base = ibv_qp {
        context: pd.base.context,
        qp_context,
        pd: pd.as_c(),
        send_cq: cqs[0],
        recv_cq: cqs[1],
        srq: srq.map_or(std::ptr::null_mut(), |srq| (&raw const *srq).cast_mut().cast()),
        handle: handle::next(Qp::KIND),
        qp_num: qp.qpn().value(),
        state: AtomicI32::new(state_code(QpState::Reset)),
        qp_type,
        mutex: Mutex::default(),
        cond: Cond::default(),
        events_completed: 0,
    };
    let ours = QpOurs {
        made_in: Generation::current(),
        qp,
        kind,
        cap: *cap,
        sig_all,
        address: Lock::default(),
        groups: Lock::default(),
        async_events: Unacknowledged::default(),
        extended,
        builder: Builder::default(),
        pd,
        cqs: [send, recv],
        srq,
    };
    let qp = Box::new(Qp { base, table, ours });
    handle::add(&*qp);
    let context = pd.context();
    context.nic().owners.add(qp.subject(), &context.ours.events, (&raw const *qp).expose_provenance());
    context.nic().owners.note_transport(qp.subject(), transport.for_kind(kind));
    context.add(Kind::QueuePair, &*qp);
    Ok(qp)
}

/// `ibv_destroy_qp`. EBUSY while it is attached to a multicast group; waits until all events are acknowledged.
pub(crate) extern "C" fn destroy(qp: Pointer<Qp>) -> c_int {
    status(|| {
        let this = qp.remove(|qp| if qp.groups().is_empty() { Ok(()) } else { Err(Errno::EBUSY) })?;
        let qp = qp.as_ptr();
        let context = this.context();
        context.remove(Kind::QueuePair, this);
        context.nic().owners.remove(this.subject());
        this.ours.async_events.wait_for_none();
        let QpOurs { pd, cqs, srq, .. } = this.ours;
        // SAFETY: `make` allocated this box, and no code uses it any more.
        drop(unsafe { Box::from_raw(qp) });
        pd.ours.users.remove();
        for cq in cqs {
            cq.ours.users.remove();
        }
        if let Some(srq) = srq {
            srq.ours.users.remove();
        }
        Ok(())
    })
}
