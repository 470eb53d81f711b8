//! Address handles: where datagrams go.

use std::fmt;
use std::sync::Arc;

use softnic_nic::AddressError;
use softnic_nic::transports::{AhId, Datagram};
use softnic_wire::Qpn;

use super::context::ProtectionDomain;
use super::path::PeerPath;

/// An address handle: the path of datagrams. Clones are the same handle. Datagrams that were posted leave before it goes;
/// those that there is no room for fail.
#[derive(Clone)]
pub struct AddressHandle(Arc<Handle>);

struct Handle {
    pd: ProtectionDomain,
    id: AhId,
}

impl Drop for Handle {
    fn drop(&mut self) {
        let context = self.pd.inner();
        let _order = context.mirrored();
        for engine in context.engines() {
            let mut core = engine.control();
            // Hardware looks at a handle when a datagram is posted, and programs count on that.
            engine.send_posted(&mut core);
            let _ = core.nic().destroy_ah(self.id);
        }
    }
}

impl ProtectionDomain {
    /// Makes an address handle.
    ///
    /// # Errors
    /// When the path does not begin at this NIC, or there are too many.
    pub fn create_ah(&self, path: &PeerPath) -> Result<AddressHandle, AddressError> {
        let context = self.inner();
        let _order = context.mirrored();
        let mut id = None;
        for engine in context.engines() {
            let made = engine.control().nic().create_ah(self.id(), &path.attr)?;
            debug_assert!(id.is_none_or(|id| id == made), "all engines have the same handles");
            id = Some(made);
        }
        Ok(AddressHandle(Arc::new(Handle { pd: self.clone(), id: id.ok_or(AddressError::TooMany)? })))
    }
}

impl AddressHandle {
    /// A datagram's destination: the queue pair there, and the key that it wants to see.
    pub fn to(&self, dest_qp: Qpn, qkey: u32) -> Datagram {
        Datagram { ah: self.0.id, dest_qp, qkey }
    }
}

impl fmt::Debug for AddressHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AddressHandle").field(&self.0.id.0).finish()
    }
}
