//! Delayed events of the connection manager: those of one id stay in order.

use std::sync::Arc;
use std::time::{Duration, Instant};

use softnic_runtime::api::call_faults::CmEvent;
use softnic_runtime::api::cm::Event;

use super::state::{Until, faults};
use crate::rdmacm::pending::{Entry, IdEvent, Shared};

/// The events that the program may see for this, most likely first.
fn kinds(what: &IdEvent) -> &'static [CmEvent] {
    match what {
        IdEvent::Address(Ok(_)) => &[CmEvent::AddrResolved],
        IdEvent::Address(Err(_)) => &[CmEvent::AddrError],
        IdEvent::Route(Ok(_)) => &[CmEvent::RouteResolved],
        IdEvent::Route(Err(_)) => &[CmEvent::RouteError],
        IdEvent::Request { .. } => &[CmEvent::ConnectRequest],
        IdEvent::Multicast(_) => &[CmEvent::MulticastJoin],
        // One or the other, depending on whether the id has a queue pair or the program uses its own.
        IdEvent::Cm(Event::ConnectResponse { .. }) => &[CmEvent::Established, CmEvent::ConnectResponse],
        IdEvent::Cm(Event::Established { .. } | Event::SidrResponse { .. }) => &[CmEvent::Established],
        IdEvent::Cm(Event::Rejected { .. }) => &[CmEvent::Rejected],
        IdEvent::Cm(Event::Unreachable { .. }) => &[CmEvent::Unreachable],
        IdEvent::Cm(Event::Disconnected { .. }) => &[CmEvent::Disconnected],
        IdEvent::Cm(Event::TimewaitExit { .. }) => &[CmEvent::TimewaitExit],
        IdEvent::Cm(Event::ConnectRequest { .. } | Event::SidrRequest { .. }) | IdEvent::Played(..) => &[],
    }
}

/// Queues an event for the program, now or later; returns whether it was queued, or will be.
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
        if let Err(entry) = let_go(&state.until, due, &to, what) {
            // This locks the connection manager, whose thread calls `hold` with its lock held, so it must not run inside `let_go`.
            entry.refuse();
        }
    });
    true
}

/// Queues an event that was held until `due`. Returns the event, with no lock held, if its id is gone.
fn let_go(until: &Until, due: Instant, to: &Arc<Shared>, what: IdEvent) -> Result<(), Entry> {
    let key = Arc::as_ptr(to).addr();
    // Locked until the event is queued, because the next one of the id must follow it.
    let mut until = until.lock().unwrap_or_else(|p| p.into_inner());
    if until.get(&key) == Some(&due) {
        until.remove(&key);
    }
    to.push_now(what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdmacm::pending::Queue;

    #[test]
    fn an_event_of_an_id_that_is_gone_comes_back_with_nothing_locked() {
        let (queue, until, due) = (Arc::new(Queue::new().unwrap()), Until::default(), Instant::now());
        let [there, gone] = [Shared::new(&queue), Shared::new(&queue)];
        *gone.queue() = None;
        for (id, comes_back) in [(&there, false), (&gone, true)] {
            until.lock().unwrap().insert(Arc::as_ptr(id).addr(), due);
            let back = let_go(&until, due, id, IdEvent::Played(0, 0));
            assert_eq!(back.is_err(), comes_back);
            assert!(
                until.try_lock().is_ok_and(|until| until.is_empty()),
                "whoever refuses it may wait for those who hold events back"
            );
        }
    }
}
