//! The builder interface of extended queue pairs: `ibv_wr_start`, one call for each part of each work request, `ibv_wr_complete`.
//!
//! Work requests are collected and posted together at the end, or not at all.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use softnic_runtime::api::{Data, SendOp, SendWr, Sge};

use crate::abi::*;
use crate::c_result::status;
use crate::calls::post::{InlineRoom, datagram, sges};
use crate::calls::wrapped::Wrapped;
use crate::codes::flags_of;
use crate::errno::Errno;
use crate::objects::building::{Building, Built, Source};
use crate::objects::queue_pair::{BuilderTable, Qp};
use crate::objects::window;

/// The wrapper of the builder interface, if there is one.
pub(crate) static TABLE: Wrapped<BuilderTable> = Wrapped::new();

/// The functions of a queue pair's builder interface.
pub(crate) fn table() -> BuilderTable {
    TABLE.make(BuilderTable {
        comp_mask: 0,
        wr_id: AtomicU64::new(0),
        wr_flags: AtomicU32::new(0),
        atomic_cmp_swp,
        atomic_fetch_add,
        bind_mw,
        local_inv,
        rdma_read,
        rdma_write,
        rdma_write_imm,
        send,
        send_imm,
        send_inv,
        send_tso: 0,
        set_ud_addr,
        set_xrc_srqn: 0,
        set_inline_data,
        set_inline_data_list,
        set_sge,
        set_sge_list,
        start,
        complete,
        abort,
        atomic_write: 0,
        flush: 0,
    })
}

/// `ibv_qp_to_qp_ex`: NULL for a queue pair without the builder interface.
pub(crate) extern "C" fn qp_to_qp_ex(qp: &Qp) -> *const Qp {
    if qp.ours.extended { qp } else { std::ptr::null() }
}

/// The mutex of the C struct: locked by `start`, unlocked by `complete` or `abort`.
fn mutex(qp: &Qp) -> *mut libc::pthread_mutex_t {
    qp.base.mutex.get().cast()
}

#[expect(clippy::mut_from_ref, reason = "the lock of the C struct guards it")]
pub(crate) fn building(qp: &Qp) -> &mut Building {
    // SAFETY: the building thread holds the lock since `start`, and no other reference to the value lives longer than a call.
    unsafe { &mut *qp.ours.builder.0.get() }
}

extern "C" fn start(qp: &Qp) {
    // SAFETY: zeroed memory is an unlocked mutex; its address does not change while the queue pair lives.
    unsafe { libc::pthread_mutex_lock(mutex(qp)) };
    let building = building(qp);
    building.requests.clear();
    building.sges.clear();
    building.inline.clear();
    building.error = qp.ours.made_in.check().err();
}

fn unlock(qp: &Qp) {
    // SAFETY: this thread holds the lock since `start`.
    unsafe { libc::pthread_mutex_unlock(mutex(qp)) };
}

/// `ibv_wr_abort`.
pub(crate) extern "C" fn abort(qp: &Qp) {
    unlock(qp);
}

/// `ibv_wr_complete`.
extern "C" fn complete(qp: &Qp) -> c_int {
    let result = post_built(qp, building(qp));
    unlock(qp);
    result
}

/// The part of `ibv_wr_complete` that runs under the lock.
pub(crate) fn post_built(qp: &Qp, building: &Building) -> c_int {
    status(|| post(qp, building))
}

/// Posts all work requests, or none.
fn post(qp: &Qp, b: &Building) -> Result<(), Errno> {
    if let Some(e) = b.error {
        return Err(e);
    }
    let wr = |r: &Built| -> SendWr<'_> {
        let data = match &r.data {
            Source::Sges(range) => Data::Gather(&b.sges[range.clone()]),
            Source::Inline(range) => Data::Inline(&b.inline[range.clone()]),
        };
        SendWr { wr_id: r.wr_id, op: r.op, data, flags: r.flags, best_effort: None, to: r.to }
    };
    for request in &b.requests {
        qp.ours.qp.check_send(&wr(request))?;
    }
    if !qp.ours.qp.has_send_room(b.requests.len()) {
        return Err(Errno::ENOMEM);
    }
    for request in &b.requests {
        qp.ours.qp.write_send(&wr(request))?;
        if let Some((mw, bind)) = &request.window {
            window::posted(*mw, bind);
        }
    }
    if !b.requests.is_empty() {
        qp.ours.qp.ring_doorbell();
    }
    Ok(())
}

/// Starts a work request; does nothing after a failed call, because then none will be posted.
fn begin(qp: &Qp, op: SendOp) {
    let building = building(qp);
    if building.error.is_some() {
        return;
    }
    let (sges, flags) = (building.sges.len(), qp.table.wr_flags.load(Ordering::Relaxed));
    // A program may start any number of work requests.
    if building.requests.try_reserve(1).is_err() {
        building.error = Some(Errno::ENOMEM);
        return;
    }
    building.requests.push(Built {
        wr_id: qp.table.wr_id.load(Ordering::Relaxed),
        op,
        flags: flags_of(flags),
        to: None,
        data: Source::Sges(sges..sges),
        window: None,
    });
}

