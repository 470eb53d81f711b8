//! Failover between two NICs: the status block that each end writes into the memory of the other.
//!
//! The block says the latest state of its writer, whatever was written before: a block that was lost, or comes twice,
//! does no harm. It is written by one WRITE of one packet, and a reader that sees half of it finds no right MAC.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic, `SNFO` |
//! | 4 | 1 | format version, 1 |
//! | 5 | 1 | phase of the writer's sends: 0 default, 1 moving, 2 fallback, 3 wait signaled, 4 wait drained, 5 failed |
//! | 6 | 1 | where the writer's receives are: 0 default, 1 backup |
//! | 7 | 1 | flags: bit 0 refused, bit 1 woke |
//! | 8 | 4 | epoch: switch-overs so far |
//! | 12 | 4 | receives that were complete on the path that was left when the epoch began |
//! | 16 | 5 | reserved |
//! | 21 | 3 | first PSN that the writer sends in the next life of its default queue pair |
//! | 24 | 1 | reserved |
//! | 25 | 3 | the same of its backup queue pair |
//! | 28 | 4 | epoch in which the writer's sends went back to the default, 0 none |
//! | 32 | 16 | reserved |
//! | 48 | 16 | MAC of all bytes before it, under the [secret of the connection](connection_secret) |

mod backup;
mod entry;
mod fuzz;
mod mac;
#[cfg(test)]
pub(crate) mod tests;

pub use backup::{BackupQp, RegionAnswer};
pub use entry::{Entry, EntryError, EntryKey, EntryValue, Object};
#[doc(hidden)]
pub use fuzz::fuzz_failover;
use mac::{Mac, are_equal};

use crate::bytes::{array, be24, be32, put24, put32};
use crate::{Psn, Qpn};

const MAGIC: [u8; 4] = *b"SNFO";
const SECRET_LABEL: &[u8] = b"softnic failover 1 connection";
const PROOF_LABEL: &[u8] = b"softnic failover 1 proof";

mod field {
    pub(super) const MAGIC: usize = 0;
    pub(super) const VERSION: usize = 4;
    pub(super) const PHASE: usize = 5;
    pub(super) const RECV_ON: usize = 6;
    pub(super) const FLAGS: usize = 7;
    pub(super) const EPOCH: usize = 8;
    pub(super) const RECV_COUNT: usize = 12;
    pub(super) const DEFAULT_PSN: usize = 21;
    pub(super) const BACKUP_PSN: usize = 25;
    pub(super) const RETURNED: usize = 28;
    pub(super) const MAC: usize = 48;
}

const REFUSED: u8 = 1 << 0;
const WOKE: u8 = 1 << 1;

/// The secret of one direction of a connection: what each end drew for it, that of the end that writes first.
///
/// The nonces travel in the clear, and stand in the store where there is one. A MAC under this secret proves that its
/// writer knows both: it is of no earlier run, and of nobody who neither listens to the path nor reads the store. Those
/// are not kept out. The other direction has another one: a block that comes back to its writer has no right MAC.
pub fn connection_secret(nonces: [[u8; 16]; 2]) -> [u8; 16] {
    let mut mac = Mac::new(&nonces[0]);
    mac.update(SECRET_LABEL);
    mac.update(&nonces[1]);
    mac.finish()
}

/// The MAC of a [proof](crate::mad::failover::Proof): of the QPNs of its sender and receiver, and of the nonce in it.
pub(crate) fn proof_mac(secret: &[u8; 16], qpns: [Qpn; 2], region_nonce: &[u8; 16]) -> [u8; 16] {
    let mut mac = Mac::new(secret);
    mac.update(PROOF_LABEL);
    qpns.iter().for_each(|qpn| mac.update(&qpn.value().to_be_bytes()));
    mac.update(region_nonce);
    mac.finish()
}

/// How far the sends of one end are (SHIFT, section 4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// On the default path.
    Default,
    /// The path has failed: receives are on the other one, sends wait for the peer's.
    Moving,
    /// On the backup path.
    Fallback,
    /// The default path is back; the next signaled send goes by the backup as the fence.
    WaitSignaled,
    /// The fence is sent; what follows waits on the default path for its completion.
    WaitDrained,
    /// No path is left.
    Failed,
}

impl Phase {
    const ALL: [Phase; 6] =
        [Phase::Default, Phase::Moving, Phase::Fallback, Phase::WaitSignaled, Phase::WaitDrained, Phase::Failed];
}

/// One of the two paths of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// Of the default NIC.
    Default,
    /// Of the backup NIC.
    Backup,
}

impl Side {
    const ALL: [Side; 2] = [Side::Default, Side::Backup];
}

