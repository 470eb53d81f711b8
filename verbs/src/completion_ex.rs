//! Extended completion queues: one completion at a time, read field by field.

use std::cell::UnsafeCell;
use std::sync::atomic::Ordering;

use softnic_nic::transports::Completion;

use crate::abi::*;
use crate::completion::{self, Cq, extras, opcode_code, packet_kind, status_code, vendor_err};
use crate::context::ContextPtr;
use crate::errno::{Errno, pointer};
use crate::fork;

/// The completion that is read. Whoever began to poll holds the queue's lock until it ends.
#[derive(Default)]
pub(crate) struct Current(UnsafeCell<Option<Completion>>);

/// The functions of an extended queue.
pub(crate) fn readers() -> CqReaders {
    CqReaders {
        start_poll,
        next_poll,
        end_poll,
        read_opcode,
        read_vendor_err,
        read_byte_len,
        read_imm_data,
        read_qp_num,
        read_src_qp,
        read_wc_flags,
        read_slid,
        read_sl,
        read_dlid_path_bits,
        unsupported: [std::ptr::null_mut(); 5],
    }
}

/// `ibv_create_cq_ex`.
pub(crate) extern "C" fn create(context: ContextPtr<'_>, attr: &ibv_cq_init_attr_ex) -> *mut ibv_cq {
    pointer(|| {
        let flags = if attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS != 0 { attr.flags } else { 0 };
        let known = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
        if attr.comp_mask & !known != 0 {
            return Err(Errno::EINVAL);
        }
        if flags & !SUPPORTED_CQ_FLAGS != 0 || attr.wc_flags & !SUPPORTED_WC_FLAGS != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        completion::make(context, attr.cqe, attr.cq_context, attr.channel, attr.comp_vector)
    })
}

/// The mutex of the C struct: locked by one call, unlocked by another.
fn mutex(cq: &Cq) -> *mut libc::pthread_mutex_t {
    const { assert!(size_of::<Mutex>() == size_of::<libc::pthread_mutex_t>()) };
    cq.base.cq.mutex.get().cast()
}

/// Takes the next completion: ENOENT when there is none.
fn take(cq: &Cq) -> c_int {
    match cq.ours.queue.poll_one() {
        Ok(Some(completion)) => {
            cq.base.wr_id.store(completion.wr_id, Ordering::Relaxed);
            cq.base.status.store(status_code(completion.status), Ordering::Relaxed);
            // SAFETY: the lock is held, and readers are called by whoever holds it.
            unsafe { *cq.ours.current.0.get() = Some(completion) };
            0
        }
        Ok(None) => libc::ENOENT,
        Err(_) => libc::EIO,
    }
}

extern "C" fn start_poll(cq: &Cq, attr: *mut c_void) -> c_int {
    // SAFETY: NULL, or a struct of which the mask is the first and only field.
    let asks = unsafe { attr.cast::<u32>().as_ref() }.is_some_and(|&mask| mask != 0);
    if asks {
        return libc::EINVAL;
    }
    if let Err(Errno(e)) = fork::check() {
        return e;
    }
    // SAFETY: zeroed memory is a mutex that nobody holds; it lies still as long as the queue lives.
    unsafe { libc::pthread_mutex_lock(mutex(cq)) };
    let result = take(cq);
    if result != 0 {
        // Then `end_poll` is not called.
        end_poll(cq);
    }
    result
}

extern "C" fn next_poll(cq: &Cq) -> c_int {
    take(cq)
}

extern "C" fn end_poll(cq: &Cq) {
    // SAFETY: this thread holds it since `start_poll`.
    unsafe { libc::pthread_mutex_unlock(mutex(cq)) };
}

/// Reads of the completion that is polled, or the default where there is none.
fn read<T: Default>(cq: &Cq, field: impl FnOnce(&Completion) -> T) -> T {
    // SAFETY: whoever reads began to poll, and so holds the lock.
    unsafe { &*cq.ours.current.0.get() }.as_ref().map_or_else(T::default, field)
}

extern "C" fn read_opcode(cq: &Cq) -> c_int {
    read(cq, |c| opcode_code(c.opcode))
}

extern "C" fn read_vendor_err(cq: &Cq) -> u32 {
    read(cq, vendor_err)
}

extern "C" fn read_byte_len(cq: &Cq) -> u32 {
    read(cq, |c| c.byte_len)
}

extern "C" fn read_imm_data(cq: &Cq) -> u32 {
    read(cq, |c| extras(c).1)
}

extern "C" fn read_qp_num(cq: &Cq) -> u32 {
    read(cq, |c| c.qpn.value())
}

extern "C" fn read_src_qp(cq: &Cq) -> u32 {
    read(cq, |c| c.src_qp.map_or(0, |qpn| qpn.value()))
}

extern "C" fn read_wc_flags(cq: &Cq) -> c_uint {
    read(cq, |c| extras(c).0)
}

/// LIDs are InfiniBand's.
extern "C" fn read_slid(_cq: &Cq) -> u32 {
    0
}

extern "C" fn read_sl(cq: &Cq) -> u8 {
    read(cq, packet_kind)
}

extern "C" fn read_dlid_path_bits(_cq: &Cq) -> u8 {
    0
}
