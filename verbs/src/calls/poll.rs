//! Polling: completions as `struct ibv_wc`, and those of extended completion queues one at a time, read field by field.

use std::sync::atomic::Ordering;

use softnic_runtime::api::{Completion, PartialReason};

use crate::abi::*;
use crate::calls::wrapped::Wrapped;
use crate::codes::{opcode_code, status_code};
use crate::errno::Errno;
use crate::objects::completion_queue::{Cq, CqReaders};

/// `ibv_poll_cq`.
pub(crate) extern "C" fn poll(cq: &Cq, max: c_int, mut out: *mut ibv_wc) -> c_int {
    if max <= 0 || cq.ours.made_in.check().is_err() {
        return if max == 0 { 0 } else { -1 };
    }
    let taken = cq.ours.queue.poll_each(max as usize, |completion| {
        // SAFETY: the program has room for `max` completions, and no more are taken.
        unsafe {
            out.write(to_c(&completion));
            out = out.add(1);
        }
    });
    taken.map_or(-1, |n| n as c_int)
}

/// Additional data of a completion: flags, and the immediate in network byte order or the key that was invalidated.
fn extras(c: &Completion) -> (c_uint, u32) {
    let grh = if c.src_qp.is_some() { IBV_WC_GRH } else { 0 };
    let flags = if c.partial.is_some() { grh | SOFTNICDV_WC_PARTIAL } else { grh };
    match (c.imm, c.invalidated) {
        (Some(imm), _) => (flags | IBV_WC_WITH_IMM, imm.to_be()),
        (None, Some(key)) => (flags | IBV_WC_WITH_INV, key),
        (None, None) => (flags, 0),
    }
}

/// Why a message is incomplete, numbered as in softnicdv.h; 0 if it is complete. Verbs have no field for this, so it is in `vendor_err`.
fn vendor_err(c: &Completion) -> u32 {
    match c.partial {
        None => 0,
        Some(PartialReason::Expired) => 1,
        Some(PartialReason::Preempted) => 2,
        Some(PartialReason::Last) => 3,
    }
}

/// The packet type of a datagram, in the field of InfiniBand's service level, as on ConnectX: 8 for UDP, plus 1 for IPv6 or 2 for IPv4. UCX
/// uses it to find the destination in the 40 bytes, and drops every datagram without it.
#[inline]
fn packet_kind(c: &Completion) -> u8 {
    match (c.src_qp, c.over_ipv6) {
        (None, _) => 0,
        (Some(_), true) => 8 | 1,
        (Some(_), false) => 8 | 2,
    }
}

#[inline]
pub(crate) fn to_c(c: &Completion) -> ibv_wc {
    let (wc_flags, imm_data) = extras(c);
    ibv_wc {
        wr_id: c.wr_id,
        status: status_code(c.status),
        opcode: opcode_code(c.opcode),
        vendor_err: vendor_err(c),
        byte_len: c.byte_len,
        imm_data,
        qp_num: c.qpn.value(),
        src_qp: c.src_qp.map_or(0, |qpn| qpn.value()),
        wc_flags,
        sl: packet_kind(c),
        ..ibv_wc::default()
    }
}
/// The wrapper of the functions of extended queues, if there is one.
pub(crate) static READERS: Wrapped<CqReaders> = Wrapped::new();

/// The functions of an extended queue.
pub(crate) fn readers() -> CqReaders {
    READERS.make(CqReaders {
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
    })
}

/// The mutex of the C struct: locked by one call, unlocked by another.
fn mutex(cq: &Cq) -> *mut libc::pthread_mutex_t {
    const { assert!(size_of::<Mutex>() == size_of::<libc::pthread_mutex_t>()) };
    cq.base.cq.mutex.get().cast()
}

/// Makes this completion the current one, with this status. The caller has started to poll.
pub(crate) fn show(cq: &Cq, completion: Completion, status: c_int) {
    cq.base.wr_id.store(completion.wr_id, Ordering::Relaxed);
    cq.base.status.store(status, Ordering::Relaxed);
    // SAFETY: the lock is held, and readers are called by its holder.
    unsafe { *cq.ours.current.0.get() = Some(completion) };
}

