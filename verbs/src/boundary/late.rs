//! Events of the connection manager that come late: those of one id stay in their order.

use std::sync::Arc;
use std::time::{Duration, Instant};

use softnic_runtime::api::call_faults::CmEvent;
use softnic_runtime::api::cm::Event;

use super::state::faults;
use crate::rdmacm::pending::{IdEvent, Shared};

/// What an event will be to the program, in the order of likelihood.
fn kinds(what: &IdEvent) -> &'static [CmEvent] {
    match what {
        IdEvent::Address(Ok(_)) => &[CmEvent::AddrResolved],
        IdEvent::Address(Err(_)) => &[CmEvent::AddrError],
        IdEvent::Route(Ok(_)) => &[CmEvent::RouteResolved],
        IdEvent::Route(Err(_)) => &[CmEvent::RouteError],
        IdEvent::Request { .. } => &[CmEvent::ConnectRequest],
        IdEvent::Multicast(_) => &[CmEvent::MulticastJoin],
        // It is one or the other, whether the id has a queue pair or the program has one of its own.
        IdEvent::Cm(Event::ConnectResponse { .. }) => &[CmEvent::Established, CmEvent::ConnectResponse],
        IdEvent::Cm(Event::Established { .. } | Event::SidrResponse { .. }) => &[CmEvent::Established],
        IdEvent::Cm(Event::Rejected { .. }) => &[CmEvent::Rejected],
        IdEvent::Cm(Event::Unreachable { .. }) => &[CmEvent::Unreachable],
        IdEvent::Cm(Event::Disconnected { .. }) => &[CmEvent::Disconnected],
        IdEvent::Cm(Event::TimewaitExit { .. }) => &[CmEvent::TimewaitExit],
        IdEvent::Cm(Event::ConnectRequest { .. } | Event::SidrRequest { .. }) | IdEvent::Played(..) => &[],
    }
}

/// Queues an event for the program, now or later. Whether it was queued, or will be.
pub(crate) fn hold(to: &Arc<Shared>, what: IdEvent) -> bool {
    let Some(state) = faults() else { return to.push_now(what).is_ok() };
    let delay = kinds(&what).iter().find_map(|&kind| state.decide(|decider| decider.cm_event(kind)));
    let now = Instant::now();
    let key = Arc::as_ptr(to).addr();
    let mut until = state.until.lock().unwrap_or_else(|p| p.into_inner());
    let due = match (delay, until.get(&key)) {
        (None, None) => return to.push_now(what).is_ok(),
        (delay, before) => {
            let own = now.checked_add(delay.unwrap_or(Duration::ZERO)).unwrap_or(now);
            before.map_or(own, |&before| own.max(before))
        }
    };
    until.insert(key, due);
    let to = Arc::clone(to);
    state.timer.at(due, move || {
        let mut until = state.until.lock().unwrap_or_else(|p| p.into_inner());
        if until.get(&key) == Some(&due) {
            until.remove(&key);
        }
        if let Err(entry) = to.push_now(what) {
            entry.refuse();
        }
    });
    true
}
