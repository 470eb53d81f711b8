//! Posting work: converts C structs to the NIC's work requests. This is the hot path: nothing is allocated, and the doorbell rings once per
//! list.

use std::mem::MaybeUninit;

use softnic_runtime::api::{Data, Datagram, MAX_INLINE, PostError, Qpn, RecvWr, SendOp, SendWr, Sge};

use crate::abi::*;
use crate::codes::flags_of;
use crate::errno::Errno;
use crate::fork::Generation;
use crate::objects::address::Ah;
use crate::objects::queue_pair::Qp;
use crate::objects::shared_receive::Srq;
use crate::objects::window;

const _: () = {
    // Required by `sges`.
    assert!(size_of::<ibv_sge>() == size_of::<Sge>() && align_of::<ibv_sge>() == align_of::<Sge>());
    assert!(std::mem::offset_of!(ibv_sge, addr) == std::mem::offset_of!(Sge, addr));
    assert!(std::mem::offset_of!(ibv_sge, length) == std::mem::offset_of!(Sge, len));
    assert!(std::mem::offset_of!(ibv_sge, lkey) == std::mem::offset_of!(Sge, lkey));
};

/// A program's scatter/gather list.
///
/// # Safety
/// `list` has `count` elements.
#[inline]
pub(crate) unsafe fn sges<'a>(list: *const ibv_sge, count: c_int) -> Result<&'a [Sge], Errno> {
    match usize::try_from(count) {
        Err(_) => Err(Errno::EINVAL),
        Ok(0) => Ok(&[]),
        // SAFETY: guaranteed by the contract; the two types have the same layout, see above.
        Ok(count) => Ok(unsafe { std::slice::from_raw_parts(list.cast::<Sge>(), count) }),
    }
}

/// Posts a list of work requests to a queue of the process `made_in`, up to the first one that is refused; sets `bad` to that one.
#[inline]
pub(crate) fn post_list<W>(
    made_in: Generation,
    mut wr: *mut W,
    bad: &mut *mut W,
    next: impl Fn(&W) -> *mut W,
    mut post: impl FnMut(&W) -> Result<(), Errno>,
) -> c_int {
    if let Err(Errno(e)) = made_in.check() {
        *bad = wr;
        return e;
    }
    // SAFETY: NULL, or a work request of the program.
    while let Some(this) = unsafe { wr.as_ref() } {
        if let Err(Errno(e)) = post(this) {
            *bad = wr;
            return e;
        }
        wr = next(this);
    }
    0
}

/// `ibv_post_send`.
pub(crate) extern "C" fn send(qp: &Qp, wr: *mut ibv_send_wr, bad: &mut *mut ibv_send_wr) -> c_int {
    let mut written = false;
    let result = post_list(qp.ours.made_in, wr, bad, |wr| wr.next, |wr| write(qp, wr).inspect(|()| written = true));
    if written {
        qp.ours.qp.ring_doorbell();
    }
    result
}

/// `ibv_post_recv`.
pub(crate) extern "C" fn recv(qp: &Qp, wr: *mut ibv_recv_wr, bad: &mut *mut ibv_recv_wr) -> c_int {
    let mut written = false;
    let post = |wr: &ibv_recv_wr| {
        // SAFETY: the program has as many elements as it states.
        let sges = unsafe { sges(wr.sg_list, wr.num_sge) }?;
        qp.ours.qp.write_recv(&RecvWr { wr_id: wr.wr_id, sges, best_effort: None })?;
        written = true;
        Ok(())
    };
    let result = post_list(qp.ours.made_in, wr, bad, |wr| wr.next, post);
    if written {
        qp.ours.qp.ring_doorbell();
    }
    result
}

/// `ibv_post_srq_recv`.
pub(crate) extern "C" fn srq_recv(srq: &Srq, wr: *mut ibv_recv_wr, bad: &mut *mut ibv_recv_wr) -> c_int {
    let post = |wr: &ibv_recv_wr| {
        // SAFETY: the program has as many elements as it states.
        let sges = unsafe { sges(wr.sg_list, wr.num_sge) }?;
        Ok(srq.ours.queue.post_recv(&RecvWr { wr_id: wr.wr_id, sges, best_effort: None })?)
    };
    post_list(srq.ours.made_in, wr, bad, |wr| wr.next, post)
}

/// Appends a send work request.
#[inline]
fn write(qp: &Qp, wr: &ibv_send_wr) -> Result<(), Errno> {
    write_with(qp, wr, |request| qp.ours.qp.write_send(request))
}

