//! SDR-RDMA, the SDK: messages with a bitmap of what has come, over unreliable connections of the standard (Khalilov et al., §3).
//!
//! A message goes as WRITEs of one packet each, with immediate data, into slots of a root key; the receiver sets a bit for each, and a
//! program sees a bit for each chunk. What a loss means is the program's to decide: send again, repair, or live with it.
//!
//! All of it is a state machine on a [`Nic`](softnic_nic::Nic), without IO, clock or thread: [`SdrQp`] is a queue pair, [`Sdr`] drives any
//! number of them as the layer of a NIC, in virtual time or on a wire.

pub mod arrivals;
pub mod attr;
mod bitmap;
mod branch;
mod counters;
mod error;
pub mod info;
mod layer;
mod qp;
mod receives;
pub mod reliable;
mod sends;
mod turns;
mod watch;

pub use attr::{AttrError, QpAttr};
pub use bitmap::{Bitmap, Pool};
pub use branch::{Branch, Link};
pub use counters::{Counters, Vitals};
pub use error::SdrError;
pub use info::{InfoError, QpInfo};
pub use layer::{QpId, Sdr};
pub use qp::{LONGEST_CONTROL, SdrQp};
pub use receives::{Posting, RecvHandle};
pub use sends::SendHandle;
pub use softnic_wire::sdr::{SdrSettings, Split, SplitError, control};
pub use watch::Watch;

/// Registered memory: of a send, or of a receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Local {
    /// The key of its region.
    pub key: u32,
    /// Its first byte, by the addresses that the region has in work requests.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
}
