//! A wire in memory with two ends: for loops in one thread.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use crate::io::{PacketIo, Sent};

/// Frames that one direction of the wire holds; an end that sends more has to wait.
const CAPACITY: usize = 64;

type Queue = Rc<RefCell<VecDeque<Vec<u8>>>>;

/// One end of a wire in memory. Whoever holds both ends runs them in turn: nothing is ever waited for.
#[derive(Debug)]
pub struct MemoryWire {
    incoming: Queue,
    outgoing: Queue,
}

impl MemoryWire {
    /// The two ends of a new wire.
    pub fn pair() -> (MemoryWire, MemoryWire) {
        let (a, b) = (Queue::default(), Queue::default());
        (MemoryWire { incoming: Rc::clone(&a), outgoing: Rc::clone(&b) }, MemoryWire { incoming: b, outgoing: a })
    }
}

impl PacketIo for MemoryWire {
    fn receive(&mut self, buffer: &mut [u8], _wait: Duration) -> io::Result<Option<usize>> {
        let Some(frame) = self.incoming.borrow_mut().pop_front() else { return Ok(None) };
        let Some(room) = buffer.get_mut(..frame.len()) else { return Ok(None) };
        room.copy_from_slice(&frame);
        Ok(Some(frame.len()))
    }

    fn send(&mut self, frame: &[u8]) -> io::Result<Sent> {
        let mut queue = self.outgoing.borrow_mut();
        if queue.len() == CAPACITY {
            return Ok(Sent::Full);
        }
        queue.push_back(frame.to_vec());
        Ok(Sent::Yes)
    }
}
