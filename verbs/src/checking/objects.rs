//! Passes the creation, change and destruction of objects to the model.

use std::time::Duration;

use softnic_check::{
    Access, Capacity, Change, CompletionQueue, Mask, Model, ObjectId, ObjectKind, Place, QpState, QpType, QueuePair,
    Region,
};
use softnic_runtime::api::{QpKind, spawn_own};

use super::domains::domain_of;
use super::{id_of, state_of, tell, tell_of};
use crate::abi::*;
use crate::objects::completion_queue::Cq;
use crate::objects::event_queue::{
    IBV_EVENT_CLIENT_REREGISTER, IBV_EVENT_CQ_ERR, IBV_EVENT_DEVICE_FATAL, IBV_EVENT_GID_CHANGE, IBV_EVENT_SM_CHANGE,
    IBV_EVENT_SRQ_ERR, IBV_EVENT_SRQ_LIMIT_REACHED,
};
use crate::objects::handle::Pointer;
use crate::objects::queue_pair::Qp;
use crate::objects::region::Mr;
use crate::objects::shared_receive::Srq;
use crate::rdmacm::cm_event::CmEvent;
use crate::rdmacm::id::Id;

/// Records an object of which only the existence matters.
pub(crate) fn made<T>(kind: ObjectKind, object: *const T) {
    if !object.is_null() {
        tell(|model, place| model.made(kind, id_of(object), place));
    }
}

/// How long a verb may wait for another thread to acknowledge events.
const LONG: Duration = Duration::from_secs(5);

/// A verb is about to destroy an object.
pub(crate) fn going<T>(kind: ObjectKind, object: *const T) {
    let (id, mut wait) = (id_of(object), None);
    tell(|model, place| wait = model.going(kind, id, state_by_id, place));
    if let Some(wait) = wait {
        // If the thread cannot be started, the wait is found at the end of the process.
        let _ = spawn_own("softnic-check", move || {
            std::thread::sleep(LONG);
            tell_of(|model| model.waits_long(kind, id, wait));
        });
    }
}

/// The object was destroyed, or was not.
pub(crate) fn went<T>(kind: ObjectKind, object: *const T, result: c_int) {
    tell_of(|model| match result {
        0 => model.gone(kind, id_of(object)),
        _ => model.stays(kind, id_of(object)),
    });
}

/// A function without a result destroys an object.
pub(crate) fn goes<T>(kind: ObjectKind, object: *const T) {
    going(kind, object);
    went(kind, object, 0);
}

/// The state of a queue pair that the model knows. The destruction of a queue pair is reported to the model before it starts, and the model
/// is locked here.
fn state_by_id(id: ObjectId) -> Option<QpState> {
    let pointer: *mut Qp = std::ptr::with_exposed_provenance_mut(id.0 as usize);
    Pointer::<Qp>::new(pointer).get().ok().and_then(state_of)
}

fn access_of(flags: c_uint) -> Access {
    Access {
        local_write: flags & IBV_ACCESS_LOCAL_WRITE != 0,
        remote_change: flags & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) != 0,
    }
}

/// The region described by a struct.
fn region_of(mr: *const ibv_mr, iova: u64, access: Access) -> Option<Region> {
    // SAFETY: the program owns the struct, and no code destroys it during the program's own verb.
    let &ibv_mr { pd, addr, length, lkey, rkey, .. } = unsafe { mr.as_ref() }?;
    let (nic, domain) = domain_of(pd)?;
    let (address, len) = (addr.addr() as u64, length as u64);
    Some(Region { nic, domain, lkey, rkey, address, iova, len, is_null: addr.is_null() && length == 0, access })
}

/// `ibv_reg_mr` and similar calls.
pub(crate) fn registered(iova: u64, access: c_uint, mr: *mut ibv_mr) {
    let iova = if access & IBV_ACCESS_ZERO_BASED != 0 { 0 } else { iova };
    if let Some(region) = region_of(mr, iova, access_of(access)) {
        tell(|model, place| model.region_made(id_of(mr), region, place));
    }
}

/// `ibv_rereg_mr`.
pub(crate) fn reregistered(mr: Pointer<Mr>, flags: c_int, access: c_uint, result: c_int) {
    if result != 0 {
        return;
    }
    let id = id_of(mr.as_ptr());
    tell_of(|model| {
        let Some((iova, rights)) = model.region(id).map(|region| (region.iova, region.access)) else { return };
        let rights = if flags & IBV_REREG_MR_CHANGE_ACCESS != 0 { access_of(access) } else { rights };
        let struct_of: *const ibv_mr = mr.as_ptr().cast();
        if let Some(region) = region_of(struct_of, iova, rights) {
            // Work requests address new memory by its addresses.
            let moved = flags & IBV_REREG_MR_CHANGE_TRANSLATION != 0;
            let iova = if moved { region.address } else { iova };
            model.region_changed(id, Region { iova, ..region });
        }
    });
}