/// Takes the next completion: ENOENT if there is none.
pub(crate) fn take(cq: &Cq) -> c_int {
    match cq.ours.queue.poll_one() {
        Ok(Some(completion)) => {
            show(cq, completion, status_code(completion.status));
            0
        }
        Ok(None) => libc::ENOENT,
        Err(_) => libc::EIO,
    }
}

extern "C" fn start_poll(cq: &Cq, attr: *mut c_void) -> c_int {
    start_with(cq, attr, take)
}

/// `ibv_start_poll`, with completions from `take`.
pub(crate) fn start_with(cq: &Cq, attr: *mut c_void, take: impl FnOnce(&Cq) -> c_int) -> c_int {
    // SAFETY: NULL, or a struct of which the mask is the first and only field.
    let asks = unsafe { attr.cast::<u32>().as_ref() }.is_some_and(|&mask| mask != 0);
    if asks {
        return libc::EINVAL;
    }
    if let Err(Errno(e)) = cq.ours.made_in.check() {
        return e;
    }
    // SAFETY: zeroed memory is an unlocked mutex; its address does not change while the queue lives.
    unsafe { libc::pthread_mutex_lock(mutex(cq)) };
    let result = take(cq);
    if result != 0 {
        // In this case the program does not call `end_poll`.
        end_poll(cq);
    }
    result
}

extern "C" fn next_poll(cq: &Cq) -> c_int {
    take(cq)
}

extern "C" fn end_poll(cq: &Cq) {
    // SAFETY: this thread holds the lock since `start_poll`.
    unsafe { libc::pthread_mutex_unlock(mutex(cq)) };
}

/// The current completion. The caller has started to poll.
pub(crate) fn current(cq: &Cq) -> Option<&Completion> {
    // SAFETY: the thread that started to poll holds the lock.
    unsafe { &*cq.ours.current.0.get() }.as_ref()
}

/// Reads from the current completion; the default if there is none.
fn read<T: Default>(cq: &Cq, field: impl FnOnce(&Completion) -> T) -> T {
    current(cq).map_or_else(T::default, field)
}

extern "C" fn read_opcode(cq: &Cq) -> c_int {
    read(cq, |c| opcode_code(c.opcode))
}

/// `ibv_wc_read_vendor_err`.
pub(crate) extern "C" fn read_vendor_err(cq: &Cq) -> u32 {
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

/// Only InfiniBand has LIDs.
extern "C" fn read_slid(_cq: &Cq) -> u32 {
    0
}

extern "C" fn read_sl(cq: &Cq) -> u8 {
    read(cq, packet_kind)
}

extern "C" fn read_dlid_path_bits(_cq: &Cq) -> u8 {
    0
}

#[cfg(test)]
mod tests {
    use softnic_runtime::api::{Qpn, Status, WcOpcode};

    use super::*;

    #[test]
    fn a_partial_completion_succeeds_and_says_so_by_a_flag_and_the_reason() {
        let whole = Completion::new(7, Status::Success, WcOpcode::Recv, Qpn::new(17));
        let wc = to_c(&Completion { byte_len: 40, ..whole });
        assert_eq!((wc.status, wc.byte_len, wc.wc_flags, wc.vendor_err), (0, 40, 0, 0));
        for (reason, number) in [(PartialReason::Expired, 1), (PartialReason::Preempted, 2), (PartialReason::Last, 3)] {
            let wc = to_c(&Completion { byte_len: 24, imm: Some(5), partial: Some(reason), ..whole });
            assert_eq!((wc.status, wc.byte_len, wc.vendor_err), (0, 24, number));
            assert_eq!(wc.wc_flags, SOFTNICDV_WC_PARTIAL | IBV_WC_WITH_IMM);
        }
    }
}
