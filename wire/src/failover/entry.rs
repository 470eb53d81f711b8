//! Entries of a store that both ends can reach: what is behind a queue pair or a region of a default NIC.
//!
//! A key is text, so that people can list them: `softnic:1:qp:<GID, 32 hex digits>:<QPN, 6 hex digits>` for a queue
//! pair and `softnic:1:mr:<GID>:<rkey, 8 hex digits>` for a region, behind the prefix of the store and the version of
//! the format. A value is 80 bytes:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic, `SNFE` |
//! | 4 | 1 | format version, 1 |
//! | 5 | 1 | kind: 1 queue pair, 2 region |
//! | 6 | 2 | reserved |
//! | 8 | 16 | nonce of the writer |
//! | 24 | 40 | a [`BackupQp`], or a [`RegionAnswer`] and zeros |
//! | 64 | 16 | digest of the text of the key and the bytes before, under the nonce |
//!
//! The digest tells bytes that are damaged or stand under another key. It proves nothing about the writer: whoever can
//! write to the store can make one. That the peer knows the nonce is found out in the handshake.

use core::fmt::{self, Write};
use core::net::Ipv6Addr;

use super::mac::{self, Mac, are_equal};
use super::{BackupQp, RegionAnswer};
use crate::Qpn;
use crate::bytes::array;

const MAGIC: [u8; 4] = *b"SNFE";

mod field {
    pub(super) const MAGIC: usize = 0;
    pub(super) const VERSION: usize = 4;
    pub(super) const KIND: usize = 5;
    pub(super) const NONCE: usize = 8;
    pub(super) const BODY: usize = 24;
    pub(super) const DIGEST: usize = 64;
}

const QUEUE_PAIR: u8 = 1;
const REGION: u8 = 2;

/// What an entry is about: an object of a default NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Object {
    /// A queue pair.
    QueuePair {
        /// GID of its NIC.
        gid: Ipv6Addr,
        /// Its number.
        qpn: Qpn,
    },
    /// A memory region.
    Region {
        /// GID of its NIC.
        gid: Ipv6Addr,
        /// Its key.
        rkey: u32,
    },
}

/// The key of an entry; its text is what it displays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EntryKey<'a> {
    /// What all keys of one store begin with, [`EntryKey::PREFIX`] unless the user says another.
    pub prefix: &'a str,
    /// What the entry is about.
    pub object: Object,
}

impl EntryKey<'_> {
    /// The prefix where the user says none.
    pub const PREFIX: &'static str = "softnic";
}

impl fmt::Display for EntryKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.prefix, self.object)
    }
}

/// The text of its key behind the prefix.
impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", Entry::VERSION)?;
        match self {
            Object::QueuePair { gid, qpn } => write!(f, "qp:{:032x}:{:06x}", gid.to_bits(), qpn.value()),
            Object::Region { gid, rkey } => write!(f, "mr:{:032x}:{rkey:08x}", gid.to_bits()),
        }
    }
}

/// What stands behind a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryValue {
    /// Behind a queue pair: its backup.
    QueuePair(BackupQp),
    /// Behind a region: its range, and its key at the backup NIC.
    Region(RegionAnswer),
}

/// An entry of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Entry {
    /// What the writer drew; it says the same in its MADs.
    pub nonce: [u8; 16],
    /// What it tells.
    pub value: EntryValue,
}

/// Why bytes are not the entry of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// There are more of them, or fewer.
    #[error("the entry has {0} bytes, not {len}", len = Entry::LEN)]
    Length(usize),
    /// They begin with something else.
    #[error("the entry does not begin as one")]
    Magic,
    /// A writer of another version.
    #[error("the entry is of version {0}, and this is version {version}", version = Entry::VERSION)]
    Version(u8),
    /// They are damaged, or were written for another key.
    #[error("the entry is damaged, or belongs to another key")]
    Digest,
    /// A field cannot be what it is.
    #[error("the entry has an {0}")]
    Field(&'static str),
}

impl Entry {
    /// Bytes of an entry.
    pub const LEN: usize = 80;
    /// The version of the format, of keys and of values.
    pub const VERSION: u8 = 1;

    /// Reads what a store has under `key`.
    pub fn parse(key: &EntryKey<'_>, bytes: &[u8]) -> Result<Entry, EntryError> {
        let Ok(bytes) = <&[u8; Entry::LEN]>::try_from(bytes) else {
            return Err(EntryError::Length(bytes.len()));
        };
        if array(bytes, field::MAGIC) != MAGIC {
            return Err(EntryError::Magic);
        }
        if bytes[field::VERSION] != Entry::VERSION {
            return Err(EntryError::Version(bytes[field::VERSION]));
        }
        if !are_equal(&array(bytes, field::DIGEST), &digest(key, bytes)) {
            return Err(EntryError::Digest);
        }
        let value = match (bytes[field::KIND], key.object) {
            (QUEUE_PAIR, Object::QueuePair { .. }) => {
                BackupQp::parse(&array(bytes, field::BODY)).map(EntryValue::QueuePair)
            }
            (REGION, Object::Region { .. }) => RegionAnswer::parse(&array(bytes, field::BODY)).map(EntryValue::Region),
            _ => Err("impossible kind"),
        };
        Ok(Entry { nonce: array(bytes, field::NONCE), value: value.map_err(EntryError::Field)? })
    }

    /// Writes what a store is to have under `key`, which is of the same kind.
    pub fn emit(&self, key: &EntryKey<'_>, out: &mut [u8; Entry::LEN]) {
        out.fill(0);
        out[field::MAGIC..][..MAGIC.len()].copy_from_slice(&MAGIC);
        out[field::VERSION] = Entry::VERSION;
        out[field::NONCE..field::BODY].copy_from_slice(&self.nonce);
        match &self.value {
            EntryValue::QueuePair(backup) => {
                out[field::KIND] = QUEUE_PAIR;
                let mut body = [0; BackupQp::LEN];
                backup.emit(&mut body);
                out[field::BODY..][..body.len()].copy_from_slice(&body);
            }
            EntryValue::Region(region) => {
                out[field::KIND] = REGION;
                let mut body = [0; RegionAnswer::LEN];
                region.emit(&mut body);
                out[field::BODY..][..body.len()].copy_from_slice(&body);
            }
        }
        seal(key, out);
    }
}

/// Writes the digest behind the rest.
pub(super) fn seal(key: &EntryKey<'_>, bytes: &mut [u8; Entry::LEN]) {
    let digest = digest(key, bytes);
    bytes[field::DIGEST..].copy_from_slice(&digest);
}

/// The digest of an entry, whatever stands in its place.
fn digest(key: &EntryKey<'_>, bytes: &[u8; Entry::LEN]) -> [u8; mac::LEN] {
    let mut digest = Mac::new(&array(bytes, field::NONCE));
    // Text for a hasher: no error can come of it.
    let _ = write!(digest, "{key}");
    digest.update(&bytes[..field::DIGEST]);
    digest.finish()
}
