//! What the flows of a topology came to.

use softnic_transports::Status;

use crate::report::CompletionTimes;
use crate::switch::PortStats;

/// The outcome of one flow.
#[derive(Debug, Clone)]
pub struct FlowReport {
    /// Payload bits completed a second, in 10^9, from the flow's start to its last completion.
    pub goodput_gbps: f64,
    /// Post to completion of each work request.
    pub completion_times: CompletionTimes,
    /// Work requests completed well.
    pub completed: u64,
    /// Work requests that ended otherwise.
    pub failed: u64,
    /// How the first of them ended.
    pub first_failure: Option<Status>,
    /// From the start to the last completion, in milliseconds.
    pub duration_ms: f64,
}

/// What a port of a switch did.
#[derive(Debug, Clone)]
pub struct PortReport {
    /// The switch.
    pub switch: String,
    /// Its port.
    pub port: usize,
    /// Who is at the other end.
    pub to: String,
    /// Counters.
    pub stats: PortStats,
    /// Part of the link's rate that was used, from the first post to the last completion.
    pub utilization: f64,
    /// Frames that the link behind it lost.
    pub lost: u64,
}

/// The outcome of a topology's flows.
#[derive(Debug, Clone)]
pub struct TopologyReport {
    /// One for each flow, in the order given.
    pub flows: Vec<FlowReport>,
    /// The ports of all switches.
    pub ports: Vec<PortReport>,
    /// Payload bits of all flows a second, in 10^9, from the first post to the last completion.
    pub goodput_gbps: f64,
    /// Of all flows.
    pub completion_times: CompletionTimes,
    /// Request frames of all hosts, those sent again included.
    pub tx_packets: u64,
    /// Those sent again.
    pub retransmitted_packets: u64,
    /// Frames that came marked.
    pub marks_received: u64,
    /// Congestion notifications that hosts sent, and that a congestion control heard.
    pub cnps_sent: u64,
    /// See above.
    pub cnps_handled: u64,
    /// Frames that the links of the hosts lost, on their way to a switch.
    pub lost_before_switches: u64,
    /// Frames that a switch dropped for other reasons than a full queue.
    pub discarded: u64,
    /// Nothing more would ever have happened, though not all work was done.
    pub stalled: bool,
    /// Virtual time from the first post to the last completion, in milliseconds.
    pub virtual_ms: f64,
    /// Hash of the whole event trace.
    pub digest: u64,
}
