//! `rdma_set_option`, and enhanced connection establishment, which is not supported.

use super::id::{Id, on};
use crate::abi::*;
use crate::c_result::minus_one;
use crate::errno::Errno;

const RDMA_OPTION_ID: c_int = 0;
const TOS: c_int = 0;
const REUSEADDR: c_int = 1;
const AFONLY: c_int = 2;
const ACK_TIMEOUT: c_int = 3;

/// `rdma_set_option`.
///
/// # Safety
/// The value has the stated length.
pub(crate) unsafe extern "C" fn set(id: &Id, level: c_int, name: c_int, value: *const c_void, len: usize) -> c_int {
    on(id, || {
        // SAFETY: guaranteed by the contract.
        let byte = || if len == 1 { Ok(unsafe { *value.cast::<u8>() }) } else { Err(Errno::EINVAL) };
        let number = || match len == size_of::<c_int>() {
            // SAFETY: guaranteed by the contract.
            true => Ok(unsafe { value.cast::<c_int>().read_unaligned() }),
            false => Err(Errno::EINVAL),
        };
        if level != RDMA_OPTION_ID || value.is_null() {
            return Err(Errno(libc::ENOSYS));
        }
        match name {
            TOS => id.inner().tos = byte()?,
            REUSEADDR => id.inner().reuse = number()? != 0,
            // The unspecified IPv6 address includes IPv4; a program that wants only IPv6 gets a few additional requests.
            AFONLY => drop(number()?),
            ACK_TIMEOUT => {
                let code = byte()?;
                if code >= 32 {
                    return Err(Errno::EINVAL);
                }
                id.inner().ack_timeout = Some(code);
            }
            _ => return Err(Errno(libc::ENOSYS)),
        }
        Ok(())
    })
}

/// `rdma_set_local_ece`: only "none" is accepted.
pub(crate) extern "C" fn set_local_ece(_id: &Id, ece: &ibv_ece) -> c_int {
    minus_one(|| match (ece.vendor_id, ece.options, ece.comp_mask) {
        (0, 0, 0) => Ok(()),
        _ => Err(Errno::EOPNOTSUPP),
    })
}

/// `rdma_get_remote_ece`: zeros mean that there is none.
pub(crate) extern "C" fn get_remote_ece(_id: &Id, ece: &mut ibv_ece) -> c_int {
    minus_one(|| {
        *ece = ibv_ece::default();
        Ok(())
    })
}
