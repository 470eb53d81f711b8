//! Before a call: applies faults.

use std::sync::atomic::Ordering;

use softnic_runtime::api::call_faults::{CallAction, CallSeen, Verb};

use super::happen::{begin, happen};
use super::process;
use super::recorded;
use super::state::faults;
use crate::errno::Errno;
use crate::objects::handle::Pointer;
use crate::objects::queue_pair::Qp;
use crate::rdmacm::id::Id;
use crate::rdmacm::played;

/// The subject of a call, as far as faults need it.
#[derive(Clone, Copy, Default)]
pub(crate) struct About<'a> {
    /// The number of the queue pair.
    pub(crate) qp: Option<u32>,
    /// The work requests.
    pub(crate) wr_ids: &'a [u64],
    /// The id for which an event may be raised instead.
    pub(crate) id: Option<&'a Id>,
}

impl<'a> About<'a> {
    /// A call with a queue pair.
    pub(crate) fn queue_pair(qp: Pointer<Qp>) -> About<'a> {
        About { qp: qp.get().ok().map(Qp::qpn), ..About::default() }
    }

    /// A step of a connection.
    pub(crate) fn id(id: &'a Id) -> About<'a> {
        About { id: Some(id), ..About::default() }
    }
}

/// The outcome of a call that is not made.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Early {
    /// The call fails, at this work request.
    Failed { errno: Errno, at: usize },
    /// The call succeeds, with other consequences.
    Done,
}

/// Whether a call fails on a device that is gone. Objects can still be destroyed, events are taken, and completions report flushed work.
fn needs_device(verb: Verb) -> bool {
    let name = verb.name();
    [
        "alloc_",
        "create_",
        "reg_",
        "rereg_",
        "query_",
        "modify_",
        "post_",
        "bind_",
        "req_notify",
        "resize_",
        "attach_",
        "open_",
    ]
    .iter()
    .any(|prefix| name.starts_with(prefix))
        && verb != Verb::CreateCompChannel
        || matches!(verb, Verb::CmCreateQp | Verb::CmCreateSrq | Verb::CmConnect | Verb::CmAccept)
}

/// Decides about a call before it is made.
pub(crate) fn before(verb: Verb, about: About<'_>) -> Result<(), Early> {
    let Some(state) = faults() else {
        recorded::call(verb, about.qp, about.wr_ids);
        return Ok(());
    };
    begin(state);
    let qp = about.qp.map(|qpn| (qpn, state.made().place_of(qpn)));
    let (happenings, decided) = state.decide(|decider| {
        // Concurrent calls are recorded in the order in which they are counted.
        recorded::call(verb, about.qp, about.wr_ids);
        (decider.happens(verb), decider.call(CallSeen { verb, qp, wr_ids: about.wr_ids }))
    });
    happenings.into_iter().for_each(|(place, what)| happen(state, place, what));
    if state.is_dead.load(Ordering::Relaxed) && needs_device(verb) {
        return Err(Early::Failed { errno: Errno(libc::EIO), at: 0 });
    }
    match decided {
        None => Ok(()),
        Some((CallAction::Fail(errno), at)) => Err(Early::Failed { errno: Errno(errno), at }),
        Some((CallAction::Delay(delay), _)) => {
            std::thread::sleep(delay);
            Ok(())
        }
        Some((CallAction::Kill, _)) => {
            process::kill();
            Ok(())
        }
        Some((CallAction::Restart, _)) => {
            process::restart();
            Ok(())
        }
        Some((CallAction::Stop(time), _)) => {
            process::stop(time);
            Ok(())
        }
        Some((CallAction::Event(event, status), _)) => {
            let Some(id) = about.id else { return Ok(()) };
            match played::instead(id, event.code(), status) {
                Ok(()) => Err(Early::Done),
                Err(errno) => Err(Early::Failed { errno, at: 0 }),
            }
        }
    }
}
