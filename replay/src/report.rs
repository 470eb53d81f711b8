//! What a replay found.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use softnic_wire::Qpn;
use softnic_wire::opcode::Service;

use crate::capture::Skip;
use crate::peers::{PeerKind, Rule};
use crate::skew::Skew;

/// Which end of a connection our NIC stood for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The one that sent the requests.
    Requester,
    /// The one that answered them.
    Responder,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Requester => "requester",
            Role::Responder => "responder",
        })
    }
}

/// Something that our NIC would not have sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The packet, as `softnic inspect` and tshark count them.
    pub packet: u64,
    /// Index in [`Report::flows`].
    pub flow: usize,
    /// Whose place our NIC took.
    pub role: Role,
    /// What our NIC sends.
    pub ours: String,
    /// What was captured.
    pub captured: String,
    /// Why it matters.
    pub why: &'static str,
}

/// A difference that the table of allowed differences names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    /// The packet.
    pub packet: u64,
    /// Index in [`Report::flows`].
    pub flow: usize,
    /// The rule of the table.
    pub rule: Rule,
}

/// An answer that the packets do not determine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undetermined {
    /// The packet.
    pub packet: u64,
    /// Index in [`Report::flows`].
    pub flow: usize,
    /// What is not known.
    pub why: &'static str,
}

/// Requests of one queue pair to another, and the answers to them: what is replayed at a time.
#[derive(Debug, Clone)]
pub struct FlowReport {
    /// The service.
    pub service: Service,
    /// Who asks.
    pub requester: IpAddr,
    /// Its queue pair, where the packets tell.
    pub requester_qp: Option<Qpn>,
    /// Who answers.
    pub responder: IpAddr,
    /// Its queue pair.
    pub responder_qp: Qpn,
    /// What kind of NIC asks.
    pub requester_kind: PeerKind,
    /// What kind of NIC answers.
    pub responder_kind: PeerKind,
    /// Bytes of payload that a packet carries at most.
    pub mtu: u32,
    /// Requests in the capture.
    pub requests: u64,
    /// Answers in the capture.
    pub answers: u64,
    /// What was found out.
    pub counts: Counts,
}

/// Counts of a flow, or of all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that our NIC, as the requester, sent as they were captured.
    pub requests_equal: u64,
    /// Answers that our NIC, as the responder, gave as they were captured.
    pub answers_equal: u64,
    /// READ data and values of atomics that are known from nowhere else in the capture: taken from there, not checked.
    pub given: u64,
    /// READs and atomics that found memory changed by its owner since the capture last showed it.
    pub changed_by_owner: u64,
    /// Requests that were sent again because they never reached the responder.
    pub lost_requests: u64,
    /// Answers of ours that the capture does not have: coalesced into a later one, or lost before the capture.
    pub answers_not_captured: u64,
    /// Requests that must have been sent and that the capture does not have.
    pub requests_not_captured: u64,
    /// Requests sent again for no reason in the capture but time.
    pub timeouts: u64,
    /// Requests that arrived once more than they were captured, as an extra answer shows.
    pub duplicated: u64,
    /// Packets that others overtook before they were captured.
    pub reordered: u64,
    /// Repair packets of LoWAR that are the sums of the captured packets.
    pub repairs_equal: u64,
    /// Packets that were lost before the capture, and that a repair packet brought back.
    pub recovered: u64,
    /// Repair packets of which too many packets are missing in the capture.
    pub repairs_too_few: u64,
}

impl Counts {
    /// Adds another's counts.
    pub fn add(&mut self, o: &Counts) {
        self.requests_equal += o.requests_equal;
        self.answers_equal += o.answers_equal;
        self.given += o.given;
        self.changed_by_owner += o.changed_by_owner;
        self.lost_requests += o.lost_requests;
        self.answers_not_captured += o.answers_not_captured;
        self.requests_not_captured += o.requests_not_captured;
        self.timeouts += o.timeouts;
        self.duplicated += o.duplicated;
        self.reordered += o.reordered;
        self.repairs_equal += o.repairs_equal;
        self.recovered += o.recovered;
        self.repairs_too_few += o.repairs_too_few;
    }
}

/// How a replay ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayVerdict {
    /// No difference that is not explained.
    Same,
    /// Our NIC would have sent something else.
    Differs,
    /// There was nothing that could be replayed.
    CannotReplay,
}

/// What a replay found.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Frames in the capture.
    pub frames: u64,
    /// Packets that took part.
    pub packets: u64,
    /// Frames that did not, by reason.
    pub skipped: BTreeMap<Skip, u64>,
    /// Packets of SDR-RDMA among those that took part, as a negotiation in the capture tells. They are replayed as those of UC that they are;
    /// what the two ends make of them is not: bitmaps, late packets, control messages.
    pub sdr_packets: u64,
    /// Everything that was replayed.
    pub flows: Vec<FlowReport>,
    /// What our NIC would have done otherwise, in the order of the packets.
    pub differences: Vec<Difference>,
    /// What it would have done otherwise too, and that is right.
    pub allowed: Vec<Allowed>,
    /// What cannot be told without a side file.
    pub undetermined: Vec<Undetermined>,
    /// Directions that were recorded later than the others.
    pub skews: Vec<Skew>,
    /// Why the capture could not be read to its end.
    pub fault: Option<String>,
}

impl Report {
    /// The sum over all flows.
    pub fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        self.flows.iter().for_each(|f| sum.add(&f.counts));
        sum
    }

    /// How it ended.
    pub fn verdict(&self) -> ReplayVerdict {
        let sum = self.counts();
        if !self.differences.is_empty() {
            ReplayVerdict::Differs
        } else if sum.requests_equal + sum.answers_equal == 0 && self.undetermined.is_empty() || self.only_set_up() {
            ReplayVerdict::CannotReplay
        } else {
            ReplayVerdict::Same
        }
    }

    /// Whether all that was replayed is the messages of connection managers, about connections that cannot be.
    fn only_set_up(&self) -> bool {
        self.skipped.contains_key(&Skip::SelectiveRepeat) && self.flows.iter().all(|f| f.responder_qp == Qpn::GSI)
    }

    /// The exit code of `softnic replay`: 0, 1 or 2.
    pub fn exit_code(&self) -> u8 {
        match self.verdict() {
            ReplayVerdict::Same => 0,
            ReplayVerdict::Differs => 1,
            ReplayVerdict::CannotReplay => 2,
        }
    }
}
