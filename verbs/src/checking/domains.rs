//! The protection domain of an object, as the model knows it.

use softnic_check::{NicId, ObjectId};

use super::id_of;
use crate::abi::*;
use crate::objects::domain::Pd;
use crate::objects::handle::Pointer;

/// The NIC of a protection domain, and the domain of its objects.
pub(super) fn domain_of(pd: *mut ibv_pd) -> Option<(NicId, ObjectId)> {
    let pd = Pointer::<Pd>::new(pd).get().ok()?;
    Some((NicId((&raw const *pd.context().nic()).addr() as u64), id_of(pd.below())))
}
