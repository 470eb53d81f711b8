//! `softnic_sdr.h`, set-up: creating queue pairs from attributes, and connecting them with a peer's.

use std::ops::RangeInclusive;

use softnic_runtime::api::Qpn;
use softnic_runtime::api::sdr::{AttrError, SdrAttr, SdrCounters, Split};

use crate::abi::*;
use crate::c_result::{pointer, status};
use crate::codes::mtu_of;
use crate::errno::Errno;
use crate::message::{error, refused};
use crate::objects::address::connected_path;
use crate::objects::handle::Pointer;
use crate::objects::sdr_context::SdrContext;
use crate::objects::sdr_end::SdrEnd;
use crate::objects::sdr_queue_pair::SdrQp;

const CREATE: &str = "softnic_sdr_qp_create";

/// Valid queue pair numbers of a peer: 0 and 1 are the management queue pairs, the last number is multicast.
const NUMBERS: RangeInclusive<u32> = 2..=0x00ff_fffe;

/// The attributes that a program gives to the call of this name; 0 selects the default. Their consistency is not checked here.
pub(crate) fn attributes(call: &'static str, sdr: &SdrContext, given: &softnic_sdr_qp_attr) -> Result<SdrAttr, Errno> {
    if given.comp_mask != 0 || given.reserved != 0 {
        return Err(Errno::EINVAL);
    }
    let unknown = given.flags & !(SOFTNIC_SDR_QP_ONE_KEY | SOFTNIC_SDR_QP_UNSCREENED);
    if unknown != 0 {
        error(format_args!(
            "{call}: flags {unknown:#x} are not known: {SOFTNIC_SDR_QP_ONE_KEY:#x}, one root key, and {SOFTNIC_SDR_QP_UNSCREENED:#x}, unscreened, are"
        ));
        return Err(Errno::EINVAL);
    }
    let usual = SdrAttr::default();
    let number = |n: u32, usual: u32| if n == 0 { usual } else { n };
    let small = |what, n: u32, usual: u8| {
        let n = number(n, usual.into());
        u8::try_from(n).map_err(|_| refused(call)(AttrError::Range(what, 1, 16, n.into())))
    };
    let split = match [given.message_bits, given.packet_bits, given.user_bits] {
        [0, 0, 0] => usual.split,
        [message, packet, user] => Split::new(message, packet, user).map_err(refused(call))?,
    };
    let mtu = match given.mtu {
        0 => sdr.context().nic().runtime.port().mtu,
        code => code.try_into().map_err(|_| Errno::EINVAL).and_then(mtu_of).inspect_err(|_| {
            error(format_args!("{call}: {code} is no MTU: IBV_MTU_256, 1, to IBV_MTU_4096, 5, are"));
        })?,
    };
    Ok(SdrAttr {
        max_message: if given.max_message == 0 { usual.max_message } else { given.max_message },
        chunk: number(given.chunk, usual.chunk),
        split,
        slots: number(given.slots, usual.slots),
        generations: small("the number of generations", given.generations, usual.generations)?,
        channels: small("the number of channels", given.channels, usual.channels)?,
        mtu,
        key_per_generation: given.flags & SOFTNIC_SDR_QP_ONE_KEY == 0,
        screened: given.flags & SOFTNIC_SDR_QP_UNSCREENED == 0,
        send_depth: number(given.send_depth, usual.send_depth),
        ..usual
    })
}

/// The attributes if a program gives none.
pub(crate) fn usual_attributes(sdr: &SdrContext) -> SdrAttr {
    SdrAttr { mtu: sdr.context().nic().runtime.port().mtu, ..SdrAttr::default() }
}

/// `softnic_sdr_qp_create`.
pub(crate) extern "C" fn create_qp(sdr: Pointer<SdrContext>, attr: Option<&softnic_sdr_qp_attr>) -> *mut SdrQp {
    pointer(|| {
        let sdr = sdr.get()?;
        let attr = match attr {
            Some(given) => attributes(CREATE, sdr, given)?,
            None => usual_attributes(sdr),
        };
        // Checked before memory is allocated.
        attr.check().map_err(refused(CREATE))?;
        SdrQp::make(sdr, &attr, |sdr| sdr.create_qp(&attr).map(SdrEnd::Plain).map_err(refused(CREATE)))
    })
}

/// `softnic_sdr_qp_info_get`: the number of bytes is returned even if they do not fit.
///
/// # Safety
/// `buf` has room for `len` bytes, or is NULL.
pub(crate) unsafe extern "C" fn info(qp: Pointer<SdrQp>, buf: *mut u8, len: &mut usize) -> c_int {
    status(|| {
        let info = qp.get()?.end()?.info()?;
        let room = std::mem::replace(len, info.len());
        if buf.is_null() || room < info.len() {
            return Err(Errno(libc::ERANGE));
        }
        // SAFETY: there is room, by the contract; the program's memory does not overlap that of the library.
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
        // SAFETY: the length is guaranteed by the contract.
        let info = unsafe { std::slice::from_raw_parts(info, len) };
        let (path, _) = connected_path(&this.sdr.context(), path, None, this.number)?;
        this.end()?.connect(&path, info).map_err(refused("softnic_sdr_qp_connect"))
    })
}

/// `softnic_sdr_qp_number_get`.
pub(crate) extern "C" fn number(qp: Pointer<SdrQp>, number: &mut u32) -> c_int {
    status(|| {
        *number = qp.get()?.end()?.number()?.value();
        Ok(())
    })
}

/// `softnic_sdr_qp_meet`.
pub(crate) extern "C" fn meet(qp: Pointer<SdrQp>, peer: u32, path: &ibv_ah_attr) -> c_int {
    const MEET: &str = "softnic_sdr_qp_meet";
    status(|| {
        let this = qp.get()?;
        if !NUMBERS.contains(&peer) {
            error(format_args!(
                "{MEET}: {peer:#x} is not the number of a peer: {:#x} to {:#x} are",
                NUMBERS.start(),
                NUMBERS.end()
            ));
            return Err(Errno::EINVAL);
        }
        let (path, _) = connected_path(&this.sdr.context(), path, None, this.number)?;
        this.end()?.meet(&path, Qpn::new(peer)).map_err(refused(MEET))
    })
}

/// `softnic_sdr_qp_is_met`: EAGAIN until the peer has answered.
pub(crate) extern "C" fn is_met(qp: Pointer<SdrQp>) -> c_int {
    status(|| {
        let this = qp.get()?;
        match this.end()?.is_met().map_err(|why| this.say_once(why))? {
            true => Ok(()),
            false => Err(Errno(libc::EAGAIN)),
        }
    })
}

/// `softnic_sdr_qp_counters_get`.
pub(crate) extern "C" fn counters(qp: Pointer<SdrQp>, counters: &mut softnic_sdr_counters) -> c_int {
    status(|| {
        let this = qp.get()?;
        if counters.comp_mask != 0 {
            return Err(Errno::EINVAL);
        }
        let SdrCounters { packets, into_null, old_generation, duplicates, rejected, cts_sent, cts_repeated, asks_sent } =
            this.end()?.counters()?;
        *counters = softnic_sdr_counters {
            comp_mask: 0,
            packets,
            into_null,
            old_generation,
            duplicates,
            rejected,
            cts_sent,
            cts_repeated,
            asks_sent,
        };
        Ok(())
    })
}
