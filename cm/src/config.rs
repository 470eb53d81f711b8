//! The configuration and the counters of a communication manager.

use std::time::Duration;

use softnic_wire::mad::cm::TimeoutCode;

/// Properties and limits of a [`Cm`](crate::Cm).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// GUID of this channel adapter. Together with the address it tells peers that a queue pair is a known one.
    pub ca_guid: u64,
    /// Maximum time in which the local queue pairs send an ACK; peers add it to their ACK timeouts.
    pub ack_delay: TimeoutCode,
    /// Maximum number of connections and exchanges, including those that only wait for their end.
    pub max_connections: usize,
    /// Number of unpolled events from which on requests of peers are dropped.
    pub max_events: usize,
    /// Limit on all times that a peer determines: timewait, answers, the time requested by an MRA, and the sum of all retries of a
    /// connection that the peer requested.
    pub longest_wait: Duration,
    /// Other processes share QP1 of the backup NIC: messages that arrive there and name no local connection are theirs.
    pub backup_is_shared: bool,
    /// How long the answer to a service id resolution is kept for repeated requests.
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

/// The counters since creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// MADs received.
    pub received: u64,
    /// MADs sent, including repetitions.
    pub sent: u64,
    /// Messages sent again because no answer arrived in time.
    pub retransmitted: u64,
    /// Messages that had arrived before.
    pub duplicates: u64,
    /// MADs that are not CM messages, or have an invalid field.
    pub malformed: u64,
    /// CM messages that are not implemented (LAP, APR, …).
    pub unsupported: u64,
    /// Messages that do not fit the state of their connection, or name no existing connection.
    pub unexpected: u64,
    /// Messages for a connection from an address other than its peer's.
    pub wrong_address: u64,
    /// Requests that were refused without involving the program: no such service, stale, no room.
    pub refused: u64,
    /// Requests that were dropped because a backlog or the event queue was full; peers send them again.
    pub dropped: u64,
}
