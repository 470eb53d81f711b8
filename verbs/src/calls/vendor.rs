//! `softnicdv.h`: functions that verbs lack.

use std::ffi::CStr;
use std::mem::MaybeUninit;

use softnic_runtime::api::{
    AuthError, Choice, FailoverCounters, FailoverPhase, FailoverReason, FailoverRefusal, ObjectError, Protection,
    QpFailover, Secret, Transport,
};

use crate::abi::*;
use crate::c_result::{pointer, status};
use crate::calls::builder::table;
use crate::calls::create_qp::request;
use crate::errno::Errno;
use crate::objects::context::ContextPtr;
use crate::objects::device::Device;
use crate::objects::queue_pair::{Qp, make};

/// `struct softnicdv_qp_init_attr`.
#[repr(C)]
pub(crate) struct softnicdv_qp_init_attr {
    comp_mask: u64,
    /// The transport as in `--transport`; NULL for the default.
    transport: *const c_char,
}

/// `struct softnicdv_qp_attr`.
#[repr(C)]
pub(crate) struct softnicdv_qp_attr {
    /// In: the requested fields after the transport; out: the fields that were written.
    comp_mask: u64,
    transport: [u8; 32],
    /// Missing in structs of programs that do not request it.
    failover: MaybeUninit<Failover>,
}

/// The fields of [`SOFTNICDV_QP_ATTR_FAILOVER`].
#[derive(Default)]
#[repr(C)]
struct Failover {
    protection: u32,
    state: u32,
    reason: u32,
    refusal: u32,
    switches: u32,
    reserved: u32,
}

const SOFTNICDV_QP_ATTR_FAILOVER: u64 = 1;

impl From<Protection> for Failover {
    fn from(protection: Protection) -> Failover {
        let QpFailover { phase, reason, refusal, switches } = match protection {
            Protection::NoBackup => return Failover::default(),
            Protection::Unprotected => return Failover { protection: 1, ..Failover::default() },
            Protection::Protected(failover) => failover,
        };
        let state = match phase {
            FailoverPhase::Default => 0,
            FailoverPhase::Moving => 1,
            FailoverPhase::Fallback => 2,
            FailoverPhase::WaitSignaled => 3,
            FailoverPhase::WaitDrained => 4,
            FailoverPhase::Failed => 5,
        };
        let reason = match reason {
            None => 0,
            Some(FailoverReason::Retries) => 1,
            Some(FailoverReason::Port) => 2,
            Some(FailoverReason::Peer) => 3,
        };
        let refusal = match refusal {
            None => 0,
            Some(FailoverRefusal::Unsafe) => 1,
            Some(FailoverRefusal::BothSides) => 2,
            Some(FailoverRefusal::Peer) => 3,
            Some(FailoverRefusal::Silence) => 4,
            Some(FailoverRefusal::Lie) => 5,
            Some(FailoverRefusal::Key) => 6,
        };
        Failover { protection: 2, state, reason, refusal, switches, reserved: 0 }
    }
}

/// `struct softnicdv_counter`.
#[repr(C)]
pub(crate) struct softnicdv_counter {
    name: [u8; 56],
    value: u64,
}

/// `softnicdv_is_supported`: whether a device is one of softnic. All devices of this library are.
pub(crate) extern "C" fn is_supported(_device: &Device) -> bool {
    true
}

/// `softnicdv_create_qp`: a queue pair with a given transport.
pub(crate) extern "C" fn create_qp(
    _context: ContextPtr<'_>,
    init: &mut ibv_qp_init_attr_ex,
    dv: Option<&softnicdv_qp_init_attr>,
) -> *mut ibv_qp {
    pointer(|| {
        let mut transport = None;
        if let Some(dv) = dv {
            if dv.comp_mask != 0 {
                return Err(Errno::EINVAL);
            }
            if !dv.transport.is_null() {
                // SAFETY: a string, by the contract.
                let name = unsafe { CStr::from_ptr(dv.transport) }.to_str().map_err(|_| Errno::EOPNOTSUPP)?;
                transport = Some(named_transport(init.qp_type, name).ok_or(Errno::EOPNOTSUPP)?);
            }
        }
        let mut request = request(init)?;
        request.transport = transport.unwrap_or(request.transport);
        make(request, table())
    })
}