/// A completion queue was created.
pub(crate) fn created_cq(cq: *mut ibv_cq) {
    // SAFETY: NULL, or a queue that was just created.
    if let Some(made) = unsafe { cq.cast::<Cq>().as_ref() } {
        let queue = capacity_of(made.base.cq.cqe.load(std::sync::atomic::Ordering::Relaxed));
        tell(|model, place| model.completion_queue_made(id_of(cq), queue, place));
    }
}

/// A completion queue was resized.
pub(crate) fn resized_cq(cq: Pointer<Cq>, cqe: c_int, result: c_int) {
    if result == 0 {
        tell_of(|model| model.completion_queue_resized(id_of(cq.as_ptr()), capacity_of(cqe)));
    }
}

fn capacity_of(cqe: c_int) -> CompletionQueue {
    CompletionQueue { capacity: u32::try_from(cqe).unwrap_or(0) }
}

/// A shared receive queue was created.
pub(crate) fn created_srq(srq: *mut ibv_srq) {
    if !srq.is_null() {
        tell(|model, place| model.shared_receive_made(id_of(srq), place));
    }
}

/// A shared receive queue is about to be destroyed.
pub(crate) fn destroying_srq(srq: *const Srq) {
    going(ObjectKind::SharedReceive, srq);
}

/// A shared receive queue was destroyed, or was not.
pub(crate) fn destroyed_srq(srq: *const Srq, result: c_int) {
    if result == 0 {
        tell_of(|model| model.shared_receive_going(id_of(srq)));
    }
    went(ObjectKind::SharedReceive, srq, result);
}

/// A queue pair was created: by the program, or by librdmacm for the program.
pub(crate) fn created_qp(qp: *const Qp, is_the_programs: bool) {
    // SAFETY: NULL, or a queue pair that was just created.
    let Some(made) = (unsafe { qp.as_ref() }) else { return };
    let Some((nic, domain)) = domain_of(made.base.pd) else { return };
    let attributes = QueuePair {
        nic,
        number: made.qpn(),
        kind: match made.ours.kind {
            QpKind::Uc => QpType::Uc,
            QpKind::Ud | QpKind::Gsi => QpType::Ud,
            _ => QpType::Rc,
        },
        domain,
        send_cq: id_of(made.base.send_cq),
        recv_cq: id_of(made.base.recv_cq),
        srq: (!made.base.srq.is_null()).then(|| id_of(made.base.srq)),
        signals_all: made.ours.sig_all,
        capacity: Capacity {
            sends: made.ours.cap.max_send_wr,
            send_sges: made.ours.cap.max_send_sge,
            receive_sges: made.ours.cap.max_recv_sge,
        },
    };
    tell(|model, place| model.queue_pair_made(id_of(qp), attributes, is_the_programs, place));
}

/// librdmacm created a queue pair for an id, with completion queues if the program gave none.
pub(crate) fn created_qp_of(id: *const Id) {
    if let Some(qp) = of_id(id).and_then(Id::qp) {
        for queue in queues_of(id) {
            created_cq(queue);
            tell_of(|model| model.is_of_connection(ObjectKind::CompletionQueue, id_of(queue)));
        }
        created_qp(qp, false);
    }
}

fn of_id<'a>(id: *const Id) -> Option<&'a Id> {
    // SAFETY: NULL, or an id of the program, which is alive while one of its functions runs.
    unsafe { id.as_ref() }
}

/// The completion queues that librdmacm created for an id.
fn queues_of(id: *const Id) -> impl Iterator<Item = *mut ibv_cq> {
    // SAFETY: as above.
    let queues =
        of_id(id).map_or([std::ptr::null_mut(); 2], |id| unsafe { [(*id.as_c()).send_cq, (*id.as_c()).recv_cq] });
    queues.into_iter().filter(|queue| !queue.is_null())
}

/// The shared receive queue that librdmacm created for an id, or NULL.
fn srq_of(id: &Id) -> *mut ibv_srq {
    // SAFETY: as above.
    unsafe { (*id.as_c()).srq }
}

/// librdmacm created a shared receive queue for an id.
pub(crate) fn created_srq_of(id: &Id) {
    created_srq(srq_of(id));
    tell_of(|model| model.is_of_connection(ObjectKind::SharedReceive, id_of(srq_of(id))));
}

/// The shared receive queue of an id is about to be destroyed, if there is one.
pub(crate) fn destroying_srq_of(id: &Id) {
    let srq: *const Srq = srq_of(id).cast();
    if !srq.is_null() {
        destroying_srq(srq);
        destroyed_srq(srq, 0);
    }
}