/// Changes the work request that was started last.
fn current(qp: &Qp, change: impl FnOnce(&mut Built, &mut Vec<Sge>, &mut Vec<u8>) -> Result<(), Errno>) {
    let Building { requests, sges, inline, error } = building(qp);
    if error.is_some() {
        return;
    }
    *error = requests.last_mut().ok_or(Errno::EINVAL).and_then(|request| change(request, sges, inline)).err();
}

extern "C" fn atomic_cmp_swp(qp: &Qp, rkey: u32, remote_addr: u64, compare: u64, swap: u64) {
    begin(qp, SendOp::CompareSwap { remote_addr, rkey, compare, swap });
}

extern "C" fn atomic_fetch_add(qp: &Qp, rkey: u32, remote_addr: u64, add: u64) {
    begin(qp, SendOp::FetchAdd { remote_addr, rkey, add });
}

extern "C" fn bind_mw(qp: &Qp, mw: *mut ibv_mw, rkey: u32, info: &ibv_mw_bind_info) {
    match window::request_of(mw, info, rkey) {
        Ok(bind) => {
            begin(qp, SendOp::BindWindow(bind));
            current(qp, |request, _, _| {
                request.window = Some((mw, bind));
                Ok(())
            });
        }
        Err(e) => {
            building(qp).error.get_or_insert(e);
        }
    }
}

extern "C" fn local_inv(qp: &Qp, rkey: u32) {
    begin(qp, SendOp::LocalInv { rkey });
}

extern "C" fn rdma_read(qp: &Qp, rkey: u32, remote_addr: u64) {
    begin(qp, SendOp::Read { remote_addr, rkey });
}

extern "C" fn rdma_write(qp: &Qp, rkey: u32, remote_addr: u64) {
    begin(qp, SendOp::Write { remote_addr, rkey });
}

extern "C" fn rdma_write_imm(qp: &Qp, rkey: u32, remote_addr: u64, imm: u32) {
    begin(qp, SendOp::WriteImm { remote_addr, rkey, imm: u32::from_be(imm) });
}

extern "C" fn send(qp: &Qp) {
    begin(qp, SendOp::Send);
}

extern "C" fn send_imm(qp: &Qp, imm: u32) {
    begin(qp, SendOp::SendImm { imm: u32::from_be(imm) });
}

extern "C" fn send_inv(qp: &Qp, rkey: u32) {
    begin(qp, SendOp::SendInv { rkey });
}

extern "C" fn set_ud_addr(qp: &Qp, ah: *mut ibv_ah, qpn: u32, qkey: u32) {
    current(qp, |request, _, _| {
        request.to = Some(datagram(ah, qpn, qkey)?);
        Ok(())
    });
}

extern "C" fn set_sge(qp: &Qp, lkey: u32, addr: u64, length: u32) {
    current(qp, |request, sges, _| {
        let from = sges.len();
        sges.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        sges.push(Sge { addr, len: length, lkey });
        request.data = Source::Sges(from..sges.len());
        Ok(())
    });
}

extern "C" fn set_sge_list(qp: &Qp, count: usize, list: *const ibv_sge) {
    current(qp, |request, all, _| {
        let count = c_int::try_from(count).map_err(|_| Errno::EINVAL)?;
        let from = all.len();
        // SAFETY: the program has as many elements as it states.
        let more = unsafe { sges(list, count) }?;
        all.try_reserve(more.len()).map_err(|_| Errno::ENOMEM)?;
        all.extend_from_slice(more);
        request.data = Source::Sges(from..all.len());
        Ok(())
    });
}

/// Sets the inline data of the current work request.
///
/// # Safety
/// All pieces can be read.
unsafe fn set_inline(qp: &Qp, pieces: impl Iterator<Item = (*const u8, usize)>) {
    current(qp, |request, _, inline| {
        let from = inline.len();
        let mut room = InlineRoom::new();
        // SAFETY: guaranteed by the contract.
        let more = unsafe { room.gather(pieces) }?;
        inline.try_reserve(more.len()).map_err(|_| Errno::ENOMEM)?;
        inline.extend_from_slice(more);
        request.data = Source::Inline(from..inline.len());
        Ok(())
    });
}

extern "C" fn set_inline_data(qp: &Qp, addr: *const u8, length: usize) {
    // SAFETY: the program has as many bytes as it states.
    unsafe { set_inline(qp, [(addr, length)].into_iter()) }
}

extern "C" fn set_inline_data_list(qp: &Qp, count: usize, list: *const ibv_data_buf) {
    // SAFETY: the program has as many pieces as it states, and they can be read.
    unsafe { set_inline(qp, (0..count).map(|i| ((*list.add(i)).addr.cast_const().cast(), (*list.add(i)).length))) }
}
