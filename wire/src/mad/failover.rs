//! MADs of failover: what two ends of a protected connection tell each other about their backups (SHIFT, section 4.2).
//!
//! They are built like the [negotiation](super::vendor): Get asks, GetResp answers, and whoever does not know the
//! attribute answers with an error status at once. The QPNs are those of the default queue pairs, whichever path the
//! MAD goes by. Up to byte 52 the layout is the negotiation's. Bytes 88 to 103, its MAC, are left free in both. What two
//! ends that found each other in a store say is a [`Proof`].
//!
//! [`Hello`], attribute [`FAILOVER_HELLO`]:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 52 | 1 | mode: 1 SHIFT |
//! | 53 | 1 | readiness: 0 none, 1 not yet, 2 ready |
//! | 54 | 1 | flags: bit 0, the backup queue pair is told |
//! | 55 | 1 | reserved |
//! | 56 | 16 | nonce: what the sender has drawn for this connection |
//! | 72 | 32 | reserved |
//! | 104 | 40 | a [`BackupQp`]; zeros where none is told |
//! | 144 | 112 | reserved |
//!
//! [`RegionQuery`], attribute [`FAILOVER_REGION`]:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 52 | 1 | flags of an answer: bit 0, the region is told; bit 1, not yet |
//! | 53 | 3 | reserved |
//! | 56 | 4 | rkey at the default NIC of the asked end |
//! | 60 | 44 | reserved |
//! | 104 | 20 | a [`RegionAnswer`]; zeros where none is told |
//! | 124 | 132 | reserved |

use core::fmt;

use super::vendor::{Head, Kind};
use super::{Attribute, MAD_LEN};
use crate::bytes::{array, be32, put32};
pub use crate::failover::{BackupQp, RegionAnswer};
use crate::{Error, Qpn};

mod proof;
#[cfg(test)]
mod tests;

pub use proof::{FAILOVER_PROOF, Proof};

/// The attribute of [`Hello`].
pub const FAILOVER_HELLO: Attribute = Attribute(0x0011);
/// The attribute of [`RegionQuery`].
pub const FAILOVER_REGION: Attribute = Attribute(0x0012);
/// The version of the format that this code writes, of all of them.
pub const VERSION: u8 = 1;

/// Inside the vendor's data, which begins at byte 40 of the MAD.
mod field {
    pub(super) const MODE: usize = 12;
    pub(super) const READINESS: usize = 13;
    pub(super) const HELLO_FLAGS: usize = 14;
    pub(super) const NONCE: usize = 16;
    pub(super) const REGION_FLAGS: usize = 12;
    pub(super) const RKEY: usize = 16;
    pub(super) const TOLD: usize = 64;
}

/// In the flags of both: what is asked for is told.
const TOLD: u8 = 1 << 0;
const PENDING: u8 = 1 << 1;

/// How a connection is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// As SHIFT does: work that the peer has not received is sent again by the backup.
    Shift,
    /// One that this code does not know.
    Other(u8),
}

impl Mode {
    const fn code(self) -> u8 {
        match self {
            Mode::Shift => 1,
            Mode::Other(code) => code,
        }
    }

    const fn from_code(code: u8) -> Mode {
        match code {
            1 => Mode::Shift,
            _ => Mode::Other(code),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mode::Shift => f.write_str("shift"),
            Mode::Other(code) => write!(f, "{code}"),
        }
    }
}

/// Whether an end has a backup for the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Readiness {
    /// It has: the hello tells it, or the store does.
    Ready,
    /// It will have: the backup queue pair is not made yet.
    NotYet,
    /// It has none.
    None,
}

impl Readiness {
    /// By their codes.
    const ALL: [Readiness; 3] = [Readiness::None, Readiness::NotYet, Readiness::Ready];

    const fn code(self) -> u8 {
        match self {
            Readiness::None => 0,
            Readiness::NotYet => 1,
            Readiness::Ready => 2,
        }
    }
}

impl fmt::Display for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Readiness::Ready => "ready",
            Readiness::NotYet => "not-yet",
            Readiness::None => "none",
        })
    }
}

/// One end of a connection introduces its backup queue pair to the other.
///
/// As with a negotiation, look for an error status with [`mad::Repr`](super::Repr) before parsing an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hello {
    /// What ties an answer to its offer.
    pub transaction_id: u64,
    /// Offer or answer.
    pub kind: Kind,
    /// Format version of the sender, [`VERSION`] from this code.
    pub version: u8,
    /// QPN of the default queue pair at the sender.
    pub sender_qpn: Qpn,
    /// QPN of the default queue pair at the receiver.
    pub receiver_qpn: Qpn,
    /// How the sender protects the connection.
    pub mode: Mode,
    /// Whether the sender has a backup for it.
    pub readiness: Readiness,
    /// What the sender has drawn for this connection.
    pub nonce: [u8; 16],
    /// The sender's backup queue pair; only one that is [`Readiness::Ready`] is told.
    pub backup: Option<BackupQp>,
}