/// The transport of that name, if queue pairs of that type support it.
fn named_transport(qp_type: c_int, name: &str) -> Option<Transport> {
    match qp_type {
        IBV_QPT_RC => Transport::parse_rc(name).ok(),
        IBV_QPT_UC if name.starts_with("xp") => name.parse().ok(),
        _ => (transport(qp_type)? == name).then_some(Transport::Rc),
    }
}

/// The standard's transport of a queue pair type.
fn transport(qp_type: c_int) -> Option<&'static str> {
    Some(match qp_type {
        IBV_QPT_RC => "rc",
        IBV_QPT_UC => "uc",
        IBV_QPT_UD => "ud",
        _ => return None,
    })
}

/// `softnicdv_query_qp`.
///
/// # Safety
/// `attr` is a struct of this kind, with the fields named by its mask.
pub(crate) unsafe extern "C" fn query_qp(qp: &Qp, attr: *mut softnicdv_qp_attr) -> c_int {
    if let Err(Errno(e)) = qp.ours.made_in.check() {
        return e;
    }
    let mut name = [0; 32];
    let transport = match qp.ours.qp.choice() {
        Some(Choice::Agreed) => qp.ours.qp.transport().name(),
        // The peer has not answered yet.
        Some(Choice::Waiting) => "",
        Some(Choice::Standard(_)) | None => transport(qp.base.qp_type).unwrap_or_default(),
    };
    let transport = transport.as_bytes();
    name[..transport.len()].copy_from_slice(transport);
    // SAFETY: every struct has these two fields, by the contract. No reference is made to the whole struct, because the rest may not exist.
    let asked = unsafe {
        (&raw mut (*attr).transport).write(name);
        (&raw const (*attr).comp_mask).read() & SOFTNICDV_QP_ATTR_FAILOVER
    };
    if asked != 0 {
        // SAFETY: a program that requests the field has it.
        unsafe { (&raw mut (*attr).failover).write(MaybeUninit::new(qp.ours.qp.protection().into())) };
    }
    // SAFETY: as above.
    unsafe { (&raw mut (*attr).comp_mask).write(asked) };
    0
}

/// `softnicdv_set_qp_secret`: the secret by which an RC queue pair authenticates its peer.
///
/// # Safety
/// `secret` is `len` bytes.
pub(crate) unsafe extern "C" fn set_qp_secret(qp: &Qp, secret: *const u8, len: usize) -> c_int {
    status(|| {
        qp.ours.made_in.check()?;
        if secret.is_null() || len > Secret::MAX {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the length is guaranteed by the contract.
        let bytes = unsafe { std::slice::from_raw_parts(secret, len) };
        let secret = Secret::new(bytes).map_err(|_| Errno::EINVAL)?;
        qp.ours.qp.authenticate(&secret).map_err(|e| match e {
            ObjectError::Auth(AuthError::State) => Errno::EINVAL,
            _ => Errno::EOPNOTSUPP,
        })
    })
}

/// `softnicdv_query_counters`: writes at most `max` counters, and returns their total number.
///
/// # Safety
/// `out` has room for `max` counters.
pub(crate) unsafe extern "C" fn query_counters(
    context: ContextPtr<'_>,
    out: *mut softnicdv_counter,
    max: usize,
    count: &mut usize,
) -> c_int {
    status(|| {
        context.check_process()?;
        let nic = &context.nic().runtime;
        let (counters, failover) = (nic.counters(), nic.failover_counters());
        let mut n = 0;
        for (name, value) in counters.iter().chain(failover.iter().flat_map(FailoverCounters::iter)) {
            if n < max {
                let mut text = [0; 56];
                let len = name.len().min(text.len() - 1);
                text[..len].copy_from_slice(&name.as_bytes()[..len]);
                // SAFETY: there is room for `max` counters.
                unsafe { out.add(n).write(softnicdv_counter { name: text, value }) };
            }
            n += 1;
        }
        *count = n;
        Ok(())
    })
}
