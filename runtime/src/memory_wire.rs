//! A wire in memory with two ends: for loops in one thread.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Duration;

use softnic_wire::TxFrame;

use crate::io::{MAX_FRAME, PacketIo};

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
    fn receive(&mut self, limit: usize, take: &mut dyn FnMut(&mut [u8])) -> io::Result<usize> {
        for taken in 0..limit {
            let Some(mut frame) = self.incoming.borrow_mut().pop_front() else { return Ok(taken) };
            take(&mut frame);
        }
        Ok(limit)
    }

    fn transmit(&mut self, limit: usize, next: &mut dyn FnMut(&mut TxFrame<'_>) -> bool) -> io::Result<usize> {
        let room = CAPACITY - self.outgoing.borrow().len();
        for sent in 0..limit.min(room) {
            let mut frame = vec![0; MAX_FRAME];
            let mut tx = TxFrame::new(&mut frame);
            if !next(&mut tx) {
                return Ok(sent);
            }
            let len = tx.len();
            frame.truncate(len);
            self.outgoing.borrow_mut().push_back(frame);
        }
        Ok(limit.min(room))
    }

    fn wait(&mut self, _timeout: Duration, _also: Option<BorrowedFd<'_>>) -> io::Result<()> {
        Ok(())
    }

    fn lost(&self) -> u64 {
        0
    }
}
