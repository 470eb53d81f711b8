//! What is wrong in a capture, in words: what was found, and what to do about it.

use std::fmt;
use std::net::IpAddr;

use softnic_wire::aeth::NakCode;
use softnic_wire::{Opcode, Psn};

use super::{ConnectionId, EndPoint, Packets};
use crate::PacketNumber;

/// Something in a capture that is wrong, with the packets that show it.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// What is wrong.
    pub finding: Finding,
    /// The packets that show it.
    pub packets: Packets,
    /// The connection that it is about; `None` where it is about the capture.
    pub connection: Option<(ConnectionId, [EndPoint; 2])>,
}

/// What can be wrong.
#[derive(Debug, Clone, PartialEq)]
pub enum Finding {
    /// Not one ICRC matches, of the capture or of one sender.
    IcrcAllBad {
        /// The sender, where others' ICRCs match.
        sender: Option<IpAddr>,
    },
    /// Requests were sent again although nothing asked for it.
    Timeout,
    /// Receives were missing again and again.
    NotReadyStorm {
        /// How often one and the same request found no receive, at most.
        in_a_row: u32,
    },
    /// The responder refused a request, which ends the connection.
    Refused {
        /// The code of the NAK.
        code: NakCode,
        /// What was asked for; `None` where the capture has no request with an address.
        request: Option<RefusedRequest>,
    },
    /// A request was sent several times, and nothing came of it.
    RetriesExhausted {
        /// Its PSN.
        psn: Psn,
        /// How often it was sent.
        tries: u32,
        /// Each time there was no receive for it.
        not_ready: bool,
    },
    /// Many requests came more than once without need.
    DuplicateStorm {
        /// How many of them had been acknowledged before.
        acknowledged: u64,
        /// Requests in all.
        requests: u64,
    },
    /// The two ends do not agree on the path MTU, or the path does not carry it.
    MtuMismatch(MtuMismatch),
    /// A message of the connection manager got no answer.
    CmUnanswered {
        /// Its name, as in `REQ`.
        message: &'static str,
    },
    /// The packets of one direction are not in the capture.
    OneSided {
        /// Whose packets are there.
        seen: IpAddr,
        /// Whose packets are missing.
        missing: IpAddr,
        /// Connections that this is so for.
        connections: u64,
    },
    /// Switches marked packets, and the receiver never told the sender.
    EcnWithoutCnp,
    /// The receiver told the sender of congestion, and the sender went on as before.
    CnpWithoutReaction {
        /// Bits a second before the first notification.
        before: f64,
        /// Bits a second from then on.
        after: f64,
    },
    /// Requests were sent on a connection that had ended.
    AfterEnd {
        /// What ended it.
        by: EndedBy,
    },
}

/// What a refused request asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefusedRequest {
    /// Its number in the capture.
    pub number: u64,
    /// The operation.
    pub opcode: Opcode,
    /// The address in the responder's memory.
    pub va: u64,
    /// The key.
    pub rkey: u32,
    /// How many bytes from there.
    pub len: u32,
}

/// In what path MTUs do not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MtuMismatch {
    /// The ends cut messages into packets of different lengths.
    Ends([u32; 2]),
    /// One end cuts messages into packets of different lengths.
    Uneven([u32; 2]),
    /// Packets are longer than the path MTU in the REQ: the longest, and the path MTU.
    Agreed([u32; 2]),
    /// Full packets never got through, shorter ones did: the length of each.
    Blocked([u32; 2]),
}

/// What ends a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndedBy {
    /// DREQ and DREP.
    Disconnect,
    /// A NAK that is no NAK of the sequence.
    Nak,
}

