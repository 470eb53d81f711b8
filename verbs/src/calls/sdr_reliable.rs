//! `softnic_sdr.h`, reliable messages: queue pairs that recover losses, their WRITEs and receives.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use softnic_runtime::api::sdr::{
    Family, Outcome, Protection, ReliableAttr, ReliableCounters, ReliableError, Scheme, SdrError,
};

use crate::abi::*;
use crate::c_result::{pointer, status};
use crate::calls::sdr::{attributes, usual_attributes};
use crate::errno::Errno;
use crate::message::{error, refused};
use crate::objects::handle::Pointer;
use crate::objects::sdr_context::SdrContext;
use crate::objects::sdr_end::SdrEnd;
use crate::objects::sdr_queue_pair::SdrQp;

const CREATE: &str = "softnic_sdr_reliable_create";

/// The default code.
const USUAL_CODE: (u8, u8) = (32, 8);

/// Nanoseconds since the first call.
fn clock() -> u64 {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    BEGIN.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

fn scheme(given: &softnic_sdr_reliable_attr) -> Result<Scheme, Errno> {
    let family = match given.scheme {
        0 | 1 => return without_code(given, Scheme::Sr),
        2 => return without_code(given, Scheme::Nack),
        3 => Family::Mds,
        4 => Family::Xor,
        unknown => {
            error(format_args!("{CREATE}: {unknown} is no scheme: 1, SR, to 4, XOR, are"));
            return Err(Errno::EINVAL);
        }
    };
    let (k, m) = match (given.k, given.m) {
        (0, 0) => USUAL_CODE,
        (0, m) => (USUAL_CODE.0, m),
        given => given,
    };
    let Ok(interleave) = u8::try_from(given.interleave.max(1)) else {
        error(format_args!("{CREATE}: submessages that are interleaved are from 1 to 255, not {}", given.interleave));
        return Err(Errno::EINVAL);
    };
    match Protection::new(family, k.into(), m.into()) {
        Ok(protection) => Ok(Scheme::Ec(Protection { interleave, ..protection })),
        Err(why) => {
            error(format_args!("{CREATE}: {why}"));
            Err(Errno::EINVAL)
        }
    }
}

fn without_code(given: &softnic_sdr_reliable_attr, scheme: Scheme) -> Result<Scheme, Errno> {
    if given.k == 0 && given.m == 0 && given.interleave == 0 {
        return Ok(scheme);
    }
    error(format_args!("{CREATE}: {scheme} has no parity: k, m and interleave are for EC, 3, and XOR, 4"));
    Err(Errno::EINVAL)
}

fn reliable_attributes(sdr: &SdrContext, given: &softnic_sdr_reliable_attr) -> Result<ReliableAttr, Errno> {
    if given.comp_mask != 0 {
        return Err(Errno::EINVAL);
    }
    let usual = ReliableAttr::default();
    let time = |ns: u64, usual: Duration| if ns == 0 { usual } else { Duration::from_nanos(ns) };
    let number = |n: u32, usual: u32| if n == 0 { usual } else { n };
    Ok(ReliableAttr {
        qp: attributes(CREATE, sdr, &given.qp)?,
        scheme: scheme(given)?,
        rtt: time(given.rtt_ns, usual.rtt),
        alpha: if given.alpha_percent == 0 { usual.alpha } else { f64::from(given.alpha_percent) / 100.0 },
        acks_per_rtt: number(given.acks_per_rtt, usual.acks_per_rtt),
        reordering: number(given.reordering, usual.reordering),
        rate: (given.rate_bps != 0).then_some(given.rate_bps),
        parity_pool: if given.parity_pool == 0 { usual.parity_pool } else { given.parity_pool },
        clock: Some(clock),
        timeout: time(given.timeout_ns, usual.timeout),
        ..usual
    })
}

/// `softnic_sdr_reliable_create`.
pub(crate) extern "C" fn create(sdr: Pointer<SdrContext>, attr: Option<&softnic_sdr_reliable_attr>) -> *mut SdrQp {
    pointer(|| {
        let sdr = sdr.get()?;
        let attr = match attr {
            Some(given) => reliable_attributes(sdr, given)?,
            None => ReliableAttr { qp: usual_attributes(sdr), clock: Some(clock), ..ReliableAttr::default() },
        };
        // Checked before memory is allocated.
        attr.check().map_err(refused(CREATE))?;
        let make = |sdr: &softnic_runtime::api::sdr::SdrContext| sdr.create_reliable(&attr).map(SdrEnd::Reliable);
        SdrQp::make(sdr, &attr.qp, |sdr| make(sdr).map_err(refused(CREATE)))
    })
}

/// The errno of a call for a connection that has ended.
fn posting(why: SdrError) -> Errno {
    match why {
        SdrError::Ended => Errno(libc::ECONNRESET),
        why => why.into(),
    }
}

/// `softnic_sdr_reliable_write`.
pub(crate) extern "C" fn write(qp: Pointer<SdrQp>, wr: &softnic_sdr_reliable_wr, number: Option<&mut u64>) -> c_int {
    status(|| {
        let qp = qp.get()?;
        let reliable = qp.end()?.reliable()?;
        if wr.comp_mask != 0 {
            return Err(Errno::EINVAL);
        }
        let (region, offset) = qp.region(wr.mr)?.part(wr.addr, wr.length)?;
        let posted = reliable.write(&region, offset, wr.length).map_err(posting)?;
        number.into_iter().for_each(|number| *number = posted);
        Ok(())
    })
}

/// `softnic_sdr_reliable_receive`.
pub(crate) extern "C" fn receive(qp: Pointer<SdrQp>, wr: &softnic_sdr_reliable_wr, number: Option<&mut u64>) -> c_int {
    status(|| {
        let qp = qp.get()?;
        let reliable = qp.end()?.reliable()?;
        if wr.comp_mask != 0 {
            return Err(Errno::EINVAL);
        }
        let mr = qp.region(wr.mr)?;
        // Otherwise no packet would be placed, and the message would never complete.
        if !mr.may_receive() {
            return Err(Errno(libc::EACCES));
        }
        let (region, offset) = mr.part(wr.addr, wr.length)?;
        let posted = reliable.receive(&region, offset, wr.length).map_err(posting)?;
        number.into_iter().for_each(|number| *number = posted);
        Ok(())
    })
}

fn completion(outcome: Outcome) -> softnic_sdr_completion {
    let (opcode, number, outcome) = match outcome {
        Outcome::Written { id, outcome } => (SOFTNIC_SDR_WRITTEN, id, outcome),
        Outcome::Received { id, outcome } => (SOFTNIC_SDR_RECEIVED, id, outcome),
    };
    let status = match outcome {
        Ok(()) => 0,
        Err(ReliableError::Timeout) => libc::ETIMEDOUT,
        Err(ReliableError::Length(..)) => libc::EMSGSIZE,
        Err(ReliableError::Sdr(why)) => Errno::from(why).0,
    };
    softnic_sdr_completion { number, opcode, status }
}

/// `softnic_sdr_reliable_poll`: the number of completions, or a negative errno.
///
/// # Safety
/// `completions` has room for `count`.
pub(crate) unsafe extern "C" fn poll(
    qp: Pointer<SdrQp>,
    count: c_int,
    completions: *mut softnic_sdr_completion,
) -> c_int {
    let mut polled = 0;
    let failed = status(|| {
        let reliable = qp.get()?.end()?.reliable()?;
        if count < 0 || (count > 0 && completions.is_null()) {
            return Err(Errno::EINVAL);
        }
        while polled < count
            && let Some(outcome) = reliable.poll()
        {
            // SAFETY: there is room for `count`, by the contract.
            unsafe { completions.add(polled as usize).write(completion(outcome)) };
            polled += 1;
        }
        Ok(())
    });
    if failed == 0 { polled } else { -failed }
}

/// `softnic_sdr_reliable_counters_get`.
pub(crate) extern "C" fn counters(qp: Pointer<SdrQp>, counters: &mut softnic_sdr_reliable_counters) -> c_int {
    status(|| {
        let reliable = qp.get()?.end()?.reliable()?;
        if counters.comp_mask != 0 {
            return Err(Errno::EINVAL);
        }
        let ReliableCounters {
            chunks_sent,
            chunks_repeated,
            packets_repeated,
            timeouts,
            chunks_asked_for,
            parity_packets,
            chunks_recovered,
            packets_recovered,
            fallbacks,
            failed_submessages,
            unprotected,
            decode_ns,
            acks_sent,
            nacks_sent,
            rejected,
            // The C interface cannot request such rows.
            rows_asked_for: _,
        } = reliable.reliable_counters()?;
        *counters = softnic_sdr_reliable_counters {
            comp_mask: 0,
            chunks_sent,
            chunks_repeated,
            packets_repeated,
            timeouts,
            chunks_asked_for,
            parity_packets,
            chunks_recovered,
            packets_recovered,
            fallbacks,
            failed_submessages,
            unprotected,
            decode_ns,
            acks_sent,
            nacks_sent,
            rejected,
        };
        Ok(())
    })
}