/// What one end of a protected connection tells the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status {
    /// Switch-overs so far, 0 before the first.
    pub epoch: u32,
    /// How far its sends are.
    pub phase: Phase,
    /// Where its receives are.
    pub recv_on: Side,
    /// Receives that were complete on the path that was left when this epoch began, wrapping.
    pub recv_count: u32,
    /// The first PSN that it sends in the next life of its default and of its backup queue pair.
    pub next_psn: [Psn; 2],
    /// The epoch in which its sends went back to the default path; 0 where they never did.
    pub returned: u32,
    /// The first block of this epoch came with an immediate, for which the reader had a receive of its own.
    pub woke: bool,
    /// It does not move: what is outstanding must not be sent again.
    pub refused: bool,
}

/// Why bytes are no status block of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StatusError {
    /// They begin with something else.
    #[error("the status block does not begin as one")]
    Magic,
    /// A writer of another version.
    #[error("the status block is of version {0}, and this is version {version}", version = Status::VERSION)]
    Version(u8),
    /// Nobody who has the secret of the connection wrote them, or not all of them yet.
    #[error("the status block has no right MAC")]
    Mac,
    /// A field cannot be what it is.
    #[error("the status block has an impossible {0}")]
    Field(&'static str),
}

impl Status {
    /// Bytes of a status block.
    pub const LEN: usize = 64;
    /// The version of the format.
    pub const VERSION: u8 = 1;

    /// Reads a block; `None` where nothing has been written yet, which is all zeros.
    pub fn parse(bytes: &[u8; Status::LEN], secret: &[u8; 16]) -> Result<Option<Status>, StatusError> {
        if *bytes == [0; Status::LEN] {
            return Ok(None);
        }
        if array(bytes, field::MAGIC) != MAGIC {
            return Err(StatusError::Magic);
        }
        if bytes[field::VERSION] != Status::VERSION {
            return Err(StatusError::Version(bytes[field::VERSION]));
        }
        if !are_equal(&array(bytes, field::MAC), &mac_of(bytes, secret)) {
            return Err(StatusError::Mac);
        }
        let phase = Phase::ALL.get(usize::from(bytes[field::PHASE]));
        let recv_on = Side::ALL.get(usize::from(bytes[field::RECV_ON]));
        let status = Status {
            epoch: be32(bytes, field::EPOCH),
            phase: *phase.ok_or(StatusError::Field("phase"))?,
            recv_on: *recv_on.ok_or(StatusError::Field("path of receives"))?,
            recv_count: be32(bytes, field::RECV_COUNT),
            next_psn: [field::DEFAULT_PSN, field::BACKUP_PSN].map(|at| Psn::new(be24(bytes, at))),
            returned: be32(bytes, field::RETURNED),
            woke: bytes[field::FLAGS] & WOKE != 0,
            refused: bytes[field::FLAGS] & REFUSED != 0,
        };
        if status.returned > status.epoch {
            return Err(StatusError::Field("epoch of the return"));
        }
        let moved = !matches!(status.phase, Phase::Default | Phase::Failed) || status.recv_on == Side::Backup;
        if moved && status.epoch == 0 {
            return Err(StatusError::Field("epoch"));
        }
        Ok(Some(status))
    }

    /// Writes a block.
    pub fn emit(&self, secret: &[u8; 16], out: &mut [u8; Status::LEN]) {
        out.fill(0);
        out[field::MAGIC..][..MAGIC.len()].copy_from_slice(&MAGIC);
        out[field::VERSION] = Status::VERSION;
        out[field::PHASE] = self.phase as u8;
        out[field::RECV_ON] = self.recv_on as u8;
        out[field::FLAGS] = if self.refused { REFUSED } else { 0 } | if self.woke { WOKE } else { 0 };
        put32(out, field::EPOCH, self.epoch);
        put32(out, field::RECV_COUNT, self.recv_count);
        put24(out, field::DEFAULT_PSN, self.next_psn[0].value());
        put24(out, field::BACKUP_PSN, self.next_psn[1].value());
        put32(out, field::RETURNED, self.returned);
        seal(out, secret);
    }
}

/// Writes the MAC behind the rest.
fn seal(block: &mut [u8; Status::LEN], secret: &[u8; 16]) {
    let mac = mac_of(block, secret);
    block[field::MAC..].copy_from_slice(&mac);
}

/// The MAC of a block, whatever stands in its place.
fn mac_of(block: &[u8; Status::LEN], secret: &[u8; 16]) -> [u8; 16] {
    let mut mac = Mac::new(secret);
    mac.update(&block[..field::MAC]);
    mac.finish()
}
