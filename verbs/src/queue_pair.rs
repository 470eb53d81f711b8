//! Queue pairs: made, asked, destroyed.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex as Lock, MutexGuard};

use softnic_runtime::api::{Caps, Cc, MAX_INLINE, MAX_SGE, QpKind, QpOptions, QpState, QueuePair, Transport};

use crate::abi::*;
use crate::builder;
use crate::builder::{Builder, BuilderTable};
use crate::completion::Cq;
use crate::context::ContextPtr;
use crate::device::environment;
use crate::domain::Pd;
use crate::errno::{Errno, pointer, status};
use crate::events::{Subject, Unacknowledged};
use crate::modify;
use crate::query::{MAX_QP_WR, mtu_code};
use crate::shared_receive::Srq;

/// A queue pair, in the shape of the extended ones, of which the plain shape is the beginning.
#[repr(C)]
pub(crate) struct Qp {
    pub(crate) base: ibv_qp,
    pub(crate) table: BuilderTable,
    pub(crate) ours: QpOurs,
}

pub(crate) struct QpOurs {
    pub(crate) qp: QueuePair,
    pub(crate) kind: QpKind,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) sig_all: bool,
    /// The address that the program gave, to be told again.
    address: Lock<ibv_ah_attr>,
    /// Multicast groups that it hears: as long as there are any it is not destroyed.
    groups: Lock<HashSet<IpAddr>>,
    pub(crate) async_events: Unacknowledged,
    /// Whether it was made for the builder's calls.
    pub(crate) extended: bool,
    pub(crate) builder: Builder,
    pd: &'static Pd,
    cqs: [&'static Cq; 2],
    srq: Option<&'static Srq>,
}

// SAFETY: what both sides write is atomic or behind a lock; the builder is one thread's at a time, as its verbs demand.
unsafe impl Sync for Qp {}
// SAFETY: the same.
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

    fn subject(&self) -> Subject {
        Subject::Qp(self.qpn())
    }
}

/// What a queue pair is made of, in whichever struct it came.
pub(crate) struct Request<'a> {
    pub(crate) pd: &'static Pd,
    pub(crate) qp_context: *mut c_void,
    pub(crate) cqs: [*mut ibv_cq; 2],
    pub(crate) srq: *mut ibv_srq,
    pub(crate) cap: &'a mut ibv_qp_cap,
    pub(crate) qp_type: c_int,
    pub(crate) sig_all: bool,
    pub(crate) extended: bool,
    /// What an RC queue pair recovers from loss by.
    pub(crate) transport: Transport,
}

pub(crate) fn make(request: Request<'_>) -> Result<Box<Qp>, Errno> {
    let Request { pd, qp_context, cqs, srq, cap, qp_type, sig_all, extended, transport } = request;
    let kind = match qp_type {
        IBV_QPT_RC => QpKind::Rc,
        IBV_QPT_UC => QpKind::Uc,
        IBV_QPT_UD => QpKind::Ud,
        _ => return Err(Errno::EOPNOTSUPP),
    };
    // SAFETY: NULL, or objects of the program, which it destroys after this: they refuse before.
    let (send, recv, srq) =
        unsafe { (cqs[0].cast::<Cq>().as_ref(), cqs[1].cast::<Cq>().as_ref(), srq.cast::<Srq>().as_ref()) };
    let (send, recv): (&'static Cq, &'static Cq) = (send.ok_or(Errno::EINVAL)?, recv.ok_or(Errno::EINVAL)?);
    let srq: Option<&'static Srq> = srq;
    if cap.max_send_wr.max(cap.max_recv_wr) > MAX_QP_WR
        || cap.max_send_sge.max(cap.max_recv_sge) > MAX_SGE
        || cap.max_inline_data > MAX_INLINE
    {
        return Err(Errno::EINVAL);
    }
    // Queues of no length are those of programs that do not send, or that receive from a shared queue.
    cap.max_send_sge = cap.max_send_sge.max(1);
    cap.max_recv_sge = if srq.is_some() { 0 } else { cap.max_recv_sge.max(1) };
    if srq.is_some() {
        cap.max_recv_wr = 0;
    }
    // What lies in the ring of work requests anyway may be used.
    cap.max_inline_data = cap.max_inline_data.max(64);
    let caps = Caps {
        max_send_wr: cap.max_send_wr.max(1),
        max_recv_wr: cap.max_recv_wr.max(1),
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline: cap.max_inline_data,
    };
    let options = QpOptions {
        kind,
        send_cq: send.ours.queue.clone(),
        recv_cq: recv.ours.queue.clone(),
        srq: srq.map(|srq| srq.ours.queue.clone()),
        caps,
        sig_all,
        transport,
        cc: environment().map_or(Cc::None, |environment| environment.cc),
    };
    let qp = pd.ours.domain.create_qp(&options)?;
    // A queue that was not asked for has no length.
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
        handle: qp.qpn().value(),
        qp_num: qp.qpn().value(),
        state: AtomicI32::new(state_code(QpState::Reset)),
        qp_type,
        mutex: Mutex::default(),
        cond: Cond::default(),
        events_completed: 0,
    };
    let ours = QpOurs {
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
    let qp = Box::new(Qp { base, table: builder::table(), ours });
    let context = pd.context();
    context.nic().owners.add(qp.subject(), &context.ours.events, (&raw const *qp).expose_provenance());
    context.add_qp(&qp);
    Ok(qp)
}

