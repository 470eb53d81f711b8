//! What a run came to.

use hdrhistogram::Histogram;
use softnic_sdr::reliable::Shortfall;
use softnic_shift::FailoverCounters;
use softnic_transports::Counters;

use crate::link::LinkStats;

/// Flow completion times: from posting a work request to its completion; for uc and ud, to its delivery.
#[derive(Debug, Clone)]
pub struct CompletionTimes {
    histogram: Histogram<u64>,
    sum: u128,
    max: u64,
}

impl Default for CompletionTimes {
    fn default() -> CompletionTimes {
        // Three digits from a nanosecond to a day, allocated once.
        let histogram = Histogram::new_with_bounds(1, 86_400_000_000_000, 3);
        CompletionTimes {
            histogram: histogram.unwrap_or_else(|_| unreachable!("the bounds are constants")),
            sum: 0,
            max: 0,
        }
    }
}

impl CompletionTimes {
    pub(crate) fn record(&mut self, ns: u64) {
        self.histogram.saturating_record(ns);
        self.sum += u128::from(ns);
        self.max = self.max.max(ns);
    }

    /// Mean in milliseconds.
    pub fn mean_ms(&self) -> f64 {
        if self.histogram.is_empty() { 0.0 } else { self.sum as f64 / self.histogram.len() as f64 / 1e6 }
    }

    /// Quantile in milliseconds, to three digits.
    pub fn quantile_ms(&self, q: f64) -> f64 {
        // The histogram answers with the upper edge of a bucket, which may lie beyond everything that was seen.
        self.histogram.value_at_quantile(q).min(self.max) as f64 / 1e6
    }

    /// Maximum in milliseconds.
    pub fn max_ms(&self) -> f64 {
        self.max as f64 / 1e6
    }
}

/// What a run delivered in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Delivered {
    /// Bytes that were placed.
    pub bytes: u64,
    /// Bytes of completed messages that were not.
    pub missing_bytes: u64,
    /// The ranges that those lie in, each as long as it can be within its message.
    pub missing_ranges: u64,
    /// Messages that completed without all of their bytes.
    pub partial: u64,
    /// Those that a later message ended.
    pub preempted: u64,
    /// Those that their deadline ended.
    pub expired: u64,
}

/// What came of the chunks of all messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Chunks {
    /// Chunks of the messages that were sent.
    pub chunks: u64,
    /// Those that did not come whole.
    pub missing: u64,
    /// Bytes of those that did.
    pub bytes: u64,
    /// Packets that came for messages that were over.
    pub late_packets: u64,
    /// Control messages that told the sender of receives.
    pub cts_sent: u64,
}

/// What it took to make messages over SDR reliable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reliability {
    /// Bytes of a chunk.
    pub chunk: u32,
    /// Chunks that were sent again.
    pub chunks_repeated: u64,
    /// Reports of what had come.
    pub acks_sent: u64,
    /// Reports of what was missing.
    pub nacks_sent: u64,
    /// Chunks that were sent again because nobody had said anything of them in time.
    pub timeouts: u64,
    /// Packets of parity.
    pub parity_packets: u64,
    /// Further rows of it that the receiver asked for.
    pub rows_asked_for: u64,
    /// Packets that did not come and were computed.
    pub recovered_packets: u64,
    /// Messages of which parity did not repair all.
    pub fallbacks: u64,
    /// The submessages of these that it did not.
    pub failed_submessages: u64,
    /// Submessages for whose parity there was no memory, at either end.
    pub unprotected: u64,
    /// Why the line could not be full, if that is so.
    pub shortfall: Option<Shortfall>,
}

/// The outcome of a simulated transfer.
#[derive(Debug, Clone)]
pub struct Report {
    /// Payload bits completed a second, in 10^9, from the first post to the last completion.
    pub goodput_gbps: f64,
    /// Part of the line rate of the host that sends the payload that was used in that time.
    pub link_utilization: f64,
    /// Post to completion.
    pub completion_times: CompletionTimes,
    /// Work requests completed well at the requester; for uc and ud, messages delivered at the receiver.
    pub completed: u64,
    /// What came of messages of best effort, where the transport is one.
    pub delivered: Option<Delivered>,
    /// What came of the chunks of messages, where they went by SDR.
    pub chunks: Option<Chunks>,
    /// What it took to make them reliable, where that is done on top of SDR.
    pub reliability: Option<Reliability>,
    /// Work requests that ended otherwise.
    pub failed: u64,
    /// Nothing more would ever have happened, though not all work was done: a lost packet and no timer, for example.
    pub stalled: bool,
    /// Somebody ended the run: not all work was done, and what arrived was not compared with what was sent.
    pub interrupted: bool,
    /// How the first that failed ended.
    pub first_failure: Option<softnic_transports::Status>,
    /// Request frames of the requester, those sent again and repair packets included.
    pub tx_packets: u64,
    /// Request frames sent again.
    pub retransmitted_packets: u64,
    /// Virtual time from the first post to the last completion, in milliseconds.
    pub virtual_ms: f64,
    /// Hash of the whole event trace.
    pub digest: u64,
    /// What the requester's NIC counted.
    pub requester: Counters,
    /// What the responder's NIC counted.
    pub responder: Counters,
    /// Of how many frames each event of the script decided the fate.
    pub applied_events: Vec<u64>,
    /// What the links carried, lost and marked: from the requester to the responder, and back.
    pub links: [LinkStats; 2],
    /// What failover did, where hosts have backups.
    pub failover: Option<Failover>,
}

/// What failover did in a run.
#[derive(Debug, Clone)]
pub struct Failover {
    /// As the requester counts.
    pub counters: FailoverCounters,
    /// What the links of the backups carried, lost and marked: from the requester to the responder, and back.
    pub links: [LinkStats; 2],
    /// Of how many frames each event of the backups' script decided the fate.
    pub applied_events: Vec<u64>,
}
