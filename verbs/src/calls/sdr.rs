//! `softnic_sdr.h`, setting up: queue pairs made of attributes, and connected with a peer's.

use softnic_runtime::api::sdr::{SdrAttr, Split};

use crate::abi::*;
use crate::c_result::{pointer, status};
use crate::codes::mtu_of;
use crate::errno::Errno;
use crate::objects::address::connected_path;
use crate::objects::handle::Pointer;
use crate::objects::sdr_context::SdrContext;
use crate::objects::sdr_queue_pair::SdrQp;

/// The attributes that a program gives; 0 is the default.
fn attributes(sdr: &SdrContext, given: &softnic_sdr_qp_attr) -> Result<SdrAttr, Errno> {
    if given.comp_mask != 0 || given.reserved != 0 || given.reserved2 != 0 {
        return Err(Errno::EINVAL);
    }
    let usual = SdrAttr::default();
    let number = |n: u32, usual: u32| if n == 0 { usual } else { n };
    let small = |n: u32, usual: u8| u8::try_from(number(n, usual.into())).map_err(|_| Errno::EINVAL);
    let split = match [given.message_bits, given.packet_bits, given.user_bits] {
        [0, 0, 0] => usual.split,
        [message, packet, user] => Split::new(message, packet, user).map_err(|_| Errno::EINVAL)?,
    };
    let mtu = match given.mtu {
        0 => sdr.context().nic().runtime.port().mtu,
        code => mtu_of(code.try_into().map_err(|_| Errno::EINVAL)?)?,
    };
    let attr = SdrAttr {
        max_message: if given.max_message == 0 { usual.max_message } else { given.max_message },
        chunk: number(given.chunk, usual.chunk),
        split,
        slots: number(given.slots, usual.slots),
        generations: small(given.generations, usual.generations)?,
        channels: small(given.channels, usual.channels)?,
        mtu,
        send_depth: number(given.send_depth, usual.send_depth),
        ..usual
    };
    // Before anybody asks whether there is memory for it.
    attr.check().map_err(|_| Errno::EINVAL)?;
    Ok(attr)
}

/// `softnic_sdr_qp_create`.
pub(crate) extern "C" fn create_qp(sdr: Pointer<SdrContext>, attr: Option<&softnic_sdr_qp_attr>) -> *mut SdrQp {
    pointer(|| {
        let sdr = sdr.get()?;
        let attr = match attr {
            Some(given) => attributes(sdr, given)?,
            None => SdrAttr { mtu: sdr.context().nic().runtime.port().mtu, ..SdrAttr::default() },
        };
        SdrQp::make(sdr, &attr)
    })
}

/// `softnic_sdr_qp_info_get`: how many bytes there are is told also where they do not fit.
///
/// # Safety
/// `buf` has room for `len` bytes, or is NULL.
pub(crate) unsafe extern "C" fn info(qp: Pointer<SdrQp>, buf: *mut u8, len: &mut usize) -> c_int {
    status(|| {
        let info = qp.get()?.qp()?.info()?;
        let room = std::mem::replace(len, info.len());
        if buf.is_null() || room < info.len() {
            return Err(Errno(libc::ERANGE));
        }
        // SAFETY: there is room, by the contract; the program's memory is none of ours.
        unsafe { std::ptr::copy_nonoverlapping(info.as_ptr(), buf, info.len()) };
        Ok(())
    })
}

/// `softnic_sdr_qp_connect`.
///
/// # Safety
/// `info` is `len` bytes.
pub(crate) unsafe extern "C" fn connect(qp: Pointer<SdrQp>, info: *const u8, len: usize, path: &ibv_ah_attr) -> c_int {
    status(|| {
        let this = qp.get()?;
        if info.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: it is so long, by the contract.
        let info = unsafe { std::slice::from_raw_parts(info, len) };
        let (path, _) = connected_path(&this.sdr.context(), path, None, this.number)?;
        Ok(this.qp()?.connect(&path, info)?)
    })
}
