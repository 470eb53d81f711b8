//! What a queue pair asks of the NIC that holds it.

use crate::{CompletionSink, Counters, Memory};

/// Memory, completion queues and counters: all of the world that a queue pair sees.
pub trait Host: Memory + CompletionSink {
    /// The NIC's counters.
    fn counters(&mut self) -> &mut Counters;
}
