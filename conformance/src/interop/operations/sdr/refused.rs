//! rxe is offered reliable messages over SDR, which it does not know: its refusal is heard, and RC carries the data.

use std::time::Instant;

use softnic_nic::transports::negotiation::FallbackReason;
use softnic_sdr::reliable::{ReliableAttr, Scheme};
use softnic_sdr::{QpAttr, SdrError};
use softnic_wire::Qpn;

use super::super::{Kind, LIMIT, transfers};
use super::{SLICE, fail};
use crate::guest::Error;
use crate::interop::session::Session;
use crate::interop::setup::Side;

/// As programs do that would rather have reliable messages over SDR: a queue pair for these beside that of RC, which is used when the peer
/// declines.
pub(in super::super) fn refused(s: &mut Session) -> Result<(), Error> {
    let scheme: Scheme = "sdr-ec:32,8".parse().map_err(|e| Error::Failed(format!("{e}")))?;
    let qp = QpAttr { mtu: s.setup.mtu, chunk: s.setup.mtu.bytes(), ..QpAttr::default() };
    s.open_reliable(&ReliableAttr { qp, scheme, ..ReliableAttr::default() })?;
    let outcome = offer(s);
    s.close_sdr();
    match outcome? {
        Err(SdrError::Declined(FallbackReason::Refused)) => transfers(s, Kind::Write),
        other => fail(format!("the offer of SDR ends with {other:?} instead of a refusal")),
    }
}

/// Offers it to rxe's queue pair of RC; what came of it.
fn offer(s: &mut Session) -> Result<Result<(), SdrError>, Error> {
    let (path, peer) = (s.path()?, Qpn::new(s.qpns(Side::Rxe)?[0]));
    s.sdr(|_, qp, nic| qp.meet(nic, 1, &path, peer))?;
    let begin = Instant::now();
    while begin.elapsed() < LIMIT {
        match s.sdr(|_, qp, nic| Ok(qp.met(nic).map(|met| met.is_some())))? {
            Ok(false) => s.pause(SLICE)?,
            met => return Ok(met.map(drop)),
        }
    }
    fail("nothing came of the offer of SDR".into())
}
