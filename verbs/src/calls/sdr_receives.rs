//! `softnic_sdr.h`, receiving: memory posted for messages, the bitmap of arrived chunks, the sender's immediate.

use softnic_runtime::api::sdr::SdrError;

use crate::abi::*;
use crate::c_result::status;
use crate::errno::Errno;
use crate::objects::handle::Pointer;
use crate::objects::sdr_queue_pair::{Receive, SdrQp};

/// `softnic_sdr_recv_post`.
pub(crate) extern "C" fn post(qp: Pointer<SdrQp>, wr: &softnic_sdr_recv_wr, recv: &mut *mut Receive) -> c_int {
    status(|| {
        let qp = qp.get()?;
        if wr.comp_mask != 0 {
            return Err(Errno::EINVAL);
        }
        let mr = qp.region(wr.mr)?;
        // Otherwise no packet would be placed, and no bit would ever be set.
        if !mr.may_receive() {
            return Err(Errno(libc::EACCES));
        }
        let (region, offset) = mr.part(wr.addr, wr.length)?;
        *recv = Receive::hold(qp, qp.qp()?.recv_post(&region, offset, wr.length)?);
        Ok(())
    })
}

/// `softnic_sdr_recv_bitmap_get`: the words are valid until the receive is completed.
pub(crate) extern "C" fn bitmap(recv: Pointer<Receive>, bitmap: &mut *const u64, chunks: &mut usize) -> c_int {
    status(|| {
        let state = recv.get()?.state();
        let found = state.as_ref().ok_or(SdrError::NoSuchMessage)?.bitmap();
        (*bitmap, *chunks) = (found.as_ptr(), found.chunks() as usize);
        Ok(())
    })
}

/// `softnic_sdr_recv_imm_get`: EAGAIN until the whole immediate has arrived.
pub(crate) extern "C" fn imm(recv: Pointer<Receive>, imm: &mut u32) -> c_int {
    status(|| {
        let state = recv.get()?.state();
        *imm = state.as_ref().ok_or(SdrError::NoSuchMessage)?.imm().ok_or(Errno(libc::EAGAIN))?;
        Ok(())
    })
}

/// `softnic_sdr_recv_complete`.
pub(crate) extern "C" fn complete(recv: Pointer<Receive>) -> c_int {
    status(|| match Receive::take(recv)? {
        Some(receive) => Ok(receive.complete()?),
        None => Err(SdrError::NoSuchMessage.into()),
    })
}
