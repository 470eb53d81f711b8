//! What a queue does with a frame that comes: takes it, marks it or drops it, by how much waits already.

use crate::random::Random;

/// Marking between two thresholds (RED, as switches do it for DCQCN: by what waits now, not by an average).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Red {
    /// Below so many bytes nothing is marked.
    pub min: u64,
    /// Above so many everything.
    pub max: u64,
    /// The chance at `max`; it rises in a straight line from 0 at `min`.
    pub chance: f64,
}

impl Red {
    /// The chance that a frame is marked that finds so many bytes waiting.
    pub fn chance(&self, waiting: u64) -> f64 {
        if waiting > self.max {
            1.0
        } else if waiting <= self.min {
            0.0
        } else {
            self.chance * (waiting - self.min) as f64 / (self.max - self.min) as f64
        }
    }
}

/// What becomes of a frame at the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueDecision {
    /// It waits its turn.
    Take,
    /// It waits its turn, and is to say that there is congestion.
    Mark,
    /// It found no room.
    Drop,
}

/// How a queue is run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policy {
    /// Bytes that it holds; what does not fit whole is dropped.
    pub limit: u64,
    /// When it marks.
    pub red: Option<Red>,
}

impl Policy {
    /// Decides over a frame of `len` bytes that finds `waiting` of them. Draws only where chance decides.
    #[inline]
    pub fn decide(&self, waiting: u64, len: u64, random: &mut Random) -> QueueDecision {
        if waiting.saturating_add(len) > self.limit {
            return QueueDecision::Drop;
        }
        let Some(red) = &self.red else { return QueueDecision::Take };
        let chance = red.chance(waiting);
        if chance >= 1.0 || chance > 0.0 && random.chance(chance) { QueueDecision::Mark } else { QueueDecision::Take }
    }
}
