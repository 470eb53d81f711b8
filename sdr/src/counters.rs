//! What an SDR queue pair counts.

/// Counters of an SDR queue pair, since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Packets that were placed.
    pub packets: u64,
    /// Late packets of messages that were completed, into slots that point nowhere.
    pub into_null: u64,
    /// Late packets of messages whose slot serves a later one.
    pub old_generation: u64,
    /// Packets that had come before.
    pub duplicates: u64,
    /// Packets that cannot be of what is posted, and control messages that say what cannot be.
    pub rejected: u64,
    /// Control messages that told of receives.
    pub cts_sent: u64,
    /// Those of them that said nothing new.
    pub cts_repeated: u64,
    /// Control messages that asked for one.
    pub asks_sent: u64,
}

/// How far an SDR queue pair is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Vitals {
    /// Receives that were posted since the beginning.
    pub posted: u64,
    /// Sends that were started.
    pub started: u64,
    /// Receives that the peer has posted, as far as it is known here.
    pub cleared: u64,
}

impl Counters {
    /// Late packets of all kinds.
    pub fn late(&self) -> u64 {
        self.into_null + self.old_generation
    }
}
