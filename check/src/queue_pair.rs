//! A queue pair as the model remembers it: its state, and the work that is outstanding.

use std::collections::VecDeque;

use crate::calls::{Change, ObjectId, QpState, QueuePair, SendOp};
use crate::finding::{Place, QueuePairName, Stack};

/// Bytes of an element, where they are, and their region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Buffer {
    pub(crate) region: ObjectId,
    /// Its first byte, and how many.
    pub(crate) span: (u64, u64),
}

/// A send that is outstanding.
#[derive(Debug)]
pub(crate) struct Send {
    pub(crate) ticket: u64,
    pub(crate) wr_id: u64,
    pub(crate) op: SendOp,
    pub(crate) is_signaled: bool,
    /// Whether the verb has taken it. One that completes before that is known stays untaken.
    pub(crate) is_taken: bool,
    pub(crate) buffers: Vec<Buffer>,
    /// The checksum of its data when it was posted.
    pub(crate) sum: Option<u64>,
    /// Whether somebody else than the program may change its data.
    pub(crate) others_write: bool,
    pub(crate) remote: Option<(u64, u32)>,
    pub(crate) place: Place,
    /// Of the messages that take a receive at the peer the how manieth.
    pub(crate) message: Option<u64>,
}

/// A receive that is outstanding.
#[derive(Debug)]
pub(crate) struct Receive {
    pub(crate) ticket: u64,
    pub(crate) wr_id: u64,
    pub(crate) buffers: Vec<Buffer>,
    /// The completion queue that counts it: since the verb has taken it, and if that queue is known before it completes.
    pub(crate) counted: Option<ObjectId>,
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) attributes: QueuePair,
    pub(crate) name: QueuePairName,
    pub(crate) made: Stack,
    /// Whether all changes of its state are the program's. librdmacm makes some that the model does not hear of.
    pub(crate) is_the_programs: bool,
    pub(crate) state: QpState,
    pub(crate) rnr_retry: Option<u8>,
    pub(crate) read_depth: Option<u8>,
    pub(crate) peer: Option<u32>,
    pub(crate) sends: VecDeque<Send>,
    pub(crate) receives: VecDeque<Receive>,
    /// How many sends so far take a receive at the peer.
    pub(crate) messages: u64,
    /// How many receives have completed well.
    pub(crate) received: u64,
}

impl Pair {
    pub(crate) fn new(attributes: QueuePair, order: u32, is_the_programs: bool, made: Stack) -> Pair {
        Pair {
            name: QueuePairName { number: attributes.number, order },
            attributes,
            made,
            is_the_programs,
            state: QpState::Reset,
            rnr_retry: None,
            read_depth: None,
            peer: None,
            sends: VecDeque::new(),
            receives: VecDeque::new(),
            messages: 0,
            received: 0,
        }
    }

    /// Notes what a change names.
    pub(crate) fn note(&mut self, change: &Change) {
        self.state = change.state.unwrap_or(self.state);
        self.rnr_retry = change.rnr_retry.or(self.rnr_retry);
        self.read_depth = change.read_depth.or(self.read_depth);
        self.peer = change.peer.or(self.peer);
    }

    /// Whether its outstanding work is over, though it may not have completed yet.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, QpState::Reset | QpState::Err)
    }

    /// The sends that a completion ends: the one that it is of, and those before it. Success is of a signaled one; an error may be of any.
    pub(crate) fn end_sends(&mut self, wr_id: u64, success: bool) -> Vec<Send> {
        let is_it = |send: &Send| send.wr_id == wr_id && (send.is_signaled || !success);
        match self.sends.iter().position(is_it) {
            Some(last) => self.sends.drain(..=last).collect(),
            // Of work that the model was not told of.
            None => Vec::new(),
        }
    }
}

/// Takes the receive that a completion is of out of its queue.
pub(crate) fn end_receive(receives: &mut VecDeque<Receive>, wr_id: u64) -> Option<Receive> {
    let at = receives.iter().position(|receive| receive.wr_id == wr_id)?;
    receives.remove(at)
}
