//! Simulated faults of the connection manager: a function succeeds, and another event follows than the requested one.

use softnic_runtime::api::cm::PortSpace;

use super::event::complete;
use super::id::{Id, Stage};
use super::pending::IdEvent;
use crate::abi::*;
use crate::errno::Errno;

/// Queues an event of this kind instead of the one that follows the function; the id must be in a state in which the function is permitted.
pub(crate) fn instead(id: &Id, kind: c_int, status: c_int) -> Result<(), Errno> {
    id.shared.made_in.check()?;
    {
        let mut inner = id.inner();
        let (ready, next) = match kind {
            ADDR_ERROR => (matches!(inner.stage, Stage::Idle | Stage::Bound), Stage::Resolving),
            ROUTE_ERROR => (inner.stage == Stage::AddressResolved, Stage::Resolving),
            _ => (inner.stage == Stage::RouteResolved, Stage::Connecting),
        };
        if !ready {
            return Err(Errno::EINVAL);
        }
        inner.stage = next;
    }
    let errno = Errno(-status);
    let what = match kind {
        ADDR_ERROR => IdEvent::Address(Err(errno)),
        ROUTE_ERROR => IdEvent::Route(Err(errno)),
        // A datagram id learns of a refusal by the status of a SIDR reply.
        REJECTED if id.space == PortSpace::Udp => IdEvent::Played(UNREACHABLE, status),
        kind => IdEvent::Played(kind, status),
    };
    // The id is not destroyed while one of its functions runs, so this succeeds.
    let _ = id.shared.push_now(what);
    complete(id)
}