/// Converts a work request of the program, and passes it to `take`.
#[inline(always)]
pub(crate) fn write_with(
    qp: &Qp,
    wr: &ibv_send_wr,
    take: impl FnOnce(&SendWr<'_>) -> Result<(), PostError>,
) -> Result<(), Errno> {
    // SAFETY: the program has as many elements as it states.
    let list = unsafe { sges(wr.sg_list, wr.num_sge) }?;
    if wr.send_flags & IBV_SEND_IP_CSUM != 0 {
        return Err(Errno::EINVAL);
    }
    let imm = u32::from_be(wr.imm_data);
    // SAFETY: all members of the union are plain numbers; the operation determines which are valid.
    let (rdma, atomic) = unsafe { (wr.wr.rdma, wr.wr.atomic) };
    let WrRdma { remote_addr, rkey } = rdma;
    let op = match wr.opcode {
        IBV_WR_RDMA_WRITE => SendOp::Write { remote_addr, rkey },
        IBV_WR_RDMA_WRITE_WITH_IMM => SendOp::WriteImm { remote_addr, rkey, imm },
        IBV_WR_SEND => SendOp::Send,
        IBV_WR_SEND_WITH_IMM => SendOp::SendImm { imm },
        IBV_WR_RDMA_READ => SendOp::Read { remote_addr, rkey },
        IBV_WR_ATOMIC_CMP_AND_SWP => {
            let WrAtomic { remote_addr, compare_add: compare, swap, rkey } = atomic;
            SendOp::CompareSwap { remote_addr, rkey, compare, swap }
        }
        IBV_WR_ATOMIC_FETCH_AND_ADD => {
            let WrAtomic { remote_addr, compare_add: add, rkey, .. } = atomic;
            SendOp::FetchAdd { remote_addr, rkey, add }
        }
        IBV_WR_LOCAL_INV => SendOp::LocalInv { rkey: wr.imm_data },
        IBV_WR_SEND_WITH_INV => SendOp::SendInv { rkey: wr.imm_data },
        IBV_WR_BIND_MW => return write_bind(qp, wr),
        _ => return Err(Errno::EINVAL),
    };
    let to = match qp.is_datagram() {
        false => None,
        true => {
            // SAFETY: for datagrams this member is valid.
            let WrUd { ah, remote_qpn, remote_qkey } = unsafe { wr.wr.ud };
            Some(datagram(ah, remote_qpn, remote_qkey)?)
        }
    };
    let mut request =
        SendWr { wr_id: wr.wr_id, op, data: Data::Gather(list), flags: flags_of(wr.send_flags), best_effort: None, to };
    if wr.send_flags & IBV_SEND_INLINE == 0 {
        return Ok(take(&request)?);
    }
    let pieces = list.iter().map(|sge| (std::ptr::with_exposed_provenance(sge.addr as usize), sge.len as usize));
    let mut room = InlineRoom::new();
    // SAFETY: inline data is read now, at the addresses that the program gave.
    request.data = Data::Inline(unsafe { room.gather(pieces) }?);
    Ok(take(&request)?)
}

fn write_bind(qp: &Qp, wr: &ibv_send_wr) -> Result<(), Errno> {
    let WrBind { mw, rkey, bind_info } = wr.bind_mw;
    let bind = window::request_of(mw, &bind_info, rkey)?;
    let (op, flags) = (SendOp::BindWindow(bind), flags_of(wr.send_flags));
    let data = Data::Gather(&[]);
    qp.ours.qp.write_send(&SendWr { wr_id: wr.wr_id, op, data, flags, best_effort: None, to: None })?;
    window::posted(mw, &bind);
    Ok(())
}

/// The destination of a datagram.
#[inline]
pub(crate) fn datagram(ah: *mut ibv_ah, qpn: u32, qkey: u32) -> Result<Datagram, Errno> {
    // SAFETY: NULL, or an address handle of the program.
    let ah = unsafe { ah.cast::<Ah>().as_ref() }.ok_or(Errno::EINVAL)?;
    // The upper 8 bits are ignored, as on hardware.
    Ok(ah.handle.to(Qpn::new(qpn), qkey))
}

/// A buffer for contiguous inline data.
pub(crate) struct InlineRoom([MaybeUninit<u8>; MAX_INLINE as usize]);

impl InlineRoom {
    #[inline]
    pub(crate) fn new() -> InlineRoom {
        InlineRoom([const { MaybeUninit::uninit() }; MAX_INLINE as usize])
    }

    /// Copies all pieces, one after the other.
    ///
    /// # Safety
    /// All pieces can be read.
    #[inline]
    pub(crate) unsafe fn gather(&mut self, pieces: impl Iterator<Item = (*const u8, usize)>) -> Result<&[u8], Errno> {
        let mut len = 0;
        for (from, piece) in pieces {
            let to = self.0.get_mut(len..).and_then(|room| room.get_mut(..piece)).ok_or(Errno::EINVAL)?;
            // SAFETY: the piece can be read by the contract, and `to` has its length.
            unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr().cast(), piece) };
            len += piece;
        }
        // SAFETY: the first `len` bytes were written above.
        Ok(unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), len) })
    }
}
