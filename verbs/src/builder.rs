//! The builder interface of extended queue pairs: `ibv_wr_start`, one call for each part of each work request, `ibv_wr_complete`.
//!
//! Work requests are collected and posted together at the end, or not at all.

use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use softnic_runtime::api::{Data, Datagram, SendFlags, SendOp, SendWr, Sge};

use crate::abi::*;
use crate::context::ContextPtr;
use crate::domain::Pd;
use crate::errno::{Errno, pointer, status};
use crate::post::{InlineRoom, datagram, flags_of, sges};
use crate::queue_pair::{self, Qp, Request};
use crate::{fork, window};

/// What `struct ibv_qp_ex` has behind `struct ibv_qp`, in its order.
#[repr(C)]
pub(crate) struct BuilderTable {
    comp_mask: u64,
    /// Set by the program before each work request.
    wr_id: AtomicU64,
    wr_flags: AtomicU32,
    atomic_cmp_swp: extern "C" fn(&Qp, u32, u64, u64, u64),
    atomic_fetch_add: extern "C" fn(&Qp, u32, u64, u64),
    bind_mw: extern "C" fn(&Qp, *mut ibv_mw, u32, &ibv_mw_bind_info),
    local_inv: extern "C" fn(&Qp, u32),
    rdma_read: extern "C" fn(&Qp, u32, u64),
    rdma_write: extern "C" fn(&Qp, u32, u64),
    rdma_write_imm: extern "C" fn(&Qp, u32, u64, u32),
    send: extern "C" fn(&Qp),
    send_imm: extern "C" fn(&Qp, u32),
    send_inv: extern "C" fn(&Qp, u32),
    /// A queue pair that asks for it is refused.
    send_tso: usize,
    set_ud_addr: extern "C" fn(&Qp, *mut ibv_ah, u32, u32),
    set_xrc_srqn: usize,
    set_inline_data: extern "C" fn(&Qp, *const u8, usize),
    set_inline_data_list: extern "C" fn(&Qp, usize, *const ibv_data_buf),
    set_sge: extern "C" fn(&Qp, u32, u64, u32),
    set_sge_list: extern "C" fn(&Qp, usize, *const ibv_sge),
    start: extern "C" fn(&Qp),
    complete: extern "C" fn(&Qp) -> c_int,
    abort: extern "C" fn(&Qp),
    atomic_write: usize,
    /// Since v46.
    flush: usize,
}
layout!(BuilderTable, 360 - 160, wr_id 168 - 160, wr_flags 176 - 160, atomic_cmp_swp 184 - 160, send 240 - 160,
    set_ud_addr 272 - 160, start 320 - 160, abort 336 - 160);

pub(crate) fn table() -> BuilderTable {
    BuilderTable {
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
    }
}

/// Work requests that are being built, by whoever holds the queue pair's lock since `start`.
#[derive(Default)]
pub(crate) struct Builder(UnsafeCell<Building>);

#[derive(Default)]
struct Building {
    requests: Vec<Built>,
    sges: Vec<Sge>,
    inline: Vec<u8>,
    /// The first thing that was wrong.
    error: Option<Errno>,
}

struct Built {
    wr_id: u64,
    op: SendOp,
    flags: SendFlags,
    to: Option<Datagram>,
    data: Source,
    /// The window that it binds, and its new key.
    window: Option<(*mut ibv_mw, u32)>,
}

enum Source {
    Sges(Range<usize>),
    Inline(Range<usize>),
}

/// `ibv_create_qp_ex`.
pub(crate) extern "C" fn create(_context: ContextPtr<'_>, init: &mut ibv_qp_init_attr_ex) -> *mut ibv_qp {
    pointer(|| request(init).and_then(queue_pair::make))
}

pub(crate) fn request(init: &mut ibv_qp_init_attr_ex) -> Result<Request<'_>, Errno> {
    let known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    let mask = init.comp_mask;
    if mask & !known != 0 || mask & IBV_QP_INIT_ATTR_CREATE_FLAGS != 0 && init.create_flags != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let extended = mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0;
    let has = match init.qp_type {
        IBV_QPT_RC => SUPPORTED_SEND_OPS,
        IBV_QPT_UC => UC_SEND_OPS,
        _ => UD_SEND_OPS,
    };
    if extended && init.send_ops_flags & !has != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    // SAFETY: NULL, or a domain of the program, which it destroys after its queue pairs.
    let pd: Option<&'static Pd> = unsafe { init.pd.cast::<Pd>().as_ref() }.filter(|_| mask & IBV_QP_INIT_ATTR_PD != 0);
    Ok(Request {
        pd: pd.ok_or(Errno::EINVAL)?,
        qp_context: init.qp_context,
        cqs: [init.send_cq, init.recv_cq],
        srq: init.srq,
        cap: &mut init.cap,
        qp_type: init.qp_type,
        sig_all: init.sq_sig_all != 0,
        extended,
        transport: queue_pair::usual_transport(),
    })
}

