//! `softnic_sdr.h`, sending: whole messages, and streams of parts.

use softnic_runtime::api::sdr::SdrError;

use crate::abi::*;
use crate::c_result::status;
use crate::errno::Errno;
use crate::objects::handle::Pointer;
use crate::objects::sdr_queue_pair::{SdrQp, Send, Sending};

/// The immediate of a message, if it has one.
fn immediate(comp_mask: u64, imm: u32, reserved: u32) -> Result<Option<u32>, Errno> {
    match comp_mask & !SOFTNIC_SDR_WR_IMM == 0 && reserved == 0 {
        true => Ok((comp_mask & SOFTNIC_SDR_WR_IMM != 0).then_some(imm)),
        false => Err(Errno::EINVAL),
    }
}

/// `softnic_sdr_send_post`. A program that does not need to know when the message was sent passes no location for a handle.
pub(crate) extern "C" fn post(qp: Pointer<SdrQp>, wr: &softnic_sdr_send_wr, send: Option<&mut *mut Send>) -> c_int {
    status(|| {
        let qp = qp.get()?;
        let imm = immediate(wr.comp_mask, wr.imm, wr.reserved)?;
        let (region, offset) = qp.region(wr.mr)?.part(wr.addr, wr.length)?;
        let posted = qp.qp()?.send_post(&region, offset, wr.length, imm)?;
        if let Some(send) = send {
            *send = Send::hold(qp, Sending::Ended(posted));
        }
        Ok(())
    })
}

/// `softnic_sdr_send_stream_start`.
pub(crate) extern "C" fn stream_start(qp: Pointer<SdrQp>, wr: &softnic_sdr_start_wr, send: &mut *mut Send) -> c_int {
    status(|| {
        let qp = qp.get()?;
        let imm = immediate(wr.comp_mask, wr.imm, wr.reserved)?;
        *send = Send::hold(qp, Sending::Stream(qp.qp()?.send_stream_start(wr.length, imm)?));
        Ok(())
    })
}

/// `softnic_sdr_send_stream_continue`.
pub(crate) extern "C" fn stream_continue(send: Pointer<Send>, wr: &softnic_sdr_continue_wr) -> c_int {
    status(|| {
        let send = send.get()?;
        if wr.comp_mask != 0 {
            return Err(Errno::EINVAL);
        }
        let (region, at) = send.qp.region(wr.mr)?.part(wr.addr, wr.length)?;
        match &mut *send.state() {
            Some(Sending::Stream(stream)) => Ok(stream.send(wr.offset, &region, at, wr.length)?),
            Some(Sending::Ended(_)) | None => Err(SdrError::Ended.into()),
        }
    })
}

/// `softnic_sdr_send_stream_end`.
pub(crate) extern "C" fn stream_end(send: Pointer<Send>) -> c_int {
    status(|| {
        let mut state = send.get()?.state();
        match state.take() {
            Some(Sending::Stream(stream)) => *state = Some(Sending::Ended(stream.end()?)),
            other => {
                *state = other;
                return Err(SdrError::Ended.into());
            }
        }
        Ok(())
    })
}

/// `softnic_sdr_send_poll`: EAGAIN while there is data left to send. Any other result for a message that accepts no more parts ends its
/// handle.
pub(crate) extern "C" fn poll(send: Pointer<Send>) -> c_int {
    status(|| {
        let this = send.get()?;
        // Makes progress here, in case no thread of the NIC does it now.
        this.qp.qp()?.progress();
        let (left, is_over) = match &*this.state() {
            Some(Sending::Stream(stream)) => (stream.is_idle(), false),
            Some(Sending::Ended(send)) => (send.poll(), true),
            None => (Err(SdrError::NoSuchMessage), true),
        };
        if left == Ok(false) {
            return Err(Errno(libc::EAGAIN));
        }
        if is_over {
            drop(Send::take(send)?);
        }
        left?;
        Ok(())
    })
}