impl Finding {
    /// A word for programs.
    pub const fn name(&self) -> &'static str {
        match self {
            Finding::IcrcAllBad { .. } => "icrc-all-bad",
            Finding::Timeout => "timeout",
            Finding::NotReadyStorm { .. } => "rnr-storm",
            Finding::Refused { code: NakCode::REMOTE_ACCESS_ERROR, .. } => "access-error",
            Finding::Refused { .. } => "request-refused",
            Finding::RetriesExhausted { .. } => "retries-exhausted",
            Finding::DuplicateStorm { .. } => "duplicate-storm",
            Finding::MtuMismatch(_) => "mtu-mismatch",
            Finding::CmUnanswered { .. } => "cm-unanswered",
            Finding::OneSided { .. } => "one-sided",
            Finding::EcnWithoutCnp => "ecn-without-cnp",
            Finding::CnpWithoutReaction { .. } => "cnp-without-reaction",
            Finding::AfterEnd { .. } => "after-end",
        }
    }

    /// What to do about it.
    pub const fn advice(&self) -> &'static str {
        match self {
            Finding::IcrcAllBad { sender: None } => {
                "A mirror port or tunnel rewrote headers that the ICRC covers, or the NIC computes the ICRC behind the \
                 capture point: capture on the link itself. If the NICs drop these packets too, look for what rewrites \
                 addresses or ports."
            }
            Finding::IcrcAllBad { sender: Some(_) } => {
                "If the capture was taken on this sender, its NIC computes the ICRC behind the capture point. If not, \
                 something on its path rewrites headers that the ICRC covers."
            }
            Finding::Timeout => {
                "Requests or their acknowledgements were lost, the last ones of a burst most likely: look for drops on \
                 the path (rx_discards, switch counters, PFC). If nothing was lost, the ACK timeout is shorter than the \
                 round trip: raise it."
            }
            Finding::NotReadyStorm { .. } => {
                "The receiver posts receives too late: post more of them, and before the peer sends; a longer \
                 min_rnr_timer saves retries."
            }
            Finding::Refused { code: NakCode::REMOTE_ACCESS_ERROR, .. } => {
                "Compare rkey, address and length with what the responder registered, and its access flags \
                 (IBV_ACCESS_REMOTE_WRITE, _READ, _ATOMIC) of the region and of the queue pair; a region that was \
                 deregistered or invalidated has no key any more."
            }
            Finding::Refused { code: NakCode::INVALID_REQUEST, .. } => {
                "The responder's queue pair does not allow the operation, the message is longer than its receive, or \
                 more READs are outstanding than max_dest_rd_atomic."
            }
            Finding::Refused { .. } => "Look at the responder's completions and log: the fault is on its side.",
            Finding::RetriesExhausted { not_ready: true, .. } => {
                "The receiver never posted a receive: the program there waits for something else, or ended."
            }
            Finding::RetriesExhausted { not_ready: false, .. } => {
                "The peer's queue pair is gone, not ready to receive, or not reachable: look at its state and number, \
                 and at the path (GID, VLAN, firewall, path MTU)."
            }
            Finding::DuplicateStorm { acknowledged: 0, .. } => {
                "If the capture has two interfaces of one path (as with -i any), every packet is in it twice: capture \
                 on one. Else something on the path duplicates packets."
            }
            Finding::DuplicateStorm { .. } => {
                "The requester did not get the acknowledgements in time: they are lost behind the capture point, or \
                 its ACK timeout is shorter than the round trip."
            }
            Finding::MtuMismatch(MtuMismatch::Blocked(_)) => {
                "A link on the path has a smaller MTU: full packets need the path MTU and up to 112 bytes of headers. \
                 Raise the links' MTU, or lower the path MTU."
            }
            Finding::MtuMismatch(_) => "Set the same path MTU at both ends (attr.path_mtu of ibv_modify_qp).",
            Finding::CmUnanswered { .. } => {
                "Nobody answers at the other side: does a program listen, does UDP port 4791 pass firewalls, does the \
                 address belong to an RDMA device?"
            }
            Finding::OneSided { .. } => {
                "Capture both directions: mirror both of a port, and both links of a bond. What acknowledgements \
                 would show (timeouts, refusals, round trips) is not judged here."
            }
            Finding::EcnWithoutCnp => {
                "The receiver sends no congestion notifications: switch its notification point on (roce_np), and let \
                 the DSCP of CNPs pass."
            }
            Finding::CnpWithoutReaction { .. } => {
                "The sender ignores congestion notifications: switch its reaction point on (roce_rp, DCQCN), and see \
                 whether rp_cnp_handled or rp_cnp_ignored counts."
            }
            Finding::AfterEnd { by: EndedBy::Disconnect } => {
                "The program posts to a connection that it or its peer has ended: wait for completions before the \
                 disconnect."
            }
            Finding::AfterEnd { by: EndedBy::Nak } => {
                "The requester did not see the NAK, or its queue pair did not go to the error state: look for the loss \
                 of packets towards it."
            }
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::IcrcAllBad { sender: None } => f.write_str("not one ICRC of the capture matches"),
            Finding::IcrcAllBad { sender: Some(sender) } => {
                write!(f, "not one ICRC of the packets from {sender} matches; those of others do")
            }
            Finding::Timeout => f.write_str("requests were sent again without a NAK: the requester timed out"),
            Finding::NotReadyStorm { in_a_row } => {
                write!(f, "the receiver was not ready again and again, up to {in_a_row} times for one request")
            }
            Finding::Refused { code, request } => {
                write!(f, "the responder refused a request: {code}")?;
                match request {
                    Some(r) => write!(
                        f,
                        "; packet {} is the {} of {} bytes at address {:#x} with rkey {:#010x}",
                        PacketNumber(r.number),
                        r.opcode,
                        r.len,
                        r.va,
                        r.rkey
                    ),
                    None => Ok(()),
                }
            }
            Finding::RetriesExhausted { psn, tries, not_ready } => {
                let why = if *not_ready { "found no receive each time" } else { "got no answer" };
                write!(f, "the request with psn {psn} was sent {tries} times and {why}; nothing came after it")
            }
            Finding::DuplicateStorm { acknowledged: 0, requests } => {
                write!(f, "many of {requests} requests were seen more than once, at the same time")
            }
            Finding::DuplicateStorm { requests, .. } => {
                write!(f, "many of {requests} requests came again after they had been acknowledged")
            }
            Finding::MtuMismatch(MtuMismatch::Ends([there, back])) => {
                write!(f, "the ends have different path MTUs: {there} and {back}")
            }
            Finding::MtuMismatch(MtuMismatch::Uneven([one, other])) => {
                write!(f, "packets within messages of one sender have different lengths: {one} and {other}")
            }
            Finding::MtuMismatch(MtuMismatch::Agreed([seen, agreed])) => {
                write!(f, "packets of {seen} bytes, where the connection manager agreed on a path MTU of {agreed}")
            }
            Finding::MtuMismatch(MtuMismatch::Blocked([full, shorter])) => {
                write!(f, "packets of {full} bytes never get through, those of {shorter} do")
            }
            Finding::CmUnanswered { message } => write!(f, "a {message} of the connection manager got no answer"),
            Finding::OneSided { seen, missing, connections } => {
                let n =
                    if *connections == 1 { "a connection".to_owned() } else { format!("{connections} connections") };
                write!(f, "of {n} the capture has what {seen} sends, and nothing that {missing} sends back")
            }
            Finding::EcnWithoutCnp => {
                f.write_str("packets are marked as having met congestion, and no congestion notification follows")
            }
            Finding::CnpWithoutReaction { before, after } => write!(
                f,
                "the sender does not slow down on congestion notifications: {:.3} Gbit/s before, {:.3} Gbit/s after",
                before / 1e9,
                after / 1e9
            ),
            Finding::AfterEnd { by: EndedBy::Disconnect } => f.write_str("requests were sent after DREQ and DREP"),
            Finding::AfterEnd { by: EndedBy::Nak } => {
                f.write_str("new requests were sent after a NAK that ended the connection")
            }
        }
    }
}
