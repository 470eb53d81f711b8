//! Completions: how a work request ended (IBA 11.4.2.1).

use std::fmt;

use softnic_wire::{MacAddr, Qpn};

/// Names a completion queue to the NIC that owns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CqId(pub u32);

/// How a work request ended. The names are those of verbs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Done.
    Success,
    /// A message was longer than its receive, or a local length was wrong.
    LocLenErr,
    /// The queue pair was misused.
    LocQpOpErr,
    /// A local key, range or right did not allow the access.
    LocProtErr,
    /// The queue pair went to the error state before this one was done.
    WrFlushErr,
    /// The peer answered with something that cannot be right.
    BadRespErr,
    /// The peer wrote, with immediate data that takes this receive, where it may not.
    LocAccessErr,
    /// The peer found the request invalid.
    RemInvReqErr,
    /// The peer's key, range or right did not allow the access.
    RemAccessErr,
    /// The peer failed by itself.
    RemOpErr,
    /// No answer after all retries.
    RetryExcErr,
    /// The peer had no receive posted after all retries.
    RnrRetryExcErr,
    /// A memory window could not be bound.
    MwBindErr,
}

/// Wording as `ibv_wc_status_str` has it in spirit: short, for error lines.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Status::Success => "success",
            Status::LocLenErr => "local length error",
            Status::LocQpOpErr => "local QP operation error",
            Status::LocProtErr => "local protection error",
            Status::WrFlushErr => "work request flushed",
            Status::BadRespErr => "bad response",
            Status::LocAccessErr => "local access error",
            Status::RemInvReqErr => "remote invalid request",
            Status::RemAccessErr => "remote access error",
            Status::RemOpErr => "remote operation error",
            Status::RetryExcErr => "transport retry counter exceeded",
            Status::RnrRetryExcErr => "RNR retry counter exceeded",
            Status::MwBindErr => "memory window bind error",
        })
    }
}

/// The operation that completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WcOpcode {
    /// A SEND of ours.
    Send,
    /// A WRITE of ours.
    Write,
    /// A READ of ours.
    Read,
    /// A compare and swap of ours.
    CompareSwap,
    /// A fetch and add of ours.
    FetchAdd,
    /// A key of ours was invalidated.
    LocalInv,
    /// A memory window was bound.
    BindWindow,
    /// A message received.
    Recv,
    /// A receive used up by the peer's WRITE with immediate.
    RecvWriteImm,
}

/// Why a message was completed although a part of it is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PartialReason {
    /// Its deadline passed.
    Expired,
    /// Packets of a later message took its place.
    Preempted,
    /// Its last fragment came, or the time after that which stragglers are given was over.
    Last,
}

/// How one work request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The program's own name for the work request.
    pub wr_id: u64,
    /// How it ended.
    pub status: Status,
    /// The operation; only meaningful on success.
    pub opcode: WcOpcode,
    /// Bytes received; of a partial message, those that were placed.
    pub byte_len: u32,
    /// Immediate data that came with it.
    pub imm: Option<u32>,
    /// The key that the peer's SEND invalidated here.
    pub invalidated: Option<u32>,
    /// The sender of a datagram; then the first 40 bytes of the receive are its network header (IBA 11.4.2.1).
    pub src_qp: Option<Qpn>,
    /// The MAC address that the datagram's frame came from: of its sender, or of the last router.
    pub src_mac: MacAddr,
    /// That datagram came over IPv6, not over IPv4.
    pub over_ipv6: bool,
    /// The queue pair.
    pub qpn: Qpn,
    /// The peer asked for an event.
    pub solicited: bool,
    /// Bytes of the whole message, from transports of best effort and where a packet told it; else 0.
    pub message_len: u32,
    /// Why not all of the message is there, from transports that complete it all the same.
    pub partial: Option<PartialReason>,
}

impl Completion {
    /// The end of a work request with nothing special about it.
    pub fn new(wr_id: u64, status: Status, opcode: WcOpcode, qpn: Qpn) -> Completion {
        Completion {
            wr_id,
            status,
            opcode,
            byte_len: 0,
            imm: None,
            invalidated: None,
            src_qp: None,
            src_mac: MacAddr::default(),
            over_ipv6: false,
            qpn,
            solicited: false,
            message_len: 0,
            partial: None,
        }
    }
}

/// A completion queue had no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the completion queue is full")]
pub struct CqOverflow;

/// Where completions go.
pub trait CompletionSink {
    /// Takes a completion. An overflow loses it, which no program survives: the queue pair goes to the error state.
    fn complete(&mut self, cq: CqId, completion: Completion) -> Result<(), CqOverflow>;

    /// Whether a message of one packet that will complete here, in a sink, may be placed; else it is dropped, as if it had been lost.
    fn admits(&mut self, cq: CqId, arrival: &Arrival) -> bool;

    /// That message was placed, and is complete.
    fn arrived(&mut self, cq: CqId, arrival: &Arrival);
}

/// A WRITE of one packet with immediate data on an unreliable connection that completes in a sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// The queue pair that it came to.
    pub qpn: Qpn,
    /// Its immediate data.
    pub imm: u32,
    /// Where it is to be placed.
    pub remote_addr: u64,
    /// By which key.
    pub rkey: u32,
    /// Bytes.
    pub byte_len: u32,
    /// Its sender asked for an event.
    pub solicited: bool,
}

impl Arrival {
    /// How it completes.
    pub fn completion(&self) -> Completion {
        let (byte_len, imm, solicited) = (self.byte_len, Some(self.imm), self.solicited);
        let none = Completion::new(0, Status::Success, WcOpcode::RecvWriteImm, self.qpn);
        Completion { byte_len, imm, solicited, ..none }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_stays_small() {
        assert!(size_of::<Completion>() <= 56, "{}", size_of::<Completion>());
    }

    #[test]
    fn a_completion_is_of_a_whole_message_unless_a_reason_says_otherwise() {
        let whole = Completion::new(1, Status::Success, WcOpcode::Recv, Qpn::new(17));
        let partial = Completion { byte_len: 24, partial: Some(PartialReason::Expired), ..whole };
        assert_eq!((whole.partial, partial.status), (None, Status::Success));
    }
}