/// What RC queue pairs recover from loss by where their program does not say.
pub(crate) fn usual_transport() -> Transport {
    environment().map_or(Transport::Rc, |environment| environment.transport)
}

/// `ibv_create_qp`.
pub(crate) extern "C" fn create(pd: &'static Pd, init: &mut ibv_qp_init_attr) -> *mut ibv_qp {
    let request = Request {
        pd,
        qp_context: init.qp_context,
        cqs: [init.send_cq, init.recv_cq],
        srq: init.srq,
        cap: &mut init.cap,
        qp_type: init.qp_type,
        sig_all: init.sq_sig_all != 0,
        extended: false,
        transport: usual_transport(),
    };
    pointer(|| make(request))
}

/// `ibv_destroy_qp`. EBUSY while it is attached to a multicast group; waits until all events are acknowledged.
pub(crate) extern "C" fn destroy(qp: *mut Qp) -> c_int {
    status(|| {
        // SAFETY: it is from `make`, and the program does not use it afterwards, but to acknowledge its events.
        let this = unsafe { &*qp };
        if !this.groups().is_empty() {
            return Err(Errno::EBUSY);
        }
        let context = this.context();
        context.remove_qp(this);
        context.nic().owners.remove(this.subject());
        this.ours.async_events.wait_for_none();
        let QpOurs { pd, cqs, srq, .. } = this.ours;
        // SAFETY: `make` made a box of it, and nobody uses it.
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

/// A state as verbs number it.
pub(crate) fn state_code(state: QpState) -> c_int {
    match state {
        QpState::Reset => 0,
        QpState::Init => 1,
        QpState::ReadyToReceive => 2,
        QpState::ReadyToSend => 3,
        QpState::SendQueueDrain => 4,
        QpState::SendQueueError => 5,
        QpState::Error => 6,
    }
}

/// `ibv_query_qp`. All attributes are told, whatever the mask.
pub(crate) extern "C" fn query(qp: &Qp, attr: &mut ibv_qp_attr, _mask: c_int, init: &mut ibv_qp_init_attr) -> c_int {
    status(|| {
        let a = qp.ours.qp.query();
        let state = state_code(a.state.unwrap_or(QpState::Reset));
        qp.base.state.store(state, Ordering::Relaxed);
        *attr = ibv_qp_attr {
            qp_state: state,
            cur_qp_state: state,
            path_mtu: a.mtu.map_or(0, mtu_code),
            path_mig_state: IBV_MIG_MIGRATED,
            qkey: a.qkey.unwrap_or(0),
            rq_psn: a.rq_psn.map_or(0, |psn| psn.value()),
            sq_psn: a.sq_psn.map_or(0, |psn| psn.value()),
            dest_qp_num: a.dest_qp.map_or(0, |qpn| qpn.value()),
            qp_access_flags: a.access.map_or(0, modify::access_flags),
            cap: qp.ours.cap,
            ah_attr: *qp.address(),
            pkey_index: a.pkey_index.unwrap_or(0),
            max_rd_atomic: a.max_rd_atomic.unwrap_or(0),
            max_dest_rd_atomic: a.max_dest_rd_atomic.unwrap_or(0),
            min_rnr_timer: a.min_rnr_timer.unwrap_or(0),
            port_num: a.port.unwrap_or(0),
            timeout: a.timeout.unwrap_or(0),
            retry_cnt: a.retry_cnt.unwrap_or(0),
            rnr_retry: a.rnr_retry.unwrap_or(0),
            ..ibv_qp_attr::default()
        };
        *init = ibv_qp_init_attr {
            qp_context: qp.base.qp_context,
            send_cq: qp.base.send_cq,
            recv_cq: qp.base.recv_cq,
            srq: qp.base.srq,
            cap: qp.ours.cap,
            qp_type: qp.base.qp_type,
            sq_sig_all: c_int::from(qp.ours.sig_all),
        };
        Ok(())
    })
}

/// `ibv_query_qp_data_in_order`: no promise. By the standard's transport packets are placed in order, but a peer may send a message again;
/// by Selective Repeat they are placed as they come.
pub(crate) extern "C" fn data_in_order(_qp: &Qp, _op: c_int, _flags: u32) -> c_int {
    0
}

/// `ibv_query_ece`: there is no enhanced connection establishment, which is what zeros say.
pub(crate) extern "C" fn query_ece(_qp: &Qp, ece: &mut ibv_ece) -> c_int {
    *ece = ibv_ece::default();
    0
}

/// `ibv_set_ece`: none is none.
pub(crate) extern "C" fn set_ece(_qp: &Qp, ece: &ibv_ece) -> c_int {
    match (ece.vendor_id, ece.comp_mask) {
        (0, 0) => 0,
        _ => libc::EOPNOTSUPP,
    }
}
