//! Completion queues, and their events.

use std::any::Any;
use std::collections::VecDeque;

use softnic_transports::planted::{Bug, planted};
use softnic_transports::{Arrival, Completion, CqOverflow, Status};
use softnic_wire::Qpn;

/// Why a completion queue cannot be used, changed or destroyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CqError {
    /// There is no such queue.
    #[error("no such completion queue")]
    NoSuchCq,
    /// A completion found no room and is lost: the queue cannot be used any more.
    #[error("the completion queue overflowed")]
    Overflow,
    /// Queue pairs still use it.
    #[error("queue pairs still use the completion queue")]
    Busy,
    /// The queue holds more completions than its new size.
    #[error("the completion queue holds more completions than that")]
    TooSmall,
    /// The completions go to a sink, so the queue is always empty.
    #[error("the completion queue is a sink, which has nothing to poll or to arm")]
    IsSink,
}

/// The completion that raises an event (IBA 11.4.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Notify {
    /// The next solicited or failed completion.
    Solicited,
    /// The next completion.
    Next,
}

/// A completion queue that delivers to an object: the object gets each completion when it occurs, in the thread that runs the NIC. It never
/// overflows.
pub trait Sink: Send {
    /// A work request completed. For a WRITE with immediate, which takes no receive here, `wr_id` is 0.
    fn on_completion(&mut self, completion: &Completion);

    /// Whether a WRITE of one packet with immediate data may be placed, on an unreliable connection. Otherwise the packet is dropped, as if
    /// it had been lost. A WRITE that is placed completes next.
    fn admits(&mut self, arrival: &Arrival) -> bool {
        let _ = arrival;
        true
    }

    /// A WRITE of one packet with immediate data was placed, on an unreliable connection, and is complete.
    fn on_arrival(&mut self, arrival: &Arrival) {
        self.on_completion(&arrival.completion());
    }

    /// This object, for a downcast by the owner of the NIC.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

/// A completion queue of fixed size, or without a limit, or a sink.
pub(crate) struct Cq {
    ring: VecDeque<Completion>,
    capacity: usize,
    overflowed: bool,
    /// With a sink the capacity is 0. So the sink is looked at only when a completion finds no room.
    sink: Option<Box<dyn Sink>>,
    /// The arm: which completion raises the next event.
    armed: Option<Notify>,
    /// Number of queue pairs that complete here, counted once for sends and once for receives.
    pub(crate) users: u32,
}

impl Cq {
    pub(crate) fn new(capacity: usize) -> Cq {
        Cq { ring: VecDeque::with_capacity(capacity), capacity, overflowed: false, sink: None, armed: None, users: 0 }
    }

    /// A queue without a limit.
    pub(crate) fn unbounded() -> Cq {
        Cq { capacity: usize::MAX, ..Cq::new(0) }
    }

    pub(crate) fn of_sink(sink: Box<dyn Sink>) -> Cq {
        Cq { sink: Some(sink), ..Cq::new(0) }
    }

    /// The sink, if the queue is one.
    pub(crate) fn sink_mut(&mut self) -> Option<&mut dyn Sink> {
        match &mut self.sink {
            Some(sink) => Some(&mut **sink),
            None => None,
        }
    }

    pub(crate) fn is_sink(&self) -> bool {
        self.sink.is_some()
    }

    /// Number of completions in the queue.
    pub(crate) fn len(&self) -> usize {
        self.ring.len()
    }

    /// Whether a completion was lost.
    pub(crate) fn overflowed(&self) -> bool {
        self.overflowed
    }

    /// Adds a completion; returns whether it raises the event that was armed.
    pub(crate) fn push(&mut self, c: Completion) -> Result<bool, CqOverflow> {
        if self.ring.len() >= self.capacity {
            if let Some(sink) = &mut self.sink {
                sink.on_completion(&c);
                return Ok(false);
            }
            self.overflowed = true;
        }
        if self.overflowed {
            return Err(CqOverflow);
        }
        let event = match self.armed {
            _ if planted(Bug::EventLost) && !self.ring.is_empty() => false,
            None => false,
            Some(Notify::Next) => true,
            Some(Notify::Solicited) => c.solicited || c.status != Status::Success,
        };
        if event {
            self.armed = None;
        }
        self.ring.push_back(c);
        if planted(Bug::CompletionTwice) && self.ring.len() > 3 {
            self.ring.push_back(c);
        }
        Ok(event)
    }

    /// Removes the oldest completion. Completions from before an overflow are still returned.
    pub(crate) fn poll(&mut self) -> Result<Option<Completion>, CqError> {
        match self.ring.pop_front() {
            Some(c) => Ok(Some(c)),
            None if self.overflowed => Err(CqError::Overflow),
            None if self.is_sink() => Err(CqError::IsSink),
            None => Ok(None),
        }
    }

    /// Arms for one event. An arm for the next completion is not narrowed by a later one for a solicited completion.
    pub(crate) fn arm(&mut self, what: Notify) -> Result<(), CqError> {
        if self.is_sink() {
            return Err(CqError::IsSink);
        }
        self.armed = self.armed.max(Some(what));
        Ok(())
    }

    /// Removes the completions of one queue pair.
    pub(crate) fn forget(&mut self, qpn: Qpn) {
        self.ring.retain(|c| c.qpn != qpn);
    }

    /// Changes the capacity; completions stay.
    pub(crate) fn resize(&mut self, capacity: usize) -> Result<(), CqError> {
        if self.is_sink() {
            return Err(CqError::IsSink);
        }
        if capacity < self.ring.len() {
            return Err(CqError::TooSmall);
        }
        self.ring.reserve(capacity - self.ring.len());
        self.capacity = capacity;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use softnic_transports::{PartialReason, WcOpcode};

    use super::*;

    #[test]
    fn what_one_queue_pair_completed_is_forgotten_and_the_others_stay_in_order() {
        let completion = |wr_id, qpn| Completion::new(wr_id, Status::Success, WcOpcode::Send, Qpn::new(qpn));
        let mut cq = Cq::new(4);
        for (wr_id, qpn) in [(1, 17), (2, 18), (3, 17), (4, 19)] {
            cq.push(completion(wr_id, qpn)).unwrap();
        }
        cq.forget(Qpn::new(17));
        let left: Vec<u64> = std::iter::from_fn(|| cq.poll().unwrap()).map(|c| c.wr_id).collect();
        assert_eq!(left, [2, 4]);
    }

    #[test]
    fn a_partial_completion_is_polled_with_its_reason_and_raises_no_event_of_an_error() {
        let mut cq = Cq::new(1);
        cq.arm(Notify::Solicited).unwrap();
        let whole = Completion::new(1, Status::Success, WcOpcode::Recv, Qpn::new(17));
        let partial = Completion { byte_len: 24, partial: Some(PartialReason::Preempted), ..whole };
        assert_eq!(cq.push(partial), Ok(false));
        assert_eq!(cq.poll(), Ok(Some(partial)));
    }
}