impl Hello {
    /// Reads a whole MAD.
    pub fn parse(mad: &[u8]) -> Result<Hello, Error> {
        const WHAT: &str = "softnic failover MAD";
        let refuse = |why| Error::Malformed { what: WHAT, why };
        let (head, data) = Head::parse(mad, FAILOVER_HELLO, WHAT)?;
        let readiness = Readiness::ALL.get(usize::from(data[field::READINESS]));
        let readiness = *readiness.ok_or(refuse("impossible readiness"))?;
        let is_told = data[field::HELLO_FLAGS] & TOLD != 0;
        if is_told && readiness != Readiness::Ready {
            return Err(refuse("a backup is told that is not ready"));
        }
        let backup = is_told.then(|| BackupQp::parse(&array(data, field::TOLD))).transpose().map_err(refuse)?;
        Ok(Hello {
            transaction_id: head.transaction_id,
            kind: head.kind,
            version: head.version,
            sender_qpn: head.sender_qpn,
            receiver_qpn: head.receiver_qpn,
            mode: Mode::from_code(data[field::MODE]),
            readiness,
            nonce: array(data, field::NONCE),
            backup,
        })
    }

    /// Bytes that [`Hello::emit`] writes.
    pub const fn buffer_len(&self) -> usize {
        MAD_LEN
    }

    /// Writes a whole MAD.
    ///
    /// # Panics
    /// When `mad` is shorter than [`MAD_LEN`].
    pub fn emit(&self, mad: &mut [u8]) {
        let data = self.head().emit(FAILOVER_HELLO, mad);
        data[field::MODE] = self.mode.code();
        data[field::READINESS] = self.readiness.code();
        data[field::NONCE..][..self.nonce.len()].copy_from_slice(&self.nonce);
        if let Some(backup) = &self.backup {
            let mut told = [0; BackupQp::LEN];
            backup.emit(&mut told);
            data[field::HELLO_FLAGS] = TOLD;
            data[field::TOLD..][..told.len()].copy_from_slice(&told);
        }
    }

    fn head(&self) -> Head {
        let Hello { transaction_id, kind, version, sender_qpn, receiver_qpn, .. } = *self;
        Head { transaction_id, kind, version, sender_qpn, receiver_qpn }
    }
}

impl fmt::Display for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.head().show("failover ", f)?;
        write!(f, " mode {} {} nonce {:032x}", self.mode, self.readiness, u128::from_be_bytes(self.nonce))?;
        self.backup.map_or(Ok(()), |backup| write!(f, " {backup}"))
    }
}

/// One end asks the other what key a region of its default NIC has at its backup NIC.
///
/// As with a negotiation, look for an error status with [`mad::Repr`](super::Repr) before parsing an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RegionQuery {
    /// What ties an answer to its query.
    pub transaction_id: u64,
    /// Query (offer) or answer.
    pub kind: Kind,
    /// Format version of the sender, [`VERSION`] from this code.
    pub version: u8,
    /// QPN of the default queue pair at the sender.
    pub sender_qpn: Qpn,
    /// QPN of the default queue pair at the receiver.
    pub receiver_qpn: Qpn,
    /// The region's key at the default NIC of the end that is asked.
    pub rkey: u32,
    /// The region, in answers only. `None`: there is none with this key, or it is `pending`.
    pub answer: Option<RegionAnswer>,
    /// The region is not at the backup NIC yet: ask again. In answers without a region only.
    pub pending: bool,
}

impl RegionQuery {
    /// Reads a whole MAD.
    pub fn parse(mad: &[u8]) -> Result<RegionQuery, Error> {
        const WHAT: &str = "softnic region MAD";
        let refuse = |why| Error::Malformed { what: WHAT, why };
        let (head, data) = Head::parse(mad, FAILOVER_REGION, WHAT)?;
        let flags = data[field::REGION_FLAGS];
        let (is_told, pending) = (flags & TOLD != 0, flags & PENDING != 0);
        if head.kind == Kind::Offer && (is_told || pending) {
            return Err(refuse("a query that answers"));
        }
        if is_told && pending {
            return Err(refuse("a region is told that is not there yet"));
        }
        let answer = is_told.then(|| RegionAnswer::parse(&array(data, field::TOLD))).transpose().map_err(refuse)?;
        Ok(RegionQuery {
            transaction_id: head.transaction_id,
            kind: head.kind,
            version: head.version,
            sender_qpn: head.sender_qpn,
            receiver_qpn: head.receiver_qpn,
            rkey: be32(data, field::RKEY),
            answer,
            pending,
        })
    }

    /// Bytes that [`RegionQuery::emit`] writes.
    pub const fn buffer_len(&self) -> usize {
        MAD_LEN
    }

    /// Writes a whole MAD.
    ///
    /// # Panics
    /// When `mad` is shorter than [`MAD_LEN`].
    pub fn emit(&self, mad: &mut [u8]) {
        let data = self.head().emit(FAILOVER_REGION, mad);
        put32(data, field::RKEY, self.rkey);
        if self.pending {
            data[field::REGION_FLAGS] |= PENDING;
        }
        if let Some(answer) = &self.answer {
            let mut told = [0; RegionAnswer::LEN];
            answer.emit(&mut told);
            data[field::REGION_FLAGS] |= TOLD;
            data[field::TOLD..][..told.len()].copy_from_slice(&told);
        }
    }

    fn head(&self) -> Head {
        let RegionQuery { transaction_id, kind, version, sender_qpn, receiver_qpn, .. } = *self;
        Head { transaction_id, kind, version, sender_qpn, receiver_qpn }
    }
}

impl fmt::Display for RegionQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.head().show("region ", f)?;
        write!(f, " rkey {:#010x}", self.rkey)?;
        match (self.kind, self.answer) {
            (Kind::Offer, _) => Ok(()),
            (_, Some(answer)) => write!(f, " {answer}"),
            (_, None) if self.pending => f.write_str(" pending"),
            (_, None) => f.write_str(" unknown"),
        }
    }
}
