//! Multicast groups of an id: joined by address, attached to its queue pair.

use softnic_runtime::api::cm::PortSpace;

use super::addresses;
use super::event::complete;
use super::id::{Id, on};
use super::pending::{IdEvent, Joined};
use crate::abi::*;
use crate::errno::Errno;

/// A full member, which sends and receives.
const FULL_MEMBER: u32 = 0;
/// A member that only sends.
const SEND_ONLY: u32 = 1;

fn join_group(id: &Id, address: *const libc::sockaddr, listens: bool, context: *mut c_void) -> Result<(), Errno> {
    // SAFETY: the program's address has the length that its family implies.
    let group = unsafe { addresses::read(address) }?.ip().to_canonical();
    let _bound = id.device()?;
    if id.space != PortSpace::Udp || !group.is_multicast() {
        return Err(Errno::EINVAL);
    }
    if id.inner().groups.iter().any(|g| g.address == group) {
        return Err(Errno(libc::EADDRINUSE));
    }
    let joined = Joined { group, listens, context: context.expose_provenance() };
    id.shared.push(IdEvent::Multicast(Box::new(joined)));
    complete(id)
}

/// `rdma_join_multicast`.
pub(crate) extern "C" fn join(id: &Id, address: *const libc::sockaddr, context: *mut c_void) -> c_int {
    on(id, || join_group(id, address, true, context))
}

/// `rdma_join_multicast_ex`.
pub(crate) extern "C" fn join_ex(id: &Id, attr: &rdma_cm_join_mc_attr_ex, context: *mut c_void) -> c_int {
    const ADDRESS_AND_FLAGS: u32 = 3;
    on(id, || match (attr.comp_mask, attr.join_flags) {
        (ADDRESS_AND_FLAGS, FULL_MEMBER) => join_group(id, attr.addr, true, context),
        (ADDRESS_AND_FLAGS, SEND_ONLY) => join_group(id, attr.addr, false, context),
        _ => Err(Errno::EINVAL),
    })
}

/// `rdma_leave_multicast`.
pub(crate) extern "C" fn leave(id: &Id, address: *const libc::sockaddr) -> c_int {
    on(id, || {
        // SAFETY: the program's address has the length that its family implies.
        let group = unsafe { addresses::read(address) }?.ip().to_canonical();
        let mut left = {
            let mut inner = id.inner();
            let place = inner.groups.iter().position(|g| g.address == group);
            inner.groups.remove(place.ok_or(Errno(libc::EADDRNOTAVAIL))?)
        };
        left.detach(id.qp());
        Ok(())
    })
}
