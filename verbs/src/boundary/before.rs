//! Before a call: what a fault does to it.

use softnic_runtime::api::call_faults::Verb;

use crate::errno::Errno;
use crate::objects::handle::Pointer;
use crate::objects::queue_pair::Qp;

/// What a call is about, as far as faults may ask.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct About {
    /// The number of its queue pair.
    pub(crate) qp: Option<u32>,
    /// The work request.
    pub(crate) wr_id: Option<u64>,
}

impl About {
    /// A call with a queue pair.
    pub(crate) fn queue_pair(qp: Pointer<Qp>) -> About {
        About { qp: qp.get().ok().map(Qp::qpn), wr_id: None }
    }
}

/// Whether there are faults in this process.
pub(crate) fn is_wanted() -> bool {
    false
}

/// What happens to a call before it is made: an error is that of the call, which is not made then.
pub(crate) fn before(_verb: Verb, about: About) -> Result<(), Errno> {
    let _ = (about.qp, about.wr_id);
    Ok(())
}
