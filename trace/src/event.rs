//! The events of a trace: their names, and what each of them says.

use serde::Serialize;

use crate::packet::Packet;

/// What happened. The names of variants and fields are in docs/trace.md, and a contract.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Event {
    /// A queue pair went to another state; a new one has no old state, one that is gone no new one.
    StateUpdated {
        #[serde(skip_serializing_if = "Option::is_none")]
        old: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        new: Option<String>,
    },
    /// A queue pair knows its peer.
    Connected {
        transport: String,
        peer_address: String,
        peer_qpn: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        path_mtu: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        first_psn: Option<u32>,
    },
    /// Where the negotiation of an extension stands.
    Negotiated { outcome: String },
    /// Send work requests were posted: how many, and the program's names of those that are still there.
    WorkPosted { count: u32, wr_ids: Vec<u64> },
    /// Send work requests are done.
    WorkCompleted { count: u32 },
    /// Receives were posted, to the queue pair itself.
    ReceivesPosted { count: u32 },
    /// Receives are done.
    ReceivesCompleted { count: u32 },
    /// A packet left.
    PacketSent(Packet),
    /// A packet came.
    PacketReceived(Packet),
    /// The NIC had no use for a packet, for a reason that its counter names.
    PacketDropped { reason: &'static str, count: u64 },
    /// The sender knows of a loss, by this.
    LossDetected { trigger: &'static str },
    /// The peer had no receive posted, and said so.
    ReceiverNotReady {},
    /// Retries have run out; by which of the two counts.
    RetriesExhausted { counter: &'static str },
    /// The receiver noticed something about the order of packets.
    OutOfOrder { kind: &'static str },
    /// Packets that were lost were recovered from repair packets.
    Recovered { packets: u64 },
    /// A block of packets could not be recovered.
    RecoveryFailed { blocks: u64 },
    /// A notification of congestion was heeded, or a packet came with the mark of congestion.
    Congestion { signal: &'static str },
    /// What limits the queue pair has changed.
    MetricsUpdated {
        in_flight: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        window: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        congestion_window: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        rate: Option<u64>,
        retries: u8,
        rnr_retries: u8,
    },
}

impl Event {
    /// The name under which qlog has it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Event::StateUpdated { .. } => "roce:state_updated",
            Event::Connected { .. } => "roce:connected",
            Event::Negotiated { .. } => "roce:negotiated",
            Event::WorkPosted { .. } => "roce:work_posted",
            Event::WorkCompleted { .. } => "roce:work_completed",
            Event::ReceivesPosted { .. } => "roce:receives_posted",
            Event::ReceivesCompleted { .. } => "roce:receives_completed",
            Event::PacketSent(_) => "roce:packet_sent",
            Event::PacketReceived(_) => "roce:packet_received",
            Event::PacketDropped { .. } => "roce:packet_dropped",
            Event::LossDetected { .. } => "roce:loss_detected",
            Event::ReceiverNotReady {} => "roce:receiver_not_ready",
            Event::RetriesExhausted { .. } => "roce:retries_exhausted",
            Event::OutOfOrder { .. } => "roce:out_of_order",
            Event::Recovered { .. } => "roce:recovered",
            Event::RecoveryFailed { .. } => "roce:recovery_failed",
            Event::Congestion { .. } => "roce:congestion",
            Event::MetricsUpdated { .. } => "roce:metrics_updated",
        }
    }

    /// Why packets are sent again after it.
    pub(crate) fn reason(&self) -> Option<&'static str> {
        match self {
            Event::LossDetected { trigger } => Some(trigger),
            Event::ReceiverNotReady {} => Some("receiver_not_ready"),
            _ => None,
        }
    }

    /// What a counter of the NIC says that rose by `added`; `None` for those that only add up what packets show anyway.
    pub(crate) fn of_counter(counter: &'static str, added: u64) -> Option<Event> {
        Some(match counter {
            "packet_seq_err" => Event::LossDetected { trigger: "sequence_nak" },
            "implied_nak_seq_err" => Event::LossDetected { trigger: "implied_nak" },
            "local_ack_timeout_err" => Event::LossDetected { trigger: "ack_timeout" },
            "rnr_naks_received" => Event::ReceiverNotReady {},
            "retry_exceeded_err" | "rnr_nak_retry_err" => Event::RetriesExhausted { counter },
            "out_of_sequence" => Event::OutOfOrder { kind: "early" },
            "duplicate_request" => Event::OutOfOrder { kind: "duplicate" },
            "lowar_recovered_packets" => Event::Recovered { packets: added },
            "lowar_failed_blocks" => Event::RecoveryFailed { blocks: added },
            "rp_cnp_handled" => Event::Congestion { signal: "cnp" },
            "np_ecn_marked_roce_packets" => Event::Congestion { signal: "ecn" },
            "out_of_buffer"
            | "stale_acks"
            | "lowar_rejected"
            | "lowar_ring_overruns"
            | "xp_late_packets"
            | "xp_rejected_packets"
            | "sdr_into_null"
            | "sdr_old_generation"
            | "sdr_duplicates"
            | "sdr_rejected" => Event::PacketDropped { reason: counter, count: added },
            // Requests are those that were carried out.
            rx if rx.starts_with("rx_") && !rx.ends_with("_requests") => {
                Event::PacketDropped { reason: counter, count: added }
            }
            _ => return None,
        })
    }
}
