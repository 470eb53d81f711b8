//! What a report says: files, connections, packets, events and verdicts, before they become a page.

use serde::Serialize;

use super::packet::Packet;

/// A capture or a trace, as far as it was read.
#[derive(Debug, Default)]
pub(super) struct Source {
    pub(super) summary: FileSummary,
    pub(super) connections: Vec<Connection>,
    pub(super) packets: Vec<Packet>,
    pub(super) events: Vec<Event>,
    pub(super) verdicts: Vec<Verdict>,
    pub(super) paths: Vec<String>,
    /// What [`Event::text`] stands for.
    pub(super) texts: Vec<String>,
    /// What was wrong with the file behind what was read.
    pub(super) fault: Option<String>,
}

/// What a file holds, added up.
#[derive(Debug, Default, Clone, Serialize)]
pub(super) struct FileSummary {
    pub(super) name: String,
    /// `capture` or `trace`.
    pub(super) kind: &'static str,
    /// Frames of a capture, events of a trace.
    pub(super) records: u64,
    pub(super) packets: u64,
    /// Bytes on the wire; of a trace, of payload.
    pub(super) bytes: u64,
    pub(super) connections: usize,
    /// Nanoseconds from the first packet to the last.
    pub(super) duration: i64,
    /// When the first packet was, in seconds since 1970, as an exact decimal.
    pub(super) start: String,
    pub(super) icrc_bad: u64,
    /// The file ends before its end, or is damaged.
    pub(super) fault: Option<String>,
    /// The file goes on behind the packets of the report.
    pub(super) cut: bool,
}

/// Two queue pairs, and what went between them.
#[derive(Debug, Default, Clone, Serialize)]
pub(super) struct Connection {
    /// Place of its file.
    pub(super) file: usize,
    pub(super) ends: [String; 2],
    pub(super) transport: String,
    /// Path MTU in bytes, where it is known.
    pub(super) mtu: Option<u32>,
    /// PSNs are the report's numbers plus these, for each numbering.
    pub(super) bases: [u32; 4],
    pub(super) counts: Counts,
}

/// Packets of a connection, by what became of them.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Counts {
    pub(super) packets: u64,
    /// Bytes of payload that were sent for the first time.
    pub(super) payload: u64,
    pub(super) again: u64,
    pub(super) lost: u64,
    pub(super) repaired: u64,
    pub(super) naks: u64,
    pub(super) not_ready: u64,
    pub(super) cnps: u64,
    pub(super) repairs: u64,
    pub(super) completions: u64,
    /// Nanoseconds.
    pub(super) duration: i64,
    pub(super) median_round_trip: Option<u32>,
    pub(super) p99_round_trip: Option<u32>,
}

/// Something that a trace says and no packet does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Event {
    /// Nanoseconds after the first packet of its file.
    pub(super) time: i64,
    pub(super) connection: u32,
    pub(super) end: u8,
    pub(super) kind: EventKind,
    pub(super) value: i64,
    /// Place in [`Source::texts`].
    pub(super) text: u32,
}

/// What an event is about; the numbers are the page's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventKind {
    /// Something in words, for the sequence diagram.
    Note = 0,
    /// Send work requests were posted: how many.
    Posted = 1,
    /// Send work requests are done: how many.
    Completed = 2,
    /// The congestion window in bytes.
    CongestionWindow = 3,
    /// The rate that congestion control allows, in bit/s.
    Rate = 4,
}

/// What is wrong, as `softnic inspect` says it.
#[derive(Debug, Default, Clone, Serialize)]
pub(super) struct Verdict {
    pub(super) file: usize,
    pub(super) name: &'static str,
    pub(super) found: String,
    pub(super) advice: &'static str,
    /// The numbers of the first packets that show it.
    pub(super) packets: Vec<u64>,
    /// How many packets show it.
    pub(super) count: u64,
    pub(super) connection: Option<usize>,
}
