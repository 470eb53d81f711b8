//! The kinds of NICs that captures show, and the reviewed table of what each may do otherwise than ours.

use std::fmt;

use crate::capture::Packet;

/// What kind of NIC sent packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PeerKind {
    /// Linux Soft-RoCE.
    Rxe,
    /// This project.
    Softnic,
    /// Hardware: ConnectX and others.
    Hardware,
}

impl PeerKind {
    /// All of them.
    pub const ALL: [PeerKind; 3] = [PeerKind::Rxe, PeerKind::Softnic, PeerKind::Hardware];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            PeerKind::Rxe => "rxe",
            PeerKind::Softnic => "softnic",
            PeerKind::Hardware => "hardware",
        }
    }

    /// The kind with a name.
    pub fn from_name(name: &str) -> Option<PeerKind> {
        PeerKind::ALL.into_iter().find(|k| k.name() == name)
    }

    /// Told from its packets: rxe alone leaves MigReq 0; we send every IPv4 packet with identification 0.
    pub(crate) fn of<'a>(packets: impl Iterator<Item = &'a Packet>) -> PeerKind {
        let (mut migrated, mut numbered, mut any) = (0u32, 0u32, 0u32);
        for p in packets.take(64) {
            any += 1;
            migrated += u32::from(p.mig_req);
            numbered += u32::from(p.ip_id.is_some_and(|id| id != 0));
        }
        match any {
            0 => PeerKind::Hardware,
            _ if migrated * 2 < any => PeerKind::Rxe,
            _ if numbered == 0 => PeerKind::Softnic,
            _ => PeerKind::Hardware,
        }
    }
}

impl fmt::Display for PeerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An allowed difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// Other credits than ours.
    Credits,
    /// Fewer acknowledgements than ours.
    Coalescing,
    /// AckReq on other packets than ours.
    AckReq,
    /// An acknowledgement names a later packet than the one that asked for it.
    LateAck,
    /// A SEND that is too long is refused with NAK 3.
    ShortReceive,
    /// A sequence NAK for what follows an RNR NAK.
    NakAfterRnr,
    /// A sequence NAK for a packet that came too early.
    NakForDropped,
    /// A plain ACK names a READ or atomic.
    AckNamesData,
    /// A duplicate is acknowledged by its own PSN.
    DuplicateOwnPsn,
    /// A READ that is answered again goes on instead of beginning.
    ReadGoesOn,
    /// More retries than seven.
    RetriesForEver,
    /// Sent again from an earlier packet than the oldest without an answer.
    GoesBackFurther,
    /// Sent again before the RNR timer ran out.
    RnrTooSoon,
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct AllowedDifference {
    /// The rule.
    pub rule: Rule,
    /// Who may.
    pub peers: &'static [PeerKind],
    /// What is allowed.
    pub what: &'static str,
    /// Why.
    pub why: &'static str,
}

use PeerKind::{Hardware, Rxe, Softnic};

/// Every difference that is allowed. Whoever adds a row says why.
pub const TABLE: &[AllowedDifference] = &[
    AllowedDifference {
        rule: Rule::Credits,
        peers: &[Rxe, Softnic, Hardware],
        what: "credits in an AETH",
        why: "they say how many receives are posted, which packets do not tell; 31 means not counted",
    },
    AllowedDifference {
        rule: Rule::Coalescing,
        peers: &[Rxe, Softnic, Hardware],
        what: "one ACK for several requests that asked",
        why: "an ACK acknowledges all before it (IBA 9.7.5.1.2)",
    },
    AllowedDifference {
        rule: Rule::AckReq,
        peers: &[Rxe, Softnic, Hardware],
        what: "AckReq on other packets of a message",
        why: "the requester may ask when it likes; hardware also asks on a FIRST",
    },
    AllowedDifference {
        rule: Rule::LateAck,
        peers: &[Softnic],
        what: "an ACK whose PSN is behind that of the request that asked for it",
        why: "our ACK is written when there is room on the wire, and then names the newest packet",
    },
    AllowedDifference {
        rule: Rule::ShortReceive,
        peers: &[Rxe],
        what: "NAK 3 (remote operational error) for a SEND longer than its receive",
        why: "rxe's departure: the text asks for NAK 1 (docs/interop.md)",
    },
    AllowedDifference {
        rule: Rule::NakAfterRnr,
        peers: &[Rxe],
        what: "a sequence NAK for packets behind one that got an RNR NAK",
        why: "rxe's departure: they are to be dropped silently (docs/interop.md)",
    },
    AllowedDifference {
        rule: Rule::NakForDropped,
        peers: &[Softnic],
        what: "a sequence NAK for the newest packet that was sent",
        why: "it came before the one in front of it and was dropped; when that had come, ours asked for it",
    },
    AllowedDifference {
        rule: Rule::AckNamesData,
        peers: &[Rxe, Hardware],
        what: "a plain ACK with the PSN of a READ's last response or of an atomic",
        why: "a repeated ACK may name the newest PSN; ours does not, because of what rxe makes of it (docs/interop.md)",
    },
    AllowedDifference {
        rule: Rule::DuplicateOwnPsn,
        peers: &[Hardware],
        what: "the ACK of a duplicate names the duplicate",
        why: "it acknowledges less than it could, which is harmless",
    },
    AllowedDifference {
        rule: Rule::ReadGoesOn,
        peers: &[Rxe],
        what: "MIDDLE or LAST, not FIRST or ONLY, where a READ that came again is answered",
        why: "rxe goes on with the answer that it had begun, also where the new READ asks for its tail alone",
    },
    AllowedDifference {
        rule: Rule::RetriesForEver,
        peers: &[Rxe],
        what: "more than seven retries",
        why: "rxe's departure: with retry_cnt 7 it never gives up (docs/interop.md)",
    },
    AllowedDifference {
        rule: Rule::GoesBackFurther,
        peers: &[Hardware],
        what: "what is sent again begins at a packet that was acknowledged",
        why: "the ACK may have come after it left; a responder takes duplicates",
    },
    AllowedDifference {
        rule: Rule::RnrTooSoon,
        peers: &[Rxe],
        what: "a request sent again before the time of its RNR NAK has passed",
        why: "rxe's departure: it goes on when duplicates are acknowledged (docs/interop.md)",
    },
];

impl Rule {
    /// Its row of the table.
    pub fn row(self) -> &'static AllowedDifference {
        TABLE.iter().find(|row| row.rule == self).unwrap_or(&TABLE[0])
    }

    /// Whether a kind of NIC may do this.
    pub fn allows(self, kind: PeerKind) -> bool {
        self.row().peers.contains(&kind)
    }
}