/// The program changed a queue pair.
pub(crate) fn modified_qp(qp: Pointer<Qp>, attr: &ibv_qp_attr, mask: c_int, result: c_int) {
    if result != 0 {
        return;
    }
    let given = |bit: c_int| mask & bit != 0;
    let change = Change {
        mask: Mask(mask as u32),
        state: given(IBV_QP_STATE).then(|| QpState::from_number(attr.qp_state)).flatten(),
        timeout: given(IBV_QP_TIMEOUT).then_some(attr.timeout),
        rnr_retry: given(IBV_QP_RNR_RETRY).then_some(attr.rnr_retry),
        read_depth: given(IBV_QP_MAX_QP_RD_ATOMIC).then_some(attr.max_rd_atomic),
        peer: given(IBV_QP_DEST_QPN).then_some(attr.dest_qp_num),
        is_the_programs: true,
    };
    tell(|model, place| model.modified(id_of(qp.as_ptr()), &change, place));
}

/// A queue pair is about to be destroyed.
pub(crate) fn destroying_qp(qp: *const Qp) {
    tell(|model, place| qp_going(model, qp, place));
}

fn qp_going(model: &mut Model, qp: *const Qp, place: &Place) {
    model.going(ObjectKind::QueuePair, id_of(qp), state_by_id, place);
    model.queue_pair_going(id_of(qp));
}

/// The queue pair of an id is about to be destroyed, if it has one.
pub(crate) fn destroying_qp_of(id: *const Id) {
    if let Some(qp) = of_id(id).and_then(Id::qp) {
        let qp: *const Qp = qp;
        destroying_qp(qp);
        went(ObjectKind::QueuePair, qp, 0);
    }
    queues_of(id).for_each(|queue| goes(ObjectKind::CompletionQueue, queue));
}

/// The id that waits for the acknowledgement of an event: for a request, the listener.
fn waits_for(event: &rdma_cm_event) -> ObjectId {
    match event.event == CONNECT_REQUEST {
        true => id_of(event.listen_id),
        false => id_of(event.id),
    }
}

/// The program took an event of the connection manager; a request contains a new id.
pub(crate) fn got_cm_event(event: *const CmEvent) {
    // SAFETY: NULL, or an event that the program has taken and not acknowledged.
    let Some(event) = unsafe { event.as_ref() }.map(|event| &event.base) else { return };
    if event.event == CONNECT_REQUEST {
        made(ObjectKind::ConnectionId, event.id);
        created_qp_of(event.id.cast());
    }
    tell_of(|model| model.event_taken(ObjectKind::ConnectionId, waits_for(event)));
}

/// The program acknowledges an event of the connection manager.
pub(crate) fn acknowledging_cm_event(event: *const CmEvent) {
    // SAFETY: as above.
    if let Some(event) = unsafe { event.as_ref() } {
        tell_of(|model| model.events_acknowledged(ObjectKind::ConnectionId, waits_for(&event.base), 1));
    }
}

/// The object of an asynchronous event, if the event must be acknowledged before the object is destroyed.
fn subject_of(event: &ibv_async_event) -> Option<(ObjectKind, ObjectId)> {
    let kind = match event.event_type {
        IBV_EVENT_CQ_ERR => ObjectKind::CompletionQueue,
        IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => ObjectKind::SharedReceive,
        // Events of the device, and of its port.
        IBV_EVENT_DEVICE_FATAL..=IBV_EVENT_SM_CHANGE | IBV_EVENT_CLIENT_REREGISTER | IBV_EVENT_GID_CHANGE => {
            return None;
        }
        _ => ObjectKind::QueuePair,
    };
    Some((kind, ObjectId(event.element as u64)))
}

/// The program took an asynchronous event.
pub(crate) fn got_async_event(event: &ibv_async_event, result: c_int) {
    if let Some((kind, id)) = subject_of(event).filter(|_| result == 0) {
        tell_of(|model| model.event_taken(kind, id));
    }
}

/// The program acknowledges an asynchronous event.
pub(crate) fn acknowledging_async_event(event: &ibv_async_event) {
    if let Some((kind, id)) = subject_of(event) {
        tell_of(|model| model.events_acknowledged(kind, id, 1));
    }
}

/// The program took an event of a completion queue.
pub(crate) fn got_cq_event(cq: *const ibv_cq) {
    if !cq.is_null() {
        tell_of(|model| model.event_taken(ObjectKind::CompletionQueue, id_of(cq)));
    }
}

/// The program acknowledges events of a completion queue.
pub(crate) fn acknowledged_cq_events(cq: &Cq, events: c_uint) {
    let id = id_of::<Cq>(cq);
    tell_of(|model| model.events_acknowledged(ObjectKind::CompletionQueue, id, events.into()));
}