/// `ibv_qp_to_qp_ex`: NULL for one that was not made for it.
pub(crate) extern "C" fn qp_to_qp_ex(qp: &Qp) -> *const Qp {
    if qp.ours.extended { qp } else { std::ptr::null() }
}

/// The mutex of the C struct: locked by `start`, unlocked by `complete` or `abort`.
fn mutex(qp: &Qp) -> *mut libc::pthread_mutex_t {
    qp.base.mutex.get().cast()
}

#[expect(clippy::mut_from_ref, reason = "the lock of the C struct guards it")]
fn building(qp: &Qp) -> &mut Building {
    // SAFETY: whoever builds holds the lock since `start`, and no other reference to it lives longer than a call.
    unsafe { &mut *qp.ours.builder.0.get() }
}

extern "C" fn start(qp: &Qp) {
    // SAFETY: zeroed memory is a mutex that nobody holds; it lies still as long as the queue pair lives.
    unsafe { libc::pthread_mutex_lock(mutex(qp)) };
    let building = building(qp);
    building.requests.clear();
    building.sges.clear();
    building.inline.clear();
    building.error = fork::check().err();
}

fn unlock(qp: &Qp) {
    // SAFETY: this thread holds it since `start`.
    unsafe { libc::pthread_mutex_unlock(mutex(qp)) };
}

extern "C" fn abort(qp: &Qp) {
    unlock(qp);
}

extern "C" fn complete(qp: &Qp) -> c_int {
    let result = post(qp, building(qp));
    unlock(qp);
    status(|| result)
}

/// Posts all, or none.
fn post(qp: &Qp, b: &Building) -> Result<(), Errno> {
    if let Some(e) = b.error {
        return Err(e);
    }
    let wr = |r: &Built| -> SendWr<'_> {
        let data = match &r.data {
            Source::Sges(range) => Data::Gather(&b.sges[range.clone()]),
            Source::Inline(range) => Data::Inline(&b.inline[range.clone()]),
        };
        SendWr { wr_id: r.wr_id, op: r.op, data, flags: r.flags, deadline: None, to: r.to }
    };
    for request in &b.requests {
        qp.ours.qp.check_send(&wr(request))?;
    }
    if !qp.ours.qp.has_send_room(b.requests.len()) {
        return Err(Errno::ENOMEM);
    }
    for request in &b.requests {
        qp.ours.qp.write_send(&wr(request))?;
        if let Some((mw, key)) = request.window {
            window::posted(mw, key);
        }
    }
    if !b.requests.is_empty() {
        qp.ours.qp.ring_doorbell();
    }
    Ok(())
}

/// Begins a work request.
fn begin(qp: &Qp, op: SendOp) {
    let building = building(qp);
    let (sges, flags) = (building.sges.len(), qp.table.wr_flags.load(Ordering::Relaxed));
    building.requests.push(Built {
        wr_id: qp.table.wr_id.load(Ordering::Relaxed),
        op,
        flags: flags_of(flags),
        to: None,
        data: Source::Sges(sges..sges),
        window: None,
    });
}

/// Changes the work request that was begun last.
fn current(qp: &Qp, change: impl FnOnce(&mut Built, &mut Vec<Sge>, &mut Vec<u8>) -> Result<(), Errno>) {
    let Building { requests, sges, inline, error } = building(qp);
    let result = requests.last_mut().ok_or(Errno::EINVAL).and_then(|request| change(request, sges, inline));
    if let Err(e) = result {
        error.get_or_insert(e);
    }
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
                request.window = Some((mw, rkey));
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
        sges.push(Sge { addr, len: length, lkey });
        request.data = Source::Sges(from..sges.len());
        Ok(())
    });
}

extern "C" fn set_sge_list(qp: &Qp, count: usize, list: *const ibv_sge) {
    current(qp, |request, all, _| {
        let count = c_int::try_from(count).map_err(|_| Errno::EINVAL)?;
        let from = all.len();
        // SAFETY: the program has as many elements as it says.
        all.extend_from_slice(unsafe { sges(list, count) }?);
        request.data = Source::Sges(from..all.len());
        Ok(())
    });
}

/// Inline data of the current work request.
///
/// # Safety
/// All pieces can be read.
unsafe fn set_inline(qp: &Qp, pieces: impl Iterator<Item = (*const u8, usize)>) {
    current(qp, |request, _, inline| {
        let from = inline.len();
        let mut room = InlineRoom::new();
        // SAFETY: by the contract.
        inline.extend_from_slice(unsafe { room.gather(pieces) }?);
        request.data = Source::Inline(from..inline.len());
        Ok(())
    });
}

extern "C" fn set_inline_data(qp: &Qp, addr: *const u8, length: usize) {
    // SAFETY: the program has as many bytes as it says.
    unsafe { set_inline(qp, [(addr, length)].into_iter()) }
}

extern "C" fn set_inline_data_list(qp: &Qp, count: usize, list: *const ibv_data_buf) {
    // SAFETY: the program has as many pieces as it says, which can be read.
    unsafe { set_inline(qp, (0..count).map(|i| ((*list.add(i)).addr.cast_const().cast(), (*list.add(i)).length))) }
}
