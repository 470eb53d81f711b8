//! A wire that loses, repeats and reorders packets: everything still arrives once, in order and unchanged.

use std::time::Duration;

use softnic_nic::transports::SendOp;

use super::{FROM, Kind, atomic, ends, outstanding, transfer};
use crate::guest::Error;
use crate::interop::session::Session;

/// Rounds of every operation, so that every kind of packet has its chance to be lost.
const ROUNDS: u64 = 4;

/// Messages of every kind one by one, and then sixteen at once. An atomic that is done twice is found out by its value.
pub(super) fn all_kinds(s: &mut Session) -> Result<(), Error> {
    let (_, to) = ends(s);
    let (packets, rounds) = if s.small { (3, 1) } else { (10, ROUNDS) };
    let long = packets * s.setup.mtu.bytes() as usize + 3;
    s.fill(to, FROM, &[0; 8])?;
    for round in 0..rounds {
        for (n, kind) in (0..).zip([Kind::Send, Kind::SendImm, Kind::Write, Kind::WriteImm, Kind::Read]) {
            transfer(s, kind, 10 * round + n, long, Duration::ZERO)?;
        }
        if !s.small {
            outstanding(s)?;
        }
        s.fill(to, FROM, &(round + 5).to_le_bytes())?;
        for n in 0..4 {
            let add = |remote_addr, rkey| SendOp::FetchAdd { remote_addr, rkey, add: 1 };
            atomic(s, n, add, round + 5 + n, round + 6 + n)?;
        }
    }
    Ok(())
}
