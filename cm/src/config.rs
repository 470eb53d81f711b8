//! What a communication manager is told when it is made, and what it counts.

use std::time::Duration;

use softnic_wire::mad::cm::TimeoutCode;

/// Properties and limits of a [`Cm`](crate::Cm).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// GUID of this channel adapter: with the address it tells peers that a queue pair is the one they know.
    pub ca_guid: u64,
    /// How long our queue pairs take at most to send an ACK; peers put it into their ACK timeouts.
    pub ack_delay: TimeoutCode,
    /// Connections and exchanges at a time, those that only wait for their time to be over included.
    pub max_connections: usize,
    /// Events that may wait to be polled before requests of peers are dropped.
    pub max_events: usize,
    /// No time that a peer asks for is longer than this: timewait, answers, the time that an MRA asks for, and all retries of a connection
    /// that the peer asked for together.
    pub longest_wait: Duration,
    /// Other processes have QP1 of the backup NIC, too: what comes there and names no connection of ours is theirs.
    pub backup_is_shared: bool,
    /// How long the answer to a service id resolution is kept for requests that come again.
    pub sidr_hold: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            ca_guid: 0,
            ack_delay: TimeoutCode::new(15),
            max_connections: 1 << 16,
            max_events: 1 << 12,
            longest_wait: Duration::from_secs(120),
            backup_is_shared: false,
            sidr_hold: Duration::from_secs(30),
        }
    }
}

/// What was counted since the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// MADs that came in.
    pub received: u64,
    /// MADs that went out, copies included.
    pub sent: u64,
    /// Messages that were sent again because no answer came in time.
    pub retransmitted: u64,
    /// Messages that had come before.
    pub duplicates: u64,
    /// MADs that are no CM message, or one with a field that cannot be.
    pub malformed: u64,
    /// CM messages that are not implemented (LAP, APR, …).
    pub unsupported: u64,
    /// Messages that do not fit the state of their connection, or name none that there is.
    pub unexpected: u64,
    /// Messages for a connection from an address that is not its peer's.
    pub wrong_address: u64,
    /// Requests that were refused without asking the program: no such service, stale, no room.
    pub refused: u64,
    /// Requests that were dropped because a backlog or the queue of events was full; peers send them again.
    pub dropped: u64,
}
