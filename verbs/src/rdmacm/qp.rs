//! The queue pair of an id: created with defaults for missing attributes, and moved through its states with its connection.

use softnic_runtime::api::Qpn;
use softnic_runtime::api::cm::PortSpace;

use super::devices::CmDevice;
use super::id::{Id, on};
use super::link::way;
use crate::abi::*;
use crate::calls::qp_attributes::modify;
use crate::calls::{create_cq, create_qp};
use crate::errno::Errno;
use crate::objects::context::ContextPtr;
use crate::objects::domain::Pd;
use crate::objects::handle::Pointer;
use crate::objects::queue_pair::{self, Qp};
use crate::objects::{completion_channel, completion_queue};

/// How long a peer waits when there is no receive: 0.64 ms. Linux uses 655 ms here, which is too long in practice.
const MIN_RNR_TIMER: u8 = 12;
const RESET: c_int = 0;
const INIT: c_int = 1;
const RTR: c_int = 2;
const RTS: c_int = 3;
const ERROR: c_int = 6;

/// The attributes for a state, and their mask.
fn attributes(id: &Id, state: c_int) -> Result<(ibv_qp_attr, c_int), Errno> {
    let mut attr = ibv_qp_attr { qp_state: state, port_num: 1, ..ibv_qp_attr::default() };
    // SAFETY: the id is alive.
    let qp_type = unsafe { (*id.as_c()).qp_type };
    let inner = id.inner();
    if id.space == PortSpace::Udp || qp_type == IBV_QPT_UD {
        attr.qkey = RDMA_UDP_QKEY;
        return match state {
            INIT => Ok((attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY)),
            RTR => Ok((attr, IBV_QP_STATE)),
            RTS => Ok((attr, IBV_QP_STATE | IBV_QP_SQ_PSN)),
            _ => Err(Errno::EINVAL),
        };
    }
    let reliable = qp_type == IBV_QPT_RC;
    match state {
        INIT => {
            attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
            if reliable {
                attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
            }
            Ok((attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
        }
        RTR | RTS => {
            let link = inner.link.as_ref().ok_or(Errno::EINVAL)?;
            let device = inner.device.ok_or(Errno::EINVAL)?;
            if state == RTR {
                attr.ah_attr = way(device, &link.route);
                if let Some(mac) = link.route.mac {
                    device.context().nic().requesters.note(link.route.remote, link.dest_qpn, mac);
                }
                attr.path_mtu = link.mtu.into();
                attr.dest_qp_num = link.dest_qpn;
                attr.rq_psn = link.rq_psn.value();
                attr.max_dest_rd_atomic = link.max_dest_rd_atomic;
                attr.min_rnr_timer = MIN_RNR_TIMER;
                let mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
                let more = if reliable { IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER } else { 0 };
                return Ok((attr, mask | more));
            }
            attr.sq_psn = link.sq_psn.value();
            attr.timeout = link.timeout;
            attr.retry_cnt = link.retry_count;
            attr.rnr_retry = link.rnr_retry_count;
            attr.max_rd_atomic = link.max_rd_atomic;
            let more = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
            Ok((attr, IBV_QP_STATE | IBV_QP_SQ_PSN | if reliable { more } else { 0 }))
        }
        _ => Err(Errno::EINVAL),
    }
}

/// `rdma_init_qp_attr`: the attributes for a state, for a program with its own queue pair.
pub(crate) extern "C" fn init_attr(id: &Id, attr: &mut ibv_qp_attr, mask: &mut c_int) -> c_int {
    on(id, || {
        (*attr, *mask) = attributes(id, attr.qp_state)?;
        Ok(())
    })
}

fn step(id: &Id, qp: &Qp, state: c_int) -> Result<(), Errno> {
    let (attr, mask) = attributes(id, state)?;
    match modify(Pointer::of(qp), &attr, mask) {
        0 => Ok(()),
        e => Err(Errno(e)),
    }
}

/// Moves a connected queue pair to RTS.
pub(crate) fn to_rts(id: &Id) -> Result<(), Errno> {
    let qp = id.qp().ok_or(Errno::EINVAL)?;
    // Receives may have been posted, so it is in INIT already; its rights are set now.
    [INIT, RTR, RTS].into_iter().try_for_each(|state| step(id, qp, state))
}

/// The connection has ended: the queue pair accepts no more work.
pub(crate) fn fail(id: &Id) {
    if id.space == PortSpace::Udp {
        return;
    }
    if let Some(qp) = id.qp() {
        let attr = ibv_qp_attr { qp_state: ERROR, ..ibv_qp_attr::default() };
        // A queue pair in RESET, or already in error, needs no change.
        let _ = modify(Pointer::of(qp), &attr, IBV_QP_STATE);
    }
}

/// Moves a new queue pair to its first state: INIT, or RTS for datagrams.
fn begin(id: &Id, qp: &Qp) -> Result<(), Errno> {
    let states: &[c_int] = if qp.is_datagram() { &[INIT, RTR, RTS] } else { &[INIT] };
    debug_assert!(qp.base.state.load(std::sync::atomic::Ordering::Relaxed) == RESET);
    states.iter().try_for_each(|&state| step(id, qp, state))
}

/// The domain to use: the program's, or the device's own.
pub(crate) fn domain(device: &CmDevice, pd: *mut ibv_pd) -> Result<&'static Pd, Errno> {
    match Pointer::<Pd>::new(pd).optional()? {
        None => Ok(device.pd()),
        Some(pd) if pd.base.context == device.as_c() => Ok(pd),
        // A domain of another context of the same device is also valid.
        Some(pd) if pd.context().ours.device.index == device.context().ours.device.index => Ok(pd),
        Some(_) => Err(Errno::EINVAL),
    }
}

/// Creates a completion queue for an id whose program gives none, with a channel to sleep on.
fn own_cq(
    context: ContextPtr<'_>,
    id: &Id,
    cqe: u32,
    channel: &mut *mut ibv_comp_channel,
    cq: &mut *mut ibv_cq,
) -> Result<(), Errno> {
    *channel = completion_channel::create(context);
    if channel.is_null() {
        return Err(Errno::last());
    }
    *cq = create_cq::create(context, cqe.max(1) as c_int, id.as_c().cast(), *channel, 0);
    if cq.is_null() {
        let why = Errno::last();
        completion_channel::destroy(Pointer::new(std::mem::replace(channel, std::ptr::null_mut())));
        return Err(why);
    }
    Ok(())
}

/// Creates the objects that the program left out.
fn fill(id: &Id, device: &CmDevice, init: &mut [&mut *mut ibv_cq; 2], cap: &ibv_qp_cap) -> Result<(), Errno> {
    let context = device.context();
    // SAFETY: the id is alive.
    let base = unsafe { &mut *id.as_c() };
    let [send, recv] = init;
    if recv.is_null() {
        if base.recv_cq.is_null() {
            own_cq(context, id, cap.max_recv_wr, &mut base.recv_cq_channel, &mut base.recv_cq)?;
        }
        **recv = base.recv_cq;
    }
    if send.is_null() {
        if base.send_cq.is_null() {
            own_cq(context, id, cap.max_send_wr, &mut base.send_cq_channel, &mut base.send_cq)?;
        }
        **send = base.send_cq;
    }
    Ok(())
}

/// Destroys the completion queues that were created for the program.
fn drop_own_cqs(id: &Id) {
    // SAFETY: the id is alive; these are the queues from `own_cq`, if any.
    let base = unsafe { &mut *id.as_c() };
    for (cq, channel) in
        [(&mut base.send_cq, &mut base.send_cq_channel), (&mut base.recv_cq, &mut base.recv_cq_channel)]
    {
        let (cq, channel) =
            (std::mem::replace(cq, std::ptr::null_mut()), std::mem::replace(channel, std::ptr::null_mut()));
        if !cq.is_null() {
            completion_queue::destroy(Pointer::new(cq));
        }
        if !channel.is_null() {
            completion_channel::destroy(Pointer::new(channel));
        }
    }
}

/// Creates the queue pair by `make`, and assigns it to the id.
fn put(id: &Id, pd: &'static Pd, mut make: impl FnMut() -> *mut ibv_qp) -> Result<(), Errno> {
    let device = id.device()?;
    let made = make_unheld(device, &mut make);
    let qp = match made {
        Ok(qp) => qp,
        Err(e) => {
            drop_own_cqs(id);
            return Err(e);
        }
    };
    let base = id.as_c();
    // SAFETY: the id is alive, and so is the new queue pair.
    unsafe {
        ((*base).qp, (*base).pd, (*base).qp_type) = (qp, pd.as_c(), (*qp).qp_type);
        begin(id, &*qp.cast::<Qp>()).inspect_err(|_| destroy(id))
    }
}

/// Creates a queue pair whose number does not belong to a connection that ended recently.
fn make_unheld(device: &CmDevice, make: &mut dyn FnMut() -> *mut ibv_qp) -> Result<*mut ibv_qp, Errno> {
    let mut held = Vec::new();
    let found = loop {
        let qp = make();
        if qp.is_null() {
            break Err(Errno::last());
        }
        // SAFETY: the queue pair was just created.
        if !device.manager.holds(Qpn::new(unsafe { (*qp).qp_num })) {
            break Ok(qp);
        }
        held.push(qp);
    };
    for qp in held {
        queue_pair::destroy(Pointer::new(qp));
    }
    found
}

/// `rdma_create_qp`. The default domain is the device's; without completion queues the id gets its own.
///
/// # Safety
/// The domain is NULL or one of the program's.
pub(crate) unsafe extern "C" fn create(id: &Id, pd: *mut ibv_pd, init: &mut ibv_qp_init_attr) -> c_int {
    on(id, || create_for(id, pd, init))
}

pub(crate) fn create_for(id: &Id, pd: *mut ibv_pd, init: &mut ibv_qp_init_attr) -> Result<(), Errno> {
    let device = id.device()?;
    let pd = domain(device, pd)?;
    // SAFETY: the id is alive.
    let srq = unsafe { (*id.as_c()).srq };
    if id.qp().is_some() {
        return Err(Errno::EINVAL);
    }
    if init.srq.is_null() {
        init.srq = srq;
    }
    let cap = init.cap;
    fill(id, device, &mut [&mut init.send_cq, &mut init.recv_cq], &cap)?;
    put(id, pd, || create_qp::create(Pointer::of(pd), init))
}

/// `rdma_create_qp_ex`.
pub(crate) extern "C" fn create_ex(id: &Id, init: &mut ibv_qp_init_attr_ex) -> c_int {
    on(id, || {
        let device = id.device()?;
        let given = if init.comp_mask & IBV_QP_INIT_ATTR_PD != 0 { init.pd } else { std::ptr::null_mut() };
        let pd = domain(device, given)?;
        // SAFETY: the id is alive.
        let srq = unsafe { (*id.as_c()).srq };
        if id.qp().is_some() {
            return Err(Errno::EINVAL);
        }
        (init.pd, init.comp_mask) = (pd.as_c(), init.comp_mask | IBV_QP_INIT_ATTR_PD);
        if init.srq.is_null() {
            init.srq = srq;
        }
        let cap = init.cap;
        fill(id, device, &mut [&mut init.send_cq, &mut init.recv_cq], &cap)?;
        put(id, pd, || create_qp::create_ex(device.context(), init))
    })
}

/// `rdma_destroy_qp`, with the completion queues that were created for it.
pub(crate) extern "C" fn destroy(id: &Id) {
    if id.shared.made_in.check().is_err() {
        return;
    }
    let mut groups = std::mem::take(&mut id.inner().groups);
    groups.iter_mut().for_each(|group| group.detach(id.qp()));
    id.inner().groups = groups;
    // SAFETY: the id is alive, and owns the queue pair.
    let qp = unsafe { std::mem::replace(&mut (*id.as_c()).qp, std::ptr::null_mut()) };
    if !qp.is_null() {
        queue_pair::destroy(Pointer::new(qp));
    }
    drop_own_cqs(id);
}
