//! Completion queues.

use std::collections::VecDeque;

use softnic_transports::{Completion, CqOverflow};

/// What is wrong with a completion queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CqError {
    /// There is no such queue.
    #[error("no such completion queue")]
    NoSuchCq,
    /// A completion found no room and is lost: the queue is of no more use.
    #[error("the completion queue overflowed")]
    Overflow,
    /// Queue pairs still use it.
    #[error("queue pairs still use the completion queue")]
    Busy,
}

/// A completion queue of fixed size.
#[derive(Debug)]
pub(crate) struct Cq {
    ring: VecDeque<Completion>,
    capacity: usize,
    overflowed: bool,
    /// Queue pairs that complete here, counted once for sends and once for receives.
    pub(crate) users: u32,
}

impl Cq {
    pub(crate) fn new(capacity: usize) -> Cq {
        Cq { ring: VecDeque::with_capacity(capacity), capacity, overflowed: false, users: 0 }
    }

    pub(crate) fn push(&mut self, c: Completion) -> Result<(), CqOverflow> {
        if self.ring.len() >= self.capacity {
            self.overflowed = true;
        }
        if self.overflowed {
            return Err(CqOverflow);
        }
        self.ring.push_back(c);
        Ok(())
    }

    /// The oldest completion. What came before an overflow is still handed out.
    pub(crate) fn poll(&mut self) -> Result<Option<Completion>, CqError> {
        match self.ring.pop_front() {
            Some(c) => Ok(Some(c)),
            None if self.overflowed => Err(CqError::Overflow),
            None => Ok(None),
        }
    }
}
