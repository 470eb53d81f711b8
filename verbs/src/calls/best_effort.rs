//! `softnicdv.h`, best-effort work: deadlines, strides and bitmaps for queue pairs of XP, and the missing ranges of a bitmap.

use std::time::Duration;

use softnic_runtime::api::{BestEffort, RecvWr, SendWr, Sge, missing_ranges};

use crate::abi::*;
use crate::c_result::status;
use crate::calls::post::{post_list, sges, write_with};
use crate::errno::Errno;
use crate::objects::queue_pair::Qp;

/// `struct softnicdv_best_effort`.
#[repr(C)]
pub(crate) struct softnicdv_best_effort {
    comp_mask: u64,
    timeout_ns: u64,
    bitmap: *const ibv_sge,
    stride: u32,
    reserved: u32,
}

/// `struct softnicdv_range`.
#[repr(C)]
pub(crate) struct softnicdv_range {
    offset: u32,
    length: u32,
}

/// The best-effort attributes given by a program, and the time limit.
fn bound(given: &softnicdv_best_effort) -> Result<(BestEffort, Option<Duration>), Errno> {
    if given.comp_mask != 0 || given.reserved != 0 {
        return Err(Errno::EINVAL);
    }
    // SAFETY: NULL, or an element of the program.
    let bitmap = unsafe { given.bitmap.as_ref() };
    let bitmap = bitmap.map(|sge| Sge { addr: sge.addr, len: sge.length, lkey: sge.lkey });
    let stride = u16::try_from(given.stride).map_err(|_| Errno::EINVAL)?;
    let time = (given.timeout_ns > 0).then(|| Duration::from_nanos(given.timeout_ns));
    Ok((BestEffort { deadline: None, stride, bitmap }, time))
}

/// `softnicdv_post_send`.
pub(crate) extern "C" fn post_send(
    qp: &Qp,
    wr: *mut ibv_send_wr,
    given: &softnicdv_best_effort,
    bad: &mut *mut ibv_send_wr,
) -> c_int {
    let (work, time) = match bound(given) {
        Ok(bound) => bound,
        Err(Errno(e)) => {
            *bad = wr;
            return e;
        }
    };
    let mut written = 0;
    let ours = &qp.ours.qp;
    let post = |wr: &ibv_send_wr| {
        // A bitmap belongs to one message.
        if work.bitmap.is_some() && written > 0 {
            return Err(Errno::EINVAL);
        }
        write_with(qp, wr, |request| {
            let request = SendWr { best_effort: Some(&work), ..*request };
            match time {
                Some(time) => ours.write_send_within(&request, time),
                None => ours.write_send(&request),
            }
        })?;
        written += 1;
        Ok(())
    };
    let result = post_list(qp.ours.made_in, wr, bad, |wr| wr.next, post);
    if written > 0 {
        ours.ring_doorbell();
    }
    result
}

/// `softnicdv_post_recv`.
pub(crate) extern "C" fn post_recv(
    qp: &Qp,
    wr: *mut ibv_recv_wr,
    given: &softnicdv_best_effort,
    bad: &mut *mut ibv_recv_wr,
) -> c_int {
    let (work, time) = match bound(given) {
        Ok(bound) => bound,
        Err(Errno(e)) => {
            *bad = wr;
            return e;
        }
    };
    let mut posted = 0;
    let post = |wr: &ibv_recv_wr| {
        if work.bitmap.is_some() && posted > 0 {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the program has as many elements as it states.
        let sges = unsafe { sges(wr.sg_list, wr.num_sge) }?;
        let request = RecvWr { wr_id: wr.wr_id, sges, best_effort: Some(&work) };
        match time {
            Some(time) => qp.ours.qp.post_recv_within(&request, time)?,
            None => qp.ours.qp.post_recv(&request)?,
        }
        posted += 1;
        Ok(())
    };
    post_list(qp.ours.made_in, wr, bad, |wr| wr.next, post)
}

/// `softnicdv_missing_ranges`: writes at most `max` ranges, and returns their total number.
///
/// # Safety
/// `bitmap` is `len` bytes, and `out` has room for `max` ranges.
pub(crate) unsafe extern "C" fn missing(
    qp: &Qp,
    bitmap: *const u8,
    len: usize,
    message_len: u32,
    stride: u32,
    out: *mut softnicdv_range,
    max: usize,
    count: &mut usize,
) -> c_int {
    status(|| {
        qp.ours.made_in.check()?;
        // The segmentation of messages is unknown before the queue pair is ready to receive.
        let mtu = qp.ours.qp.query().mtu.ok_or(Errno::EINVAL)?;
        let stride =
            u16::try_from(stride).ok().filter(|&s| s <= 1 || s.is_power_of_two() && s <= BestEffort::MAX_STRIDE);
        let stride = stride.ok_or(Errno::EINVAL)?;
        // SAFETY: the length is guaranteed by the contract.
        let bits = if len == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(bitmap, len) } };
        let mut n = 0;
        for range in missing_ranges(bits, message_len, stride, mtu) {
            if n < max {
                // SAFETY: there is room for `max` ranges.
                unsafe { out.add(n).write(softnicdv_range { offset: range.start, length: range.end - range.start }) };
            }
            n += 1;
        }
        *count = n;
        Ok(())
    })
}
