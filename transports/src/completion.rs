//! Completions: the outcome of a work request (IBA 11.4.2.1).

use std::fmt;

use softnic_wire::{MacAddr, Qpn};

/// The name of a completion queue at its NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CqId(pub u32);

/// The outcome of a work request. The names are those of verbs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// The work request succeeded.
    Success,
    /// A message was longer than its receive, or a local length was wrong.
    LocLenErr,
    /// The queue pair was used incorrectly.
    LocQpOpErr,
    /// A local key, range or right did not permit the access.
    LocProtErr,
    /// The queue pair entered the error state before the work request completed.
    WrFlushErr,
    /// The peer's answer was not possible.
    BadRespErr,
    /// The peer's WRITE with immediate data, which takes this receive, accessed memory that it may not write.
    LocAccessErr,
    /// The peer rejected the request as invalid.
    RemInvReqErr,
    /// The peer's key, range or right did not permit the access.
    RemAccessErr,
    /// The peer failed.
    RemOpErr,
    /// No answer after all retries.
    RetryExcErr,
    /// The peer had no receive posted after all retries.
    RnrRetryExcErr,
    /// A memory window could not be bound.
    MwBindErr,
}

/// Short texts for error messages, similar to those of `ibv_wc_status_str`.
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
    /// A local SEND.
    Send,
    /// A local WRITE.
    Write,
    /// A local READ.
    Read,
    /// A local compare and swap.
    CompareSwap,
    /// A local fetch and add.
    FetchAdd,
    /// A local key was invalidated.
    LocalInv,
    /// A memory window was bound.
    BindWindow,
    /// A message was received.
    Recv,
    /// A receive was used by the peer's WRITE with immediate.
    RecvWriteImm,
}

/// Why a message completed although a part of it is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PartialReason {
    /// Its deadline passed.
    Expired,
    /// Packets of a later message took its slot.
    Preempted,
    /// Its last fragment arrived, or the grace time for late fragments after that was over.
    Last,
}

/// The completion of one work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The program's identifier for the work request.
    pub wr_id: u64,
    /// The outcome.
    pub status: Status,
    /// The operation; only meaningful after success.
    pub opcode: WcOpcode,
    /// Number of bytes received; for a partial message, the bytes that were placed.
    pub byte_len: u32,
    /// Immediate data of the message.
    pub imm: Option<u32>,
    /// The local key that the peer's SEND invalidated.
    pub invalidated: Option<u32>,
    /// The sender of a datagram. Then the first 40 bytes of the receive are its network header (IBA 11.4.2.1).
    pub src_qp: Option<Qpn>,
    /// The source MAC address of the datagram's frame: that of its sender, or of the last router.
    pub src_mac: MacAddr,
    /// The datagram arrived over IPv6 rather than IPv4.
    pub over_ipv6: bool,
    /// The queue pair.
    pub qpn: Qpn,
    /// The peer requested an event.
    pub solicited: bool,
    /// Length of the whole message, for transports of best effort, if a packet contained it; else 0.
    pub message_len: u32,
    /// Why the message is incomplete, for transports that complete it anyway.
    pub partial: Option<PartialReason>,
}

impl Completion {
    /// A completion without any special attributes.
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

/// The completion queue had no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the completion queue is full")]
pub struct CqOverflow;

/// The destination of completions.
pub trait CompletionSink {
    /// Adds a completion. An overflow loses the completion, from which no program recovers: the queue pair enters the error state.
    fn complete(&mut self, cq: CqId, completion: Completion) -> Result<(), CqOverflow>;

    /// Whether a message of one packet that will complete here, in a sink, may be placed. If not, the packet is dropped, as if it had been
    /// lost.
    fn admits(&mut self, cq: CqId, arrival: &Arrival) -> bool;

    /// The message was placed, and is complete.
    fn arrived(&mut self, cq: CqId, arrival: &Arrival);
}

/// A WRITE of one packet with immediate data on an unreliable connection that completes in a sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// The queue pair that received it.
    pub qpn: Qpn,
    /// Its immediate data.
    pub imm: u32,
    /// The destination address.
    pub remote_addr: u64,
    /// The remote key.
    pub rkey: u32,
    /// Number of bytes.
    pub byte_len: u32,
    /// The sender requested an event.
    pub solicited: bool,
}

impl Arrival {
    /// The completion of this WRITE.
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
